//! `cargo xtask exact`: millions of events, a fifth of them sent more than once, through restarts; afterwards every number
//! must be the one that a naive model of the rule gives. Not one over, not one under.
//!
//! The models know the server only by its answers. `display` needs the log time of each request, since the rule is about
//! windows of it; the server tells it in `GET /v1/commits`. `persistent` needs no time, so its server is killed while requests
//! are under way. `folded` has no model: somebody outside follows the commits, and must have what the server has. `parts` knows
//! of each event where it counts, and so what every part of every roll-up must be.

mod answer;
mod commits;
mod display;
mod folded;
mod life;
mod parts;
mod persistent;
mod request;

use crate::server::Place;
use crate::shell::{self, step};
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Contract {
    /// Each (session, seq) once within two windows
    Display,
    /// Each event id once, for ever
    Persistent,
    /// Who folds a snapshot and the commits behind it has every counter
    Folded,
    /// The parts of every key add up to it, and are where its events say
    Parts,
}

#[derive(Args)]
pub struct ExactArgs {
    /// Which promise is tested; without any, all
    contracts: Vec<Contract>,
    /// How many events are sent for each
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,
    /// How long the server lives between two blows
    #[arg(long, default_value_t = 4.0)]
    seconds_between_kills: f64,
    /// Repeats the choices of an earlier run (timing is never repeated)
    #[arg(long)]
    seed: Option<u64>,
    /// Tests the release build
    #[arg(long)]
    release: bool,
}

impl ExactArgs {
    /// Few events and short lives: what a run of all tests can afford.
    pub fn small() -> ExactArgs {
        ExactArgs { contracts: Vec::new(), events: 300_000, seconds_between_kills: 0.35, seed: None, release: false }
    }

    fn chosen(&self) -> Vec<Contract> {
        if self.contracts.is_empty() { Contract::value_variants().to_vec() } else { self.contracts.clone() }
    }
}

/// What a test of a contract is given.
struct Plan {
    place: Place,
    events: u64,
    life: Duration,
    seed: u64,
}

pub fn run(args: ExactArgs) -> Result<()> {
    const SECONDS_MAX: f64 = 3600.0;
    let seconds = args.seconds_between_kills;
    ensure!(
        seconds > 0.0 && seconds <= SECONDS_MAX,
        "--seconds-between-kills {seconds} is not between 0 and {SECONDS_MAX}"
    );
    let binary = shell::build_tally(args.release)?;
    let seed = args.seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()));
    for contract in args.chosen() {
        let name = format!("{contract:?}").to_lowercase();
        step(&format!("{} {name} events, seed {seed}", args.events));
        let directory = shell::scratch_dir("exact-")?;
        let config = match contract {
            Contract::Display => display::CONFIG,
            Contract::Persistent => persistent::CONFIG,
            Contract::Folded => folded::CONFIG,
            Contract::Parts => parts::CONFIG,
        };
        let mut place = Place::new(binary.clone(), directory.path(), config, "4MiB")?;
        if contract == Contract::Parts {
            // Each view is of a session of its own, and all repeats of two windows have to be known.
            place = place.with_memory("4GiB");
        }
        let plan = Plan { place, events: args.events, life: Duration::from_secs_f64(seconds), seed };
        let started = Instant::now();
        let outcome = match contract {
            Contract::Display => display::run(&plan),
            Contract::Persistent => persistent::run(&plan),
            Contract::Folded => folded::run(&plan),
            Contract::Parts => parts::run(&plan),
        };
        match outcome {
            Ok(summary) => println!("  exact: {summary}, in {:.0} s", started.elapsed().as_secs_f64()),
            Err(error) => {
                let kept = directory.keep();
                let text = format!("{name} is not exact; seed {seed}, data kept in {}", kept.display());
                return Err(error.context(text));
            }
        }
    }
    Ok(())
}
