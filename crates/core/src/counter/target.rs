//! What an id means, as one answer: which cell, who declared it, what reads show of it, how durable a write to it is, and
//! whether it may be written by its name.
//!
//! Every frontend and whoever stages an operation by name asks here, so that a name means the same wherever it is said.

use super::{Counter, Declarations, Durability, IdError};
use crate::database::Space;
use crate::id::{CellHasher, CellKey, name_of};
use crate::limits::ID_BYTES_MAX;
use crate::op::Op;
use std::borrow::Cow;

/// What an id names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'i> {
    /// In its canonical form: to hash, to log and to show.
    pub id: Cow<'i, [u8]>,
    pub cell: CellKey,
    pub standing: Standing,
    /// Whether reads show 0 for a sum below it.
    pub floor_at_zero: bool,
    /// The counter's own; `None`: as the node.
    pub durability: Option<Durability>,
}

/// Who has declared a counter, if anybody has. The numbers are indices into [`Declarations::counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody: it is a `simple` counter, and any bytes are its name.
    AdHoc,
    Declared(u16),
    /// It was declared once: it can be read and corrected, its name stays its own, and it counts nothing.
    Removed(u16),
}

/// What somebody is about to do with a counter by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    /// Add to it or subtract from it.
    Count,
    /// Set it, delete it or let it expire: whatever forgets what was counted.
    Overwrite,
}

