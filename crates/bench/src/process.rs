//! What the operating system says a process has used.

use std::fs;

/// CPU and memory of a process at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
}

/// Reads the usage of process `pid`, or of this one.
pub fn usage(pid: Option<u32>) -> Result<Usage, String> {
    let directory = pid.map_or("/proc/self".to_owned(), |pid| format!("/proc/{pid}"));
    let read = |name: &str| {
        let path = format!("{directory}/{name}");
        fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let ticks = cpu_ticks(&read("stat")?).ok_or("the stat of a process has an unknown form")?;
    let resident = resident_bytes(&read("status")?).ok_or("the status of a process has an unknown form")?;
    Ok(Usage { cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64, resident_bytes: resident })
}

/// User and system time of all threads: fields 14 and 15, counted behind the command, which may contain blanks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_blanks_and_brackets_does_not_shift_the_fields() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 600 30 0 0 20 0 3";
        assert_eq!(cpu_ticks(stat), Some(630));
    }

    #[test]
    fn this_process_has_used_some_memory() {
        assert!(usage(None).unwrap().resident_bytes > 100_000);
        assert!(usage(Some(u32::MAX)).unwrap_err().contains("/proc/4294967295"));
    }
}
