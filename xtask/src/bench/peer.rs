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
    TallyWithoutDedup,
    RedisAlways,
    RedisNone,
    Postgres,
}

impl Peer {
    /// Those that speak the Redis protocol.
    pub const RESP: [Peer; 3] = [Peer::Tally, Peer::RedisAlways, Peer::RedisNone];
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Peer::Tally => "Tally, `sync`",
            Peer::TallyWithoutDedup => "Tally, `dedup: none`",
            Peer::RedisAlways => "Redis, `appendfsync always`",
            Peer::RedisNone => "Redis, no persistence",
            Peer::Postgres => "PostgreSQL, 4 connections",
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

    pub fn tally(&self) -> &Path {
        &self.tally
    }

    /// Starts Tally with one declared counter, or a Redis, on an empty directory.
    pub fn start(&self, peer: Peer) -> Result<Server> {
        match peer {
            Peer::RedisAlways => self.start_redis(&["--appendonly", "yes", "--appendfsync", "always"]),
            Peer::RedisNone => self.start_redis(&["--appendonly", "no"]),
            Peer::Tally => self.start_declared(CONFIG, &[]),
            Peer::TallyWithoutDedup | Peer::Postgres => unreachable!("{peer} is started where it is measured"),
        }
    }

    /// Starts Tally with these counters on an empty directory.
    pub fn start_declared(&self, config: &str, more: &[&str]) -> Result<Server> {
        self.launch(&self.new_data()?, config, more)
    }

    /// Starts Tally on a directory that may have been used before.
    pub fn start_tally(&self, data: &Path, more: &[&str]) -> Result<Server> {
        self.launch(data, CONFIG, more)
    }

    fn launch(&self, data: &Path, config: &str, more: &[&str]) -> Result<Server> {
        let path = self.directory.join("counters.yaml");
        fs::write(&path, config)?;
        let path = path.to_str().context("the scratch directory is UTF-8")?;
        let options = [&["--config", path], more].concat();
        server::start_tally(&self.tally, data, &self.directory.join("stderr"), &options)?.wait_for_tally()
    }

    fn start_redis(&self, more: &[&str]) -> Result<Server> {
        server::start_redis(&self.new_data()?, &self.directory.join("stderr"), more)
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
