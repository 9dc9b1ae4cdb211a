//! `cargo xtask sim`: builds the simulation, which is a workspace of its own, and runs seeds.

use crate::shell;
use anyhow::Result;

#[derive(clap::Args)]
pub struct SimArgs {
    /// How many seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this world: cluster or node
    #[arg(long)]
    world: Option<String>,
    /// Print everything that happens
    #[arg(long)]
    trace: bool,
    /// On so many threads; as many as there are cores if nothing is said
    #[arg(long)]
    jobs: Option<u64>,
    /// Built without optimisation, as the named schedules are
    #[arg(long)]
    quick: bool,
}

impl SimArgs {
    /// As part of all tests: what builds fast, and so many seeds that it takes a minute.
    pub fn small() -> SimArgs {
        SimArgs { seeds: 200, from: 0, world: None, trace: false, jobs: None, quick: true }
    }
}

pub fn run(args: &SimArgs) -> Result<()> {
    let (seeds, from) = (args.seeds.to_string(), args.from.to_string());
    let mut command = vec!["run", "--quiet", "--manifest-path", "sim/Cargo.toml", "--target-dir", "target/sim"];
    if !args.quick {
        command.extend(["--profile", "sim"]);
    }
    command.extend(["--", "--seeds", &seeds, "--from", &from]);
    if let Some(world) = &args.world {
        command.extend(["--world", world]);
    }
    let jobs = args.jobs.map(|jobs| jobs.to_string());
    if let Some(jobs) = &jobs {
        command.extend(["--jobs", jobs]);
    }
    if args.trace {
        command.push("--trace");
    }
    shell::run("cargo", &command)
}

/// The named schedules.
pub fn test() -> Result<()> {
    shell::run("cargo", &["test", "--quiet", "--manifest-path", "sim/Cargo.toml", "--target-dir", "target/sim"])
}
