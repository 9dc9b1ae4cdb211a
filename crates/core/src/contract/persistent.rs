//! Persistent: money. Each event id counts once, forever, for all counters that it feeds or for none; what comes again under the same id is
//! audited, and with other content it is a conflict.

use super::{Promise, Terms};
use crate::counter::declare::Fields;
use crate::counter::plan::Told;
use crate::counter::schema::{Setting, SettingGroup, Value, Word, optional, word};
use crate::counter::stage::{Staged, StagingDesk, reject};
use crate::counter::{ConfigError, Counter, Declarations, Durability, Field, Listener, Rejection};
use crate::fates::{Counts, Fates, Scene};
use crate::id::CellKey;
use crate::ledger::{BoxKind, Claim, Duplicate};
use crate::op::{Answer, Op, OpKind, Stamp, Submission};
use crate::record::{Record, event_at};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistent;

const SETTINGS: &[Setting] = &[Setting {
    only: "counts each eventId once",
    ..optional(
        "idempotency",
        Value::Group(&EVENT_ID),
        "Each eventId counts once, forever. This is so in any case; it may be spelled out.",
    )
}];

static EVENT_ID: SettingGroup = SettingGroup {
    what: "idempotency",
    example: "idempotency: {requireEventId: true}",
    fields: &[&[
        optional("requireEventId", Value::True, "Events need an eventId."),
        optional("scope", Value::Word { words: SCOPES, future: &[] }, "Where an eventId is unique."),
    ]],
    future: &[],
};

const SCOPES: &[Word] = &[word("globalEventId", "Across all counters: it is claimed once for all that it feeds.")];

impl Promise for Persistent {
    const TERMS: Terms = Terms {
        name: "persistent",
        about: "Money: each eventId once, forever; +1 and -1 only.",
        settings: SETTINGS,
        refuses: &[("dedup", ("each eventId counts once, forever", "remove it"))],
        durability: Some((Durability::Sync, "it counts money, so an answer means that it is on disk")),
        counts_together: true,
        direction_is_meant: true,
        ..Terms::PLAIN
    };

    /// There is only one thing to say about event ids.
    fn parse(counter: &Fields<'_>) -> Option<Persistent> {
        let (source, before) = (counter.source, counter.source.kept());
        if let Some(Some(fields)) = source.keep(counter.group("idempotency")) {
            source.keep(require_event_id(&fields));
            source.keep(scope(&fields));
        }
        (source.kept() == before).then_some(Persistent)
    }

    fn described(&self) -> Vec<(&'static str, String)> {
        vec![("idempotency", "each eventId once, forever; events need one".into())]
    }

    fn identity(&self) -> Option<&[Field]> {
        Some(&[Field::EventId])
    }

    fn of_meant(fields: Box<[Field]>) -> Option<Persistent> {
        fields.is_empty().then_some(Persistent)
    }

    /// The claim before it carries the id.
    #[inline]
    fn identify<'d>(
        &'d self,
        counter: &'d Counter,
        _: &mut StagingDesk,
        event: &impl Told,
    ) -> Result<Option<(CellKey, u64)>, Rejection<'d>> {
        let id = event.event_id().filter(|id| id.len() > 0);
        id.ok_or(Rejection::MissingField { counter: &counter.name, field: "eventId" })?;
        Ok(Some((CellKey::NONE, 0)))
    }

    #[inline(always)]
    fn judge(fates: &mut Fates, op: &Op, _: &Stamp, _: &Scene<'_>, _: &mut impl Counts) -> Option<Answer> {
        if fates.verdict == Verdict::Fresh { None } else { Some(fates.refuse_claimed(op)) }
    }
}

fn require_event_id(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.get("requireEventId") {
        Some(item) if !fields.flag("requireEventId")? => {
            let message = "requireEventId must be true: without an eventId nobody could tell a repeat from a new event";
            Err(fields.source.error(item, message, "write true or remove the field"))
        }
        _ => Ok(()),
    }
}

fn scope(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.get("scope") {
        Some(item) if fields.source.text("scope", item)? != "globalEventId" => {
            let message = format!(
                "scope must be globalEventId, not {}: an eventId is claimed once for all counters that it feeds",
                item.value.shown()
            );
            Err(fields.source.error(item, message, "write globalEventId or remove the field"))
        }
        _ => Ok(()),
    }
}

