//! What staging asks of an event, however it was read; and what it knows in advance of events of one shape and type.
//!
//! An [`Event`] is asked by the names of its dimensions and fields. Of a [`Line`] a plan says where they stand, which is
//! found out once for all events that look alike; what no counter asks for is never looked at.

use super::{Declarations, Field, Listener};
use crate::event::{Event, Line, Shape};

/// An event as one of the counters that it feeds sees it.
pub(crate) trait Told {
    /// The value of the dimension of this name, the `n`-th of the counter's key.
    fn key_part(&self, n: usize, dimension: &str) -> Option<&[u8]>;

    /// The text of the `n`-th field of the counter's identity.
    fn identity_part(&self, n: usize, field: &Field) -> Option<&[u8]>;

    fn event_id(&self) -> Option<&[u8]>;

    fn seq(&self) -> Option<u64>;

    fn delta(&self) -> i64;

    fn time_ms(&self) -> i64;

    fn received_at_ms(&self) -> u64;

    fn content_hash(&self) -> u64;
}

impl Told for &Event<'_> {
    #[inline]
    fn key_part(&self, _: usize, dimension: &str) -> Option<&[u8]> {
        self.dimension(dimension).map(str::as_bytes)
    }

    #[inline]
    fn identity_part(&self, _: usize, field: &Field) -> Option<&[u8]> {
        let text = match field {
            Field::EventId => self.event_id.as_deref(),
            Field::Session => self.session.as_deref(),
            Field::Type => Some(&*self.event_type),
            Field::Dimension(name) => self.dimension(name),
            Field::Seq => unreachable!("seq is a number, and stands for itself"),
        };
        text.map(str::as_bytes)
    }

    fn event_id(&self) -> Option<&[u8]> {
        self.event_id.as_deref().map(str::as_bytes)
    }

    fn seq(&self) -> Option<u64> {
        self.seq
    }

    fn delta(&self) -> i64 {
        self.delta
    }

    fn time_ms(&self) -> i64 {
        Event::time_ms(self)
    }

    fn received_at_ms(&self) -> u64 {
        self.received_at_ms
    }

    fn content_hash(&self) -> u64 {
        Event::content_hash(self)
    }
}

/// The entries that events of one shape and type make.
#[derive(Debug)]
pub struct Plan {
    entries: Vec<PlannedEntry>,
}

#[derive(Debug)]
struct PlannedEntry {
    listener: Listener,
    /// Which part of the shape is which part of the key; `None` if such events do not have it.
    key: Box<[Option<usize>]>,
    /// The same for the fields of the identity.
    identity: Box<[Option<usize>]>,
}

impl Plan {
    pub(super) fn new(declarations: &Declarations, shape: &Shape, event_type: &str) -> Plan {
        let entry = |listener: &Listener| {
            let counter = declarations.counter(listener.counter);
            let identity = counter.contract.identity().unwrap_or_default();
            PlannedEntry {
                listener: *listener,
                key: counter.dimensions.iter().map(|name| shape.dimension(name)).collect(),
                identity: identity.iter().map(|field| field.part_of(shape)).collect(),
            }
        };
        Plan { entries: declarations.listeners(event_type).iter().map(entry).collect() }
    }

    /// The event for each of the counters that it feeds.
    #[inline]
    pub(super) fn entries<'a>(
        &'a self,
        line: &'a Line<'a>,
    ) -> impl Iterator<Item = (&'a Listener, PlannedLine<'a>)> + Clone {
        self.entries.iter().map(move |entry| (&entry.listener, PlannedLine { line, entry }))
    }
}

impl Field {
    fn part_of(&self, shape: &Shape) -> Option<usize> {
        match self {
            Field::EventId => shape.event_id(),
            Field::Session => shape.session(),
            Field::Type => Some(shape.event_type()),
            Field::Dimension(name) => shape.dimension(name),
            Field::Seq => None,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct PlannedLine<'a> {
    line: &'a Line<'a>,
    entry: &'a PlannedEntry,
}

impl Told for PlannedLine<'_> {
    #[inline(always)]
    fn key_part(&self, n: usize, _: &str) -> Option<&[u8]> {
        self.entry.key[n].map(|part| self.line.part(part))
    }

    #[inline(always)]
    fn identity_part(&self, n: usize, _: &Field) -> Option<&[u8]> {
        self.entry.identity[n].map(|part| self.line.part(part))
    }

    fn event_id(&self) -> Option<&[u8]> {
        self.line.event_id()
    }

    #[inline(always)]
    fn seq(&self) -> Option<u64> {
        self.line.seq()
    }

    #[inline(always)]
    fn delta(&self) -> i64 {
        self.line.delta()
    }

    #[inline(always)]
    fn time_ms(&self) -> i64 {
        self.line.time_ms()
    }

    #[inline(always)]
    fn received_at_ms(&self) -> u64 {
        self.line.received_at_ms()
    }

    fn content_hash(&self) -> u64 {
        self.line.content_hash()
    }
}
