//! Runs worlds from seeds, on as many threads as there are cores, and prints the seed and the trace of one that fails.
//!
//! `tally-sim --seeds N [--from S] [--world cluster|node] [--jobs N] [--trace]`

use std::process::ExitCode;
use tally_node::clock::Stopwatch;
use tally_sim::WorldKind;
use tally_sim::fault::{Faults, table};
use tally_sim::sweep::{Failed, Seeds, sweep};

/// Lines of a trace that are printed when a seed fails.
const LINES_MAX: usize = 60;

struct Args {
    seeds: Seeds,
    worlds: Vec<WorldKind>,
    jobs: usize,
    trace: bool,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}\nusage: --seeds N [--from S] [--world cluster|node] [--jobs N] [--trace]");
            return ExitCode::FAILURE;
        }
    };
    let mut columns = Vec::new();
    for world in &args.worlds {
        match run_world(*world, &args) {
            Ok(faults) => columns.push((world.name(), faults)),
            Err(failed) => {
                tell(*world, &failed);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("\n{}", table(&columns));
    ExitCode::SUCCESS
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Args, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let seeds = Seeds { from: 0, count: 200 };
    let mut parsed = Args { seeds, worlds: WorldKind::ALL.to_vec(), jobs: cores, trace: false };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match arg.as_str() {
            "--seeds" => parsed.seeds.count = number(value()?)?,
            "--from" => parsed.seeds.from = number(value()?)?,
            "--jobs" => parsed.jobs = number(value()?)?.max(1) as usize,
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

fn run_world(world: WorldKind, args: &Args) -> Result<Faults, Failed> {
    let Seeds { from, count } = args.seeds;
    if args.trace {
        let traces = (from..from + count).map(|seed| tally_sim::run(world, seed, true).trace);
        traces.for_each(|trace| trace.lines.iter().for_each(|line| println!("{line}")));
    }
    let watch = Stopwatch::start();
    let faults = sweep(world, args.seeds, args.jobs)?;
    let seconds = watch.elapsed().as_secs_f64();
    println!(
        "world {}: {count} seeds from {from} on {} threads in {seconds:.1} s, {:.0} a second; {} faults, no failure",
        world.name(),
        args.jobs,
        count as f64 / seconds,
        faults.total(),
    );
    Ok(faults)
}

fn tell(world: WorldKind, failed: &Failed) {
    let Failed { seed, failure } = failed;
    let again = tally_sim::run(world, *seed, true);
    let from = again.trace.lines.len().saturating_sub(LINES_MAX);
    again.trace.lines[from..].iter().for_each(|line| println!("{line}"));
    println!("\nworld {}, seed {seed}: {failure}", world.name());
    println!("again: cargo xtask sim --world {} --from {seed} --seeds 1 --trace", world.name());
}
