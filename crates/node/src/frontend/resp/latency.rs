//! How long commands take, by what they do. Commands of a pipeline are answered together, so a slice of it is timed once and
//! counts as many times as it has commands.

use super::connection::End;
use crate::metrics::{Metrics, Timings};
use std::time::Duration;
use tally_core::op::Submission;

pub struct Latency {
    write: Timings,
    read: Timings,
    walk: Timings,
    other: Timings,
}

/// What a slice does: the most expensive of its commands decides.
#[derive(Clone, Copy)]
pub enum Family {
    Write,
    Read,
    Walk,
    Other,
}

impl Family {
    pub fn of(pending: &Submission, end: &End) -> Family {
        match end {
            End::Unit(unit) if unit.is_transaction() => Family::Write,
            End::Unit(_) => Family::Walk,
            _ if pending.record_count > 0 => Family::Write,
            _ if !pending.is_empty() => Family::Read,
            _ => Family::Other,
        }
    }
}

impl Latency {
    pub fn new(metrics: &Metrics) -> Latency {
        let [write, read, walk, other] =
            ["write", "read", "walk", "other"].map(|name| metrics.resp_command_seconds(name));
        Latency { write, read, walk, other }
    }

    pub fn observe(&self, family: Family, took: Duration, commands: u64) {
        let timings = match family {
            Family::Write => &self.write,
            Family::Read => &self.read,
            Family::Walk => &self.walk,
            Family::Other => &self.other,
        };
        timings.observe(took, commands);
    }
}
