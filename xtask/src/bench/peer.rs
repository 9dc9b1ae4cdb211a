//! The servers that are compared. Each runs alone, in a directory of its own on the same disk.

use crate::server::{self, Server};
use anyhow::{Context, Result};
use std::cell::Cell;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Tally,
    RedisAlways,
    RedisNone,
}

impl Peer {
    pub const ALL: [Peer; 3] = [Peer::Tally, Peer::RedisAlways, Peer::RedisNone];
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Peer::Tally => "Tally, `sync`",
            Peer::RedisAlways => "Redis, `appendfsync always`",
            Peer::RedisNone => "Redis, no persistence",
        })
    }
}

/// One declared counter for the events.
const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules:
      - {on: video.viewed, op: increment}
";

pub struct Peers {
    tally: PathBuf,
    directory: PathBuf,
    started: Cell<u32>,
}

impl Peers {
    pub fn new(tally: PathBuf, directory: PathBuf) -> Peers {
        Peers { tally, directory, started: Cell::new(0) }
    }

    /// Starts a server on an empty directory.
    pub fn start(&self, peer: Peer) -> Result<Server> {
        let data = self.new_data()?;
        match peer {
            Peer::Tally => self.start_tally(&data, &[]),
            Peer::RedisAlways => self.start_redis(&data, &["--appendonly", "yes", "--appendfsync", "always"]),
            Peer::RedisNone => self.start_redis(&data, &["--appendonly", "no"]),
        }
    }

    /// Starts Tally on a directory that may have been used before.
    pub fn start_tally(&self, data: &Path, more: &[&str]) -> Result<Server> {
        let config = self.directory.join("counters.yaml");
        fs::write(&config, CONFIG)?;
        let config = config.to_str().context("the scratch directory is UTF-8")?;
        let options = [&["--config", config], more].concat();
        server::start_tally(&self.tally, data, &self.directory.join("stderr"), &options)?.wait_for_tally()
    }

    fn start_redis(&self, data: &Path, more: &[&str]) -> Result<Server> {
        server::start_redis(data, &self.directory.join("stderr"), more)
    }

    /// Deletes the data of servers that have ended.
    pub fn forget_data(&self) -> Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            if path.is_dir() {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }

    pub fn new_data(&self) -> Result<PathBuf> {
        self.started.set(self.started.get() + 1);
        let data = self.directory.join(format!("data{}", self.started.get()));
        fs::create_dir(&data)?;
        Ok(data)
    }
}
