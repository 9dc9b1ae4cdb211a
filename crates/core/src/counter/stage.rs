//! From an event to its entries: one operation for each counter that it feeds.
//!
//! A pure function of the declarations and the event, and the only one: the running node and a replay stage alike. What
//! an entry needs beside its cell to be judged (its session, its entity, its event id) goes along as a [`Stamp`].

use super::plan::{Plan, Told};
use super::{Clocks, Counter, Declarations, Field, Listener};
use crate::contract::stage_together;
use crate::event::{Event, Line, Shape, raw_dimensions};
use crate::fact;
use crate::head::Group;
use crate::id::{CellHasher, CellKey, SEPARATOR, encode_part};
use crate::limits::ID_BYTES_MAX;
use crate::op::{Op, OpKind, Stamp, Submission};
use std::sync::Arc;

/// Why an event does not count for one of the counters it feeds. The other counters count it all the same, unless they
/// are persistent: those count it all or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection<'d> {
    #[error(
        "counter {counter:?} is counted by dimension {dimension:?}, which the event does not have; \
         add it to \"dimensions\""
    )]
    MissingDimension { counter: &'d str, dimension: &'d str },
    #[error("counter {counter:?} tells events apart by {field:?}, which the event does not have; add it")]
    MissingField { counter: &'d str, field: &'d str },
    #[error(
        "the id of the counter would be longer than {ID_BYTES_MAX} bytes; counter {counter:?} needs shorter dimensions"
    )]
    IdTooLong { counter: &'d str },
    #[error(
        "counter {counter:?} counts this event down, and {delta} cannot be negated in 64 bits; send a smaller delta"
    )]
    DeltaTooLarge { counter: &'d str, delta: i64 },
    #[error(
        "counter {counter:?} is {mode}: an event counts for 1 or -1, and delta is {delta}; send one event for each"
    )]
    NotOne { counter: &'d str, mode: &'static str, delta: i64 },
    #[error(
        "occurredAt is {} ms ahead of the time of arrival, and counter {counter:?} takes at most {} ms (clocks.ahead); \
         set the sender's clock",
        ahead_ms,
        allowed_ms
    )]
    Ahead { counter: &'d str, ahead_ms: u64, allowed_ms: u64 },
    #[error("counter {counter:?} counts this event together with {other:?} or not at all, and {other:?} rejects it")]
    Together { counter: &'d str, other: &'d str },
}

impl<'d> Rejection<'d> {
    /// The counter that does not count it.
    pub fn counter(&self) -> &'d str {
        match *self {
            Rejection::MissingDimension { counter, .. }
            | Rejection::MissingField { counter, .. }
            | Rejection::IdTooLong { counter }
            | Rejection::DeltaTooLarge { counter, .. }
            | Rejection::NotOne { counter, .. }
            | Rejection::Ahead { counter, .. }
            | Rejection::Together { counter, .. } => counter,
        }
    }
}

/// How many entries an event made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Entries whose fate the state decides.
    pub entries: u32,
    pub rejected: u32,
}

/// Stages events under one version of the declarations, with room for ids that is used again and again.
#[derive(Clone, Debug)]
pub struct Stager {
    declarations: Arc<Declarations>,
    desk: StagingDesk,
}

/// What turns one event and one counter into an entry.
#[derive(Clone, Debug)]
pub(crate) struct StagingDesk {
    hasher: CellHasher,
    id: Vec<u8>,
    key: Vec<u8>,
}

pub(crate) struct StagedEntry {
    cell: CellKey,
    arg: i64,
    stamp: Option<Stamp>,
}

impl Stager {
    pub fn new(declarations: Arc<Declarations>, hasher: CellHasher) -> Stager {
        Stager { declarations, desk: StagingDesk { hasher, id: Vec::with_capacity(ID_BYTES_MAX), key: Vec::new() } }
    }

    pub fn declarations(&self) -> &Arc<Declarations> {
        &self.declarations
    }

    /// What staging knows in advance of events of a type that look alike.
    pub fn plan(&self, shape: &Shape, event_type: &str) -> Plan {
        Plan::new(&self.declarations, shape, event_type)
    }

