//! What is right, told naively: it knows what clients asked for and what the logs hold, and shares no code with what it checks.
//!
//! [`Spec`] says what the counters of a configuration promise, [`judge`] decides the entries of one fates partition, [`worth`]
//! what the keys of one values partition are worth at each position.

pub mod judge;
pub mod spec;
pub mod worth;

pub use judge::{Boxes, Judge};
pub use spec::{Config, Counter, Mode, Spec};
pub use worth::Worth;

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Event(Happening),
    Add { key: String, delta: i64 },
    AddOnce { key: String, id: String, delta: i64 },
    Expire { key: String, at_ms: u64 },
}

/// An event as a client tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub kind: &'static str,
    pub id: Option<String>,
    pub session: String,
    pub seq: u64,
    pub user: String,
    pub video: Option<String>,
    pub country: String,
    pub occurred_ms: u64,
    pub received_ms: u64,
    pub delta: i64,
}
