//! Runs `tally bench` and understands its report.

use super::machine;
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
    /// Requests that were sent again because the server had too much to do.
    pub retries: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    /// The most memory that the server has had in RAM so far; read beside the report.
    #[serde(skip)]
    pub peak_bytes: u64,
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
    pub max: f64,
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

    /// Tells its rate to whoever waits.
    pub fn shown(self) -> Report {
        println!("  {:>10.0} /s", self.operations_per_second());
        self
    }

    /// Understands what a run printed. A run with answers that were errors prints its report as well.
    fn of(output: Output) -> Result<Report> {
        let text = String::from_utf8(output.stdout)?;
        let last = text.lines().last().with_context(|| format!("tally bench printed nothing: {}", output.status))?;
        serde_json::from_str(last).with_context(|| format!("tally bench printed {last}"))
    }

    /// The report of a run in which nothing may be refused.
    fn without_errors(self) -> Result<Report> {
        let Report { errors, first_error, .. } = &self;
        ensure!(
            *errors == 0,
            "{errors} answers were errors, the first: {}",
            first_error.as_deref().unwrap_or_default()
        );
        Ok(self)
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
    /// The most memory that the server has had in RAM since it was started, where that is one number.
    pub peak_bytes: Option<f64>,
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

    /// One run that ends by itself. Over which protocol follows from its operation.
    pub fn once(&self, server: &Server, args: &[&str]) -> Result<Report> {
        self.run(server, args)?.without_errors().with_context(|| format!("tally bench {}", args.join(" ")))
    }

    /// One timed run.
    pub fn timed(&self, server: &Server, args: &[&str], seed: usize) -> Result<Report> {
        self.timed_for(server, self.seconds, args, seed)
    }

    /// One run of so many seconds.
    pub fn timed_for(&self, server: &Server, seconds: u32, args: &[&str], seed: usize) -> Result<Report> {
        self.once(server, &[args, &["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]].concat())
    }

    /// Several timed runs, one after the other.
    pub fn repeated(&self, server: &Server, group: &str, args: &[&str]) -> Result<Figure> {
        let reports = (1..=self.repetitions).map(|seed| self.timed(server, args, seed));
        Figure::medians(&reports.collect::<Result<Vec<_>>>()?, group)
    }

    /// One run of so many seconds in which the server may say that it has too much to do (503), but nothing else.
    pub fn refusable(&self, server: &Server, seconds: u32, args: &[&str]) -> Result<Report> {
        let report = self.run(server, &[args, &["--seconds", &seconds.to_string()]].concat())?;
        let refused = report.first_error.as_deref().is_none_or(|first| first.starts_with("HTTP 503"));
        if refused { Ok(report) } else { report.without_errors() }
    }

    /// Begins a load that lasts a little longer than a measurement of so many seconds.
    pub fn flood(&self, server: &Server, seconds: u32, args: &[&str]) -> Result<Flood> {
        let seconds = (seconds + FLOOD_SECONDS_MORE).to_string();
        let mut command = self.command(server, &[args, &["--seconds", &seconds]].concat())?;
        Ok(Flood(command.stdout(Stdio::piped()).spawn().context("tally bench could not be started")?))
    }

    fn run(&self, server: &Server, args: &[&str]) -> Result<Report> {
        let output = self.command(server, args)?.output().context("tally bench could not be started")?;
        let mut report = Report::of(output).with_context(|| format!("tally bench {}", args.join(" ")))?;
        report.peak_bytes = machine::peak_bytes(server.pid())?;
        Ok(report)
    }

    fn command(&self, server: &Server, args: &[&str]) -> Result<Command> {
        let is_http = args.contains(&"events") || args.contains(&"http-get");
        let address = if is_http { server.http()? } else { server.resp }.to_string();
        let mut command = Command::new(&self.tally);
        let pid = server.pid().to_string();
        command.args(["bench", "--json", "--server", &address, "--server-pid", &pid]).args(args);
        if !is_http && !args.contains(&"--key-pattern") {
            // Short names, and they stay: a run reads what the one before it has written.
            command.args(["--key-pattern", "v:%08d"]);
        }
        command.stderr(Stdio::inherit());
        Ok(command)
    }
}

/// A load under way.
pub struct Flood(Child);

impl Flood {
    /// Waits until it ends by itself.
    pub fn finish(self) -> Result<Report> {
        Report::of(self.0.wait_with_output()?)?.without_errors().context("the load beside a measurement")
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
                peak_bytes: Some(report.peak_bytes as f64),
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
                max: of(|figure| figure.latency.max),
            },
            peak_bytes: figures.iter().map(|figure| figure.peak_bytes).collect::<Option<Vec<_>>>().map(median),
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

    #[test]
    fn an_answer_that_was_an_error_fails_a_run() {
        let report = |errors, first_error: Option<&str>| Report {
            seconds: 1.0,
            groups: Vec::new(),
            server: Usage { operations_per_cpu_second: 1.0 },
            errors,
            retries: 0,
            first_error: first_error.map(str::to_owned),
            peak_bytes: 0,
        };
        assert!(report(0, None).without_errors().is_ok());
        assert!(report(2, Some("HTTP 503: busy")).without_errors().unwrap_err().to_string().contains("HTTP 503"));
    }
}
