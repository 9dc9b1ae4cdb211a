//! The result of a run, for a person and for a program.

use crate::driver::{LaneResult, Measured};
use crate::process::Usage;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;

#[derive(Debug, Serialize)]
pub struct Report {
    pub load: String,
    pub seconds: f64,
    pub groups: Vec<LaneReport>,
    /// Requests that were sent again because the server had too much to do.
    pub retries: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub server: Option<ServerReport>,
    pub generator_cpu_seconds: f64,
}

#[derive(Debug, Serialize)]
pub struct LaneReport {
    pub name: &'static str,
    pub operations: u64,
    pub operations_per_second: f64,
    pub latency_us: Quantiles,
}

/// Of a whole question: all commands of a pipeline, or all events of a request.
#[derive(Debug, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

#[derive(Debug, Serialize)]
pub struct ServerReport {
    pub cpu_seconds: f64,
    pub operations_per_cpu_second: f64,
    pub resident_bytes_before: u64,
    pub resident_bytes_after: u64,
}

impl Report {
    /// `generator` and `server` are the usages before and after the run.
    pub fn new(load: String, measured: Measured, generator: [Usage; 2], server: Option<[Usage; 2]>) -> Report {
        let seconds = measured.elapsed.as_secs_f64().max(1e-9);
        let operations: u64 = measured.groups.iter().map(|group| group.operations).sum();
        Report {
            load,
            seconds,
            groups: measured.groups.iter().map(|group| LaneReport::new(group, seconds)).collect(),
            retries: measured.retries,
            errors: measured.errors.count,
            first_error: measured.errors.first,
            server: server.map(|usage| ServerReport::new(usage, operations)),
            generator_cpu_seconds: generator[1].cpu_seconds - generator[0].cpu_seconds,
        }
    }
}

impl LaneReport {
    fn new(result: &LaneResult, seconds: f64) -> LaneReport {
        LaneReport {
            name: result.group.name(),
            operations: result.operations,
            operations_per_second: result.operations as f64 / seconds,
            latency_us: Quantiles::new(&result.latency_ns),
        }
    }
}

impl Quantiles {
    fn new(histogram: &Histogram<u64>) -> Quantiles {
        let quantile = |q| histogram.value_at_quantile(q) as f64 / 1000.0;
        Quantiles { p50: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999), max: quantile(1.0) }
    }
}

impl ServerReport {
    fn new([before, after]: [Usage; 2], operations: u64) -> ServerReport {
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        ServerReport {
            cpu_seconds,
            // The clock of a process has a resolution of one tick.
            operations_per_cpu_second: operations as f64 / cpu_seconds.max(0.01),
            resident_bytes_before: before.resident_bytes,
            resident_bytes_after: after.resident_bytes,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.load)?;
        for group in &self.groups {
            let latency = &group.latency_us;
            writeln!(
                f,
                "  {:<14} {:>13} /s   {} in {:.2} s",
                group.name,
                thousands(group.operations_per_second),
                thousands(group.operations as f64),
                self.seconds
            )?;
            writeln!(
                f,
                "  {:<14} p50 {}   p99 {}   p999 {}   max {}",
                "  latency",
                time(latency.p50),
                time(latency.p99),
                time(latency.p999),
                time(latency.max)
            )?;
        }
        if let Some(server) = &self.server {
            writeln!(
                f,
                "  {:<14} {:>13} per CPU-second   {:.2} CPU-seconds, {:.1} MB resident",
                "server",
                thousands(server.operations_per_cpu_second),
                server.cpu_seconds,
                server.resident_bytes_after as f64 / 1e6
            )?;
        }
        writeln!(f, "  {:<14} {:.2} CPU-seconds", "generator", self.generator_cpu_seconds)?;
        if self.retries > 0 {
            writeln!(
                f,
                "  {:<14} {} requests were sent again, as the server asked for",
                "retries",
                thousands(self.retries as f64)
            )?;
        }
        match &self.first_error {
            Some(first) => {
                write!(f, "  {:<14} {} of the answers, the first: {first}", "ERRORS", thousands(self.errors as f64))
            }
            None => write!(f, "  {:<14} none", "errors"),
        }
    }
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn time(micros: f64) -> String {
    if micros < 1000.0 { format!("{micros:.0} µs") } else { format!("{:.2} ms", micros / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_in_thousands() {
        for (number, text) in [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (1234567.8, "1,234,568")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn times_have_the_unit_that_reads_best() {
        assert_eq!((time(999.0), time(1500.0)), ("999 µs".to_owned(), "1.50 ms".to_owned()));
    }
}
