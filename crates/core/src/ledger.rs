//! The ledger: what Tally remembers beside counts, so that each event counts exactly as its counter promises.
//!
//! Event ids that were claimed and what came first under them, states of entities, answers to idempotency keys; boxes, corrections
//! and their steps, and the audit of duplicates. All of it changes with the cells and goes to the store in the same cut: claiming an event id and counting
//! the event are one commit. Here is how facts are kept; who keeps which is in [`crate::fates`] and [`crate::values`], and all
//! of them are listed once, in [`facts`].
//!
//! Rows that decide an event's fate are in a [`Layer`], which tells whether memory knows a key or the store has to be asked.
//! The others are only written: memory has what is new since the last cut, and a reader looks into the store as well.

mod add;
mod audit;
mod boxes;
mod correction;
mod cut;
mod facts;
mod firsts;
mod history;
mod key;
mod proposals;
mod remedy;
mod row;

pub use add::add;
pub use audit::{Duplicate, DuplicatePlace, Duplicates};
pub use boxes::{BoxKind, Boxes, KeyBoxes};
pub use correction::{Cause, Correction, Corrections, Delta, Proposal, Purpose};
pub use cut::{Change, Hashed, Kind, LedgerCut, LedgerRow, Placed, Rows};
pub use facts::{Facts, FateFacts, ValueFacts, begin_cut};
pub use firsts::{FirstChunks, FirstKey, Firsts, read_first};
pub use history::{FORGOTTEN_AT, Step, Steps};
pub use key::{LedgerKey, LedgerKind};
pub use proposals::{Proposals, read as read_proposal};
pub use remedy::{Grounds, LateRun, Remedy};
pub use row::{Answered, Claim, Entity, Row};
