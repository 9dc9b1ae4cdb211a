//! What the figures were measured on. No names of hosts or paths: the page is public.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// One sentence about the machine, as far as it tells.
pub fn describe() -> String {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or("unknown CPU".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory_kb: f64 =
        field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0.0);
    let kernel = rustix::system::uname();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{cores} cores ({cpu}), {:.0} GiB of memory, Linux {}, {}; load average before the run {}",
        memory_kb / f64::from(1 << 20),
        kernel.release().to_string_lossy(),
        disk(),
        load.split(' ').next().unwrap_or("unknown")
    )
}

/// Memory of a process that is in RAM.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let text = field(&format!("/proc/{pid}/status"), "VmRSS").context("a server has ended")?;
    let kilobytes: u64 = text.trim_end_matches(" kB").parse().context("VmRSS is not a number")?;
    Ok(kilobytes * 1024)
}

/// The value behind `name` and a colon in a file of such lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|first| first.trim() == name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The kinds of disks that are there.
fn disk() -> String {
    let mut kinds: Vec<String> = fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .map(|entry| kind(&entry.file_name().to_string_lossy(), &entry.path()).to_owned())
        .collect();
    kinds.sort();
    kinds.dedup();
    if kinds.is_empty() { "unknown disk".to_owned() } else { kinds.join(", ") }
}

fn kind(name: &str, path: &Path) -> &'static str {
    let rotational = fs::read_to_string(path.join("queue/rotational")).is_ok_and(|text| text.trim() == "1");
    match name {
        _ if name.starts_with("vd") => "virtio disk",
        _ if name.starts_with("nvme") => "NVMe disk",
        _ if rotational => "rotating disk",
        _ => "solid-state disk",
    }
}
