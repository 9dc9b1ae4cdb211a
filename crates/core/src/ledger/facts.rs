//! Every kind of fact there is, once. A line says its number on disk, its key and what keeps it in memory; keys, cuts, flushes
//! and measures of memory follow from it.
//!
//! A new kind is a file that says what a row is and how it is kept ([`super::cut`]), and a line here, with the next number.
//! Numbers are those on disk: none is ever used for something else.

use super::cut::{Kind, LedgerCut};
use super::key::{KEY_BYTES_MAX, KeyPart};
use super::row::whole;
use super::{Answered, Claim, Corrections, Duplicates, Entity, Firsts, KeyBoxes, Proposals, Steps};
use crate::id::CellKey;
use crate::memory::layer::Layer;
use crate::record::{DecodeError, take_byte};
use std::sync::Arc;

macro_rules! facts {
    ($($(#[$holders_doc:meta])* $holders:ident {$(
        $($(#[$key_doc:meta])* $number:literal $kind:ident($($part:ident: $type:ty),+)),+ => $field:ident: $holder:ty;
    )+})+) => {
        /// The key of a fact in a store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LedgerKey {
            $($($($(#[$key_doc])* $kind($($type),+),)+)+)+
        }

        /// Kinds, with their numbers on disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum LedgerKind {
            $($($($kind = $number,)+)+)+
        }

        impl LedgerKind {
            pub const ALL: &'static [LedgerKind] = &[$($($(LedgerKind::$kind,)+)+)+];
        }

        impl LedgerKey {
            pub fn kind(&self) -> LedgerKind {
                match self {
                    $($($(LedgerKey::$kind(..) => LedgerKind::$kind,)+)+)+
                }
            }

            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(KEY_BYTES_MAX);
                bytes.push(self.kind() as u8);
                match *self {
                    $($($(LedgerKey::$kind($($part),+) => { $($part.put(&mut bytes);)+ })+)+)+
                }
                bytes
            }

            pub fn decode(bytes: &[u8]) -> Result<LedgerKey, DecodeError> {
                whole(bytes, |bytes| {
                    Ok(match take_byte(bytes)? {
                        $($($($number => LedgerKey::$kind($(<$type as KeyPart>::take(bytes)?),+),)+)+)+
                        value => {
                            return Err(DecodeError::BadValue { field: "kind of a ledger key", value: value.into() });
                        }
                    })
                })
            }
        }

        $(
            $(#[$holders_doc])*
            #[derive(Default)]
            pub struct $holders {
                $(pub $field: $holder,)+
            }

            impl Facts for $holders {
                fn facts(&self) -> Vec<(u8, &dyn Kind)> {
                    vec![$((first([$($number),+]), &self.$field as &dyn Kind),)+]
                }

                fn facts_mut(&mut self) -> Vec<(u8, &mut dyn Kind)> {
                    vec![$((first([$($number),+]), &mut self.$field as &mut dyn Kind),)+]
                }
            }
        )+
    };
}

facts! {
    /// What decides fates, and what they came to.
    FateFacts {
        /// A [`Claim`], by the hash of its event id.
        1 Claim(event_id: CellKey) => claims: Layer<Claim>;
        /// An [`Entity`], by the hash of counter and entity.
        2 Entity(entity: CellKey) => entities: Layer<Entity>;
        /// The [`super::Boxes`] of a cell.
        4 Boxes(cell: CellKey) => boxes: KeyBoxes;
        /// A [`super::Duplicate`]: offset of the batch and index within it.
        7 Duplicate(offset: u64, index: u32),
        /// Where a duplicate of this event id is; the value is empty.
        8 DuplicateOf(event_id: CellKey, offset: u64, index: u32) => duplicates: Duplicates;
        /// What came first under an event id ([`super::read_first`]): log time and claim key.
        10 First(at_ms: u64, event_id: CellKey) => firsts: Firsts;
    }
    /// What is known of values beside the cells.
    ValueFacts {
        /// An [`Answered`], by the hash of counter and idempotency key.
        3 Answer(request: CellKey) => answers: Layer<Answered>;
        /// A [`super::Step`]: cell and generation.
        5 Step(cell: CellKey, generation: u64) => steps: Steps;
        /// A [`super::Correction`], by its number.
        6 Correction(number: u64) => corrections: Corrections;
        /// A [`super::Proposal`] that is open, by its number.
        9 Proposal(number: u64) => proposals: Proposals;
    }
}

/// The facts of one side, each with the number of its first kind.
pub trait Facts {
    fn facts(&self) -> Vec<(u8, &dyn Kind)>;
    fn facts_mut(&mut self) -> Vec<(u8, &mut dyn Kind)>;
}

fn first<const N: usize>(numbers: [u8; N]) -> u8 {
    assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "one holder's kinds stand side by side");
    numbers[0]
}

/// Everything up to here belongs to the cut, in the order of keys. Costs nothing, however many facts there are.
pub fn begin_cut(fates: &mut FateFacts, values: &mut ValueFacts) -> Arc<LedgerCut> {
    let mut kinds = fates.facts_mut();
    kinds.append(&mut values.facts_mut());
    kinds.sort_unstable_by_key(|(number, _)| *number);
    Arc::new(kinds.into_iter().map(|(_, kind)| kind.begin_cut()).collect())
}
