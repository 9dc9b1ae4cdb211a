//! The layouts that a reader of events has seen last, and for each what is worked out once for all events of a type.

use super::body::Form;
use super::layout::Layout;
use super::line::{Line, RecordHead};
use super::scan::Scanner;
use super::shape::{Shape, Values};
use super::{Arrival, received_at_ms};
use crate::limits::{EVENT_BYTES_MAX, NAME_BYTES_MAX};
use hashbrown::HashMap;

/// Layouts that are known at a time: a sender often leaves a field out, or mixes a few kinds of events.
const LAYOUTS_MAX: usize = 4;

/// Types of events that are known of one layout at a time.
const TYPES_MAX: usize = 64;

/// Events that are read in full without learning from them, after a layout that was of no use.
const PAUSE: u32 = 32;

#[derive(Debug)]
pub struct Layouts<P> {
    known: Vec<KnownLayout<P>>,
    /// The one that was found last.
    last: usize,
    /// The one that goes next.
    oldest: usize,
    pause: u32,
    values: Values,
    /// Whether the event that was tried last has a layout that is known.
    was_read: bool,
}

#[derive(Debug)]
struct KnownLayout<P> {
    layout: Layout,
    /// Whether an event had this layout since it was learnt.
    was_useful: bool,
    types: Types<P>,
}

/// The types of events that came in one layout.
#[derive(Debug)]
struct Types<P> {
    planned: Vec<PlannedType<P>>,
    by_name: HashMap<Box<str>, usize>,
    /// The one that was found last.
    last: usize,
}

#[derive(Debug)]
struct PlannedType<P> {
    event_type: Box<str>,
    head: RecordHead,
    plan: P,
}

impl<P> Default for Layouts<P> {
    fn default() -> Layouts<P> {
        Layouts { known: Vec::new(), last: 0, oldest: 0, pause: 0, values: Values::default(), was_read: false }
    }
}

impl<P> Layouts<P> {
    /// Reads the event that `text` begins with, if it has a layout that is known, and answers where it ends. [`Self::found`] has it.
    #[inline]
    pub(super) fn read(&mut self, text: &str, form: Form) -> Option<usize> {
        let Layouts { known, last, values, was_read, .. } = self;
        *was_read = false;
        let end = known.get(*last)?.layout.read(form.scanner(text), values).or_else(|| {
            let (at, end) = read_by_another(known, *last, || form.scanner(text), values)?;
            *last = at;
            Some(end)
        })?;
        *was_read = true;
        // Two more may stand behind it on its line.
        (end <= EVENT_BYTES_MAX - 2).then_some(end)
    }

    /// The event that was read from `text`, and the plan for its type; `None` if no counter can listen to such a type.
    #[inline]
    pub(super) fn found<'a>(
        &'a mut self,
        text: &'a str,
        end: usize,
        arrival: Arrival,
        plan: impl FnOnce(&Shape, &str) -> P,
    ) -> Option<(Line<'a>, &'a P)> {
        let KnownLayout { layout, was_useful, types } = &mut self.known[self.last];
        *was_useful = true;
        let shape = &layout.shape;
        let event_type = &text.as_bytes()[self.values.spans[shape.event_type].range()];
        let received_at_ms = received_at_ms(arrival, self.values.occurred_at_ms);
        let planned = types.find(event_type, |event_type| PlannedType {
            event_type: event_type.into(),
            head: RecordHead::new(event_type, shape, received_at_ms),
            plan: plan(shape, event_type),
        })?;
        if planned.head.received_at_ms() != received_at_ms {
            planned.head = RecordHead::new(&planned.event_type, shape, received_at_ms);
        }
        Some((Line::new(text.as_bytes(), end, shape, &self.values, &planned.head), &planned.plan))
    }

    /// Takes over the layout of the event that `text` begins with and that was read in full without a fault.
    #[cold]
    pub(super) fn learn(&mut self, text: &str) {
        if self.was_read || self.pause > 0 {
            self.pause = self.pause.saturating_sub(1);
            return;
        }
        let Some(layout) = Layout::learn(text) else { return };
        self.values.make_room(layout.parts());
        let known = KnownLayout { layout, was_useful: false, types: Types::default() };
        if self.known.len() < LAYOUTS_MAX {
            self.last = self.known.len();
            return self.known.push(known);
        }
        self.last = self.oldest;
        self.oldest = (self.oldest + 1) % LAYOUTS_MAX;
        if !self.known[self.last].was_useful {
            self.pause = PAUSE;
        }
        self.known[self.last] = known;
    }
}

/// Tries the layouts other than the one at `last`.
#[inline(never)]
fn read_by_another<'a, P>(
    known: &[KnownLayout<P>],
    last: usize,
    scanner: impl Fn() -> Scanner<'a>,
    values: &mut Values,
) -> Option<(usize, usize)> {
    let others = known.iter().enumerate().filter(|(at, _)| *at != last);
    others.map(|(at, other)| Some((at, other.layout.read(scanner(), values)?))).find_map(|read| read)
}

impl<P> Default for Types<P> {
    fn default() -> Types<P> {
        Types { planned: Vec::new(), by_name: HashMap::new(), last: 0 }
    }
}

impl<P> Types<P> {
    #[inline]
    fn find(&mut self, event_type: &[u8], plan: impl FnOnce(&str) -> PlannedType<P>) -> Option<&mut PlannedType<P>> {
        if self.planned.get(self.last).is_none_or(|last| last.event_type.as_bytes() != event_type) {
            self.last = self.look_up(std::str::from_utf8(event_type).ok()?, plan)?;
        }
        self.planned.get_mut(self.last)
    }

    #[inline(never)]
    fn look_up(&mut self, event_type: &str, plan: impl FnOnce(&str) -> PlannedType<P>) -> Option<usize> {
        if let Some(known) = self.by_name.get(event_type) {
            return Some(*known);
        }
        if event_type.len() > NAME_BYTES_MAX {
            return None;
        }
        if self.planned.len() == TYPES_MAX {
            *self = Types::default();
        }
        let at = self.planned.len();
        self.planned.push(plan(event_type));
        self.by_name.insert(event_type.into(), at);
        Some(at)
    }
}
