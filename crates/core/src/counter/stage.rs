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
use crate::id::{CellHasher, CellKey, SEPARATOR, write_part};
use crate::limits::ID_BYTES_MAX;
use crate::op::{Op, OpKind, Stamp, Submission};
use crate::pen::{Paper, Part, Scratch};
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

/// Stages events under one version of the declarations, with room that is used again and again.
#[derive(Clone, Debug)]
pub struct Stager {
    declarations: Arc<Declarations>,
    desk: StagingDesk,
}

/// What turns one event and one counter into an entry.
#[derive(Clone, Debug)]
pub(crate) struct StagingDesk {
    hasher: CellHasher,
    scratch: Scratch,
}

impl Stager {
    pub fn new(declarations: Arc<Declarations>, hasher: CellHasher) -> Stager {
        Stager { declarations, desk: StagingDesk { hasher, scratch: Scratch::default() } }
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
            match self.entry(declarations, listener, &event, record_at, out) {
                Ok(()) => staged.entries += 1,
                Err(rejection) => reject(out, listener, record_at, rejection, rejected, &mut staged),
            }
        }
        if together {
            stage_together(declarations, self, listeners, record_at, out, rejected, &mut staged);
        }
        staged
    }

    /// Pushes the change an entry makes, and what tells it from others; nothing if it is rejected.
    #[inline(always)]
    pub fn entry<'d>(
        &mut self,
        declarations: &'d Declarations,
        listener: &Listener,
        event: &impl Told,
        record: u32,
        out: &mut Submission,
    ) -> Result<(), Rejection<'d>> {
        let counter = declarations.counter(listener.counter);
        let cell = self.cell(counter, event)?;
        check_clock(counter, declarations.clocks(), event)?;
        let delta = event.delta();
        let arg = listener.op.apply(delta).ok_or(Rejection::DeltaTooLarge { counter: &counter.name, delta })?;
        if !counter.contract.takes_any_delta() && arg.unsigned_abs() != 1 {
            return Err(Rejection::NotOne { counter: &counter.name, mode: counter.mode().name(), delta });
        }
        let asked = counter.contract.identify(counter, self, event)?;
        let kind = if asked.is_some() || counter.lateness.is_some() { OpKind::Entry } else { OpKind::Count };
        if kind == OpKind::Entry {
            let (key, number) = asked.unwrap_or((CellKey::NONE, 0));
            out.stamps.push(stamp(key, number, event));
        }
        out.ops.push(Op { cell, arg, record, counter: listener.counter, kind });
        Ok(())
    }

    #[inline(always)]
    fn cell<'d>(&mut self, counter: &'d Counter, event: &impl Told) -> Result<CellKey, Rejection<'d>> {
        let name = event.name(counter);
        // In an id a byte of a value takes up to three.
        let mut pen = self.scratch.pen(name.len() + 3 * event.text_bytes(), counter.dimensions.len());
        counter.write_id(name, |n, dimension| event.key_part(n, dimension), &mut pen)?;
        Ok(self.hasher.key(pen.bytes()))
    }

    /// Hashes the values of the fields of a counter's identity; an error is the field that the event does not have.
    #[inline(always)]
    pub fn key<'d>(
        &mut self,
        kind: u8,
        counter: &Counter,
        fields: &'d [Field],
        event: &impl Told,
    ) -> Result<CellKey, &'d str> {
        if let Some(key) = event.known_identity() {
            return Ok(key);
        }
        let name = event.name(counter);
        // A field may be named more than once.
        let mut pen = self.scratch.pen(name.len() + fields.len() * event.text_bytes(), fields.len() + 2);
        pen.byte(kind);
        pen.text(name);
        for (n, field) in fields.iter().enumerate() {
            pen.text(event.identity_part(n, field).ok_or_else(|| field.name())?);
        }
        let key = self.hasher.key(pen.bytes());
        event.learn_identity(key);
        Ok(key)
    }

    pub fn claim(&mut self, event: &impl Told) -> Stamp {
        let id = event.event_id().unwrap_or(Part::exactly(b""));
        stamp(fact::claim_key_in(&self.hasher, id, &mut self.scratch), event.content_hash(), event)
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
        let dimensions = raw_dimensions(event);
        let value = |_, name: &str| dimensions.value(name.as_bytes());
        self.counter(index).entry_id(value, out).expect("staging has built this id before");
    }
}

impl Counter {
    fn entry_id<'e>(
        &self,
        key_part: impl Fn(usize, &str) -> Option<&'e [u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), Rejection<'_>> {
        out.clear();
        self.write_id(Part::exactly(self.id_name()), |n, name| key_part(n, name).map(Part::exactly), out)
    }

    /// Writes the canonical id of the cell that an event with these dimensions counts for.
    #[inline(always)]
    fn write_id<'e>(
        &self,
        name: Part<'_>,
        key_part: impl Fn(usize, &str) -> Option<Part<'e>>,
        out: &mut impl Paper,
    ) -> Result<(), Rejection<'_>> {
        out.put(name);
        for (n, dimension) in self.dimensions.iter().enumerate() {
            let missing = Rejection::MissingDimension { counter: &self.name, dimension };
            let value = key_part(n, dimension).ok_or(missing)?;
            // Encoding never shortens, so the room for ids stays bounded whatever an event brings.
            if out.written() + 1 + value.len() > ID_BYTES_MAX {
                return Err(Rejection::IdTooLong { counter: &self.name });
            }
            out.byte(SEPARATOR);
            write_part(value, out);
        }
        if out.written() > ID_BYTES_MAX {
            return Err(Rejection::IdTooLong { counter: &self.name });
        }
        Ok(())
    }
}
