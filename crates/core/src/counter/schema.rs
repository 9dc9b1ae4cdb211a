//! Every field of a configuration: its name, what it takes, what holds without it and what it is for.
//!
//! The one table that both the parser ([`super::declare`]) and the JSON Schema for editors ([`schema`]) are made from,
//! so that they cannot disagree about what there is.

mod json;

use super::{Clocks, DedupSettings, Durability, Idempotency, Lateness, Mode};
use crate::limits::*;

pub use json::schema;

/// Fields that stand together.
pub(super) struct SettingGroup {
    /// With its article, for errors.
    pub what: &'static str,
    /// How one may look.
    pub example: &'static str,
    pub fields: &'static [Setting],
    /// Designed and not built yet: known, so that nobody takes them for a typing error.
    pub future: &'static [&'static str],
}

pub(super) struct Setting {
    pub name: &'static str,
    pub required: bool,
    pub value: Value,
    pub about: &'static str,
}

/// What a field takes.
pub(super) enum Value {
    Text,
    /// Text of 1 to [`NAME_BYTES_MAX`] bytes.
    Name,
    /// A name that can stand in an id.
    CounterName,
    /// `true` or `false`, which is the default.
    Flag,
    /// Nothing but `true`.
    True,
    Word {
        words: &'static [Word],
        future: &'static [&'static str],
    },
    Number {
        least: u64,
        most: u64,
        default: u64,
    },
    Duration {
        least_ms: u64,
        most_ms: u64,
        default_ms: u64,
    },
    /// A list of names, none twice.
    Names {
        least: usize,
        most: usize,
    },
    Groups(&'static SettingGroup),
    Group(&'static SettingGroup),
    WordOrGroup(Word, &'static SettingGroup),
}

pub(super) struct Word {
    pub name: &'static str,
    pub about: &'static str,
}

impl SettingGroup {
    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.fields.iter().find(|setting| setting.name == name)
    }
}

const fn optional(name: &'static str, value: Value, about: &'static str) -> Setting {
    Setting { name, required: false, value, about }
}

const fn required(name: &'static str, value: Value, about: &'static str) -> Setting {
    Setting { name, required: true, value, about }
}

const fn word(name: &'static str, about: &'static str) -> Word {
    Word { name, about }
}

pub(super) static CONFIGURATION: SettingGroup = SettingGroup {
    what: "a configuration",
    example: "counters: [{counterName: visits, mode: simple}]",
    fields: &[
        optional("counters", Value::Groups(&COUNTER), "The declared counters."),
        optional("idempotency", Value::Group(&KEYS), "How long the keys of idempotent direct writes are known."),
        optional("clocks", Value::Group(&CLOCKS), "What is believed of senders' clocks."),
    ],
    future: &[],
};

pub(super) static COUNTER: SettingGroup = SettingGroup {
    what: "a counter",
    example: "{counterName: visits, mode: simple}",
    fields: &[
        required(
            "counterName",
            Value::CounterName,
            "Stands before the first ':' of the counter's ids. No ':', '%', '*', white space or control characters.",
        ),
        required("mode", Value::Word { words: MODES, future: FUTURE_MODES }, "What the counter promises."),
        optional(
            "dimensions",
            Value::Names { least: 0, most: KEY_DIMENSIONS_MAX },
            "The dimensions whose values are the key, in this order. Without any the counter is a single number.",
        ),
        optional("rules", Value::Groups(&RULE), "The events that feed the counter. Only a simple one can do without."),
        optional("description", Value::Text, "For people."),
        optional(
            "dedup",
            Value::WordOrGroup(word("none", "Every event counts."), &DEDUP),
            "When an event is a duplicate: the same fields again in the current or the previous window. Where this is \
             declared, events must have the fields. Without it: session and seq, 60s, and events without them count.",
        ),
        optional(
            "entity",
            Value::Names { least: 1, most: IDENTITY_FIELDS_MAX },
            "What has a state, such as [user, content]: session, eventId, type or dimensions. The newest event of an \
             entity decides its state. Without it every event counts as it comes.",
        ),
        optional(
            "idempotency",
            Value::Group(&EVENT_ID),
            "Each eventId counts once, forever. This is so in any case; it may be spelled out.",
        ),
        optional(
            "lateness",
            Value::Group(&LATENESS),
            "What becomes of events that come late. Without it they count whenever they come.",
        ),
        optional("floorAtZero", Value::Flag, "Whether reads show 0 for a sum below it. The sum itself is kept."),
        optional(
            "durability",
            Value::Word { words: DURABILITIES, future: &[] },
            "What an answer means for the disk. Without it: as the node, and sync for a persistent counter.",
        ),
    ],
    future: &["rollups", "maxCardinality", "window"],
};

const MODES: &[Word] = &[
    word("simple", "An exact integer: clients add and subtract, and events may feed it."),
    word("display", "Views and the like: each event of a session once within a window."),
    word("transition", "Likes and the like: one state per entity, the newest wins."),
    word("persistent", "Money: each eventId once, forever; +1 and -1 only."),
];

const FUTURE_MODES: &[&str] = &["unique", "top", "frequency", "window"];

const DURABILITIES: &[Word] = &[
    word("none", "The operating system writes when it likes."),
    word("interval", "Written and synced soon."),
    word("sync", "On disk."),
];

pub(super) static RULE: SettingGroup = SettingGroup {
    what: "a rule",
    example: "{on: video.viewed, op: increment}",
    fields: &[
        required("on", Value::Name, "The type of the events, exactly."),
        required(
            "op",
            Value::Word { words: OPS, future: &[] },
            "What the event's delta does; it is 1 if there is none.",
        ),
    ],
    future: &[],
};

const OPS: &[Word] = &[word("increment", "Adds it."), word("decrement", "Subtracts it.")];

pub(super) static DEDUP: SettingGroup = SettingGroup {
    what: "dedup",
    example: "dedup: {by: [session, seq], window: 60s}",
    fields: &[
        optional(
            "by",
            Value::Names { least: 1, most: IDENTITY_FIELDS_MAX },
            "The fields that make an event unique: session, seq, eventId, type or dimensions. Default: [session, seq].",
        ),
        optional(
            "window",
            Value::Duration {
                least_ms: DEDUP_WINDOW_MS_MIN,
                most_ms: DEDUP_WINDOW_MS_MAX,
                default_ms: DedupSettings::DEFAULT_WINDOW_MS,
            },
            "How long a tumbling window is. A duplicate is recognised in the same and in the next one.",
        ),
    ],
    future: &[],
};

pub(super) static EVENT_ID: SettingGroup = SettingGroup {
    what: "idempotency",
    example: "idempotency: {requireEventId: true}",
    fields: &[
        optional("requireEventId", Value::True, "Events need an eventId."),
        optional("scope", Value::Word { words: SCOPES, future: &[] }, "Where an eventId is unique."),
    ],
    future: &[],
};

const SCOPES: &[Word] = &[word("globalEventId", "Across all counters: it is claimed once for all that it feeds.")];

const LATENESS_MS: (u64, u64) = (0, LATENESS_MS_MAX);
const RUN_MS: (u64, u64) = (LATENESS_RUN_MS_MIN, LATENESS_RUN_MS_MAX);

const fn duration((least_ms, most_ms): (u64, u64), default_ms: u64) -> Value {
    Value::Duration { least_ms, most_ms, default_ms }
}

pub(super) static LATENESS: SettingGroup = SettingGroup {
    what: "lateness",
    example: "lateness: {allowed: 10s, corrected: 2h}",
    fields: &[
        optional(
            "allowed",
            duration(LATENESS_MS, Lateness::DEFAULT.allowed_ms),
            "Up to so far behind the newest events, an event simply counts.",
        ),
        optional(
            "corrected",
            duration(LATENESS_MS, Lateness::DEFAULT.corrected_ms),
            "Up to so far behind, it waits for the next of the runs that \"every\" says. At least \"allowed\".",
        ),
        optional("every", duration(RUN_MS, Lateness::DEFAULT.every_ms), "How often what waits is counted."),
        optional(
            "restated",
            duration(RUN_MS, Lateness::DEFAULT.restated_ms),
            "How often what is still older is counted.",
        ),
    ],
    future: &[],
};

pub(super) static CLOCKS: SettingGroup = SettingGroup {
    what: "clocks",
    example: "clocks: {ahead: 5m}",
    fields: &[optional(
        "ahead",
        duration((0, CLOCK_AHEAD_MS_MAX), Clocks::DEFAULT_AHEAD_MS),
        "How far ahead of its arrival an event may claim to have happened. One that lies further ahead is rejected.",
    )],
    future: &[],
};

pub(super) static KEYS: SettingGroup = SettingGroup {
    what: "idempotency",
    example: "idempotency: {keep: 24h, maxKeys: 10000000}",
    fields: &[
        optional(
            "keep",
            duration((IDEMPOTENCY_KEEP_MS_MIN, IDEMPOTENCY_KEEP_MS_MAX), Idempotency::DEFAULT.keep_ms),
            "How long a key is known.",
        ),
        optional(
            "maxKeys",
            Value::Number { least: 1, most: IDEMPOTENCY_KEYS_MAX, default: Idempotency::DEFAULT.keys_max },
            "How many are known at once. Beyond it new keys are refused; old ones are not forgotten early.",
        ),
    ],
    future: &[],
};

/// A field that a mode has no use for, why, and what to do instead.
type Refused = (&'static str, (&'static str, &'static str));

/// Which fields of a counter its mode has no use for.
pub(super) fn refused_fields(mode: Mode) -> &'static [Refused] {
    const NO_ENTITY: Refused =
        ("entity", ("only a transition counter keeps a state per entity", "remove it, or use mode \"transition\""));
    match mode {
        Mode::Simple => &[
            ("dedup", ("it adds whatever it is told", "use mode \"display\" to count each event of a session once")),
            NO_ENTITY,
            (
                "idempotency",
                (
                    "the keys of its direct writes are a setting of the node",
                    "write \"idempotency\" beside \"counters\"",
                ),
            ),
        ],
        Mode::Display => &[
            NO_ENTITY,
            (
                "idempotency",
                ("it recognises repeats by \"dedup\"", "use that, or mode \"persistent\" for once and forever"),
            ),
        ],
        Mode::Transition => &[
            ("dedup", ("the state of its entity makes a repeat change nothing", "remove it")),
            ("idempotency", ("the state of its entity makes a repeat change nothing", "remove it")),
            (
                "lateness",
                ("it is ordered by its own time, and the newest state wins however late it comes", "remove it"),
            ),
        ],
        Mode::Persistent => &[("dedup", ("each eventId counts once, forever", "remove it")), NO_ENTITY],
    }
}

/// The only durability that keeps the promise of a mode, where not every one does.
pub(super) fn required_durability(mode: Mode) -> Option<Durability> {
    (mode == Mode::Persistent).then_some(Durability::Sync)
}
