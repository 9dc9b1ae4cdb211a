//! `cargo xtask crash`: kills a loaded server again and again, and checks what it remembers.
//!
//! The oracle knows the server only by its protocols. For every key it keeps *acknowledged* and *attempted* apart, since a
//! command whose answer was lost may or may not have counted, and asserts after every restart
//! `acknowledged ≤ value ≤ attempted`. Keys that belong to one connection are held to more: they must be in the state
//! after some first part of that connection's commands. What was found is the base of the next round.

mod cold;
mod commands;
mod events;
mod range;

use crate::client::RespClient;
use crate::random::Random;
use crate::server::{Place, Server};
use crate::shell;
use anyhow::{Context, Result, ensure};
use clap::Args;
use cold::ColdTrial;
use commands::CommandLane;
use events::EventLane;
use range::Ranges;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const COMMAND_LANES: usize = 4;
const EVENT_LANES: usize = 2;
/// How long a round's load lasts at most, in milliseconds.
const LOAD_MS_MAX: u64 = 250;
/// How long after its start a server is killed that is not to become ready, in milliseconds.
const START_MS_MAX: u64 = 60;

#[derive(Args)]
pub struct CrashArgs {
    /// How often the server is killed under load
    #[arg(long, default_value_t = 100)]
    rounds: u32,
    /// Repeats the choices of an earlier run (timing is never repeated)
    #[arg(long)]
    seed: Option<u64>,
    /// Kills the release build
    #[arg(long)]
    release: bool,
    /// Bytes of log after which a checkpoint begins; small, so that kills hit checkpoints
    #[arg(long, default_value = "32KiB")]
    checkpoint_log: String,
    /// Only the part with counters that do not fit into memory
    #[arg(long)]
    cold: bool,
}

impl Default for CrashArgs {
    fn default() -> CrashArgs {
        CrashArgs { rounds: 100, seed: None, release: false, checkpoint_log: "32KiB".to_owned(), cold: false }
    }
}

pub fn run(args: CrashArgs) -> Result<()> {
    let binary = shell::build_tally(args.release)?;
    let seed = args.seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()));
    println!("  seed {seed}, {} rounds", args.rounds);
    if !args.cold {
        in_scratch(seed, |directory| {
            let place = Place::new(binary.clone(), directory, events::CONFIG, &args.checkpoint_log)?;
            Trial::new(place, seed).run(args.rounds)
        })?;
    }
    in_scratch(seed, |directory| {
        let place = Place::new(binary.clone(), directory, "counters: []\n", &args.checkpoint_log)?;
        ColdTrial::new(place.with(&cold::TABLE_MEMORY), seed).run(args.rounds)
    })
}

/// Runs a trial in a directory that is kept if it fails.
fn in_scratch(seed: u64, trial: impl FnOnce(&Path) -> Result<String>) -> Result<()> {
    let directory = shell::scratch_dir("crash-")?;
    let started = Instant::now();
    match trial(directory.path()) {
        Ok(summary) => {
            println!("  held: {summary}, in {:.0} s", started.elapsed().as_secs_f64());
            Ok(())
        }
        Err(error) => {
            let kept = directory.keep();
            Err(error.context(format!("the crash test failed; seed {seed}, data kept in {}", kept.display())))
        }
    }
}

/// How a life of the server ends.
enum End {
    /// SIGKILL.
    Kill,
    /// SIGTERM, which it must answer with exit code 0.
    Stop,
}

/// The whole test: a server that comes and goes, and what must be true of it.
struct Trial {
    place: Place,
    random: Random,
    commands: Vec<CommandLane>,
    events: Vec<EventLane>,
    shared: Ranges,
    counted: Ranges,
}

impl Trial {
    fn new(place: Place, seed: u64) -> Trial {
        let mut random = Random::new(seed);
        Trial {
            place,
            commands: (0..COMMAND_LANES).map(|n| CommandLane::new(n, random.next())).collect(),
            events: (0..EVENT_LANES).map(|n| EventLane::new(n, random.next())).collect(),
            shared: Ranges::new(commands::shared_keys()),
            counted: Ranges::new(events::keys()),
            random,
        }
    }

    fn run(&mut self, rounds: u32) -> Result<String> {
        let (mut stops, mut early_kills, mut slowest) = (0, 0, Duration::ZERO);
        for round in 1..=rounds {
            if self.random.one_in(6) {
                early_kills += 1;
                self.kill_while_starting()?;
            }
            if self.random.one_in(8) {
                stops += 1;
                self.life(End::Stop).with_context(|| format!("the stop before round {round}"))?;
            }
            let ready_after = self.life(End::Kill).with_context(|| format!("round {round}"))?;
            slowest = slowest.max(ready_after);
            if round % 10 == 0 {
                println!("  round {round}: {} operations acknowledged", self.acknowledged());
            }
        }
        let server = self.place.start()?.wait_for_tally()?;
        self.verify(&server).context("after the last round")?;
        server.stop()?;
        self.ensure_it_tested_something()?;
        Ok(format!(
            "{rounds} kills under load, {early_kills} while starting, {stops} stops; {} operations acknowledged; slowest start {} ms",
            self.acknowledged(),
            slowest.as_millis()
        ))
    }

    /// One life of the server: it must know what it should, then it is loaded, then it ends.
    fn life(&mut self, end: End) -> Result<Duration> {
        let server = self.place.start()?.wait_for_tally()?;
        let ready_after = server.ready_after;
        self.verify(&server)?;
        let moment = Duration::from_millis(1 + self.random.below(LOAD_MS_MAX));
        let (resp, http) = (server.resp, server.http()?);
        thread::scope(|scope| {
            let commands = self.commands.iter_mut().map(|lane| scope.spawn(move || lane.run(resp)));
            let events = self.events.iter_mut().map(|lane| scope.spawn(move || lane.run(http)));
            let lanes: Vec<_> = commands.chain(events).collect();
            // The random moment of the blow, not a wait for anything.
            thread::sleep(moment);
            match end {
                End::Stop => server.stop()?,
                End::Kill => server.kill(),
            }
            lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane answers, it does not panic"))
        })?;
        self.commands.iter_mut().for_each(|lane| self.shared.absorb(lane.shared()));
        self.events.iter_mut().for_each(|lane| self.counted.absorb(lane.counted()));
        Ok(ready_after)
    }

    fn kill_while_starting(&mut self) -> Result<()> {
        let starting = self.place.start()?;
        thread::sleep(Duration::from_millis(self.random.below(START_MS_MAX)));
        starting.kill();
        Ok(())
    }

    /// Reads every key; what it finds becomes the truth that the next round starts from.
    fn verify(&mut self, server: &Server) -> Result<()> {
        let mut client = RespClient::connect(server.resp)?;
        for lane in &mut self.commands {
            let found = client.read(&lane.private_keys())?;
            lane.verify(&found)?;
        }
        let found = client.read(self.shared.keys())?;
        self.shared.verify(&found)?;
        let found = client.read(self.counted.keys())?;
        self.counted.verify(&found)?;
        events::verify_sums(self.counted.keys(), &found)
    }

    fn acknowledged(&self) -> u64 {
        self.commands.iter().map(|lane| lane.acknowledged).chain(self.events.iter().map(|lane| lane.acknowledged)).sum()
    }

    fn ensure_it_tested_something(&self) -> Result<()> {
        ensure!(self.commands.iter().all(|lane| lane.acknowledged > 0), "a lane of commands was never acknowledged");
        ensure!(self.events.iter().all(|lane| lane.acknowledged > 0), "a lane of events was never acknowledged");
        Ok(())
    }
}
