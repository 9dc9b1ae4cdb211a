//! How long buckets of time are kept, and what they are rolled into then.

use super::Unit;
use crate::counter::duration;
use std::fmt;

/// As it is written that something has no end.
pub const FOREVER: &str = "forever";

/// How long buckets of a unit are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub unit: Unit,
    /// `None`: forever.
    pub ms: Option<u64>,
}

impl Keep {
    /// How long, as it may be written.
    pub fn length(&self) -> String {
        self.ms.map_or(FOREVER.to_owned(), duration::shown_long)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.unit.name(), self.length())
    }
}

/// What a counter says about it: the finest unit first. Without any, buckets are kept forever as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention(Box<[Keep]>);

impl Retention {
    /// In the order of their units.
    pub fn new(keeps: Vec<Keep>) -> Retention {
        debug_assert!(keeps.is_sorted_by(|a, b| a.unit < b.unit));
        Retention(keeps.into())
    }

    pub fn keeps(&self) -> &[Keep] {
        &self.0
    }

    /// The way of a roll-up's buckets: its own unit, and what they are rolled into one after the other. It ends with what is kept
    /// forever, or with what is deleted.
    pub fn way(&self, unit: Unit) -> &[Keep] {
        let way = &self.0[self.0.partition_point(|keep| keep.unit < unit)..];
        match way.iter().position(|keep| keep.ms.is_none()) {
            Some(last) => &way[..=last],
            None => way,
        }
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(Keep::to_string).collect::<Vec<_>>().join(", "))
    }
}
