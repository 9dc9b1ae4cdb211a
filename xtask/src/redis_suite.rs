//! `cargo xtask redis-suite`: Redis's own tests, in its external mode, against Tally.
//!
//! The tests are those of the Redis that Debian packages, fetched as its source package and never part of this repository. Tally claims
//! counters and not all of Redis, so `redis-suite.txt` names each test that cannot pass, under the reason why. Every other test has to
//! pass, and a test on that list that passes after all has to leave it.

mod source;

use crate::server::{self, Server};
use crate::shell::{self, step};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of Redis's suite that say something about what Tally has.
const UNITS: [&str; 11] = [
    "unit/type/incr",
    "unit/type/string",
    "unit/expire",
    "unit/keyspace",
    "unit/scan",
    "unit/multi",
    "unit/protocol",
    "unit/quit",
    "unit/introspection",
    "unit/introspection-2",
    "unit/other",
];

/// Tests that cannot pass, each under a line with the reason. Those behind a `!` are not even run, because others would fail with them:
/// they leave the connection in the middle of something.
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
        let mut found = self.run_with(unit, &[])?;
        // A test that cannot pass may have left things behind that make others fail: each of those is run again by itself.
        let surprising: Vec<String> = found.failed.iter().filter(|test| !is_expected(test)).cloned().collect();
        for test in surprising {
            let name = test.strip_prefix(unit).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&test);
            if self.run_with(unit, &["--only", name])?.passed.contains(&test) {
                found.failed.remove(&test);
                found.passed.insert(test);
            }
        }
        println!("  {} passed, {} failed", found.passed.len(), found.failed.len());
        outcome.passed.extend(found.passed);
        outcome.failed.extend(found.failed);
        outcome.said += &found.said;
        Ok(())
    }

    /// Runs a unit on a server of its own, so that it finds nothing that another has left behind.
    fn run_with(&self, unit: &str, options: &[&str]) -> Result<Outcome> {
        let data = tempfile::tempdir_in(self.scratch.path())?;
        let log = self.scratch.path().join("stderr");
        let place = data.path().join("data");
        let server = server::start_tally(&self.binary, &place, &log, &["--memory", "256MiB"])?.wait_for_tally()?;
        let output = run_unit(&self.source, unit, options, &server)?;
        server.stop()?;
        let mut found = Outcome::default();
        found.add(unit, &output)?;
        Ok(found)
    }
}

fn run_unit(source: &Path, unit: &str, options: &[&str], server: &Server) -> Result<String> {
    let (host, port) = (server.resp.ip().to_string(), server.resp.port().to_string());
    let output = Command::new("./runtest")
        .args(["--host", &host, "--port", &port, "--single", unit])
        // Go on behind an error; what a value is encoded as, and its digest, only Redis itself can know.
        .args(["--durable", "--ignore-encoding", "--ignore-digest", "--dont-clean", "--timeout", "300"])
        .args(["--tags", "-needs:debug -needs:repl -needs:save -needs:config-maxmemory -needs:config-resetstat"])
        .args(options)
        .args(skipped(unit).flat_map(|name| ["--skiptest", name]))
        .current_dir(source)
        .output()
        .context("Redis's tests could not be started")?;
    Ok(without_colours(&String::from_utf8_lossy(&output.stdout)))
}

fn is_expected(test: &str) -> bool {
    EXPECTED.lines().any(|line| line == test)
}

/// The tests of a unit that are not run.
fn skipped(unit: &str) -> impl Iterator<Item = &'static str> {
    let of_unit = move |test: &'static str| test.strip_prefix(unit)?.strip_prefix(": ");
    EXPECTED.lines().filter_map(|line| line.strip_prefix("! ")).filter_map(of_unit)
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
        let expected: BTreeSet<String> =
            EXPECTED.lines().map(str::trim_end).filter(|line| line.starts_with("unit/")).map(str::to_owned).collect();
        let listed = |tests: BTreeSet<&String>| tests.into_iter().map(|test| format!("\n  {test}")).collect::<String>();
        let surprising = listed(self.failed.difference(&expected).collect());
        let outdated = listed(expected.difference(&self.failed).collect());
        ensure!(surprising.is_empty(), "these tests of Redis failed:{surprising}");
        ensure!(outdated.is_empty(), "these did not fail, and have to leave xtask/redis-suite.txt:{outdated}");
        println!(
            "\nRedis's own tests: {} passed, 0 failed, {} concern what Tally has not",
            self.passed.len(),
            expected.len() + EXPECTED.lines().filter(|line| line.starts_with('!')).count()
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
