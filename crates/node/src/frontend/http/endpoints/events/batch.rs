//! The events of one request on their way to one commit, and what became of each of their entries.
//!
//! The boxes add up by construction: an entry is either an operation of the submission, which has exactly one answer, or
//! was rejected before.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tally_core::counter::probes::{self, PROBE};
use tally_core::counter::{Declarations, Plan, Rejection, Staged, Stager, listed};
use tally_core::event::body::Sink;
use tally_core::event::{Event, EventError, Line, Shape};
use tally_core::id::CellHasher;
use tally_core::limits::{ENTRIES_PER_REQUEST_MAX, REJECTIONS_SHOWN_MAX, UNMATCHED_TYPES_SHOWN_MAX};
use tally_core::nearest::nearest;
use tally_core::op::{Answer, Op, OpKind, Stamp, Submission};
use tally_core::position::Position;

use crate::frontend::http::words::envelope::{content_hash, rfc3339};
use crate::frontend::http::words::problem::quoted;

/// Room that is made in advance for what the sender promises to send: so many times what has arrived, and at most so many
/// bytes. A promise alone is no reason to make any.
const EXPECTED_TIMES_MAX: usize = 16;
const EXPECTED_BYTES_MAX: u64 = 1024 * 1024;

/// What an answer takes in which nothing is told in words.
const PLAIN_JSON_BYTES: usize = 224;

/// What an event mostly has more in the log than in a batch.
const NAMES_BYTES: usize = 32;

/// What became of the events of a request.
#[derive(Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Events in the request, good and bad.
    pub events: u64,
    /// Events that could not be read. They make no entries.
    pub invalid: u64,
    /// Good events that no counter listens to. They are kept in the log and make no entries.
    pub unmatched: u64,
    /// Entries: one for each counter that a good event feeds.
    pub received: u64,
    pub counted: u64,
    pub duplicate: u64,
    pub conflict: u64,
    /// Rejected entries. Together with `invalid`, what `rejected` spells out.
    pub rejected_count: u64,
    /// Those of them that were rejected because the memory of repeats is full: they may come again.
    #[serde(skip)]
    pub without_room: u64,
    pub ignored: u64,
    pub late: u64,
    /// The first rejected entries and invalid events, up to 100.
    pub rejected: Vec<Rejected>,
    /// Types of events that no counter listens to, up to 20; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub unmatched_types: Vec<UnmatchedType>,
    /// The first entries that stood before, up to 100; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub duplicates: Vec<Again>,
    /// The first entries whose event id stood before with another content, up to 100; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub conflicts: Vec<Again>,
    /// The position in the log behind the events; only if there were good ones.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_words")]
    #[schema(value_type = Option<String>, example = "1-0-4711")]
    pub token: Option<Position>,
}

impl Outcome {
    pub fn to_json(&self) -> Vec<u8> {
        self.plain_json().unwrap_or_else(|| serde_json::to_vec(self).expect("strings and numbers are JSON"))
    }

