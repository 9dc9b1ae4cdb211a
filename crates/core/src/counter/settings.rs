//! What a declaration may say beyond name, key and rules, and what holds where it says nothing.

use crate::event::Event;

/// A field of an event that `dedup.by` or `entity` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    EventId,
    Session,
    /// The number within the session. [`crate::contract::DedupSettings::seq`] stands for it, and an entity never has it.
    Seq,
    Type,
    Dimension(Box<str>),
}

impl Field {
    /// Whatever is no field of an event by itself is a dimension.
    pub fn named(name: &str) -> Field {
        match name {
            "eventId" => Field::EventId,
            "session" => Field::Session,
            "seq" => Field::Seq,
            "type" => Field::Type,
            dimension => Field::Dimension(dimension.into()),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Field::EventId => "eventId",
            Field::Session => "session",
            Field::Seq => "seq",
            Field::Type => "type",
            Field::Dimension(name) => name,
        }
    }

    /// What `event` says in this field, if it is text: `seq` is a number.
    #[inline]
    pub fn text<'e>(&self, event: &'e Event<'_>) -> Option<&'e str> {
        match self {
            Field::EventId => event.event_id.as_deref(),
            Field::Session => event.session.as_deref(),
            Field::Seq => None,
            Field::Type => Some(&event.event_type),
            Field::Dimension(name) => event.dimension(name),
        }
    }
}

/// How far behind the watermark an entry may be, and when it counts if it is further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// Up to here it simply counts.
    pub allowed_ms: u64,
    /// Up to here it is parked and counts in one of the runs that come `every_ms`.
    pub corrected_ms: u64,
    pub every_ms: u64,
    /// How often the runs come in which still older ones count.
    pub restated_ms: u64,
}

impl Lateness {
    /// What holds for the parts that a declaration leaves out. Without any declaration lateness does not apply.
    pub const DEFAULT: Lateness =
        Lateness { allowed_ms: 10_000, corrected_ms: 2 * 3_600_000, every_ms: 600_000, restated_ms: 24 * 3_600_000 };
}

/// What is believed of senders' clocks: a node has one such setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// How far ahead of its arrival an event may claim to have happened.
    pub ahead_ms: u64,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks { ahead_ms: Clocks::DEFAULT_AHEAD_MS }
    }
}

impl Clocks {
    pub const DEFAULT_AHEAD_MS: u64 = 5 * 60 * 1000;
}

/// Whether events are kept in the archive, and for how long: a node has one such setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archived {
    /// They are not.
    No,
    /// For so long at least; `None` for ever.
    For { keep_ms: Option<u64> },
}

impl Default for Archived {
    fn default() -> Archived {
        Archived::For { keep_ms: Some(Archived::DEFAULT_KEEP_MS) }
    }
}

impl Archived {
    pub const DEFAULT_KEEP_MS: u64 = 90 * 86_400_000;
}

/// When backups are taken by themselves, and how many stay: a node has one such setting. Where they are kept is the machine's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupSchedule {
    pub every_ms: u64,
    pub keep: u64,
}

impl BackupSchedule {
    /// What holds for the parts that a declaration leaves out. Without any declaration none is taken.
    pub const DEFAULT: BackupSchedule = BackupSchedule { every_ms: 86_400_000, keep: 7 };
}

/// Whether rates that jump are looked for: a node has one such setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomalies {
    /// They are not.
    No,
    Told(Jumps),
}

/// What a jump is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jumps {
    /// At least so many times what a key used to come to in a minute.
    pub factor: u64,
    /// And at least so much.
    pub least: u64,
}

impl Jumps {
    pub const DEFAULT: Jumps = Jumps { factor: 10, least: 1_000 };
}

impl Default for Anomalies {
    fn default() -> Anomalies {
        Anomalies::Told(Jumps::DEFAULT)
    }
}

/// What an answer means for the disk, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The operating system writes when it likes.
    None,
    /// Written and synced soon.
    Interval,
    /// On disk.
    Sync,
}

impl Durability {
    pub const ALL: [Durability; 3] = [Durability::None, Durability::Interval, Durability::Sync];

    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::Interval => "interval",
            Durability::Sync => "sync",
        }
    }
}

/// How long the keys of idempotent direct writes are known, and how many at once: a node has one such setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    pub keep_ms: u64,
    /// When there are so many, new keys are refused; old ones are never forgotten early.
    pub keys_max: u64,
}

impl Idempotency {
    pub const DEFAULT: Idempotency = Idempotency { keep_ms: 24 * 3_600_000, keys_max: 10_000_000 };
}

impl Default for Idempotency {
    fn default() -> Idempotency {
        Idempotency::DEFAULT
    }
}
