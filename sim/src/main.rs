//! Runs worlds from seeds, and prints the seed and the trace of one that fails.
//!
//! `tally-sim --seeds N [--from S] [--world cluster|node] [--trace]`

use std::process::ExitCode;
use tally_sim::fault::Faults;
use tally_sim::{WorldKind, run};

struct Args {
    seeds: u64,
    from: u64,
    worlds: Vec<WorldKind>,
    trace: bool,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}\nusage: --seeds N [--from S] [--world cluster|node] [--trace]");
            return ExitCode::FAILURE;
        }
    };
    args.worlds
        .iter()
        .map(|world| run_world(*world, &args))
        .fold(ExitCode::SUCCESS, |all, one| if one == ExitCode::SUCCESS { all } else { one })
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args { seeds: 200, from: 0, worlds: WorldKind::ALL.to_vec(), trace: false };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match arg.as_str() {
            "--seeds" => parsed.seeds = number(value()?)?,
            "--from" => parsed.from = number(value()?)?,
            "--trace" => parsed.trace = true,
            "--world" => {
                let name = value()?;
                let world = WorldKind::ALL.into_iter().find(|world| world.name() == name);
                parsed.worlds = vec![world.ok_or(format!("there is no world {name}"))?];
            }
            _ => return Err(format!("what is {arg}?")),
        }
    }
    Ok(parsed)
}

fn run_world(world: WorldKind, args: &Args) -> ExitCode {
    let mut faults = Faults::default();
    for seed in args.from..args.from + args.seeds {
        let outcome = run(world, seed, args.trace);
        if args.trace {
            outcome.trace.lines.iter().for_each(|line| println!("{line}"));
        }
        if let Some(failure) = outcome.failure {
            let again = run(world, seed, true);
            let from = again.trace.lines.len().saturating_sub(60);
            again.trace.lines[from..].iter().for_each(|line| println!("{line}"));
            println!("\nworld {}, seed {seed}: {failure}", world.name());
            println!("again: cargo xtask sim --world {} --from {seed} --seeds 1 --trace", world.name());
            return ExitCode::FAILURE;
        }
        faults.add(&outcome.faults);
    }
    println!(
        "world {}: {} seeds from {}, {} faults, no failure\n\n{faults}",
        world.name(),
        args.seeds,
        args.from,
        faults.total()
    );
    ExitCode::SUCCESS
}