    /// The same if there is nothing to be told in words, as mostly: a small request costs little more than its answer.
    fn plain_json(&self) -> Option<Vec<u8>> {
        let Outcome { events, invalid, unmatched, received, counted, duplicate, conflict, rejected_count, .. } = *self;
        let is_plain = invalid + unmatched + duplicate + conflict + rejected_count == 0;
        let token = self.token.filter(|_| is_plain)?;
        let mut json = Vec::with_capacity(PLAIN_JSON_BYTES);
        let numbers = [
            (r#"{"events":"#, events),
            (r#","invalid":0,"unmatched":0,"received":"#, received),
            (r#","counted":"#, counted),
            (r#","duplicate":0,"conflict":0,"rejectedCount":0,"ignored":"#, self.ignored),
            (r#","late":"#, self.late),
            // As a position is written.
            (r#","rejected":[],"token":""#, token.epoch.into()),
            ("-", token.log.into()),
            ("-", token.offset),
        ];
        for (before, number) in numbers {
            json.extend_from_slice(before.as_bytes());
            json.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        }
        json.extend_from_slice(br#""}"#);
        Some(json)
    }
}

fn in_words<S: Serializer>(token: &Option<Position>, serializer: S) -> Result<S::Ok, S::Error> {
    token.map(|token| token.to_string()).serialize(serializer)
}

/// Why something was not counted.
#[derive(Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Rejected {
    /// Which event of the request; the first is 0, and blank lines do not count.
    pub index: usize,
    /// The counter that does not count it; none if the event could not be read at all.
    pub counter: Option<String>,
    pub reason: String,
}

/// A type of events that no counter listens to.
#[derive(Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct UnmatchedType {
    #[schema(example = "video.veiwed")]
    pub r#type: String,
    /// How many events of the request have it.
    pub events: u64,
    /// The first of them.
    pub index: usize,
    /// The type that may be meant: the one most like it to which a counter listens; left out if there is none like it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "video.viewed")]
    pub nearest: Option<String>,
    /// Counters that listened to it until they were removed from the configuration; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

impl UnmatchedType {
    /// The same for people.
    pub fn says(&self) -> String {
        if !self.removed.is_empty() {
            let (removed, event_type) = (listed(&self.removed), &self.r#type);
            return format!(
                "no counter listens to events of type {event_type:?} any more: {removed} did until it was removed"
            );
        }
        let meant = self.nearest.as_ref().map(|nearest| format!("; did you mean {nearest:?}?")).unwrap_or_default();
        format!("no counter listens to events of type {:?}{meant}", self.r#type)
    }
}

/// An entry that did not count because it stood before.
#[derive(Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Again {
    /// Which event of the request.
    pub index: usize,
    /// The counter that does not count it again.
    pub counter: String,
    /// When its event id was first seen; only a persistent counter knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    pub first_seen: Option<String>,
    /// The hash of type, dimensions and delta as they first came, in 16 hexadecimal digits; only a persistent counter knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "9a275e3f454930d1")]
    pub first_content_hash: Option<String>,
}

/// Where an operation comes from.
#[derive(Clone, Copy, Debug)]
struct EventOrigin {
    event: u32,
    counter: u16,
    /// A claim is no entry; the entries behind it are.
    is_entry: bool,
}

/// Takes the events of one body.
#[derive(Debug)]
pub struct EventsBatch {
    stager: Stager,
    submission: Submission,
    /// One for each operation.
    origins: Vec<EventOrigin>,
    outcome: Outcome,
    /// Whether they may be probes: those are sent by the node alone.
    pub takes_probes: bool,
}

impl EventsBatch {
    pub fn new(declarations: Arc<Declarations>, hasher: CellHasher) -> EventsBatch {
        let submission = Submission { staged_under: Some(declarations.version()), ..Submission::default() };
        let stager = Stager::new(declarations, hasher);
        EventsBatch { stager, submission, origins: Vec::new(), outcome: Outcome::default(), takes_probes: false }
    }

    /// Makes room for a body of so many bytes, the first of which have arrived.
    pub fn expect(&mut self, body_bytes: u64, arrived_bytes: usize) {
        let bytes = (body_bytes.min(EXPECTED_BYTES_MAX) as usize).min(EXPECTED_TIMES_MAX * arrived_bytes);
        self.submission.records.reserve(bytes);
        self.submission.ops.reserve(bytes / 128);
        self.origins.reserve(bytes / 128);
    }

    /// Under which it is staged.
    pub fn declarations(&self) -> &Arc<Declarations> {
        self.stager.declarations()
    }

    pub fn entries(&self) -> usize {
        self.origins.len()
    }

    /// What it holds in memory, and what its answers will take.
    pub fn bytes(&self) -> usize {
        let per_entry = size_of::<Stamp>() + size_of::<Answer>();
        self.submission.records.capacity()
            + self.submission.ops.capacity() * size_of::<Op>()
            + self.origins.capacity() * size_of::<EventOrigin>()
            + self.entries() * per_entry
    }

    pub fn take_submission(&mut self) -> Submission {
        std::mem::take(&mut self.submission)
    }

    /// What is known to be wrong with the request before anything of it is counted; `None` if nothing is.
    pub fn faults(&mut self) -> Option<&Outcome> {
        let rejected = self.submission.ops.iter().filter(|op| op.kind == OpKind::Reject).count() as u64;
        let outcome = &mut self.outcome;
        if outcome.invalid + outcome.unmatched + rejected == 0 {
            return None;
        }
        outcome.rejected_count = rejected;
        self.name_unmatched();
        Some(&self.outcome)
    }

    /// What became of it all, when each operation has been answered.
    pub fn outcome(mut self, answers: &[Answer], position: Option<Position>) -> Outcome {
        assert_eq!(answers.len(), self.origins.len(), "each operation has one answer");
        let outcome = &mut self.outcome;
        let mut refused = 0;
        for (_, answer) in self.origins.iter().zip(answers).filter(|(origin, _)| origin.is_entry) {
            outcome.received += 1;
            match answer {
                Answer::Counted => outcome.counted += 1,
                Answer::Duplicate => outcome.duplicate += 1,
                Answer::Conflict => outcome.conflict += 1,
                Answer::Ignored => outcome.ignored += 1,
                Answer::Late => outcome.late += 1,
                Answer::Rejected => outcome.rejected_count += 1,
                Answer::NoRoom => {
                    refused += 1;
                    outcome.without_room += 1;
                }
                other => unreachable!("{other:?} does not answer an entry"),
            }
        }
        outcome.rejected_count += refused;
        outcome.token = position;
        if refused > 0 {
            self.show_refused(answers);
        }
        if self.outcome.duplicate + self.outcome.conflict > 0 {
            self.show_repeats(answers);
        }
        self.name_unmatched();
        self.outcome
    }

    /// What would have become of a request that wanted all or nothing and got nothing: conflicts are among the reasons.
    pub fn refused(self, answers: &[Answer]) -> Outcome {
        let mut outcome = self.outcome(answers, None);
        let reasons = outcome.conflicts.iter().map(|conflict| {
            let first_seen = conflict.first_seen.as_deref().unwrap_or("before");
            let reason = format!("the event id came with another content first ({first_seen}); send another id");
            Rejected { index: conflict.index, counter: Some(conflict.counter.clone()), reason }
        });
        outcome.rejected.extend(reasons);
        outcome.rejected.sort_by_key(|rejected| rejected.index);
        outcome.rejected.truncate(REJECTIONS_SHOWN_MAX);
        outcome
    }

    #[cold]
    fn show_repeats(&mut self, answers: &[Answer]) {
        let declarations = Arc::clone(self.stager.declarations());
        let Outcome { duplicates, conflicts, .. } = &mut self.outcome;
        // The claim of an event comes right before the entries that it is for.
        let mut first = None;
        for (origin, answer) in self.origins.iter().zip(answers) {
            let shown = match *answer {
                Answer::Claimed { content, at_ms } => {
                    first = Some((origin.event, content, at_ms));
                    continue;
                }
                Answer::Duplicate => &mut *duplicates,
                Answer::Conflict => &mut *conflicts,
                _ => continue,
            };
            if shown.len() < REJECTIONS_SHOWN_MAX {
                let known = first.filter(|(event, ..)| *event == origin.event);
                shown.push(Again {
                    index: origin.event as usize,
                    counter: declarations.counter(origin.counter).name.to_string(),
                    first_seen: known.map(|(_, _, at_ms)| rfc3339(at_ms)),
                    first_content_hash: known.map(|(_, content, _)| content_hash(content)),
                });
            }
        }
    }

    #[cold]
    fn unmatched(&mut self, index: usize, event_type: &str) {
        let Outcome { unmatched, unmatched_types, .. } = &mut self.outcome;
        *unmatched += 1;
        let shown = quoted(event_type);
        if let Some(known) = unmatched_types.iter_mut().find(|known| known.r#type == shown) {
            known.events += 1;
        } else if unmatched_types.len() < UNMATCHED_TYPES_SHOWN_MAX {
            unmatched_types.push(UnmatchedType { r#type: shown, events: 1, index, nearest: None, removed: Vec::new() });
        }
    }

    /// Says what may have been meant.
    fn name_unmatched(&mut self) {
        let declarations = self.stager.declarations();
        for unmatched in &mut self.outcome.unmatched_types {
            let removed = declarations.removed_listeners(&unmatched.r#type);
            unmatched.removed = removed.map(|counter| counter.name.to_string()).collect();
            if unmatched.removed.is_empty() {
                unmatched.nearest = nearest(&unmatched.r#type, declarations.event_types()).map(str::to_owned);
            }
        }
    }

    #[cold]
    fn show_refused(&mut self, answers: &[Answer]) {
        let declarations = Arc::clone(self.stager.declarations());
        for (origin, answer) in self.origins.iter().zip(answers) {
            let name = &declarations.counter(origin.counter).name;
            let reason = match answer {
                Answer::NoRoom => format!(
                    "the memory of repeats is full, so counter {name:?} cannot tell whether this stood before; send it again later"
                ),
                _ => continue,
            };
            show(&mut self.outcome.rejected, origin.event as usize, Some(name), reason);
        }
        self.outcome.rejected.sort_by_key(|rejected| rejected.index);
    }

    /// Takes an event that `stage` puts into the submission, and answers its entries; `None` if the request has too many.
    #[inline]
    fn take(
        &mut self,
        index: usize,
        stage: impl FnOnce(&mut Stager, &mut Submission, &mut dyn FnMut(u16, Rejection<'_>)) -> Staged,
    ) -> Option<Staged> {
        self.outcome.events += 1;
        // The request will be refused; what else is in it need not be kept.
        if self.entries() > ENTRIES_PER_REQUEST_MAX {
            return None;
        }
        let EventsBatch { stager, submission, origins, outcome, .. } = self;
        let mut reject = |_: u16, rejection: Rejection<'_>| reject(&mut outcome.rejected, index, rejection);
        let staged = stage(stager, submission, &mut reject);
        let event = index as u32;
        for op in &submission.ops[origins.len()..] {
            origins.push(EventOrigin { event, counter: op.counter, is_entry: op.kind != OpKind::Claim });
        }
        Some(staged)
    }

    #[cold]
    fn invalid(&mut self, index: usize, error: &EventError) {
        self.outcome.events += 1;
        self.outcome.invalid += 1;
        if self.outcome.rejected.len() < REJECTIONS_SHOWN_MAX {
            show(&mut self.outcome.rejected, index, None, error.to_string());
        }
    }
}

impl Sink for EventsBatch {
    type Plan = Plan;

    fn plan(&mut self, shape: &Shape, event_type: &str) -> Plan {
        self.stager.plan(shape, event_type)
    }

    fn expect(&mut self, events: usize, bytes: usize) {
        // In the log the type and the names of dimensions stand again in each event.
        self.submission.records.reserve(bytes + events * NAMES_BYTES);
        self.submission.ops.reserve(events);
        self.submission.stamps.reserve(events);
        self.origins.reserve(events);
    }

    #[inline]
    fn line(&mut self, index: usize, line: &Line<'_>, plan: &Plan) {
        if plan.is_probe() && !self.takes_probes {
            return self.invalid(index, &probes::not_yours());
        }
        let staged = self.take(index, |stager, submission, mut rejected| {
            let record_at = submission.line(line);
            stager.stage_line(line, plan, record_at, submission, &mut rejected)
        });
        if staged == Some(Staged::default()) {
            self.unmatched(index, line.event_type());
        }
    }

    fn event(&mut self, index: usize, event: Result<&Event<'_>, EventError>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => return self.invalid(index, &error),
        };
        if event.event_type == PROBE && !self.takes_probes {
            return self.invalid(index, &probes::not_yours());
        }
        let staged = self.take(index, |stager, submission, mut rejected| {
            let record_at = submission.event(event);
            stager.stage(event, record_at, submission, &mut rejected)
        });
        if staged == Some(Staged::default()) {
            self.unmatched(index, &event.event_type);
        }
    }
}

#[cold]
fn reject(rejected: &mut Vec<Rejected>, index: usize, rejection: Rejection<'_>) {
    if rejected.len() < REJECTIONS_SHOWN_MAX {
        show(rejected, index, Some(rejection.counter()), rejection.to_string());
    }
}

fn show(rejected: &mut Vec<Rejected>, index: usize, counter: Option<&str>, reason: String) {
    if rejected.len() < REJECTIONS_SHOWN_MAX {
        rejected.push(Rejected { index, counter: counter.map(str::to_owned), reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::event::body::BodyReader;

    const YAML: &str = "
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: viewed, op: increment}]
  - counterName: countries
    mode: display
    dimensions: [country]
    rules: [{on: viewed, op: increment}]
";

    fn batch(body: &str) -> EventsBatch {
        let declarations = Arc::new(Declarations::parse(YAML).unwrap());
        let mut batch = EventsBatch::new(declarations, CellHasher::new(1));
        let mut reader = BodyReader::new(None, 0);
        reader.feed(body.as_bytes(), &mut batch).unwrap();
        reader.finish(&mut batch).unwrap();
        batch
    }

    fn counted(mut batch: EventsBatch) -> Outcome {
        let answer = |op: &Op| if op.kind == OpKind::Reject { Answer::Rejected } else { Answer::Counted };
        let answers: Vec<_> = batch.take_submission().ops.iter().map(answer).collect();
        batch.outcome(&answers, Some(Position { epoch: 1, log: 0, offset: 7 }))
    }

    fn check_balance(outcome: &Outcome) {
        let o = outcome;
        assert_eq!(o.received, o.counted + o.duplicate + o.conflict + o.rejected_count + o.ignored + o.late);
    }

    #[test]
    fn every_entry_ends_in_one_box_and_bad_events_are_named() {
        let outcome = counted(batch(concat!(
            r#"{"type":"viewed","dimensions":{"video":"a","country":"DE"}}"#,
            "\n",
            r#"{"type":"viewed","dimensions":{"video":"a"}}"#,
            "\nnonsense\n\n",
            r#"{"type":"heard"}"#,
        )));
        check_balance(&outcome);
        assert_eq!((outcome.events, outcome.invalid, outcome.unmatched), (4, 1, 1));
        assert_eq!((outcome.received, outcome.counted, outcome.rejected_count), (4, 3, 1));
        assert_eq!(outcome.token, Some(Position { epoch: 1, log: 0, offset: 7 }));
        let [missing, bad] = outcome.rejected.as_slice() else { panic!("{:?}", outcome.rejected) };
        assert_eq!((missing.index, missing.counter.as_deref()), (1, Some("countries")));
        assert!(missing.reason.contains("country"), "{}", missing.reason);
        assert_eq!((bad.index, &bad.counter), (2, &None));
    }

    #[test]
    fn an_entry_that_the_commit_rejects_is_told_beside_those_that_staging_did() {
        let mut batch = batch(
            r#"[{"type":"viewed","dimensions":{"video":"a"}},{"type":"viewed","dimensions":{"video":"b","country":"DE"}}]"#,
        );
        assert_eq!(batch.take_submission().ops.len(), 4);
        let answers = [Answer::Counted, Answer::Rejected, Answer::Counted, Answer::NoRoom];
        let outcome = batch.outcome(&answers, None);
        check_balance(&outcome);
        assert_eq!((outcome.counted, outcome.rejected_count), (2, 2));
        let shown: Vec<_> = outcome.rejected.iter().map(|r| (r.index, r.counter.as_deref())).collect();
        assert_eq!(shown, [(0, Some("countries")), (1, Some("countries"))]);
    }

    #[test]
    fn rejections_are_counted_in_full_and_shown_in_part() {
        let outcome = counted(batch(&"{\"type\":\"viewed\"}\nx\n".repeat(1000)));
        check_balance(&outcome);
        assert_eq!((outcome.events, outcome.invalid, outcome.rejected_count), (2000, 1000, 2000));
        assert_eq!(outcome.rejected.len(), REJECTIONS_SHOWN_MAX);
    }

    #[test]
    fn an_answer_without_words_is_written_as_any_other() {
        let token = Some(Position { epoch: 1, log: 0, offset: u64::MAX });
        let plain = Outcome {
            events: 1_000_000,
            received: 7,
            counted: 0,
            ignored: u64::MAX,
            late: 3,
            token,
            ..Outcome::default()
        };
        let told = [
            Outcome { duplicate: 1, ..Outcome { token: plain.token, ..Outcome::default() } },
            Outcome { events: 1, ..Outcome::default() },
        ];
        assert!(plain.plain_json().is_some() && told.iter().all(|outcome| outcome.plain_json().is_none()));
        for outcome in told.iter().chain([&plain]) {
            assert_eq!(outcome.to_json(), serde_json::to_vec(outcome).unwrap());
        }
    }

    #[test]
    fn the_answer_is_pinned() {
        let outcome = counted(batch(r#"{"type":"viewed","dimensions":{"video":"a"}}"#));
        let expected = serde_json::json!({
            "events": 1, "invalid": 0, "unmatched": 0, "received": 2, "counted": 1, "duplicate": 0, "conflict": 0,
            "rejectedCount": 1, "ignored": 0, "late": 0, "token": "1-0-7",
            "rejected": [{"index": 0, "counter": "countries", "reason": outcome.rejected[0].reason}],
        });
        assert_eq!(serde_json::to_value(&outcome).unwrap(), expected);
    }
}
