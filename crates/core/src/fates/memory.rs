//! Memories of repeats: each is of a counter, of the fields that make its events unique, and of a window.
//!
//! A counter that changes its fields, or leaves the configuration, leaves its memory at rest. If it comes back to the same fields
//! while the window lasts, it knows its repeats; after that there is nothing left to know.

use crate::counter::{self, Field};
use crate::memory::dedup::Dedup;

pub(crate) struct Memory {
    of: Of,
    pub dedup: Dedup,
}

/// What a memory is of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Of {
    counter: Box<str>,
    by: Box<[Field]>,
    seq: bool,
    window_ms: u64,
}

/// Memories at rest.
#[derive(Default)]
pub(crate) struct Memories(Vec<Memory>);

impl Memory {
    fn new(of: Of) -> Memory {
        Memory { dedup: Dedup::new(of.window_ms), of }
    }

    /// One of the same, at the same time, that remembers nothing.
    pub fn without_groups(&self) -> Memory {
        Memory { of: self.of.clone(), dedup: self.dedup.without_groups() }
    }
}

impl Memories {
    /// A counter is not declared any more, or not like that.
    pub fn rest(&mut self, memory: Option<Memory>) {
        self.0.extend(memory.filter(|memory| memory.dedup.groups() > 0));
    }

    /// The memory of a counter that is declared like this, a new one if there is none.
    pub fn wake(&mut self, name: &str, dedup: &counter::DedupSettings) -> Memory {
        let counter::DedupSettings { by, seq, window_ms, .. } = dedup;
        let of = Of { counter: name.into(), by: by.clone(), seq: *seq, window_ms: *window_ms };
        match self.0.iter().position(|memory| memory.of == of) {
            Some(index) => self.0.swap_remove(index),
            None => Memory::new(of),
        }
    }

    /// Lets go of those that have nothing left to know.
    pub fn let_go(&mut self) {
        self.0.retain(|memory| memory.dedup.groups() > 0);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Memory> {
        self.0.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Memory> {
        self.0.iter_mut()
    }
}
