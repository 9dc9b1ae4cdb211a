//! Every field of a configuration: its name, what it takes, what holds without it and what it is for.
//!
//! The one table that both the parser ([`super::declare`]) and the JSON Schema for editors ([`schema`]) are made from,
//! so that they cannot disagree about what there is.

mod json;

use super::{BackupSchedule, Clocks, Idempotency, Jumps, Lateness, Probes};
use crate::contract::{self, MODES};
use crate::limits::*;
use crate::measure::MEASURE_WORDS;

pub use json::schema;

/// Fields that stand together.
pub(crate) struct SettingGroup {
    /// With its article, for errors.
    pub what: &'static str,
    /// How one may look.
    pub example: &'static str,
    /// In parts, since each contract has its own.
    pub fields: &'static [&'static [Setting]],
    /// Designed and not built yet: known, so that nobody takes them for a typing error.
    pub future: &'static [&'static str],
}

pub(crate) struct Setting {
    pub name: &'static str,
    pub required: bool,
    pub value: Value,
    pub about: &'static str,
    /// Of a contract's own: as in "only a counter of this mode *keeps a state*".
    pub only: &'static str,
}

/// What a field takes.
pub(crate) enum Value {
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
    /// A duration that may be long, or `forever`.
    Keep {
        least_ms: u64,
    },
    /// A list of names, none twice.
    Names {
        least: usize,
        most: usize,
    },
    /// Lists of names, none twice in one of them.
    NameLists {
        most: usize,
        names_most: usize,
    },
    /// A number for each of some names.
    Numbers {
        least: u64,
        most: u64,
    },
    Groups(&'static SettingGroup),
    Group(&'static SettingGroup),
    WordOrGroup(Word, &'static SettingGroup),
}

pub(crate) struct Word {
    pub name: &'static str,
    pub about: &'static str,
}

impl SettingGroup {
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> + use<> {
        self.fields.iter().copied().flatten()
    }

    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.settings().find(|setting| setting.name == name)
    }
}

pub(crate) const fn optional(name: &'static str, value: Value, about: &'static str) -> Setting {
    Setting { name, required: false, value, about, only: "" }
}

const fn required(name: &'static str, value: Value, about: &'static str) -> Setting {
    Setting { name, required: true, value, about, only: "" }
}

pub(crate) const fn word(name: &'static str, about: &'static str) -> Word {
    Word { name, about }
}

pub(crate) static CONFIGURATION: SettingGroup = SettingGroup {
    what: "a configuration",
    example: "counters: [{counterName: visits, mode: simple}]",
    fields: &[&[
        optional("counters", Value::Groups(&COUNTER), "The declared counters."),
        optional("idempotency", Value::Group(&KEYS), "How long the keys of idempotent direct writes are known."),
        optional("clocks", Value::Group(&CLOCKS), "What is believed of senders' clocks."),
        optional(
            "archive",
            Value::WordOrGroup(word("none", "No event is kept."), &ARCHIVE),
            "How long events are kept in the archive. Without it: 90d.",
        ),
        optional("backup", Value::Group(&BACKUP), "When a backup is taken by itself. Without it none is."),
        optional(
            "probes",
            Value::Group(&PROBES),
            "Sends the server events of known outcome, to see whether it counts. Without it: none.",
        ),
        optional(
            "anomalies",
            Value::WordOrGroup(word("none", "Nobody looks for them."), &ANOMALIES),
            "Which rates of keys are told as anomalies. Without it: from 1000 in a minute on, ten times what it used to be.",
        ),
    ]],
    future: &[],
};

pub(crate) static COUNTER: SettingGroup = SettingGroup {
    what: "a counter",
    example: "{counterName: visits, mode: simple}",
    fields: COUNTER_FIELDS,
    future: &["window"],
};

/// What every counter may say, and between it what belongs to one contract.
const COUNTER_FIELDS: &[&[Setting]] = &{
    let mut parts: [&[Setting]; contract::SETTINGS.len() + 3] = [&[]; contract::SETTINGS.len() + 3];
    parts[0] = WHAT;
    let mut at = 0;
    while at < contract::SETTINGS.len() {
        parts[at + 1] = contract::SETTINGS[at];
        at += 1;
    }
    parts[at + 1] = HOW;
    parts[at + 2] = PARTS;
    parts
};

const WHAT: &[Setting] = &[
    required(
        "counterName",
        Value::CounterName,
        "Stands before the first ':' of the counter's ids. No ':', '%', '*', white space or control characters.",
    ),
    required("mode", Value::Word { words: MODES, future: FUTURE_MODES }, "What the counter promises."),
    optional(
        "measure",
        Value::Word { words: MEASURE_WORDS, future: FUTURE_MEASURES },
        "What the counter keeps of the events that count. Without it: their sum.",
    ),
    optional(
        "dimensions",
        Value::Names { least: 0, most: KEY_DIMENSIONS_MAX },
        "The dimensions whose values are the key, in this order. Without any the counter is a single number.",
    ),
    optional("rules", Value::Groups(&RULE), "The events that feed the counter. Only a simple one can do without."),
    optional("description", Value::Text, "For people."),
];

const HOW: &[Setting] = &[
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
    optional(
        "archive",
        Value::Word { words: NOT_ARCHIVED, future: &[] },
        "Whether its events are kept in the archive. Those that feed another counter, which does not say none, are.",
    ),
];

const NOT_ARCHIVED: &[Word] = &[word("none", "They are not.")];

const PARTS: &[Setting] = &[
    optional(
        "rollups",
        Value::NameLists { most: ROLLUPS_MAX, names_most: ROLLUP_DIMENSIONS_MAX + 1 },
        "Into which parts the value of each key is split: lists of dimensions beside the key, each with at most one of minute, hour, \
         day, week and month, the bucket of the event's own time.",
    ),
    optional(
        "timezone",
        Value::Name,
        "By whose clocks the buckets of time begin, such as Europe/Berlin. Without it: UTC.",
    ),
    optional(
        "maxCardinality",
        Value::Numbers { least: 1, most: PARTS_PER_ROW_MAX as u64 },
        "How many values of a dimension each key has parts for: the first that come. What comes then is \"other\".",
    ),
    optional(
        "retention",
        Value::Group(&RETENTION),
        "How long buckets of time are kept before they are rolled into those of the next unit named here. Without it: forever.",
    ),
];

const KEPT: &str = "A duration such as 48h, 90d or 2y, or forever. Behind the last one buckets are deleted.";

const BUCKETS_KEPT: Value = Value::Keep { least_ms: RETENTION_MS_MIN };

pub(crate) static RETENTION: SettingGroup = SettingGroup {
    what: "retention",
    example: "retention: {hour: 90d, day: 2y, month: forever}",
    fields: &[&[
        optional("minute", BUCKETS_KEPT, KEPT),
        optional("hour", BUCKETS_KEPT, KEPT),
        optional("day", BUCKETS_KEPT, KEPT),
        optional("week", BUCKETS_KEPT, KEPT),
        optional("month", BUCKETS_KEPT, KEPT),
    ]],
    future: &[],
};

const FUTURE_MODES: &[&str] = &["unique", "top", "frequency", "window"];

const FUTURE_MEASURES: &[&str] = &["unique", "window", "top", "frequency", "limit"];

const DURABILITIES: &[Word] = &[
    word("none", "The operating system writes when it likes."),
    word("interval", "Written and synced soon."),
    word("sync", "On disk."),
];

pub(crate) static RULE: SettingGroup = SettingGroup {
    what: "a rule",
    example: "{on: video.viewed, op: increment}",
    fields: &[&[
        required("on", Value::Name, "The type of the events, exactly."),
        required(
            "op",
            Value::Word { words: OPS, future: &[] },
            "What the event's delta does; it is 1 if there is none.",
        ),
    ]],
    future: &[],
};

const OPS: &[Word] = &[word("increment", "Adds it."), word("decrement", "Subtracts it.")];

const LATENESS_MS: (u64, u64) = (0, LATENESS_MS_MAX);
const RUN_MS: (u64, u64) = (LATENESS_RUN_MS_MIN, LATENESS_RUN_MS_MAX);

const fn duration((least_ms, most_ms): (u64, u64), default_ms: u64) -> Value {
    Value::Duration { least_ms, most_ms, default_ms }
}

pub(crate) static LATENESS: SettingGroup = SettingGroup {
    what: "lateness",
    example: "lateness: {allowed: 10s, corrected: 2h}",
    fields: &[&[
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
    ]],
    future: &[],
};

pub(crate) static ARCHIVE: SettingGroup = SettingGroup {
    what: "archive",
    example: "archive: {keep: 90d}",
    fields: &[&[optional(
        "keep",
        Value::Keep { least_ms: ARCHIVE_KEEP_MS_MIN },
        "A duration such as 48h, 90d or 2y, or forever. Events are kept for so long at least, and an eighth of it longer at most.",
    )]],
    future: &[],
};

pub(crate) static BACKUP: SettingGroup = SettingGroup {
    what: "backup",
    example: "backup: {every: 1d, keep: 7}",
    fields: &[&[
        optional(
            "every",
            duration((BACKUP_EVERY_MS_MIN, BACKUP_EVERY_MS_MAX), BackupSchedule::DEFAULT.every_ms),
            "How long after the newest one the next is taken.",
        ),
        optional(
            "keep",
            Value::Number { least: 1, most: BACKUP_KEEP_MAX, default: BackupSchedule::DEFAULT.keep },
            "How many stay. Older ones are removed, and what only they have.",
        ),
    ]],
    future: &[],
};

pub(crate) static ANOMALIES: SettingGroup = SettingGroup {
    what: "anomalies",
    example: "anomalies: {factor: 10, least: 1000}",
    fields: &[&[
        optional(
            "factor",
            Value::Number { least: ANOMALY_FACTOR_MIN, most: ANOMALY_FACTOR_MAX, default: Jumps::DEFAULT.factor },
            "How many times what a key used to come to in a minute is a jump.",
        ),
        optional(
            "least",
            Value::Number { least: 1, most: ANOMALY_LEAST_MAX, default: Jumps::DEFAULT.least },
            "What a key has to come to in a minute before anything about it is a jump.",
        ),
    ]],
    future: &[],
};

pub(crate) static PROBES: SettingGroup = SettingGroup {
    what: "probes",
    example: "probes: {every: 10s}",
    fields: &[&[
        required("every", duration(PROBE_EVERY, Probes::DEFAULT.every_ms), "How often one is sent."),
        optional(
            "within",
            duration(PROBE_WAIT, Probes::DEFAULT.within_ms),
            "One is missing that is not acknowledged, applied and told by then.",
        ),
        optional(
            "archivedWithin",
            duration(PROBE_WAIT, Probes::DEFAULT.archived_ms),
            "One is missing that the archive does not have by then. Rows of it can be read every five minutes.",
        ),
    ]],
    future: &[],
};

const PROBE_EVERY: (u64, u64) = (PROBE_EVERY_MS_MIN, PROBE_EVERY_MS_MAX);
const PROBE_WAIT: (u64, u64) = (PROBE_WAIT_MS_MIN, PROBE_WAIT_MS_MAX);

pub(crate) static CLOCKS: SettingGroup = SettingGroup {
    what: "clocks",
    example: "clocks: {ahead: 5m}",
    fields: &[&[optional(
        "ahead",
        duration((0, CLOCK_AHEAD_MS_MAX), Clocks::DEFAULT_AHEAD_MS),
        "How far ahead of its arrival an event may claim to have happened. One that lies further ahead is rejected.",
    )]],
    future: &[],
};

pub(crate) static KEYS: SettingGroup = SettingGroup {
    what: "idempotency",
    example: "idempotency: {keep: 24h, maxKeys: 10000000}",
    fields: &[&[
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
    ]],
    future: &[],
};
