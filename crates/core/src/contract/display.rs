//! Display: views and the like. Each event of a session counts once within a window; a repeat is the same fields again in the
//! current or the previous one.

use super::{Promise, Terms};
use crate::counter::declare::Fields;
use crate::counter::plan::Told;
use crate::counter::schema::{Setting, SettingGroup, Value, optional, word};
use crate::counter::stage::StagingDesk;
use crate::counter::{ConfigError, Counter, Field, Rejection, duration};
use crate::fact;
use crate::fates::{Counts, Fates, Scene};
use crate::id::CellKey;
use crate::ledger::BoxKind;
use crate::limits::{DEDUP_WINDOW_MS_MAX, DEDUP_WINDOW_MS_MIN, IDENTITY_FIELDS_MAX};
use crate::op::{Answer, Op, Stamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Display {
    /// `None` means that every event counts.
    pub dedup: Option<DedupSettings>,
}

/// When an event is a duplicate: the same fields again in the current or the previous window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupSettings {
    /// The fields that make an event unique, without `seq`.
    pub by: Box<[Field]>,
    /// Whether `seq` is one of them.
    pub seq: bool,
    pub window_ms: u64,
    /// Whether an event must have the fields, which is so where they are declared. By default an event without them
    /// cannot be recognised and simply counts.
    pub required: bool,
}

impl DedupSettings {
    pub const DEFAULT_WINDOW_MS: u64 = 60_000;

    /// What a counter does that says nothing.
    pub fn undeclared() -> DedupSettings {
        DedupSettings {
            by: [Field::Session].into(),
            seq: true,
            window_ms: DedupSettings::DEFAULT_WINDOW_MS,
            required: false,
        }
    }
}

const SETTINGS: &[Setting] = &[Setting {
    only: "tells repeats apart by their fields",
    ..optional(
        "dedup",
        Value::WordOrGroup(word("none", "Every event counts."), &DEDUP),
        "When an event is a duplicate: the same fields again in the current or the previous window. Where this is \
         declared, events must have the fields. Without it: session and seq, 60s, and events without them count.",
    )
}];

static DEDUP: SettingGroup = SettingGroup {
    what: "dedup",
    example: "dedup: {by: [session, seq], window: 60s}",
    fields: &[&[
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
    ]],
    future: &[],
};

impl Promise for Display {
    const TERMS: Terms = Terms {
        name: "display",
        about: "Views and the like: each event of a session once within a window.",
        settings: SETTINGS,
        refuses: &[(
            "idempotency",
            ("it recognises repeats by \"dedup\"", "use that, or mode \"persistent\" for once and forever"),
        )],
        takes_any_delta: true,
        ..Terms::PLAIN
    };

    fn parse(fields: &Fields<'_>) -> Option<Display> {
        Some(Display { dedup: dedup(fields)? })
    }

    fn described(&self) -> Vec<(&'static str, String)> {
        vec![("dedup", self.dedup.as_ref().map_or("none: every event counts".into(), described))]
    }

    /// By default the session, whether repeats are recognised or not.
    fn identity(&self) -> Option<&[Field]> {
        Some(self.dedup.as_ref().map_or(&[Field::Session], |dedup| &dedup.by))
    }

    /// When an event is a repeat may change.
    fn of_meant(fields: Box<[Field]>) -> Option<Display> {
        fields.is_empty().then_some(Display { dedup: None })
    }

    /// The session, or whatever `dedup.by` names, and the number there.
    #[inline(always)]
    fn identify<'d>(
        &'d self,
        counter: &'d Counter,
        desk: &mut StagingDesk,
        event: &impl Told,
    ) -> Result<Option<(CellKey, u64)>, Rejection<'d>> {
        let Some(dedup) = &self.dedup else { return Ok(None) };
        let number = if dedup.seq { event.seq() } else { Some(0) };
        let key = desk.key(fact::GROUP, counter, &dedup.by, event);
        match (key, number) {
            (Ok(key), Some(number)) => Ok(Some((key, number))),
            _ if !dedup.required => Ok(None),
            (Err(field), _) => Err(Rejection::MissingField { counter: &counter.name, field }),
            (_, None) => Err(Rejection::MissingField { counter: &counter.name, field: "seq" }),
        }
    }

    fn repeats(&self) -> Option<&DedupSettings> {
        self.dedup.as_ref()
    }

    #[inline(always)]
    fn judge(fates: &mut Fates, op: &Op, stamp: &Stamp, scene: &Scene<'_>, _: &mut impl Counts) -> Option<Answer> {
        let log_time_ms = scene.batch.log_time_ms;
        if !fates.contracts.has_room(op.counter, stamp, log_time_ms) {
            fates.put_into(op, BoxKind::Rejected);
            return Some(Answer::NoRoom);
        }
        if fates.contracts.is_repeat(op.counter, stamp, log_time_ms) {
            fates.put_into(op, BoxKind::Duplicate);
            return Some(Answer::Duplicate);
        }
        None
    }
}

/// When an event is a duplicate, for which there is a rule even if nothing is said. `None` if that is wrong.
fn dedup(counter: &Fields<'_>) -> Option<Option<DedupSettings>> {
    let source = counter.source;
    let fields = match source.keep(counter.word_or_group("dedup"))? {
        None => return Some(Some(DedupSettings::undeclared())),
        Some(None) => return Some(None),
        Some(Some(fields)) => fields,
    };
    let window_ms = source.keep(fields.duration("window"));
    let declared = source.keep(declared(&fields));
    Some(Some(DedupSettings { window_ms: window_ms?, required: true, ..declared? }))
}

fn declared(fields: &Fields<'_>) -> Result<DedupSettings, ConfigError> {
    let Some(list) = fields.get("by") else { return Ok(DedupSettings::undeclared()) };
    let mut by: Vec<Field> = fields.names("by")?.into_iter().map(|(_, name)| Field::named(name)).collect();
    let seq = by.contains(&Field::Seq);
    by.retain(|field| *field != Field::Seq);
    if by.is_empty() {
        let message = "a seq is a number within a session";
        return Err(fields.source.error(list, message, "name what it counts in as well: [session, seq]"));
    }
    Ok(DedupSettings { by: by.into(), seq, ..DedupSettings::undeclared() })
}

fn described(dedup: &DedupSettings) -> String {
    let seq = dedup.seq.then_some("seq");
    let by: Vec<&str> = dedup.by.iter().map(Field::name).chain(seq).collect();
    let without = if dedup.required { "events need them" } else { "events without them count (default)" };
    format!("by {} within {}; {without}", by.join(", "), duration::shown(dedup.window_ms))
}
