//! A disk that is soon full.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A file system of its own, in memory.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where nobody may mount anything.
    pub fn mount(options: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).status();
        match mounted {
            Ok(status) if status.success() => Some(SmallDisk { dir }),
            other => {
                println!("skipped: a small file system cannot be mounted here ({other:?}); run this as root");
                None
            }
        }
    }

    /// Changes how much there is room for.
    pub fn resize(&self, options: &str) {
        let options = format!("remount,{options}");
        let resized = Command::new("mount").args(["-o", &options]).arg(self.dir.path()).status();
        assert!(resized.unwrap().success(), "{options}");
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Takes all the room there is.
    pub fn fill(&self) {
        let mut bytes = 16 << 20;
        let mut number = fs::read_dir(self.dir.path()).unwrap().count();
        while bytes >= 4096 {
            let path = self.dir.path().join(format!("filler-{number}"));
            if fs::write(&path, vec![1; bytes]).is_err() {
                fs::remove_file(&path).unwrap();
                bytes /= 2;
            }
            number += 1;
        }
    }

    pub fn take_spares(&self) {
        for entry in fs::read_dir(self.data().join("log")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "spare") {
                fs::remove_file(path).unwrap();
            }
        }
    }

    pub fn free(&self) {
        for entry in fs::read_dir(self.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}
