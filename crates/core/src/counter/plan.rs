//! What staging asks of an event, however it was read; and what it knows in advance of events of one shape and type.
//!
//! An [`Event`] is asked by the names of its dimensions and fields. Of a [`Line`] a plan says where they stand, which is
//! found out once for all events that look alike; what no counter asks for is never looked at.

use super::probes::PROBE;
use super::{Counter, Declarations, Field, Listener};
use crate::event::{Event, Line, Shape};
use crate::id::CellKey;
use crate::pen::{Part, Stamped};
use std::cell::RefCell;

/// An event as one of the counters that it feeds sees it.
pub(crate) trait Told {
    /// All its texts have no more than so many bytes.
    fn text_bytes(&self) -> usize;

    /// The name of the counter, as its ids begin.
    fn name<'a>(&'a self, counter: &'a Counter) -> Part<'a>;

    /// The value of the dimension of this name, the `n`-th of the counter's key.
    fn key_part(&self, n: usize, dimension: &str) -> Option<Part<'_>>;

    /// The text of the `n`-th field of the counter's identity.
    fn identity_part(&self, n: usize, field: &Field) -> Option<Part<'_>>;

    /// The key of its identity, if it is known from an event before.
    fn known_identity(&self) -> Option<CellKey> {
        None
    }

    /// The key of its identity was worked out.
    fn learn_identity(&self, _: CellKey) {}

    fn event_id(&self) -> Option<Part<'_>>;

    fn seq(&self) -> Option<u64>;

    fn delta(&self) -> i64;

    fn time_ms(&self) -> i64;

    fn received_at_ms(&self) -> u64;

    fn content_hash(&self) -> u64;
}

impl Told for &Event<'_> {
    fn text_bytes(&self) -> usize {
        let fields = [Some(&self.event_type), self.event_id.as_ref(), self.session.as_ref()];
        let dimensions = self.dimensions.iter().map(|(_, value)| value.len());
        fields.into_iter().flatten().map(|text| text.len()).chain(dimensions).sum()
    }

    fn name<'a>(&'a self, counter: &'a Counter) -> Part<'a> {
        Part::exactly(counter.id_name())
    }

    #[inline]
    fn key_part(&self, _: usize, dimension: &str) -> Option<Part<'_>> {
        self.dimension(dimension).map(|value| Part::exactly(value.as_bytes()))
    }

    #[inline]
    fn identity_part(&self, _: usize, field: &Field) -> Option<Part<'_>> {
        let text = match field {
            Field::EventId => self.event_id.as_deref(),
            Field::Session => self.session.as_deref(),
            Field::Type => Some(&*self.event_type),
            Field::Dimension(name) => self.dimension(name),
            Field::Seq => unreachable!("seq is a number, and stands for itself"),
        };
        text.map(|text| Part::exactly(text.as_bytes()))
    }

    fn event_id(&self) -> Option<Part<'_>> {
        self.event_id.as_deref().map(|id| Part::exactly(id.as_bytes()))
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
    is_probe: bool,
}

#[derive(Debug)]
struct PlannedEntry {
    listener: Listener,
    name: Stamped,
    /// Which part of the shape is which part of the key; `None` if such events do not have it.
    key: Box<[Option<usize>]>,
    /// The same for the fields of the identity.
    identity: Box<[Option<usize>]>,
    last: RefCell<LastIdentity>,
}

/// A longer one is not remembered: plans are kept.
const LAST_IDENTITY_BYTES_MAX: usize = 256;

/// What made the last event unique. Events of one sender often stand side by side, and then need it hashed once.
#[derive(Debug)]
struct LastIdentity {
    text: Vec<u8>,
    key: CellKey,
}

impl Plan {
    pub(super) fn new(declarations: &Declarations, shape: &Shape, event_type: &str) -> Plan {
        let entry = |listener: &Listener| {
            let counter = declarations.counter(listener.counter);
            let identity = counter.contract.identity().unwrap_or_default();
            PlannedEntry {
                listener: *listener,
                name: Stamped::new(counter.id_name().to_vec()),
                key: counter.dimensions.iter().map(|name| shape.dimension(name)).collect(),
                identity: identity.iter().map(|field| field.part_of(shape)).collect(),
                last: RefCell::new(LastIdentity { text: Vec::new(), key: CellKey::NONE }),
            }
        };
        let entries = declarations.listeners(event_type).iter().map(entry).collect();
        Plan { entries, is_probe: event_type == PROBE }
    }

    /// Whether such events are probes, which not everybody may send.
    #[inline]
    pub fn is_probe(&self) -> bool {
        self.is_probe
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

impl<'a> PlannedLine<'a> {
    /// Its identity, if that is one field; those that are made of several are rare, and hashed each time.
    #[inline(always)]
    fn only_identity(&self) -> Option<&'a [u8]> {
        match *self.entry.identity {
            [Some(part)] => Some(self.line.part(part).bytes()),
            _ => None,
        }
    }
}

impl Told for PlannedLine<'_> {
    #[inline(always)]
    fn text_bytes(&self) -> usize {
        self.line.text_bytes()
    }

    #[inline(always)]
    fn name<'a>(&'a self, _: &'a Counter) -> Part<'a> {
        self.entry.name.part()
    }

    #[inline(always)]
    fn key_part(&self, n: usize, _: &str) -> Option<Part<'_>> {
        self.entry.key[n].map(|part| self.line.part(part))
    }

    #[inline(always)]
    fn known_identity(&self) -> Option<CellKey> {
        let last = self.entry.last.borrow();
        self.only_identity().filter(|identity| last.text == *identity && last.key != CellKey::NONE).map(|_| last.key)
    }

    #[inline(always)]
    fn learn_identity(&self, key: CellKey) {
        if let Some(identity) = self.only_identity().filter(|identity| identity.len() <= LAST_IDENTITY_BYTES_MAX) {
            let mut last = self.entry.last.borrow_mut();
            last.text.clear();
            last.text.extend_from_slice(identity);
            last.key = key;
        }
    }

    #[inline(always)]
    fn identity_part(&self, n: usize, _: &Field) -> Option<Part<'_>> {
        self.entry.identity[n].map(|part| self.line.part(part))
    }

    fn event_id(&self) -> Option<Part<'_>> {
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
