//! The ledger: what Tally remembers beside counts, so that each event counts exactly as its counter promises.
//!
//! Event ids that were claimed and what came first under them, states of entities, answers to idempotency keys; boxes, corrections
//! and their steps, and the audit of duplicates. All of it changes with the cells and goes to the store in the same cut: claiming an event id and counting
//! the event are one commit. Here is how facts are kept, and the list of them; who keeps which is in [`crate::fates`] and
//! [`crate::values`].
//!
//! Rows that decide an event's fate are *looked up*: they are in a [`Layer`], which tells whether memory knows a key or the store
//! has to be asked. The others are only *written*: memory has what is new since the last cut, and a reader looks into the store as
//! well.
//!
//! A new kind is a file that says what a row is (a [`Row`]), and, if it is only written, how it is kept ([`cut`]); and a line in
//! the list below, with the next number. Keys and their bytes, needs, filters, cuts, flushes, counts in a checkpoint and for people, and
//! measures of memory follow from the line ([`facts`]).

#[macro_use]
mod facts;
mod add;
mod audit;
pub mod boards;
mod boxes;
mod correction;
mod cut;
mod endings;
mod fill;
mod firsts;
mod history;
mod key;
pub mod parts;
mod proposals;
mod remedy;
mod row;

use crate::id::CellKey;
use crate::memory::layer::Layer;
use crate::record::{DecodeError, take_byte};
use facts::first;
use key::{KEY_BYTES_MAX, KeyPart};
use row::whole;

pub use add::add;
pub use audit::{Duplicate, DuplicatePlace, Duplicates};
pub use boards::{BoardLine, BoardPlace, Boards};
pub use boxes::{BoxKind, Boxes, KeyBoxes};
pub use correction::{Cause, Correction, Corrections, Delta, Proposal, Purpose};
pub use cut::{Change, Hashed, Kind, LedgerCut, LedgerRow, LookedUp, Placed, Rows, StoredRows};
pub use endings::{Ending, Endings};
pub use facts::{Facts, LookedUpKind, begin_cut};
pub use fill::{Fill, FillKey, FillPart, FillStep};
pub use firsts::{FirstChunks, FirstContents, FirstKey, Firsts, StoredFirsts, read_first};
pub use history::{FORGOTTEN_AT, Step, Steps};
pub use parts::block::{CORRECTION, NONE, OTHER};
pub use parts::{Band, Fold, OldBuckets, OldRows, Parts, PartsSince, ROLLUP_NUMBERS_MAX, Role, Split, SplitRollup};
pub use proposals::{Proposals, read as read_proposal};
pub use remedy::{Grounds, LateRun, Remedy};
pub use row::{Answered, Claim, CountedAs, Entity, NO_PARTS, Row};

// Every kind of fact there is, once. Numbers are those on disk: none is ever used for something else. A line of what is looked up
// says: number, kind, what holds it, the row, its rows for people, and which part of the memory for cells its filter may take; what
// is only written has a key of its own.
facts! {
    /// What decides fates, and what they came to.
    FateFacts {
        looked up {
            /// By the hash of the event id.
            1 Claim => claims: Claim, "event ids", filter 2;
            /// By the hash of counter and entity.
            2 Entity => entities: Entity, "entities", filter 4;
        }
        written {
            /// The [`Boxes`] of a cell.
            4 Boxes(cell: CellKey) => boxes: KeyBoxes;
            /// A [`Duplicate`]: offset of the batch and index within it.
            7 Duplicate(offset: u64, index: u32),
            /// Where a duplicate of this event id is; the value is empty.
            8 DuplicateOf(event_id: CellKey, offset: u64, index: u32) => duplicates: Duplicates;
            /// What came first under event ids ([`StoredFirsts`]): log time and claim key of the last one.
            10 First(at_ms: u64, event_id: CellKey) => firsts: Firsts;
        }
    }
    /// What is known of values beside the cells.
    ValueFacts {
        looked up {
            /// By the hash of counter and idempotency key.
            3 Answer => answers: Answered, "idempotency keys", filter 8;
        }
        written {
            /// A [`Step`]: cell and generation.
            5 Step(cell: CellKey, generation: u64) => steps: Steps;
            /// A [`Correction`], by its number.
            6 Correction(number: u64) => corrections: Corrections;
            /// A [`Proposal`] that is open, by its number.
            9 Proposal(number: u64) => proposals: Proposals;
            /// An [`Ending`]: the deadline of a counter, and its cell; the value is empty.
            11 Ending(at_ms: u64, cell: CellKey) => endings: Endings;
            /// Parts of a key ([`parts::block`]): cell, roll-up, and the bucket, if it has any.
            12 Part(cell: CellKey, rollup: u16, bucket: u32) => parts: Parts;
            /// A [`board`](boards::board), or from when on a line of them knows of everything: counter, line, and the hour.
            13 Board(counter: CellKey, line: u32, hour: u32) => boards: Boards;
        }
    }
}
