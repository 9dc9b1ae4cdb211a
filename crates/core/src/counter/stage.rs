//! From an event to its entries: one operation for each counter that it feeds.
//!
//! A pure function of the declarations and the event, and the only one: the running node and a replay stage alike.

use super::{Counter, Declarations, Listener};
use crate::event::Event;
use crate::id::{CellHasher, SEPARATOR, encode_part};
use crate::limits::ID_BYTES_MAX;
use crate::op::{Op, OpKind, Submission};
use std::sync::Arc;

/// Why an event does not count for one of the counters it feeds. The other counters count it all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection<'d> {
    #[error(
        "counter {counter:?} is counted by dimension {dimension:?}, which the event does not have; \
         add it to \"dimensions\""
    )]
    MissingDimension { counter: &'d str, dimension: &'d str },
    #[error(
        "the id of the counter would be longer than {ID_BYTES_MAX} bytes; counter {counter:?} needs shorter dimensions"
    )]
    IdTooLong { counter: &'d str },
    #[error(
        "counter {counter:?} counts this event down, and {delta} cannot be negated in 64 bits; send a smaller delta"
    )]
    DeltaTooLarge { counter: &'d str, delta: i64 },
}

/// How many entries an event made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Operations pushed.
    pub entries: u32,
    pub rejected: u32,
}

/// Stages events under one version of the declarations, with room for ids that is used again and again.
#[derive(Clone, Debug)]
pub struct Stager {
    declarations: Arc<Declarations>,
    hasher: CellHasher,
    id: Vec<u8>,
}

impl Stager {
    pub fn new(declarations: Arc<Declarations>, hasher: CellHasher) -> Stager {
        Stager { declarations, hasher, id: Vec::with_capacity(ID_BYTES_MAX) }
    }

    pub fn declarations(&self) -> &Arc<Declarations> {
        &self.declarations
    }

    /// Pushes an operation for each counter that the event feeds; `record_at` is where the event's record begins.
    /// Entries that cannot be counted go to `rejected`, with the index of their counter.
    #[inline]
    pub fn stage(
        &mut self,
        event: &Event<'_>,
        record_at: u32,
        out: &mut Submission,
        rejected: &mut impl FnMut(u16, Rejection<'_>),
    ) -> Staged {
        let mut staged = Staged::default();
        for listener in self.declarations.listeners(&event.event_type) {
            match entry(&self.declarations, listener, event, &mut self.id) {
                Ok(arg) => {
                    let cell = self.hasher.key(&self.id);
                    out.ops.push(Op { cell, arg, record: record_at, counter: listener.counter, kind: OpKind::Count });
                    staged.entries += 1;
                }
                Err(rejection) => {
                    rejected(listener.counter, rejection);
                    staged.rejected += 1;
                }
            }
        }
        staged
    }
}

/// The change an entry makes; its id is left in `id`.
#[inline]
fn entry<'d>(
    declarations: &'d Declarations,
    listener: &Listener,
    event: &Event<'_>,
    id: &mut Vec<u8>,
) -> Result<i64, Rejection<'d>> {
    let counter = declarations.counter(listener.counter);
    counter.entry_id(event, id)?;
    listener.op.apply(event.delta).ok_or(Rejection::DeltaTooLarge { counter: &counter.name, delta: event.delta })
}

impl Declarations {
    /// Writes the canonical id of the cell that `event` counts for in counter `index`; `out` holds nothing else.
    pub fn entry_id(&self, index: u16, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Rejection<'_>> {
        self.counter(index).entry_id(event, out)
    }
}

impl Counter {
    #[inline]
    fn entry_id(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Rejection<'_>> {
        out.clear();
        out.extend_from_slice(self.name.as_bytes());
        for dimension in &self.dimensions {
            let missing = Rejection::MissingDimension { counter: &self.name, dimension };
            let value = event.dimension(dimension).ok_or(missing)?;
            // Encoding never shortens, so the room for ids stays bounded whatever an event brings.
            if out.len() + 1 + value.len() > ID_BYTES_MAX {
                return Err(Rejection::IdTooLong { counter: &self.name });
            }
            out.push(SEPARATOR);
            encode_part(value.as_bytes(), out);
        }
        if out.len() > ID_BYTES_MAX {
            return Err(Rejection::IdTooLong { counter: &self.name });
        }
        Ok(())
    }
}
