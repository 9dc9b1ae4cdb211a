//! The servers that are compared. Each runs alone, in a directory of its own on the same disk.

use crate::server::{self, Server};
use anyhow::{Context, Result};
use std::cell::Cell;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    Tally,
    TallyWithoutDedup,
    TallyWithoutRollups,
    TallyOneMillion,
    RedisAlways,
    RedisNone,
    Postgres,
    /// A durable counter server without any logic (`crates/floor`).
    Floor,
    /// Its HTTP side, which answers a constant.
    Axum,
    Nginx,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Peer::Tally => "Tally, `sync`",
            Peer::TallyWithoutDedup => "Tally, `dedup: none`",
            Peer::TallyWithoutRollups => "Tally, no roll-ups",
            Peer::TallyOneMillion => "Tally, 1 M keys",
            Peer::RedisAlways => "Redis, `appendfsync always`",
            Peer::RedisNone => "Redis, no persistence",
            Peer::Postgres => "PostgreSQL, 4 connections",
            Peer::Floor => "*limit*: the floor",
            Peer::Axum => "*limit*: axum, a constant",
            Peer::Nginx => "*limit*: nginx, a constant",
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

/// How large a load is, for those that have to know before.
#[derive(Clone, Copy)]
pub struct Size {
    pub counters: u64,
    /// What a request over HTTP brings.
    pub events: u64,
}

impl Size {
    /// A million counters, a thousand events at a time.
    pub const USUAL: Size = Size { counters: 1_000_000, events: 1000 };
}

pub struct Peers {
    tally: PathBuf,
    floor: PathBuf,
    directory: PathBuf,
    started: Cell<u32>,
}

impl Peers {
    pub fn new(tally: PathBuf, floor: PathBuf, directory: PathBuf) -> Peers {
        Peers { tally, floor, directory, started: Cell::new(0) }
    }

    pub fn tally(&self) -> &Path {
        &self.tally
    }

    /// Starts Tally with one declared counter, or another server, on an empty directory.
    pub fn start(&self, peer: Peer, size: Size) -> Result<Server> {
        match peer {
            Peer::RedisAlways => self.start_redis(&["--appendonly", "yes", "--appendfsync", "always"]),
            Peer::RedisNone => self.start_redis(&["--appendonly", "no"]),
            Peer::Tally | Peer::TallyOneMillion => self.start_declared(CONFIG, &[]),
            Peer::Floor => self.start_floor(size, &[]),
            Peer::Axum => self.start_floor(size, &["--constant"]),
            Peer::Nginx => server::start_nginx(&self.new_data()?, &self.log(), &counted(size.events)),
            Peer::TallyWithoutDedup | Peer::TallyWithoutRollups | Peer::Postgres => {
                unreachable!("{peer} is started where it is measured")
            }
        }
    }

    /// Starts Tally with these counters on an empty directory.
    pub fn start_declared(&self, config: &str, more: &[&str]) -> Result<Server> {
        self.start_declared_on(&self.new_data()?, config, more)
    }

    /// The same on a directory that may have been used before.
    pub fn start_declared_on(&self, data: &Path, config: &str, more: &[&str]) -> Result<Server> {
        self.launch(data, config, more)
    }

    /// Starts Tally with these counters and its archive; answers where that is, too.
    pub fn start_archived(&self, config: &str, more: &[&str]) -> Result<(Server, PathBuf)> {
        let data = self.new_data()?;
        let archive = data.join("archive");
        let path = self.directory.join("counters.yaml");
        fs::write(&path, config)?;
        let path = path.to_str().context("the scratch directory is UTF-8")?;
        let options = [&["--config", path], more].concat();
        Ok((server::start_tally(&self.tally, &data, &self.log(), &options)?.wait_for_tally()?, archive))
    }

    /// Starts Tally on a directory that may have been used before.
    pub fn start_tally(&self, data: &Path, more: &[&str]) -> Result<Server> {
        self.launch(data, CONFIG, more)
    }

    fn launch(&self, data: &Path, config: &str, more: &[&str]) -> Result<Server> {
        let path = self.directory.join("counters.yaml");
        fs::write(&path, config)?;
        let path = path.to_str().context("the scratch directory is UTF-8")?;
        // What is measured is the node; what the archive takes is a row of its own.
        let options = [&["--config", path, "--archive", "none"], more].concat();
        server::start_tally(&self.tally, data, &self.log(), &options)?.wait_for_tally()
    }

    fn start_redis(&self, more: &[&str]) -> Result<Server> {
        server::start_redis(&self.new_data()?, &self.log(), more)
    }

    fn start_floor(&self, size: Size, more: &[&str]) -> Result<Server> {
        let mut command = Command::new(&self.floor);
        let numbers = [size.counters.to_string(), size.events.to_string()];
        command.args(["--counters", &numbers[0], "--events", &numbers[1], "--data"]).arg(self.new_data()?).args(more);
        server::spawn(command, &self.log())?.wait_for_tally()
    }

    fn log(&self) -> PathBuf {
        self.directory.join("stderr")
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

/// What the load generator takes for the answer to so many events.
fn counted(events: u64) -> String {
    format!("{{\"counted\":{events}}}")
}
