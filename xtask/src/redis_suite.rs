//! `cargo xtask redis-suite`: Redis's own tests, in its external mode, against Tally.
//!
//! The tests are those of the Redis that Debian packages, fetched as its source package and never part of this repository. Tally claims
//! counters and not all of Redis, so `redis-suite.txt` names each test that cannot pass, under the reason why. Every other test has to
//! pass, and a test on that list that passes after all has to leave it.

mod source;

use crate::server::{self, Server};
use crate::shell::{self, step};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of Redis's suite that say something about what Tally has.
const UNITS: [&str; 14] = [
    "unit/type/incr",
    "unit/type/string",
    "unit/expire",
    "unit/keyspace",
    "unit/scan",
    "unit/multi",
    "unit/protocol",
    "unit/quit",
    "unit/querybuf",
    "unit/info",
    "unit/info-command",
    "unit/introspection",
    "unit/introspection-2",
    "unit/other",
];

/// Files whose tests look at the clock, some of them for a tenth of a second, some at that of the test and that of the server. On a machine
/// that is busy they may come too late, so they get more than one chance: as a whole, since their tests build on each other.
const TIMED: [&str; 3] = ["unit/type/string", "unit/expire", "unit/multi"];
const CHANCES: usize = 3;

/// Tests that cannot pass, each under a line with the reason. Where only the scenery is something that Tally has not, an arrow leads to the
/// scenario of `crates/node/tests/resp` that says the same of counters.
const EXPECTED: &str = include_str!("../redis-suite.txt");

#[derive(clap::Args, Default)]
pub struct RedisSuiteArgs {
    /// Print the names of the tests that fail, as redis-suite.txt has them, with what was said
    #[arg(long)]
    list: bool,
}

/// What became of the tests, each as "unit: name".
#[derive(Default)]
struct Outcome {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    /// What was said about those that failed.
    said: String,
}

pub fn run(args: RedisSuiteArgs) -> Result<()> {
    let suite = Suite {
        source: source::prepare()?,
        binary: shell::build_tally(false)?,
        scratch: shell::scratch_dir("redis-suite")?,
    };
    let mut outcome = Outcome::default();
    for unit in UNITS {
        step(unit);
        suite.run(unit, &mut outcome)?;
    }
    if args.list {
        println!("{}", outcome.said);
    }
    outcome.check()
}

struct Suite {
    source: PathBuf,
    binary: PathBuf,
    scratch: tempfile::TempDir,
}

impl Suite {
    fn run(&self, unit: &str, outcome: &mut Outcome) -> Result<()> {
        let expected = expected();
        let chances = if TIMED.contains(&unit) { CHANCES } else { 1 };
        let mut found = self.run_once(unit)?;
        for _ in 1..chances {
            if found.failed.iter().all(|test| expected.contains_key(test)) {
                break;
            }
            found = self.run_once(unit)?;
        }
        println!("  {} passed, {} failed", found.passed.len(), found.failed.len());
        outcome.passed.extend(found.passed);
        outcome.failed.extend(found.failed);
        outcome.said += &found.said;
        Ok(())
    }

    /// Runs a unit on a server of its own, so that it finds nothing that another has left behind.
    fn run_once(&self, unit: &str) -> Result<Outcome> {
        let data = tempfile::tempdir_in(self.scratch.path())?;
        let log = self.scratch.path().join("stderr");
        let place = data.path().join("data");
        let server = server::start_tally(&self.binary, &place, &log, &["--memory", "256MiB"])?.wait_for_tally()?;
        let output = run_unit(&self.source, unit, &server)?;
        server.stop()?;
        let mut found = Outcome::default();
        found.add(unit, &output)?;
        Ok(found)
    }
}

fn run_unit(source: &Path, unit: &str, server: &Server) -> Result<String> {
    let (host, port) = (server.resp.ip().to_string(), server.resp.port().to_string());
    let output = Command::new("./runtest")
        .args(["--host", &host, "--port", &port, "--single", unit])
        // Go on behind an error; what a value is encoded as, and its digest, only Redis itself can know.
        .args(["--durable", "--ignore-encoding", "--ignore-digest", "--dont-clean", "--timeout", "300"])
        .args(["--tags", "-needs:repl -needs:save -needs:config-maxmemory"])
        .current_dir(source)
        .output()
        .context("Redis's tests could not be started")?;
    Ok(without_colours(&String::from_utf8_lossy(&output.stdout)))
}

/// The tests that cannot pass, each with the scenario that says the same of counters, if there is one.
fn expected() -> BTreeMap<String, Option<&'static str>> {
    let tests = EXPECTED.lines().filter(|line| line.starts_with("unit/"));
    let split = |line: &'static str| match line.split_once(" -> ") {
        Some((test, scenario)) => (test.to_owned(), Some(scenario)),
        None => (line.to_owned(), None),
    };
    tests.map(split).collect()
}

/// Whether there is a scenario or a test, named as "file: title".
fn is_scenario(named: &str) -> bool {
    let Some((file, title)) = named.split_once(": ") else { return false };
    let path = shell::workspace().join("crates/node/tests/resp").join(file);
    let titles = [format!("== {title}"), format!("fn {title}() {{")];
    fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| titles.iter().any(|title| line == title)))
}

impl Outcome {
    fn add(&mut self, unit: &str, output: &str) -> Result<()> {
        let mut lines = output.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(rest) = line.strip_prefix("[ok]: ") {
                let name = rest.rsplit_once(" (").map_or(rest, |(name, _)| name);
                self.passed.insert(format!("{unit}: {name}"));
            } else if let Some(rest) = line.strip_prefix("[err]: ") {
                let name = rest.rsplit_once(" in tests/").map_or(rest, |(name, _)| name);
                self.failed.insert(format!("{unit}: {name}"));
                self.said += &format!("{unit}: {name}\n    {}\n", lines.peek().unwrap_or(&""));
            }
        }
        ensure!(
            output.contains("The End"),
            "{unit} did not come to its end; its last words:\n{}",
            output.lines().rev().take(15).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        );
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let expected = expected();
        let lost: String = expected
            .values()
            .flatten()
            .filter(|named| !is_scenario(named))
            .map(|named| format!("\n  {named}"))
            .collect();
        ensure!(lost.is_empty(), "xtask/redis-suite.txt names scenarios that do not exist:{lost}");
        let listed = |tests: BTreeSet<&String>| tests.into_iter().map(|test| format!("\n  {test}")).collect::<String>();
        let names: BTreeSet<String> = expected.keys().cloned().collect();
        let surprising = listed(self.failed.difference(&names).collect());
        let outdated = listed(names.difference(&self.failed).collect());
        ensure!(surprising.is_empty(), "these tests of Redis failed:{surprising}");
        ensure!(outdated.is_empty(), "these did not fail, and have to leave xtask/redis-suite.txt:{outdated}");
        println!(
            "\nRedis's own tests: {} passed, 0 failed, {} concern what Tally has not, {} of them are scenarios with counters instead",
            self.passed.len(),
            names.len(),
            expected.values().flatten().count()
        );
        Ok(())
    }
}

fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain += before;
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}
