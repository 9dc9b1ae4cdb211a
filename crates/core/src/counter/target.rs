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
    pub declared: Declared,
    /// Whether reads show 0 for a sum below it.
    pub floor_at_zero: bool,
    /// The counter's own; `None`: as the node.
    pub durability: Option<Durability>,
}

/// Whether a counter is declared. The numbers are indices into [`Declarations::counter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// It is ad hoc: a `simple` counter, and any bytes are its name.
    Never,
    Now(u16),
    /// It was, and is not any more: it can be read and corrected, its name stays its own, and it counts nothing.
    Once(u16),
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

/// What somebody reaches who names what is to be deleted or cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach<'i> {
    One(Target<'i>),
    /// All keys of a declared counter, by its name: that alone was given, and it has keys.
    All(Cow<'i, str>),
}

impl Reach<'_> {
    pub fn into_owned(self) -> Reach<'static> {
        match self {
            Reach::One(target) => Reach::One(target.into_owned()),
            Reach::All(name) => Reach::All(name.into_owned().into()),
        }
    }
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

impl Declared {
    /// How operations name the counter; [`Op::AD_HOC`] if it counts nothing that is declared.
    #[inline]
    pub fn op_counter(self) -> u16 {
        if let Declared::Now(counter) = self { counter } else { Op::AD_HOC }
    }

    /// The counter, declared or not any more.
    pub fn counter(self) -> Option<u16> {
        match self {
            Declared::Never => None,
            Declared::Now(counter) | Declared::Once(counter) => Some(counter),
        }
    }
}

impl<'i> Target<'i> {
    /// A counter that nobody has declared, by its id.
    #[inline]
    pub fn ad_hoc(cell: CellKey, id: &'i [u8]) -> Target<'i> {
        Target { id: Cow::Borrowed(id), cell, declared: Declared::Never, floor_at_zero: false, durability: None }
    }

    /// What a key stands for in a database other than 0, where all counters are ad hoc.
    pub fn in_space(hasher: &CellHasher, space: Space, key: &'i [u8]) -> Result<Target<'i>, IdError> {
        check_length(key)?;
        Ok(Target::of_key(hasher, space, key))
    }

    #[inline]
    fn of_key(hasher: &CellHasher, space: Space, key: &'i [u8]) -> Target<'i> {
        let id = space.id(key);
        Target { cell: hasher.key(&id), id, declared: Declared::Never, floor_at_zero: false, durability: None }
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
        self.declared == Declared::Never
    }

    pub fn into_owned(self) -> Target<'static> {
        let Target { id, cell, declared, floor_at_zero, durability } = self;
        Target { id: Cow::Owned(id.into_owned()), cell, declared, floor_at_zero, durability }
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
        let declared = self.declared(id);
        // What looks like an id of another space is none in database 0, whoever has such ids.
        let Some(index) = declared.counter().filter(|_| Space::is_own_id(id)) else {
            return Ok(Target::of_key(hasher, Space::MAIN, id));
        };
        let counter = self.counter(index);
        let id = counter.canonical_id(id)?;
        let Counter { floor_at_zero, durability, .. } = *counter;
        Ok(Target { cell: hasher.key(&id), id, declared, floor_at_zero, durability })
    }

    /// What `id` reaches where it may name more than one counter.
    pub fn reach<'i>(&self, hasher: &CellHasher, id: &'i [u8]) -> Result<Reach<'i>, IdError> {
        match (self.find(id), std::str::from_utf8(id)) {
            (Some(index), Ok(name)) if self.counter(index).has_keys() => Ok(Reach::All(name.into())),
            _ => self.resolve(hasher, id).map(Reach::One),
        }
    }

    /// Whether the counter is declared that an id is a cell of: by the name at its beginning alone.
    #[inline]
    pub fn declared(&self, id: &[u8]) -> Declared {
        if self.is_empty() {
            return Declared::Never;
        }
        match self.find(name_of(id)) {
            None => Declared::Never,
            Some(index) if self.is_removed(index) => Declared::Once(index),
            Some(index) => Declared::Now(index),
        }
    }

    /// Whether somebody may do what they intend to with a counter by its name.
    #[inline]
    pub fn permit(&self, target: &Target<'_>, intent: Intent) -> Result<(), Forbidden<'_>> {
        match (intent, target.declared) {
            (Intent::Read, _) | (_, Declared::Never) => Ok(()),
            (Intent::Overwrite, Declared::Now(index) | Declared::Once(index)) => {
                Err(Forbidden::Declared(self.counter(index)))
            }
            (Intent::Count, Declared::Once(index)) => Err(Forbidden::Removed(self.counter(index))),
            (Intent::Count, Declared::Now(index)) => match self.counter(index) {
                counter if counter.mode().takes_direct_writes() => Ok(()),
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
        assert_eq!((stock.declared, stock.declared.op_counter()), (Declared::Now(0), 0));
        assert_eq!(stock.cell, CellHasher::new(1).key(b"stock:7"));
        let plain = target(&declarations, "plain");
        assert_eq!((plain.shown(-3), plain.durability), (-3, None));
        assert_eq!(plain, Target::ad_hoc(plain.cell, b"plain"));
        let gone = target(&declarations, "gone");
        assert_eq!((gone.declared, gone.declared.op_counter()), (Declared::Once(2), Op::AD_HOC));
    }

    #[test]
    fn a_bare_name_reaches_all_keys_of_a_counter_that_has_some() {
        let (declarations, hasher) = (declarations(), CellHasher::new(1));
        let reach = |id: &'static str| declarations.reach(&hasher, id.as_bytes());
        assert_eq!(reach("stock"), Ok(Reach::All("stock".into())));
        for id in ["stock:7", "gone", "anything"] {
            assert_eq!(reach(id), Ok(Reach::One(target(&declarations, id))));
        }
        assert!(matches!(reach("stock:7:8"), Err(IdError::WrongKey { .. })));
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