    /// Pushes an operation for each counter that the event feeds; `record_at` is where the event's record begins.
    /// Entries that cannot be counted go to `rejected` as well, with the index of their counter.
    #[inline]
    pub fn stage(
        &mut self,
        event: &Event<'_>,
        record_at: u32,
        out: &mut Submission,
        rejected: &mut impl FnMut(u16, Rejection<'_>),
    ) -> Staged {
        let Stager { declarations, desk } = self;
        let listeners = declarations.listeners(&event.event_type).iter().map(|listener| (listener, event));
        desk.stage(declarations, listeners, record_at, out, rejected)
    }

    /// The same for an event that looks like others, with the plan for that and its type.
    #[inline]
    pub fn stage_line(
        &mut self,
        line: &Line<'_>,
        plan: &Plan,
        record_at: u32,
        out: &mut Submission,
        rejected: &mut impl FnMut(u16, Rejection<'_>),
    ) -> Staged {
        self.desk.stage(&self.declarations, plan.entries(line), record_at, out, rejected)
    }

    /// The same for a copy of the event that was routed by the identity of a group: for the counters of that group alone. The
    /// others are judged by other copies.
    pub fn stage_copy(&mut self, group: Group, event: &Event<'_>, record_at: u32, out: &mut Submission) -> Staged {
        if group == Group::ALL {
            return self.stage(event, record_at, out, &mut |_, _| {});
        }
        let Stager { declarations, desk } = self;
        let listeners = declarations.listeners(&event.event_type).iter();
        let of_group = listeners.filter(|listener| declarations.group_of(listener.counter) == group);
        desk.stage(declarations, of_group.map(|listener| (listener, event)), record_at, out, &mut |_, _| {})
    }
}

pub(crate) fn push(out: &mut Submission, listener: &Listener, record: u32, entry: StagedEntry, staged: &mut Staged) {
    let kind = if entry.stamp.is_some() { OpKind::Entry } else { OpKind::Count };
    out.ops.push(Op { cell: entry.cell, arg: entry.arg, record, counter: listener.counter, kind });
    if let Some(stamp) = entry.stamp {
        out.stamps.push(stamp);
    }
    staged.entries += 1;
}

#[cold]
pub(crate) fn reject(
    out: &mut Submission,
    listener: &Listener,
    record: u32,
    rejection: Rejection<'_>,
    rejected: &mut impl FnMut(u16, Rejection<'_>),
    staged: &mut Staged,
) {
    out.ops.push(Op { cell: CellKey::NONE, arg: 0, record, counter: listener.counter, kind: OpKind::Reject });
    rejected(listener.counter, rejection);
    staged.rejected += 1;
}

impl StagingDesk {
    /// Makes the entries of one event, given for each counter that it feeds.
    #[inline]
    fn stage<'l, T: Told>(
        &mut self,
        declarations: &Declarations,
        listeners: impl Iterator<Item = (&'l Listener, T)> + Clone,
        record_at: u32,
        out: &mut Submission,
        rejected: &mut impl FnMut(u16, Rejection<'_>),
    ) -> Staged {
        let mut staged = Staged::default();
        let mut together = false;
        for (listener, event) in listeners.clone() {
            let counter = declarations.counter(listener.counter);
            out.needs.entry(counter.contract.stream(), counter.durability);
            if counter.contract.counts_together() {
                together = true;
                continue;
            }
            match self.entry(declarations, listener, &event) {
                Ok(entry) => push(out, listener, record_at, entry, &mut staged),
                Err(rejection) => reject(out, listener, record_at, rejection, rejected, &mut staged),
            }
        }
        if together {
            stage_together(declarations, self, listeners, record_at, out, rejected, &mut staged);
        }
        staged
    }

    /// The change an entry makes, and what tells it from others. Its id is left in `id`.
    #[inline]
    pub fn entry<'d>(
        &mut self,
        declarations: &'d Declarations,
        listener: &Listener,
        event: &impl Told,
    ) -> Result<StagedEntry, Rejection<'d>> {
        let counter = declarations.counter(listener.counter);
        counter.entry_id(|n, name| event.key_part(n, name), &mut self.id)?;
        check_clock(counter, declarations.clocks(), event)?;
        let delta = event.delta();
        let arg = listener.op.apply(delta).ok_or(Rejection::DeltaTooLarge { counter: &counter.name, delta })?;
        if !counter.contract.takes_any_delta() && arg.unsigned_abs() != 1 {
            return Err(Rejection::NotOne { counter: &counter.name, mode: counter.mode().name(), delta });
        }
        let stamp = self.stamp(counter, event)?;
        Ok(StagedEntry { cell: self.hasher.key(&self.id), arg, stamp })
    }

    #[inline]
    fn stamp<'d>(&mut self, counter: &'d Counter, event: &impl Told) -> Result<Option<Stamp>, Rejection<'d>> {
        let asked = counter.contract.identify(counter, self, event)?;
        let (key, number) = match asked {
            Some(asked) => asked,
            None if counter.lateness.is_some() => (CellKey::NONE, 0),
            None => return Ok(None),
        };
        Ok(Some(stamp(key, number, event)))
    }

