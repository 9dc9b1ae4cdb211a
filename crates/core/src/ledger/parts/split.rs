//! How what is counted for a key is split, as all roll-ups of its counter together need it.

use crate::counter::rollup::{Minutes, Unit, Zone};
use crate::id::CellKey;
use crate::limits::{ROLLUP_DIMENSIONS_MAX, ROLLUPS_MAX};
use crate::record::{DecodeError, put_bytes, take_bytes};

/// How entries of a counter are split, all its roll-ups together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// All that any roll-up asks for.
    pub dimensions: Box<[Box<str>]>,
    /// The finest that any of them asks for.
    pub unit: Option<Unit>,
    pub zone: Zone,
    /// The cell of the counter as a whole, if it is not its only key.
    pub whole: Option<CellKey>,
    /// Those that decide what is admitted come first.
    pub rollups: Box<[SplitRollup]>,
}

/// One roll-up of a [`Split`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitRollup {
    /// Its number on disk, never used for another one of the counter.
    pub number: u16,
    /// Which of the split's dimensions, in its own order.
    pub dimensions: Box<[u8]>,
    pub unit: Option<Unit>,
    /// So many values of its only dimension are admitted; as many as a row may have if it does not say.
    pub admits: Option<u64>,
    pub role: Role,
}

/// What a roll-up has to do with an addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It gets it.
    Counts,
    /// The same, and what it does not admit is `other` for those behind it.
    Decides,
    /// It only says what that is.
    Asked,
}

impl Split {
    /// A roll-up that gets what is added.
    pub fn rollup(&self, number: u16) -> Option<&SplitRollup> {
        self.rollups.iter().find(|rollup| rollup.number == number && rollup.role != Role::Asked)
    }
}

impl SplitRollup {
    /// Its own values among those of a split, one behind the other.
    pub(super) fn project(&self, texts: &Texts<'_>, out: &mut Vec<u8>) {
        out.clear();
        self.dimensions.iter().for_each(|at| put_bytes(out, texts[usize::from(*at)]));
    }

    /// Its bucket that one of the split's unit lies in.
    pub(super) fn bucket(&self, split: &Split, bucket: Minutes) -> Minutes {
        match self.unit {
            None => 0,
            unit if unit == split.unit => bucket,
            Some(unit) => unit.bucket(bucket, &split.zone),
        }
    }
}

/// A value for each dimension that a split can have.
pub(super) type Texts<'v> = [&'v [u8]; ROLLUPS_MAX * ROLLUP_DIMENSIONS_MAX];

/// The values of all dimensions of a split, one by one.
pub(super) fn texts<'v>(split: &Split, mut values: &'v [u8]) -> Result<Texts<'v>, DecodeError> {
    let mut texts = [&b""[..]; ROLLUPS_MAX * ROLLUP_DIMENSIONS_MAX];
    for text in &mut texts[..split.dimensions.len()] {
        *text = take_bytes(&mut values)?;
    }
    Ok(texts)
}
