//! The roles of a cluster, each a machine without network, disk, clock or chance: what it reads goes in, what is to be done comes
//! out, and whoever drives it (a simulation, later a process on Kafka) does that and says how it went.
//!
//! ```text
//!  collect ─▶ topic events (by identity) ─▶ fates ─▶ topic values (by key) ─▶ values ─▶ views
//!     └── operations by name ──────────────────────────────▲
//!  control: configuration, late runs and corrections, read by everybody    chain: cuts of one partition
//! ```
//!
//! Rules that hold here: control takes effect by the position that batches carry ([`control`]); a fates partition goes
//! log → commits → cut ([`fates`]); a slot is taken iff it begins where the reader stands ([`values`]); a cut is final with its
//! manifest, and what is local is a cache of the chain ([`chain`]); views hold absolute rows with their position ([`view`]).

pub mod chain;
pub mod clears;
pub mod collect;
pub mod control;
pub mod cut;
pub mod fates;
pub mod message;
pub mod route;
pub mod values;
pub mod view;