    /// Hashes the values of the fields of a counter's identity; an error is the field that the event does not have.
    #[inline(always)]
    pub fn key<'d>(
        &mut self,
        kind: u8,
        name: &str,
        fields: &'d [Field],
        event: &impl Told,
    ) -> Result<CellKey, &'d str> {
        fact::begin(&mut self.key, kind);
        fact::part(&mut self.key, name.as_bytes());
        for (n, field) in fields.iter().enumerate() {
            let value = event.identity_part(n, field).ok_or_else(|| field.name())?;
            fact::part(&mut self.key, value);
        }
        Ok(self.hasher.key(&self.key))
    }

    pub fn claim(&mut self, event: &impl Told) -> Stamp {
        let id = event.event_id().unwrap_or_default();
        stamp(fact::claim_key(&self.hasher, id, &mut self.key), event.content_hash(), event)
    }
}

#[inline]
fn stamp(key: CellKey, number: u64, event: &impl Told) -> Stamp {
    Stamp { key, number, time_ms: event.time_ms(), received_ms: event.received_at_ms() }
}

/// A clock that runs ahead would win against everything that happens until then.
#[inline]
fn check_clock<'d>(counter: &'d Counter, clocks: Clocks, event: &impl Told) -> Result<(), Rejection<'d>> {
    let ahead_ms = event.time_ms().saturating_sub_unsigned(event.received_at_ms());
    match u64::try_from(ahead_ms) {
        Ok(ahead_ms) if ahead_ms > clocks.ahead_ms => {
            Err(Rejection::Ahead { counter: &counter.name, ahead_ms, allowed_ms: clocks.ahead_ms })
        }
        _ => Ok(()),
    }
}

impl Declarations {
    /// Writes the canonical id of the cell that `event` counts for in counter `index`; `out` holds nothing else.
    pub fn entry_id(&self, index: u16, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Rejection<'_>> {
        self.counter(index).entry_id(|_, name| event.dimension(name).map(str::as_bytes), out)
    }

    /// The same of an entry that was staged, from the bytes of its event in the log.
    pub(crate) fn staged_entry_id(&self, index: u16, event: &[u8], out: &mut Vec<u8>) {
        let value =
            |_, name: &str| raw_dimensions(event).find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value);
        self.counter(index).entry_id(value, out).expect("staging has built this id before");
    }
}

impl Counter {
    /// Writes the canonical id of the cell that an event with these dimensions counts for.
    #[inline]
    fn entry_id<'e>(
        &self,
        key_part: impl Fn(usize, &str) -> Option<&'e [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), Rejection<'_>> {
        out.clear();
        out.extend_from_slice(self.name.as_bytes());
        for (n, dimension) in self.dimensions.iter().enumerate() {
            let missing = Rejection::MissingDimension { counter: &self.name, dimension };
            let value = key_part(n, dimension).ok_or(missing)?;
            // Encoding never shortens, so the room for ids stays bounded whatever an event brings.
            if out.len() + 1 + value.len() > ID_BYTES_MAX {
                return Err(Rejection::IdTooLong { counter: &self.name });
            }
            out.push(SEPARATOR);
            encode_part(value, out);
        }
        if out.len() > ID_BYTES_MAX {
            return Err(Rejection::IdTooLong { counter: &self.name });
        }
        Ok(())
    }
}
