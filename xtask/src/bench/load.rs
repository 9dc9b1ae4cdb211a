//! Runs `tally bench` and understands its report.

use crate::server::Server;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// It begins before the measurement beside it, and ends after it.
const FLOOD_SECONDS_MORE: u32 = 2;

/// What `tally bench --json` prints, as far as it is used here.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    pub seconds: f64,
    pub groups: Vec<Group>,
    pub server: Usage,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    pub name: String,
    pub operations: u64,
    pub operations_per_second: f64,
    pub latency_us: Latency,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Usage {
    pub operations_per_cpu_second: f64,
}

impl Report {
    /// Of all groups together.
    pub fn operations_per_second(&self) -> f64 {
        self.groups.iter().map(|group| group.operations_per_second).sum()
    }

    pub fn operations(&self) -> u64 {
        self.groups.iter().map(|group| group.operations).sum()
    }

    /// Understands what a run printed.
    fn of(output: Output) -> Result<Report> {
        ensure!(output.status.success(), "tally bench failed: {}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let last = text.lines().last().context("tally bench printed nothing")?;
        serde_json::from_str(last).with_context(|| format!("tally bench printed {last}"))
    }
}

/// The medians of several reports, each figure by itself.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Of all groups together.
    pub per_second: f64,
    pub per_cpu_second: f64,
    /// Of the group that was asked for.
    pub latency: Latency,
}

pub struct Generator {
    tally: PathBuf,
    /// Of one measurement.
    pub seconds: u32,
    pub repetitions: usize,
}

impl Generator {
    pub fn new(tally: PathBuf, seconds: u32, repetitions: usize) -> Generator {
        Generator { tally, seconds, repetitions: repetitions.max(1) }
    }

    /// One run over the Redis protocol that ends by itself.
    pub fn resp_once(&self, server: &Server, args: &[&str]) -> Result<Report> {
        self.run(server, &server.resp.to_string(), args)
    }

    /// One timed run over the Redis protocol.
    pub fn resp_timed(&self, server: &Server, args: &[&str], seed: usize) -> Result<Report> {
        self.run_timed(server, &server.resp.to_string(), args, seed)
    }

    /// Several timed runs over the Redis protocol, one after the other.
    pub fn resp(&self, server: &Server, group: &str, args: &[&str]) -> Result<Figure> {
        self.repeat(server, &server.resp.to_string(), group, args)
    }

    /// Several timed runs over HTTP.
    pub fn http(&self, server: &Server, group: &str, args: &[&str]) -> Result<Figure> {
        self.repeat(server, &server.http()?.to_string(), group, args)
    }

    /// One run over HTTP that ends by itself.
    pub fn http_once(&self, server: &Server, args: &[&str]) -> Result<Report> {
        self.run(server, &server.http()?.to_string(), args)
    }

    /// One timed run over HTTP.
    pub fn http_timed(&self, server: &Server, args: &[&str], seed: usize) -> Result<Report> {
        self.run_timed(server, &server.http()?.to_string(), args, seed)
    }

    /// Begins a load over HTTP that lasts a little longer than a measurement.
    pub fn flood(&self, server: &Server, args: &[&str]) -> Result<Flood> {
        let seconds = (self.seconds + FLOOD_SECONDS_MORE).to_string();
        let mut command = self.command(server, &server.http()?.to_string(), &[args, &["--seconds", &seconds]].concat());
        Ok(Flood(command.stdout(Stdio::piped()).spawn().context("tally bench could not be started")?))
    }

    fn repeat(&self, server: &Server, address: &str, group: &str, args: &[&str]) -> Result<Figure> {
        let reports = (1..=self.repetitions).map(|seed| self.run_timed(server, address, args, seed));
        Figure::medians(&reports.collect::<Result<Vec<_>>>()?, group)
    }

    fn run_timed(&self, server: &Server, address: &str, args: &[&str], seed: usize) -> Result<Report> {
        let timed = ["--seconds", &self.seconds.to_string(), "--seed", &seed.to_string()];
        self.run(server, address, &[args, &timed].concat())
    }

    fn run(&self, server: &Server, address: &str, args: &[&str]) -> Result<Report> {
        let output = self.command(server, address, args).output().context("tally bench could not be started")?;
        Report::of(output).with_context(|| format!("tally bench {}", args.join(" ")))
    }

    fn command(&self, server: &Server, address: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tally);
        let pid = server.pid().to_string();
        command.args(["bench", "--json", "--server", address, "--server-pid", &pid]).args(args);
        if !args.contains(&"events") && !args.contains(&"--key-pattern") {
            // Short names, and they stay: a run reads what the one before it has written.
            command.args(["--key-pattern", "v:%08d"]);
        }
        command.stderr(Stdio::inherit());
        command
    }
}

/// A load under way.
pub struct Flood(Child);

impl Flood {
    /// Waits until it ends by itself.
    pub fn finish(self) -> Result<Report> {
        Report::of(self.0.wait_with_output()?).context("the load beside a measurement")
    }
}

impl Figure {
    /// The latencies are those of `group`.
    pub fn medians(reports: &[Report], group: &str) -> Result<Figure> {
        let figures = reports.iter().map(|report| {
            let group = report.groups.iter().find(|g| g.name == group)?;
            Some(Figure {
                per_second: report.operations_per_second(),
                per_cpu_second: report.server.operations_per_cpu_second,
                latency: group.latency_us,
            })
        });
        let figures = figures.collect::<Option<Vec<Figure>>>();
        Ok(Figure::median(&figures.with_context(|| format!("tally bench reported nothing about {group}"))?))
    }

    /// Each number by itself.
    pub fn median(figures: &[Figure]) -> Figure {
        let of = |pick: fn(&Figure) -> f64| median(figures.iter().map(pick).collect());
        Figure {
            per_second: of(|figure| figure.per_second),
            per_cpu_second: of(|figure| figure.per_cpu_second),
            latency: Latency {
                p50: of(|figure| figure.latency.p50),
                p99: of(|figure| figure.latency.p99),
                p999: of(|figure| figure.latency.p999),
            },
        }
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![7.0]), 7.0);
    }
}
