//! What the figures were measured on. No names of hosts or paths: the page is public.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// One sentence about the machine, as far as it tells.
pub fn describe() -> String {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or("unknown CPU".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = rustix::system::uname();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{cores} cores ({cpu}), {:.0} GiB of memory, Linux {}, {}; load average before the run {}",
        memory_bytes().unwrap_or(0) as f64 / f64::from(1 << 30),
        kernel.release().to_string_lossy(),
        disk(),
        load.split(' ').next().unwrap_or("unknown")
    )
}

/// The memory of the machine.
pub fn memory_bytes() -> Option<u64> {
    let kilobytes: u64 = field("/proc/meminfo", "MemTotal")?.split(' ').next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Processor time of a process, of its children, and of those children that it has seen end.
pub fn family_cpu_seconds(pid: u32) -> Result<f64> {
    let parent = CpuTicks::of(pid).with_context(|| format!("process {pid} has ended"))?;
    let processes = fs::read_dir("/proc")?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children = pids.filter_map(CpuTicks::of).filter(|process| process.parent == pid);
    let ticks = parent.own + parent.ended_children + children.map(|child| child.own).sum::<u64>();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Waits until a process is done with what it does by itself: for ten seconds it takes less than a fiftieth of a core. A store rests between
/// two merges, too.
pub fn wait_for_rest(pid: u32) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < REST_MAX {
        let before = family_cpu_seconds(pid)?;
        std::thread::sleep(REST);
        if family_cpu_seconds(pid)? - before < REST.as_secs_f64() / 50.0 {
            return Ok(());
        }
    }
    bail!("process {pid} has been busy for {REST_MAX:?} after the load")
}

const REST: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(600);

/// Processor time of the threads of a process that are called so.
pub fn thread_cpu_seconds(pid: u32, name: &str) -> Result<f64> {
    let mut ticks = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let path = thread.path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name) {
            let stat = fs::read_to_string(path.join("stat"))?;
            ticks += CpuTicks::parse(&stat).context("a thread has its times")?.own;
        }
    }
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

struct CpuTicks {
    parent: u32,
    own: u64,
    ended_children: u64,
}

impl CpuTicks {
    /// Of a process that is there.
    fn of(pid: u32) -> Option<CpuTicks> {
        CpuTicks::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Fields are counted behind the name, which may contain blanks: 4 is the parent, 14 to 17 are times.
    fn parse(stat: &str) -> Option<CpuTicks> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(CpuTicks {
            parent: number(4)? as u32,
            own: number(14)? + number(15)?,
            ended_children: number(16)? + number(17)?,
        })
    }
}

/// Memory of a process that is in RAM.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS")
}

/// The most that a process has ever had in RAM.
pub fn peak_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmHWM")
}

fn status_bytes(pid: u32, name: &str) -> Result<u64> {
    let text = field(&format!("/proc/{pid}/status"), name).context("a server has ended")?;
    let kilobytes: u64 = text.trim_end_matches(" kB").parse().with_context(|| format!("{name} is not a number"))?;
    Ok(kilobytes * 1024)
}

/// What the files of a directory take, those below it included. Files that go away meanwhile take nothing.
pub fn directory_bytes(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)?.flatten() {
        match entry.metadata() {
            Ok(about) if about.is_dir() => bytes += directory_bytes(&entry.path()).unwrap_or(0),
            Ok(about) => bytes += about.len(),
            Err(_) => {}
        }
    }
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_had_at_least_what_it_has() {
        let pid = std::process::id();
        let resident = resident_bytes(pid).unwrap();
        assert!(resident > 100_000 && peak_bytes(pid).unwrap() >= resident);
    }

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_the_times() {
        let ticks = CpuTicks::parse("42 (a) b) S 7 2 3 4 5 6 7 8 9 10 600 30 4 1 20 0 3").unwrap();
        assert_eq!((ticks.parent, ticks.own, ticks.ended_children), (7, 630, 5));
    }
}
