//! What follows from the list of facts in [`super`](crate::ledger): keys and their bytes, the holders of both sides with their
//! way to a cut, and, for kinds that are looked up, what can be asked of the store and what it can say.

use super::cut::{Kind, LedgerCut, LookedUp};
use super::{FateFacts, LedgerKind, ValueFacts};
use std::sync::Arc;

macro_rules! facts {
    ($($(#[$holders_doc:meta])* $holders:ident {
        looked up {$(
            $(#[$row_doc:meta])* $row_number:literal $row_kind:ident => $rows:ident: $row:ty, $name:literal, filter $part:literal;
        )+}
        written {$(
            $($(#[$key_doc:meta])* $number:literal $kind:ident($($part_name:ident: $part_type:ty),+)),+
                => $field:ident: $holder:ty;
        )+}
    })+) => {
        /// The key of a fact in a store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LedgerKey {
            $(
                $($(#[$row_doc])* $row_kind(CellKey),)+
                $($($(#[$key_doc])* $kind($($part_type),+),)+)+
            )+
        }

        /// Kinds, with their numbers on disk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum LedgerKind {
            $(
                $($row_kind = $row_number,)+
                $($($kind = $number,)+)+
            )+
        }

        impl LedgerKind {
            pub const ALL: &'static [LedgerKind] =
                &[$($(LedgerKind::$row_kind,)+ $($(LedgerKind::$kind,)+)+)+];
        }

        impl LedgerKey {
            pub fn kind(&self) -> LedgerKind {
                match self {
                    $(
                        $(LedgerKey::$row_kind(_) => LedgerKind::$row_kind,)+
                        $($(LedgerKey::$kind(..) => LedgerKind::$kind,)+)+
                    )+
                }
            }

            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(KEY_BYTES_MAX);
                bytes.push(self.kind() as u8);
                match *self {
                    $(
                        $(LedgerKey::$row_kind(hash) => hash.put(&mut bytes),)+
                        $($(LedgerKey::$kind($($part_name),+) => { $($part_name.put(&mut bytes);)+ })+)+
                    )+
                }
                bytes
            }

            pub fn decode(bytes: &[u8]) -> Result<LedgerKey, DecodeError> {
                whole(bytes, |bytes| {
                    Ok(match take_byte(bytes)? {
                        $(
                            $($row_number => LedgerKey::$row_kind(CellKey::take(bytes)?),)+
                            $($($number => LedgerKey::$kind($(<$part_type as KeyPart>::take(bytes)?),+),)+)+
                        )+
                        value => {
                            return Err(DecodeError::BadValue { field: "kind of a ledger key", value: value.into() });
                        }
                    })
                })
            }

            /// Its hash, if it is of a kind that is looked up.
            pub fn looked_up_hash(&self) -> Option<CellKey> {
                match *self {
                    $($(LedgerKey::$row_kind(hash) => Some(hash),)+)+
                    _ => None,
                }
            }
        }

        /// A fact that is looked up, by its hash.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FactKey {
            $($($row_kind(CellKey),)+)+
        }

        /// What the store has of it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum FactRow {
            $($($row_kind(Option<$row>),)+)+
        }

        impl FactKey {
            pub fn ledger_key(self) -> LedgerKey {
                match self {
                    $($(FactKey::$row_kind(hash) => LedgerKey::$row_kind(hash),)+)+
                }
            }

            pub fn decode(self, row: Option<&[u8]>) -> Result<FactRow, DecodeError> {
                Ok(match self {
                    $($(FactKey::$row_kind(_) => FactRow::$row_kind(row.map(<$row>::decode).transpose()?),)+)+
                })
            }
        }

        /// Kinds that are looked up.
        pub static LOOKED_UP: &[LookedUpKind] = &[
            $($(LookedUpKind { kind: LedgerKind::$row_kind, name: $name, filter_part: $part },)+)+
        ];

        $($(
            impl Hashed for $row {
                fn key(hash: CellKey) -> LedgerKey {
                    LedgerKey::$row_kind(hash)
                }
            }
        )+)+

        $(
            $(#[$holders_doc])*
            #[derive(Default)]
            pub struct $holders {
                $(pub $rows: Layer<$row>,)+
                $(pub $field: $holder,)+
            }

            impl $holders {
                /// Whether there is no row that could be looked up.
                pub fn has_none_to_look_up(&self) -> bool {
                    $(self.$rows.is_empty())&&+
                }

                /// Whether memory can tell what there is, without the store; `None` if the fact is the other side's.
                #[inline]
                pub fn knows(&self, key: FactKey) -> Option<bool> {
                    match key {
                        $(FactKey::$row_kind(hash) => Some(self.$rows.knows(hash)),)+
                        _ => None,
                    }
                }

                /// Takes in what the store has, unless memory knows better. What is the other side's is given back.
                pub fn load(&mut self, key: FactKey, row: FactRow) -> Option<(FactKey, FactRow)> {
                    match (key, row) {
                        $((FactKey::$row_kind(hash), FactRow::$row_kind(row)) => self.$rows.load(hash, row),)+
                        others => return Some(others),
                    }
                    None
                }

                /// Takes over what another state knows of a fact.
                pub fn copy(&mut self, from: &$holders, key: FactKey) {
                    match key {
                        $(FactKey::$row_kind(hash) => {
                            if let Some(row) = from.$rows.get(hash) {
                                self.$rows.put(hash, row.clone());
                            }
                        })+
                        _ => {}
                    }
                }

                /// Nothing is staged: what the store has as well may go.
                pub fn forget_loaded(&mut self) {
                    $(self.$rows.forget_loaded();)+
                }
            }

            impl Facts for $holders {
                fn facts(&self) -> Vec<(u8, &dyn Kind)> {
                    vec![
                        $(($row_number, &self.$rows as &dyn Kind),)+
                        $((first([$($number),+]), &self.$field as &dyn Kind),)+
                    ]
                }

                fn facts_mut(&mut self) -> Vec<(u8, &mut dyn Kind)> {
                    vec![
                        $(($row_number, &mut self.$rows as &mut dyn Kind),)+
                        $((first([$($number),+]), &mut self.$field as &mut dyn Kind),)+
                    ]
                }

                fn looked_up(&self, kind: LedgerKind) -> Option<&dyn LookedUp> {
                    match kind {
                        $(LedgerKind::$row_kind => Some(&self.$rows),)+
                        _ => None,
                    }
                }

                fn looked_up_mut(&mut self, kind: LedgerKind) -> Option<&mut dyn LookedUp> {
                    match kind {
                        $(LedgerKind::$row_kind => Some(&mut self.$rows),)+
                        _ => None,
                    }
                }
            }
        )+
    };
}

/// A kind that is looked up, for whoever treats them all alike.
#[derive(Debug)]
pub struct LookedUpKind {
    pub kind: LedgerKind,
    /// What its rows are, for people.
    pub name: &'static str,
    /// Its filter may take this part of the memory for cells: a half, a quarter, an eighth.
    pub filter_part: usize,
}

/// The facts of one side.
pub trait Facts {
    /// Each with the number of its first kind.
    fn facts(&self) -> Vec<(u8, &dyn Kind)>;
    fn facts_mut(&mut self) -> Vec<(u8, &mut dyn Kind)>;
    /// `None` if it is the other side's, or not looked up.
    fn looked_up(&self, kind: LedgerKind) -> Option<&dyn LookedUp>;
    fn looked_up_mut(&mut self, kind: LedgerKind) -> Option<&mut dyn LookedUp>;
}

pub(super) fn first<const N: usize>(numbers: [u8; N]) -> u8 {
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
