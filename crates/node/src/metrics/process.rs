//! What the operating system knows about the process, under the names that every exporter has. Read when a scrape asks.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::fs;

/// Clock ticks of a second in `/proc`, on every Linux that there is.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug)]
pub struct Process;

/// Figures of `/proc/self`.
struct Figures {
    cpu_seconds: f64,
    resident_bytes: i64,
    virtual_bytes: i64,
    threads: i64,
    start_seconds: f64,
    open_fds: i64,
    fds_max: i64,
}

impl Figures {
    /// `None` where there is no `/proc`.
    fn read() -> Option<Figures> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let field = |number: usize| field(&stat, number);
        Some(Figures {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            threads: field(20)? as i64,
            start_seconds: boot_seconds()? + field(22)? / TICKS_PER_SECOND,
            virtual_bytes: field(23)? as i64,
            resident_bytes: resident_bytes()? as i64,
            open_fds: fs::read_dir("/proc/self/fd").ok()?.count() as i64,
            fds_max: fds_max().unwrap_or(i64::MAX),
        })
    }
}

/// The CPU time of the process.
pub struct CpuSeconds {
    pub user: f64,
    pub system: f64,
}

impl CpuSeconds {
    /// `None` where there is no `/proc`.
    pub fn of_process() -> Option<CpuSeconds> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let field = |number: usize| field(&stat, number);
        Some(CpuSeconds { user: field(14)? / TICKS_PER_SECOND, system: field(15)? / TICKS_PER_SECOND })
    }
}

/// What the process has of the machine's memory; `None` where there is no `/proc`.
pub fn resident_bytes() -> Option<u64> {
    // In kilobytes: how large a page is cannot be asked under valgrind.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(resident.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// A field of a process, by its number in the manual.
fn field(stat: &str, number: usize) -> Option<f64> {
    // The name of the program is in brackets, and may have any character in it.
    stat.rsplit_once(") ")?.1.split(' ').nth(number - 3)?.parse().ok()
}

/// When the machine was started, in seconds since 1970.
fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn fds_max() -> Option<i64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    i64::try_from(limit.current?).ok()
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(figures) = Figures::read() else { return Ok(()) };
        let name = "process_cpu_seconds";
        let mut metric =
            encoder.encode_descriptor(name, "CPU time used, user and system", None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&figures.cpu_seconds, None)?;
        gauge(&mut encoder, "process_resident_memory_bytes", "Memory in use", &figures.resident_bytes)?;
        gauge(&mut encoder, "process_virtual_memory_bytes", "Address space in use", &figures.virtual_bytes)?;
        gauge(&mut encoder, "process_threads", "Threads", &figures.threads)?;
        gauge(&mut encoder, "process_open_fds", "Open file descriptors", &figures.open_fds)?;
        gauge(&mut encoder, "process_max_fds", "File descriptors that may be open", &figures.fds_max)?;
        gauge(&mut encoder, "process_start_time_seconds", "When it was started, since 1970", &figures.start_seconds)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: &impl EncodeGaugeValue) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn the_process_knows_itself() {
        let figures = Figures::read().unwrap();
        assert!(figures.resident_bytes > 1 << 20 && figures.resident_bytes < figures.virtual_bytes);
        assert!(figures.threads >= 1 && figures.open_fds > 2 && figures.open_fds <= figures.fds_max);
        let now = clock::wall_ms() as f64 / 1000.0;
        assert!(figures.start_seconds <= now && now - figures.start_seconds < 86_400.0, "{}", figures.start_seconds);
    }
}