/// What a claim came to. The entries behind it go by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    #[default]
    Fresh,
    Duplicate,
    Conflict,
}

/// The entries of all counters that count an event together: one claim and all of them behind it, or none.
pub(crate) fn stage_together<'l, T: Told>(
    declarations: &Declarations,
    desk: &mut StagingDesk,
    listeners: impl Iterator<Item = (&'l Listener, T)> + Clone,
    record: u32,
    out: &mut Submission,
    rejected: &mut impl FnMut(u16, Rejection<'_>),
    staged: &mut Staged,
) {
    let mut listeners =
        listeners.filter(|(listener, _)| declarations.counter(listener.counter).contract.counts_together());
    let all = listeners.clone();
    let Some((_, event)) = listeners.next() else { return };
    let (ops, stamps, before) = (out.ops.len(), out.stamps.len(), *staged);
    out.ops.push(Op { cell: CellKey::NONE, arg: 0, record, counter: 0, kind: OpKind::Claim });
    out.stamps.push(desk.claim(&event));
    let mut faulty = None;
    for (listener, event) in all.clone() {
        match desk.entry(declarations, listener, &event, record, out) {
            Ok(()) => staged.entries += 1,
            Err(rejection) => faulty = Some(rejection.counter()),
        }
    }
    let Some(other) = faulty else {
        out.ops[ops].counter = (out.ops.len() - ops - 1) as u16;
        return;
    };
    out.ops.truncate(ops);
    out.stamps.truncate(stamps);
    *staged = before;
    for (listener, event) in all {
        let counter = declarations.counter(listener.counter);
        let together = Rejection::Together { counter: &counter.name, other };
        let rejection = desk.entry(declarations, listener, &event, record, &mut Submission::default()).err();
        let rejection = rejection.unwrap_or(together);
        reject(out, listener, record, rejection, rejected, staged);
    }
}

impl Fates {
    /// Claims an event id for the entries behind operation `index`: all of them count in this commit, or none.
    pub(crate) fn claim(&mut self, index: usize, stamp: &Stamp, scene: &Scene<'_>) -> Answer {
        let batch = scene.batch;
        let claim = Claim { content: stamp.number, at_ms: batch.log_time_ms };
        let Some(known) = self.facts.claims.get_or_put(stamp.key, claim) else {
            self.verdict = Verdict::Fresh;
            let event = event_at(batch.records, batch.ops[index].record);
            self.facts.firsts.push((batch.log_time_ms, stamp.key), event);
            return Answer::Yes;
        };
        self.verdict = if known.content == stamp.number { Verdict::Duplicate } else { Verdict::Conflict };
        // All entries of an event are probes, or none is.
        if !scene.declarations.is_probe(batch.ops[index + 1].counter) {
            self.audit(index, known, stamp, scene);
        }
        Answer::Claimed { content: known.content, at_ms: known.at_ms }
    }

    fn audit(&mut self, index: usize, known: Claim, stamp: &Stamp, scene: &Scene<'_>) {
        let Scene { batch, declarations, .. } = scene;
        let Record::Event(event) = batch.record(&batch.ops[index]) else { unreachable!("only events claim") };
        let entries = &batch.ops[index + 1..][..usize::from(batch.ops[index].counter)];
        let text = |text: &str| text.to_owned();
        let duplicate = Duplicate {
            offset: batch.offset,
            index: index as u32,
            event_id: event.event_id.as_deref().map(text).unwrap_or_default(),
            event_type: text(&event.event_type),
            dimensions: event.dimensions.iter().map(|(name, value)| (text(name), text(value))).collect(),
            delta: event.delta,
            counters: entries.iter().map(|op| text(&declarations.counter(op.counter).name)).collect(),
            first_seen_ms: known.at_ms,
            seen_ms: batch.log_time_ms,
            conflict: self.verdict == Verdict::Conflict,
        };
        self.facts.duplicates.push(stamp.key, duplicate);
        self.contracts.audited += 1;
    }

    fn refuse_claimed(&mut self, op: &Op) -> Answer {
        let (answer, kind) = match self.verdict {
            Verdict::Duplicate => (Answer::Duplicate, BoxKind::Duplicate),
            Verdict::Conflict => (Answer::Conflict, BoxKind::Conflict),
            Verdict::Fresh => unreachable!("a fresh claim is not refused"),
        };
        self.put_into(op, kind);
        answer
    }
}
