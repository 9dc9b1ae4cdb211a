//! How much memory the container of this process may use: what its control groups say, of either version, and those above them.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The least bound there is; `None` without one.
pub fn memory_bytes() -> Option<u64> {
    least(Path::new("/sys/fs/cgroup"), &read_to_string("/proc/self/cgroup").ok()?)
}

/// `own` says in which groups a process is: a line `number:controllers:path` for each, without controllers for version 2.
fn least(root: &Path, own: &str) -> Option<u64> {
    let files = own.lines().filter_map(|line| bounds(root, line)).flatten();
    // A group without a bound says "max", or a number beyond every machine.
    files.filter_map(|file| read_to_string(file).ok()?.trim().parse().ok()).min()
}

/// The files that bound the memory of a group and of those above it.
fn bounds(root: &Path, line: &str) -> Option<impl Iterator<Item = PathBuf>> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => (root.to_owned(), "memory.max"),
        _ if controllers.split(',').any(|controller| controller == "memory") => {
            (root.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    // Inside a container the path may be that of the world outside; then only the root is there.
    let groups: Vec<PathBuf> =
        Path::new(path.trim_start_matches('/')).ancestors().map(|group| root.join(group)).collect();
    Some(groups.into_iter().map(move |group| group.join(file)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_least_bound_of_a_group_and_those_above_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |group: &str, file: &str, text: &str| {
            std::fs::create_dir_all(dir.path().join(group)).unwrap();
            std::fs::write(dir.path().join(group).join(file), text).unwrap();
        };
        let least = |own: &str| super::least(dir.path(), own);
        assert_eq!(least("0::/a/b\n"), None);
        write("", "memory.max", "max\n");
        write("a", "memory.max", "3000\n");
        write("a/b", "memory.max", "max\n");
        assert_eq!(least("0::/a/b\n"), Some(3000));
        write("a/b", "memory.max", "2000\n");
        assert_eq!(least("0::/a/b\n"), Some(2000));
        assert_eq!(least("0::/\n"), None);

        write("memory", "memory.limit_in_bytes", "7000\n");
        write("memory/c", "memory.limit_in_bytes", "9223372036854771712\n");
        let first = |path: &str| format!("5:cpu,cpuacct:/x\n4:memory,hugetlb:{path}\n0::/\n");
        assert_eq!(least(&first("/c")), Some(7000));
        assert_eq!(least(&first("/docker/of-the-world-outside")), Some(7000));
        write("memory/c", "memory.limit_in_bytes", "5000\n");
        assert_eq!(least(&first("/c")), Some(5000));
        assert_eq!(least("nonsense\n1:memory\n"), None);
    }
}
