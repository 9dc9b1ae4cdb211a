//! A disk that is soon full.
//!
//! It is mounted by calls and not by programs: until a child has become another program it holds the locks of all directories
//! that tests beside it have open.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::ffi::CString;
use std::fs;
use std::path::PathBuf;

/// A file system of its own, in memory.
pub struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None` where nobody may mount anything.
    pub fn mount(options: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let data = CString::new(options).unwrap();
        match mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), &*data) {
            Ok(()) => Some(SmallDisk { dir }),
            Err(error) => {
                println!("skipped: a small file system cannot be mounted here ({error}); run this as root");
                None
            }
        }
    }

    /// Changes how much there is room for.
    pub fn resize(&self, options: &str) {
        mount_remount(self.dir.path(), MountFlags::empty(), options).expect(options);
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
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}