/// Why a counter may not be written by its name. What to do instead differs by protocol, and so do the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden<'d> {
    /// It was removed from the configuration.
    Removed(&'d Counter),
    /// It counts events, and nothing else.
    CountsEvents(&'d Counter),
    /// It is declared, and what was counted is only ever corrected.
    Declared(&'d Counter),
}

impl Standing {
    /// How operations name the counter; [`Op::AD_HOC`] if it counts nothing that is declared.
    #[inline]
    pub fn op_counter(self) -> u16 {
        if let Standing::Declared(counter) = self { counter } else { Op::AD_HOC }
    }

    /// The counter, declared or not any more.
    pub fn counter(self) -> Option<u16> {
        match self {
            Standing::AdHoc => None,
            Standing::Declared(counter) | Standing::Removed(counter) => Some(counter),
        }
    }
}

impl<'i> Target<'i> {
    /// A counter that nobody has declared, by its id.
    #[inline]
    pub fn ad_hoc(cell: CellKey, id: &'i [u8]) -> Target<'i> {
        Target { id: Cow::Borrowed(id), cell, standing: Standing::AdHoc, floor_at_zero: false, durability: None }
    }

    /// What a key stands for in a database other than 0, where all counters are ad hoc.
    pub fn in_space(hasher: &CellHasher, space: Space, key: &'i [u8]) -> Result<Target<'i>, IdError> {
        check_length(key)?;
        Ok(Target::of_key(hasher, space, key))
    }

    #[inline]
    fn of_key(hasher: &CellHasher, space: Space, key: &'i [u8]) -> Target<'i> {
        let id = space.id(key);
        Target { cell: hasher.key(&id), id, standing: Standing::AdHoc, floor_at_zero: false, durability: None }
    }

    /// What reads show of a sum.
    #[inline]
    pub fn shown(&self, sum: i64) -> i64 {
        floored(self.floor_at_zero, sum)
    }

    /// The id for those who speak text: it is text if what was asked for was.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.id)
    }

    pub fn is_ad_hoc(&self) -> bool {
        self.standing == Standing::AdHoc
    }

    pub fn into_owned(self) -> Target<'static> {
        let Target { id, cell, standing, floor_at_zero, durability } = self;
        Target { id: Cow::Owned(id.into_owned()), cell, standing, floor_at_zero, durability }
    }
}

/// What reads show of a sum.
#[inline]
pub(super) fn floored(at_zero: bool, sum: i64) -> i64 {
    if at_zero { sum.max(0) } else { sum }
}

fn check_length(id: &[u8]) -> Result<(), IdError> {
    if id.len() > ID_BYTES_MAX { Err(IdError::TooLong { bytes: id.len() }) } else { Ok(()) }
}

impl Declarations {
    /// Finds what `id` means in database 0. Ad-hoc ids are any bytes, even none.
    #[inline]
    pub fn resolve<'i>(&self, hasher: &CellHasher, id: &'i [u8]) -> Result<Target<'i>, IdError> {
        check_length(id)?;
        let standing = self.standing(id);
        let Some(index) = standing.counter() else { return Ok(Target::of_key(hasher, Space::MAIN, id)) };
        let counter = self.counter(index);
        let id = counter.canonical_id(id)?;
        let Counter { floor_at_zero, durability, .. } = *counter;
        Ok(Target { cell: hasher.key(&id), id, standing, floor_at_zero, durability })
    }

    /// Who has declared the counter that an id is a cell of: by the name at its beginning alone.
    #[inline]
    pub fn standing(&self, id: &[u8]) -> Standing {
        if self.is_empty() {
            return Standing::AdHoc;
        }
        match self.find(name_of(id)) {
            None => Standing::AdHoc,
            Some(index) if self.is_removed(index) => Standing::Removed(index),
            Some(index) => Standing::Declared(index),
        }
    }

    /// Whether somebody may do what they intend to with a counter by its name.
    #[inline]
    pub fn permit(&self, target: &Target<'_>, intent: Intent) -> Result<(), Forbidden<'_>> {
        match (intent, target.standing) {
            (Intent::Read, _) | (_, Standing::AdHoc) => Ok(()),
            (Intent::Overwrite, Standing::Declared(index) | Standing::Removed(index)) => {
                Err(Forbidden::Declared(self.counter(index)))
            }
            (Intent::Count, Standing::Removed(index)) => Err(Forbidden::Removed(self.counter(index))),
            (Intent::Count, Standing::Declared(index)) => match self.counter(index) {
                counter if counter.mode.takes_direct_writes() => Ok(()),
                counter => Err(Forbidden::CountsEvents(counter)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "
counters:
  - {counterName: stock, mode: simple, dimensions: [item], floorAtZero: true, durability: interval}
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: viewed, op: increment}]}
";

    fn declarations() -> Declarations {
        let gone = Declarations::parse("counters: [{counterName: gone, mode: simple}]").unwrap();
        let meaning = gone.counter(0).meaning();
        Declarations::parse(YAML).unwrap().with_removed([("gone", &meaning)].into_iter())
    }

    fn target<'i>(declarations: &Declarations, id: &'i str) -> Target<'i> {
        declarations.resolve(&CellHasher::new(1), id.as_bytes()).unwrap()
    }

    fn verdicts(id: &str) -> [bool; 3] {
        let declarations = declarations();
        let target = target(&declarations, id);
        [Intent::Read, Intent::Count, Intent::Overwrite].map(|intent| declarations.permit(&target, intent).is_ok())
    }

    #[test]
    fn what_may_be_done_by_name_depends_on_the_declaration() {
        assert_eq!(verdicts("anything:else"), [true, true, true]);
        assert_eq!(verdicts("stock:7"), [true, true, false]);
        assert_eq!(verdicts("views:7"), [true, false, false]);
        assert_eq!(verdicts("gone"), [true, false, false]);
    }

    #[test]
    fn a_refusal_says_why() {
        let declarations = declarations();
        let refusal = |id, intent| declarations.permit(&target(&declarations, id), intent).unwrap_err();
        let counter = |index| declarations.counter(index);
        assert_eq!(refusal("views:7", Intent::Count), Forbidden::CountsEvents(counter(1)));
        assert_eq!(refusal("gone", Intent::Count), Forbidden::Removed(counter(2)));
        assert_eq!(refusal("stock:7", Intent::Overwrite), Forbidden::Declared(counter(0)));
        assert_eq!(refusal("gone", Intent::Overwrite), Forbidden::Declared(counter(2)));
    }

    #[test]
    fn a_target_has_the_settings_of_its_counter() {
        let declarations = declarations();
        let stock = target(&declarations, "stock:7");
        assert_eq!((stock.shown(-3), stock.durability), (0, Some(Durability::Interval)));
        assert_eq!((stock.standing, stock.standing.op_counter()), (Standing::Declared(0), 0));
        assert_eq!(stock.cell, CellHasher::new(1).key(b"stock:7"));
        let plain = target(&declarations, "plain");
        assert_eq!((plain.shown(-3), plain.durability), (-3, None));
        assert_eq!(plain, Target::ad_hoc(plain.cell, b"plain"));
        let gone = target(&declarations, "gone");
        assert_eq!((gone.standing, gone.standing.op_counter()), (Standing::Removed(2), Op::AD_HOC));
    }

    #[test]
    fn another_database_has_ad_hoc_counters_alone() {
        let (hasher, space) = (CellHasher::new(1), Space::from_number(7).unwrap());
        let there = Target::in_space(&hasher, space, b"views").unwrap();
        assert!(there.is_ad_hoc() && *there.id == *space.id(b"views"));
        let long = vec![b'a'; ID_BYTES_MAX + 1];
        assert_eq!(Target::in_space(&hasher, space, &long), Err(IdError::TooLong { bytes: ID_BYTES_MAX + 1 }));
    }
}
