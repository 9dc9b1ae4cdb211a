//! `parts`: the parts of every key and of every counter as a whole add up to its value, roll-up by roll-up, and are those of a naive
//! model, by country, device and hour.
//!
//! Several connections send views, likes, unlikes and ads with repeats and altered repeats, and correct keys, while the server is
//! killed in the middle of it. Between two lives, when everything is answered, keys are cleared and clears reverted, since the model
//! has to know what came before and what after.

mod corrector;
mod counters;
mod event;
mod lane;
mod model;
mod verify;

use super::Plan;
use super::life::{End, wait_for_the_blow};
use crate::client::{HttpClient, RespClient};
use crate::random::Random;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
pub use counters::CONFIG;
use counters::{Counter, VIDEOS};
use jiff::Timestamp;
use lane::Lane;
use model::Epochs;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};
use verify::Verifier;

const LANES: u64 = 4;
/// Keys that are looked at after each start; in the end it is all of them.
const KEYS_PER_LIFE: usize = 8;
const CLEARS_PER_LIFE: usize = 4;
/// The longest the last late entries may take to count.
const LATE_MAX: Duration = Duration::from_secs(60);

pub fn run(plan: &Plan) -> Result<String> {
    let mut trial = Trial::new(plan);
    let (mut kills, mut stops) = (0, 0);
    while !trial.lanes.iter().all(Lane::is_done) {
        let end = End::choose(&mut trial.random);
        trial.life(plan, end).with_context(|| format!("life {}", kills + stops + 1))?;
        match end {
            End::Kill => kills += 1,
            End::Stop => stops += 1,
        }
        println!("  {}", trial.told());
    }
    let parts = trial.last_life(plan).context("after the last restart")?;
    trial.ensure_it_tested_something()?;
    Ok(format!("{}; {parts} parts equal; {kills} kills, {stops} stops", trial.told()))
}

/// A key that was cleared.
struct Clear {
    key: (Counter, usize),
    number: u64,
    value: i64,
    epochs: Vec<u32>,
}

struct Trial {
    random: Random,
    since: Timestamp,
    lanes: Vec<Lane>,
    epochs: Epochs,
    /// Those that may be reverted: of each key the last.
    clears: Vec<Clear>,
    cleared: u64,
    brought_back: u64,
    /// What did not come back with a clear because it was undone since.
    undone: i64,
}

impl Trial {
    fn new(plan: &Plan) -> Trial {
        let mut random = Random::new(plan.seed);
        let lane = |n| Lane::new(n, plan.events / LANES, random.next());
        Trial {
            lanes: (0..LANES).map(lane).collect(),
            random,
            since: Timestamp::now(),
            epochs: Epochs::new(),
            clears: Vec::new(),
            cleared: 0,
            brought_back: 0,
            undone: 0,
        }
    }

    /// One life of the server: it gets what it may have lost, must know what it should, is loaded, and ends.
    fn life(&mut self, plan: &Plan, end: End) -> Result<()> {
        let server = plan.place.start()?.wait_for_tally()?;
        let http = server.http()?;
        self.send_again(&server)?;
        self.look(&server)?;
        for _ in 0..CLEARS_PER_LIFE {
            self.clear_or_bring_back(&server)?;
        }
        let moment = plan.life.mul_f64(0.5 + self.random.below(1000) as f64 / 1000.0);
        let epochs = &self.epochs;
        thread::scope(|scope| {
            let lanes: Vec<_> = self.lanes.iter_mut().map(|lane| scope.spawn(move || lane.run(http, epochs))).collect();
            wait_for_the_blow(&lanes, moment);
            end.bring(server)?;
            lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane answers, it does not panic"))
        })
    }

    fn last_life(&mut self, plan: &Plan) -> Result<usize> {
        let server = plan.place.start()?.wait_for_tally()?;
        self.send_again(&server)?;
        let (clears, mut parts) = (std::mem::take(&mut self.clears), 0);
        settle(&server)?;
        for clear in clears.into_iter().step_by(2) {
            self.bring_back(&server, clear)?;
        }
        for counter in Counter::ALL {
            self.verify_values(&server, counter)?;
            for video in [None].into_iter().chain((0..VIDEOS).map(Some)) {
                parts += self.verifier(&server)?.verify(counter, video)?;
            }
        }
        server.stop()?;
        Ok(parts)
    }

    fn send_again(&mut self, server: &Server) -> Result<()> {
        let http = server.http()?;
        self.lanes.iter_mut().try_for_each(|lane| lane.send_again(http, &self.epochs))
    }

