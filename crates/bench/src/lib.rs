//! A load generator for Tally and, over the Redis protocol, for anything that speaks it. It shares no code with the server it measures.
//!
//! The flow of a run: a [`Load`] → lanes (one per connection) → the driver → a [`Report`]. `tally bench` is its command line.

#![allow(clippy::disallowed_methods, reason = "a load generator measures time; nothing here decides what is counted")]

mod driver;
mod events;
mod http;
mod keys;
mod lane;
mod pace;
mod process;
mod reads;
mod report;
mod resp;

pub use driver::Limit;
pub use events::{EventsShape, Sessions};
pub use keys::{Distribution, KEYS_MAX, KeyPattern};
pub use report::Report;

use driver::Measured;
use keys::Picker;
use lane::{Lane, LaneKind};
use reads::HttpReadLane;
use resp::RespLane;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Duration;

/// What the connections do.
#[derive(Clone, Debug)]
pub enum Questions {
    /// Pipelined INCRs.
    Increments,
    /// Pipelined GETs.
    Reads,
    /// INCRs at full rate, and beside them connections that send one GET at a time.
    Mixed { readers: usize },
    /// `GET` of a path, one at a time, with the key in place of `{}` and with what the server asks for.
    HttpReads { path: String, token: Option<String> },
    /// `POST /v1/events` with NDJSON bodies or compact batches.
    Events(Box<EventsShape>),
}

/// A run with all its settings. Bounds are the caller's business: whoever typed a number is told its name.
pub struct Load {
    pub questions: Questions,
    pub server: SocketAddr,
    /// Said over the Redis protocol, if the server asks for one.
    pub password: Option<String>,
    pub connections: usize,
    /// Commands per question over the Redis protocol.
    pub pipeline: usize,
    pub key: KeyPattern,
    pub keys: u64,
    pub distribution: Distribution,
    pub seed: u64,
    pub limit: Limit,
    /// Operations per second of all connections together; as many as there can be if it is not given.
    pub rate: Option<u64>,
    /// The server's process, if it is on this machine and its CPU and memory are wanted.
    pub server_pid: Option<u32>,
}

/// A run may begin with touching every key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every key is incremented once, in order.
    Preload,
    Load,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("these events cannot be built: {0}")]
    Events(String),
    #[error("the usage of a process is unknown: {0}")]
    Usage(String),
    #[error(transparent)]
    Drive(#[from] io::Error),
}

impl Load {
    /// When a phase ends.
    pub fn limit(&self, phase: Phase) -> Limit {
        match phase {
            Phase::Preload => Limit { operations: self.keys, time: Duration::MAX },
            Phase::Load => self.limit,
        }
    }

    /// How many operations per second a phase makes, if that is bounded.
    fn rate(&self, phase: Phase) -> Option<u64> {
        self.rate.filter(|_| phase == Phase::Load)
    }

    /// Runs one phase. `progress` is called now and then with the operations done and the time passed, and may break it off.
    pub fn run(
        &self,
        phase: Phase,
        progress: impl FnMut(u64, Duration) -> ControlFlow<()>,
    ) -> Result<Report, LoadError> {
        let usage = |pid| process::usage(pid).map_err(LoadError::Usage);
        let server_usage = || self.server_pid.map(|pid| usage(Some(pid))).transpose();
        let (generator_before, server_before) = (usage(None)?, server_usage()?);
        let measured = match phase {
            Phase::Preload => self.preload(progress)?,
            Phase::Load => self.measure(progress)?,
        };
        let server = server_before.zip(server_usage()?).map(|(before, after)| [before, after]);
        Ok(Report::new(self.describe(phase), measured, [generator_before, usage(None)?], server))
    }

    fn preload(&self, progress: impl FnMut(u64, Duration) -> ControlFlow<()>) -> Result<Measured, LoadError> {
        let lanes = self.resp_lanes(LaneKind::Increments, self.connections, self.pipeline);
        self.drive(lanes, Picker::in_order(self.keys), Phase::Preload, progress)
    }

    fn measure(&self, progress: impl FnMut(u64, Duration) -> ControlFlow<()>) -> Result<Measured, LoadError> {
        let picker = Picker::new(self.distribution, self.keys, self.seed);
        let pipelined = |kind| self.resp_lanes(kind, self.connections, self.pipeline);
        let lanes = match &self.questions {
            Questions::Increments => pipelined(LaneKind::Increments),
            Questions::Reads => pipelined(LaneKind::Reads),
            Questions::Mixed { readers } => {
                let mut lanes = pipelined(LaneKind::Increments);
                lanes.extend(self.resp_lanes(LaneKind::Reads, *readers, 1));
                lanes
            }
            Questions::HttpReads { path, token } => {
                let lane = || HttpReadLane::new(&self.server.to_string(), token.as_deref(), path, &self.key);
                let lanes = std::iter::repeat_with(lane).take(self.connections).collect();
                return self.drive(lanes, picker, Phase::Load, progress);
            }
            Questions::Events(shape) => {
                let lanes = events::lanes((**shape).clone(), self.connections).map_err(LoadError::Events)?;
                return self.drive(lanes, picker, Phase::Load, progress);
            }
        };
        self.drive(lanes, picker, Phase::Load, progress)
    }

    fn resp_lanes(&self, kind: LaneKind, connections: usize, pipeline: usize) -> Vec<RespLane> {
        (0..connections).map(|_| RespLane::new(kind, &self.key, pipeline)).collect()
    }

    fn drive<L: Lane>(
        &self,
        lanes: Vec<L>,
        picker: Picker,
        phase: Phase,
        progress: impl FnMut(u64, Duration) -> ControlFlow<()>,
    ) -> Result<Measured, LoadError> {
        let (limit, rate) = (self.limit(phase), self.rate(phase));
        Ok(driver::run(self.server, self.password.as_deref(), lanes, picker, limit, rate, progress)?)
    }

    fn describe(&self, phase: Phase) -> String {
        let op = match self.questions {
            Questions::Increments => "incr",
            Questions::Reads => "get",
            Questions::Mixed { .. } => "mix",
            Questions::HttpReads { .. } => "http-get",
            Questions::Events(_) => "events",
        };
        let question = match &self.questions {
            Questions::Events(shape) if shape.compact => format!("{} events in a batch", shape.events_per_request),
            Questions::Events(shape) => format!("{} events of {} bytes", shape.events_per_request, shape.event_bytes),
            Questions::HttpReads { .. } => "one at a time".to_owned(),
            _ => format!("pipeline {}", self.pipeline),
        };
        let (name, keys) = match phase {
            Phase::Preload => ("preload", "in order".to_owned()),
            Phase::Load => ("load", format!("{:?}", self.distribution).to_lowercase()),
        };
        let limit = self.limit(phase);
        let end = if limit.time < Duration::MAX {
            format!("{:?}", limit.time)
        } else {
            format!("{} operations", limit.operations)
        };
        let pace = self.rate(phase).map(|rate| format!(", {rate} /s")).unwrap_or_default();
        format!("{name}: {op}, {} connections, {question}{pace}, {} keys {keys}, {end}", self.connections, self.keys)
    }
}
