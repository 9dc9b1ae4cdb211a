//! The control log: what everybody must know in one order. A record takes effect in a partition at the first batch there that
//! carries a position behind it, so the order of control and entries is in the partition's own log, and a replay sees it again.

use std::sync::Arc;
use tally_core::counter::{ConfigErrors, Declarations};
use tally_core::ledger::{Delta, Purpose};

#[derive(Clone, Debug)]
pub enum ControlRecord {
    /// Declarations in force from here on.
    Config(Arc<Declarations>),
    /// Lets count what waits and is due by a time. It is a generation.
    LateRun { due_by_ms: u64 },
    /// Changes values: what is right, or what is not. It is a generation.
    Correct { purpose: Purpose, deltas: Vec<Delta> },
    /// Brings counters to 0, where their owners are. It is a generation.
    Clear(Cleared),
    /// Undoes what a correction, a clear or a revert did, where it was done, and is for what that was for. It is a generation.
    Revert { generation: u64 },
}

/// What is cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// One key of a declared counter.
    Key(Vec<u8>),
    /// All keys of a declared counter that there are.
    Counter(Box<str>),
}

impl ControlRecord {
    /// A configuration, under the version that its place in the log gives it.
    pub fn config(yaml: &str, position: u64) -> Result<ControlRecord, ConfigErrors> {
        Ok(ControlRecord::Config(Arc::new(Declarations::parse(yaml)?.with_version(position + 1))))
    }

    pub fn is_generation(&self) -> bool {
        !matches!(self, ControlRecord::Config(_))
    }
}

/// A reader has not read so far as a batch says that there is control. It reads on, and comes back to the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch carries control position {wanted}, and control is known up to {known}")]
pub struct ControlUnknown {
    pub wanted: u64,
    pub known: u64,
}

/// What a reader has of the control log: all of it from the beginning up to somewhere.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a>(pub &'a [ControlRecord]);

impl<'a> Control<'a> {
    pub fn check(&self, wanted: u64) -> Result<(), ControlUnknown> {
        let known = self.0.len() as u64;
        if wanted <= known { Ok(()) } else { Err(ControlUnknown { wanted, known }) }
    }

    /// The records from one position to another.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &'a ControlRecord)> + use<'a> {
        let records = &self.0[from.min(to) as usize..to as usize];
        (from..).zip(records)
    }

    /// The declarations in force at a position.
    pub fn declarations(&self, at: u64) -> Option<&'a Arc<Declarations>> {
        self.0[..at as usize].iter().rev().find_map(|record| match record {
            ControlRecord::Config(declarations) => Some(declarations),
            _ => None,
        })
    }

    /// The same, to be put in force; none at all if nobody has declared anything.
    pub fn copy_of_declarations(&self, at: u64) -> Declarations {
        self.declarations(at).map_or_else(Declarations::default, |known| (**known).clone())
    }

    /// Their version.
    pub fn version(&self, at: u64) -> u64 {
        self.declarations(at).map_or(0, |declarations| declarations.version())
    }

    /// The number of the last generation before a position.
    pub fn generation(&self, at: u64) -> u64 {
        self.0[..at as usize].iter().filter(|record| record.is_generation()).count() as u64
    }
}