    fn verifier(&self, server: &Server) -> Result<Verifier<'_>> {
        Ok(Verifier { client: HttpClient::connect(server.http()?)?, lanes: &self.lanes, since: self.since })
    }

    /// Looks at some keys and at each counter as a whole. Late entries may be waiting, and count while it looks.
    fn look(&mut self, server: &Server) -> Result<()> {
        let keys: Vec<usize> = (0..KEYS_PER_LIFE).map(|_| self.random.below(VIDEOS as u64) as usize).collect();
        let mut verifier = self.verifier(server)?;
        for counter in Counter::ALL.into_iter().filter(|counter| *counter != Counter::Heard) {
            verifier.verify(counter, None)?;
            for video in &keys {
                verifier.verify(counter, Some(*video))?;
            }
        }
        Ok(())
    }

    fn verify_values(&self, server: &Server, counter: Counter) -> Result<()> {
        let verifier = self.verifier(server)?;
        let ids: Vec<String> = (0..VIDEOS).map(|video| counter.id(Some(video))).collect();
        let found = RespClient::connect(server.resp)?.read(&ids)?;
        for (video, found) in found.into_iter().enumerate() {
            let expected = verifier.value(counter, Some(video));
            ensure!(found.unwrap_or(0) == expected, "{} is {found:?} and must be {expected}", ids[video]);
        }
        let whole: i64 = (0..VIDEOS).map(|video| verifier.value(counter, Some(video))).sum();
        ensure!(whole == verifier.value(counter, None), "the model does not add up to itself");
        Ok(())
    }

    fn clear_or_bring_back(&mut self, server: &Server) -> Result<()> {
        if self.random.one_in(3) && !self.clears.is_empty() {
            let chosen = self.random.below(self.clears.len() as u64) as usize;
            let clear = self.clears.swap_remove(chosen);
            return self.bring_back(server, clear);
        }
        let counter = Counter::ALL[self.random.below(Counter::ALL.len() as u64) as usize];
        let video = self.random.below(VIDEOS as u64) as usize;
        if counter == Counter::Heard {
            settle(server)?;
        }
        let value = self.verifier(server)?.value(counter, Some(video));
        // A counter that is 0 has nothing to clear.
        if value == 0 { Ok(()) } else { self.clear(server, (counter, video), value) }
    }

    fn clear(&mut self, server: &Server, key @ (counter, video): (Counter, usize), value: i64) -> Result<()> {
        let path = format!("/v1/counters/{}?reason=test&author=trial", counter.id(Some(video)));
        let answer = self.ask(server, "DELETE", &path)?;
        let number = answer["number"].as_u64().with_context(|| format!("{path} was answered {answer}"))?;
        for lane in &mut self.lanes {
            lane.model.clear(counter, video);
            lane.corrector.clear(counter, video);
        }
        self.lanes[0].corrector.add(counter, None, None, -value);
        self.clears.retain(|clear| clear.key != key);
        self.clears.push(Clear { key, number, value, epochs: self.epochs.clear(key) });
        self.cleared += 1;
        self.verifier(server)?.verify(counter, Some(video)).map(drop).context("right after its clear")
    }

    /// Reverts a clear. What was undone since does not come back.
    fn bring_back(&mut self, server: &Server, clear: Clear) -> Result<()> {
        let Clear { key: key @ (counter, video), number, mut value, epochs } = clear;
        self.ask(server, "POST", &format!("/v1/corrections/{number}/revert"))?;
        let undone =
            |lane: &mut Lane| epochs.iter().map(|epoch| lane.model.take_undone(counter, video, *epoch)).sum::<i64>();
        let undone: i64 = self.lanes.iter_mut().map(undone).sum();
        value -= undone;
        self.undone += undone;
        for video in [None, Some(video)] {
            self.lanes[0].corrector.add(counter, video, None, value);
        }
        self.epochs.bring_back(key, epochs);
        self.brought_back += 1;
        if counter == Counter::Heard {
            return Ok(());
        }
        self.verifier(server)?.verify(counter, Some(video)).map(drop).context("right after its clear was reverted")
    }

    fn ask(&self, server: &Server, method: &str, path: &str) -> Result<Value> {
        let key = format!("{method}-{}-{}", self.cleared, self.brought_back);
        let (status, text) = HttpClient::connect(server.http()?)?.once(method, path, &key, "")?;
        ensure!(status == 200, "{method} {path} was answered {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("{path} was answered {text}"))
    }

    fn told(&self) -> String {
        let sum = |of: fn(&Lane) -> u64| self.lanes.iter().map(of).sum::<u64>();
        format!(
            "{} events; entries: {} counted ({} late), {} duplicates, {} conflicts, {} ignored; {} requests sent again, {} of them had been \
             counted; {} corrections, {} reverted; {} keys cleared, {} of them brought back without \
             {} that were undone",
            sum(|lane| lane.told.events),
            sum(|lane| lane.told.boxes.counted_or_late),
            sum(|lane| lane.told.late),
            sum(|lane| lane.told.boxes.duplicate),
            sum(|lane| lane.told.boxes.conflict),
            sum(|lane| lane.told.boxes.ignored),
            sum(|lane| lane.told.resent),
            sum(|lane| lane.told.counted_unanswered),
            sum(|lane| lane.corrector.applied),
            sum(|lane| lane.corrector.reverted),
            self.cleared,
            self.brought_back,
            self.undone,
        )
    }

    fn ensure_it_tested_something(&self) -> Result<()> {
        let sum = |of: fn(&Lane) -> u64| self.lanes.iter().map(of).sum::<u64>();
        // Whether something cleared is undone before it comes back is up to chance: a short run may have none of it.
        let met = [sum(|lane| lane.told.late), sum(|lane| lane.corrector.reverted), self.cleared, self.brought_back];
        ensure!(met.iter().all(|met| *met > 0), "something was never met: {}; send more --events", self.told());
        Ok(())
    }
}

/// Waits until no late entry waits for its run.
fn settle(server: &Server) -> Result<()> {
    let mut client = HttpClient::connect(server.http()?)?;
    let until = Instant::now() + LATE_MAX;
    loop {
        let balance: Value = serde_json::from_str(&client.get("/v1/balance")?)?;
        if balance["total"]["late"] == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "late entries wait for more than {LATE_MAX:?}: {balance}");
        thread::park_timeout(Duration::from_millis(50));
    }
}
