//! Runs `tally bench` and understands its report.

use crate::server::Server;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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
    seconds: String,
    pub repetitions: usize,
}

impl Generator {
    pub fn new(tally: PathBuf, seconds: u32, repetitions: usize) -> Generator {
        Generator { tally, seconds: seconds.to_string(), repetitions: repetitions.max(1) }
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
        let address = server.http.context("the server has no HTTP address")?;
        self.repeat(server, &address.to_string(), group, args)
    }

    fn repeat(&self, server: &Server, address: &str, group: &str, args: &[&str]) -> Result<Figure> {
        let reports = (1..=self.repetitions).map(|seed| self.run_timed(server, address, args, seed));
        Figure::medians(&reports.collect::<Result<Vec<_>>>()?, group)
    }

    fn run_timed(&self, server: &Server, address: &str, args: &[&str], seed: usize) -> Result<Report> {
        let timed = ["--seconds", &self.seconds, "--seed", &seed.to_string()];
        self.run(server, address, &[args, &timed].concat())
    }

    fn run(&self, server: &Server, address: &str, args: &[&str]) -> Result<Report> {
        let mut command = Command::new(&self.tally);
        let pid = server.pid().to_string();
        command.args(["bench", "--json", "--server", address, "--server-pid", &pid]).args(args);
        let output = command.stderr(Stdio::inherit()).output().context("tally bench could not be started")?;
        ensure!(output.status.success(), "tally bench {} failed: {}", args.join(" "), output.status);
        let text = String::from_utf8(output.stdout)?;
        let last = text.lines().last().context("tally bench printed nothing")?;
        serde_json::from_str(last).with_context(|| format!("tally bench printed {last}"))
    }
}

impl Figure {
    /// The latencies are those of `group`.
    pub fn medians(reports: &[Report], group: &str) -> Result<Figure> {
        let latencies = reports
            .iter()
            .map(|report| report.groups.iter().find(|g| g.name == group).map(|g| g.latency_us))
            .collect::<Option<Vec<Latency>>>()
            .with_context(|| format!("tally bench reported nothing about {group}"))?;
        let of_reports = |pick: fn(&Report) -> f64| median(reports.iter().map(pick).collect());
        let of_latencies = |pick: fn(&Latency) -> f64| median(latencies.iter().map(pick).collect());
        Ok(Figure {
            per_second: of_reports(Report::operations_per_second),
            per_cpu_second: of_reports(|report| report.server.operations_per_cpu_second),
            latency: Latency {
                p50: of_latencies(|latency| latency.p50),
                p99: of_latencies(|latency| latency.p99),
                p999: of_latencies(|latency| latency.p999),
            },
        })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
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
