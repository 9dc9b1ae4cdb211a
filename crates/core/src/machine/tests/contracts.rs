//! Every contract against a naive model that remembers everything and shares no code with it.

mod model;

use super::super::*;
use crate::event::Event;
use crate::id::CellKey;
use crate::ledger::{Boxes, Correction, Delta, Grounds, LateRun, Proposal, Purpose, Remedy, Row};
use crate::op::Submission;
use crate::record::{Expiry, SetCondition};
use model::{Model, told};
use proptest::prelude::*;

const CONFIG: &str = "\
counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: {by: [session, seq], window: 1s}, rules: [{on: viewed, op: increment}]}
  - {counterName: hosts, mode: display, dedup: {by: [video], window: 2s}, rules: [{on: viewed, op: increment}]}
  - counterName: timely
    mode: display
    dimensions: [video]
    dedup: none
    lateness: {allowed: 1s, corrected: 5s, every: 10s, restated: 1m}
    rules: [{on: viewed, op: increment}]
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: fans, mode: transition, dimensions: [creator], entity: [user, video], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: shown, mode: persistent, dimensions: [video], rules: [{on: ad, op: increment}, {on: undone, op: decrement}]}
  - {counterName: billed, mode: persistent, rules: [{on: ad, op: increment}]}
";

pub(super) fn hasher() -> CellHasher {
    CellHasher::new(7)
}

/// A node without disks and clocks.
pub(super) struct Bench {
    pub state: Machine,
    pub offset: u64,
    pub log_time_ms: u64,
    pub answers: Vec<Answer>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(CONFIG)
    }

    pub fn with(yaml: &str) -> Bench {
        let mut bench = Bench { state: Machine::new(hasher()), offset: 0, log_time_ms: 100_000, answers: Vec::new() };
        bench.configure(yaml);
        bench
    }

    /// Puts another configuration in force.
    pub fn configure(&mut self, yaml: &str) {
        self.state.configure(Declarations::parse(yaml).expect("the sample is valid"), self.offset);
    }

    /// Commits events as one batch; answers the fates of the entries, in order.
    pub fn send(&mut self, events: &[Event<'_>]) -> Vec<Answer> {
        let mut submission = Submission::default();
        for event in events {
            let at = submission.event(event);
            self.state.stager.clone().stage(event, at, &mut submission, &mut |_, _| {});
        }
        self.commit(&submission);
        let entries = submission.ops.iter().zip(&self.answers).filter(|(op, _)| op.kind != OpKind::Claim);
        entries.map(|(_, answer)| *answer).collect()
    }

    pub fn commit(&mut self, submission: &Submission) {
        let Submission { records, ops, stamps, .. } = submission;
        let batch =
            Batch { head: None, first: 0, records, ops, stamps, log_time_ms: self.log_time_ms, offset: self.offset };
        self.state.apply(&batch, &mut self.answers);
        self.offset += u64::from(submission.record_count);
    }

    /// Asks for something about the past; answers what it came to.
    pub fn ask(&mut self, request: &CorrectionRequest) -> Result<RemedyOutcome, Unfit> {
        let once = request.once.as_ref().map(|once| (&*once.id, once.content));
        let mut submission = Submission::default();
        let at = submission.remedy(&request.remedy.encode(once));
        self.state.touch(request, at, &mut submission);
        self.commit(&submission);
        self.state.take_outcome().expect("it was asked for")
    }

    pub fn correct(&mut self, remedy: Remedy) -> Result<Correction, Unfit> {
        match self.ask(&remedy.into())? {
            RemedyOutcome::Corrected(correction) => Ok(correction),
            RemedyOutcome::Proposed(proposal) => panic!("{proposal:?} is no correction"),
        }
    }

    pub fn propose(&mut self, deltas: &[Delta], purpose: Purpose) -> u64 {
        let (reason, author) = ("test".into(), "me".into());
        let (deltas, if_generation) = (deltas.to_vec(), None);
        let proposal = Proposal { number: 0, reason, author, at_ms: 0, deltas, if_generation, purpose };
        self.ask(&Remedy::Propose(proposal).into()).expect("there is room").number()
    }

    pub fn apply(&mut self, number: u64) -> Result<Correction, Unfit> {
        self.correct(Remedy::Apply { number, author: "boss".into(), if_generation: None })
    }

    /// Proposes deltas and applies them.
    pub fn adjust(&mut self, deltas: &[Delta]) -> Result<Correction, Unfit> {
        let number = self.propose(deltas, Purpose::Adjust);
        self.apply(number)
    }

    pub fn clear(&mut self, id: &str) -> Correction {
        let (ids, grounds) = (vec![id.into()], Grounds::new("test", "me"));
        self.correct(Remedy::Clear { ids, grounds, if_generation: None }).expect("it is not 0")
    }

    pub fn revert(&mut self, of: &Correction) -> Correction {
        self.try_revert(of.number).expect("it fits")
    }

    pub fn try_revert(&mut self, number: u64) -> Result<Correction, Unfit> {
        self.correct(Remedy::Revert { number, grounds: Grounds::new("test", "me"), if_generation: None })
    }

    /// Lets all late entries count.
    pub fn run(&mut self) -> Correction {
        self.correct(Remedy::Late(LateRun::due_by(u64::MAX))).expect("something waits")
    }

    /// As earlier versions did.
    fn commit_correction(&mut self, correction: &Correction) -> Answer {
        let mut submission = Submission::default();
        submission.record_op(OpKind::Correct, CellKey::NONE, 0, &Record::Correct(&correction.to_bytes()));
        self.commit(&submission);
        self.answers[0]
    }

    /// A correction as an earlier version wrote it.
    pub fn run_of_old(&mut self, deltas: &[Delta]) {
        let generations = &self.state.values.generations;
        let (number, generation) = (generations.number + 1, generations.current + 1);
        let cause = crate::ledger::Cause::Clear;
        let (reason, author, applied_by) = ("old".into(), "me".into(), "me".into());
        let (deltas, purpose) = (deltas.to_vec(), Purpose::Adjust);
        let (at_ms, proposed_ms, reverted_generation) = (0, None, None);
        let correction = Correction {
            number,
            generation,
            cause,
            purpose,
            reason,
            author,
            at_ms,
            deltas,
            applied_by,
            proposed_ms,
            reverted_generation,
        };
        assert_eq!(self.commit_correction(&correction), Answer::Yes);
    }

    pub fn value(&self, id: &str) -> i64 {
        self.state.values.table.get(hasher().key(id.as_bytes())).unwrap_or(0)
    }

    pub fn boxes(&self, counter: &str) -> Boxes {
        self.state.balances().iter().find(|balance| *balance.name == *counter).expect("declared").boxes
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_entry_ends_where_the_model_says(story in proptest::collection::vec(told(), 1..120), per_batch in 1usize..6) {
        let (mut bench, mut model) = (Bench::new(), Model::default());
        let mut sent = 0;
        for batch in story.chunks(per_batch) {
            bench.log_time_ms += batch[0].pause_ms;
            let now_ms = bench.log_time_ms;
            let events: Vec<_> = batch.iter().map(|told| told.event(now_ms)).collect();
            for (told, event) in batch.iter().zip(&events) {
                // Within a batch all records have one position, and the later one wins: numbers do the same.
                model.take(sent, told, event, now_ms);
                sent += 1;
            }
            bench.send(&events);
        }
        for (id, value) in &model.values {
            prop_assert_eq!(bench.value(id), *value, "{}", id);
        }
        for balance in bench.state.balances() {
            let told: Vec<_> = [("counted", balance.boxes.counted), ("duplicate", balance.boxes.duplicate),
                ("conflict", balance.boxes.conflict), ("ignored", balance.boxes.ignored), ("late", balance.boxes.late),
                ("rejected", balance.boxes.rejected)].into();
            for (fate, n) in told {
                let key = model.fates.iter().find(|((counter, named), _)| **counter == *balance.name && *named == fate);
                prop_assert_eq!(n, key.map_or(0, |(_, n)| *n), "{} {}", &balance.name, fate);
            }
        }
    }
}

pub(super) fn event<'e>(kind: &'e str, id: &'e str, at_ms: i64, dimensions: &[(&'e str, &'e str)]) -> Event<'e> {
    let mut event = Event::new(kind, 100_000);
    event.event_id = Some(id.into());
    event.occurred_at_ms = Some(at_ms);
    event.dimensions = dimensions.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    event
}

#[test]
fn an_event_that_cannot_count_for_one_persistent_counter_counts_for_none_and_may_come_again() {
    let mut bench = Bench::new();
    let told = bench.send(&[event("ad", "e1", 1, &[])]);
    assert_eq!(told, [Answer::Rejected, Answer::Rejected], "shown needs a video; billed goes with it");
    assert_eq!(bench.boxes("billed").rejected, 1);
    assert_eq!(bench.send(&[event("ad", "e1", 1, &[("video", "a")])]), [Answer::Counted, Answer::Counted]);
    let mut nameless = event("ad", "", 1, &[("video", "a")]);
    nameless.event_id = None;
    assert_eq!(bench.send(&[nameless]), [Answer::Rejected, Answer::Rejected]);
    let mut heavy = event("ad", "e2", 1, &[("video", "a")]);
    heavy.delta = 2;
    assert_eq!(bench.send(&[heavy]), [Answer::Rejected, Answer::Rejected], "one event, one count");
}

#[test]
fn an_unlike_that_overtakes_its_like_still_ends_unliked() {
    let mut bench = Bench::new();
    let of = &[("user", "u"), ("video", "v"), ("creator", "c")];
    assert_eq!(bench.send(&[event("unliked", "2", 200, of)]), [Answer::Ignored, Answer::Ignored]);
    assert_eq!(bench.send(&[event("liked", "1", 100, of)]), [Answer::Ignored, Answer::Ignored]);
    assert_eq!((bench.value("likes:v"), bench.value("fans:c")), (0, 0));
    assert_eq!(bench.send(&[event("liked", "3", 300, of)]), [Answer::Counted, Answer::Counted]);
}

#[test]
fn undoing_undoes_what_was_counted_and_not_what_the_event_says() {
    let mut bench = Bench::new();
    bench.send(&[event("liked", "1", 100, &[("user", "u"), ("video", "v"), ("creator", "old")])]);
    bench.send(&[event("unliked", "2", 200, &[("user", "u"), ("video", "v"), ("creator", "new")])]);
    assert_eq!((bench.value("fans:old"), bench.value("fans:new")), (0, 0));
}

#[test]
fn what_was_cleared_is_not_undone_again() {
    let mut bench = Bench::new();
    let of = &[("user", "u"), ("video", "v"), ("creator", "c")];
    bench.send(&[event("liked", "1", 100, of)]);
    bench.clear("likes:v");
    assert_eq!(bench.value("likes:v"), 0);
    assert_eq!(bench.send(&[event("unliked", "2", 200, of)]), [Answer::Counted, Answer::Counted]);
    assert_eq!((bench.value("likes:v"), bench.value("fans:c")), (0, 0), "never below what was cleared");
    bench.send(&[event("liked", "3", 300, of)]);
    bench.send(&[event("unliked", "4", 400, of)]);
    assert_eq!((bench.value("likes:v"), bench.value("fans:c")), (0, 0), "what is counted after it is undone as ever");
}

#[test]
fn an_event_two_months_late_touches_only_its_own_key_and_bucket() {
    const MONTH_MS: i64 = 30 * 24 * 3_600_000;
    let mut bench = Bench::new();
    bench.log_time_ms = 10 * MONTH_MS as u64;
    let now_ms = bench.log_time_ms as i64;
    let viewed = |video, at_ms| {
        let mut event = event("viewed", "x", at_ms, &[("video", video)]);
        event.received_at_ms = now_ms as u64;
        event
    };
    bench.send(&[viewed("a", now_ms), viewed("b", now_ms)]);
    let late = bench.send(&[viewed("a", now_ms - 2 * MONTH_MS)]);
    assert_eq!(late[2], Answer::Late);
    assert_eq!((bench.value("timely:a"), bench.value("timely:b")), (1, 1), "parked, it changes no number");
    assert_eq!((bench.boxes("timely").late, bench.boxes("timely").counted), (1, 2));
    let parked = &bench.state.fates.contracts.parked;
    assert!(
        parked.due(LateRun::due_by(bench.log_time_ms + 59_000)).is_empty(),
        "it waits for the restatement, not for the next run"
    );
    let due = parked.due(LateRun::due_by(bench.log_time_ms + 60_000));
    let hour_ms = 3_600_000;
    let bucket_ms = (now_ms - 2 * MONTH_MS) as u64 / hour_ms * hour_ms;
    assert_eq!(due, [Delta { id: b"timely:a".to_vec(), bucket_ms: Some(bucket_ms), delta: 1 }]);
    bench.run();
    assert_eq!((bench.value("timely:a"), bench.value("timely:b")), (2, 1));
    assert_eq!((bench.boxes("timely").late, bench.boxes("timely").counted), (0, 3));
    let mark = |id: &str| bench.state.values.table.mark(hasher().key(id.as_bytes())).generation;
    assert_eq!((mark("timely:a"), mark("timely:b")), (1, 0));
}

#[test]
fn a_counter_that_somebody_has_filled_up_holds_nothing_up() {
    let mut bench = Bench::new();
    let late = |video: &'static str| event("viewed", "x", 5_000, &[("video", video)]);
    bench.send(&[event("viewed", "x", 10_000, &[("video", "a")]), late("full"), late("b"), late("b")]);
    let mut fill = Submission::default();
    fill.set(hasher().key(b"timely:full"), b"timely:full", i64::MAX, SetCondition::Always, Expiry::Keep);
    bench.commit(&fill);
    let due = bench.state.fates.contracts.parked.due(LateRun::due_by(u64::MAX));
    assert_eq!(due.len(), 2);
    bench.run();
    assert_eq!((bench.value("timely:full"), bench.value("timely:b")), (i64::MAX, 2));
    let Boxes { counted, late, .. } = bench.boxes("timely");
    assert_eq!((counted, late), (4, 0));
    assert!(bench.state.fates.contracts.parked.is_empty(), "nothing is tried again for ever");
}

#[test]
fn a_run_that_an_earlier_version_wrote_applies_once() {
    let mut bench = Bench::new();
    bench.send(&[event("viewed", "x", 10_000, &[("video", "a")]), event("viewed", "x", 5_000, &[("video", "a")])]);
    let run = bench.state.assess(&Remedy::Late(LateRun::due_by(u64::MAX)).into());
    let Ok(RemedyOutcome::Corrected(run)) = run else { panic!("something waits") };
    assert_eq!(bench.commit_correction(&run), Answer::Yes);
    assert_eq!(bench.commit_correction(&run), Answer::No, "the generation is in force");
    bench.commit_correction(&Correction { number: 2, generation: 2, ..run });
    assert_eq!(bench.value("timely:a"), 2);
    assert_eq!(bench.boxes("timely").late, 0);
}

#[test]
fn an_increment_with_an_id_is_made_once_and_answers_what_it_answered_first() {
    let mut bench = Bench::new();
    let add = |bench: &mut Bench, delta, id: &[u8]| {
        let mut submission = Submission::default();
        let key = crate::fact::answer_key(&hasher(), b"c", id);
        submission.add_once(&crate::counter::Target::ad_hoc(hasher().key(b"c"), b"c"), delta, key, id);
        bench.commit(&submission);
        bench.answers[0]
    };
    assert_eq!(add(&mut bench, 5, b"k"), Answer::Value(5));
    assert_eq!(add(&mut bench, 1, b"other"), Answer::Value(6));
    assert_eq!(add(&mut bench, 5, b"k"), Answer::Repeated(5));
    assert_eq!(add(&mut bench, 6, b"k"), Answer::OtherDelta(5));
    bench.log_time_ms += 24 * 3_600_000 - 1;
    assert_eq!(add(&mut bench, 5, b"k"), Answer::Repeated(5));
    bench.log_time_ms += 1;
    assert_eq!(add(&mut bench, 6, b"k"), Answer::Value(12), "a day later it is a new one");
}

#[test]
fn an_id_that_was_used_under_format_4_is_known_until_its_time_is_over() {
    let mut bench = Bench::new();
    let key = crate::fact::answer_key(&hasher(), b"c", b"k");
    let older = crate::fact::AnswerKey::of_format_4(&key.stamp());
    assert_ne!(older, key.key);
    let answered = crate::ledger::Answered { delta: 5, value: 7, at_ms: bench.log_time_ms };
    bench.state.values.facts.answers.put(older, answered);
    bench.state.values.answers_of_format_4_ms = Some(bench.log_time_ms);
    let add = |bench: &mut Bench, delta| {
        let mut submission = Submission::default();
        submission.add_once(&crate::counter::Target::ad_hoc(hasher().key(b"c"), b"c"), delta, key, b"k");
        bench.commit(&submission);
        bench.answers[0]
    };
    let is_kept = |bench: &mut Bench| {
        let (bytes, _) = bench.state.checkpoint(bench.offset);
        let mut resumed = Machine::new(hasher());
        resumed.resume(&bytes).expect("it was written just now");
        resumed.values.answers_of_format_4_ms.is_some()
    };
    assert_eq!(add(&mut bench, 5), Answer::Repeated(7));
    assert_eq!(add(&mut bench, 6), Answer::OtherDelta(5));
    bench.log_time_ms += 24 * 3_600_000 - 1;
    assert_eq!(add(&mut bench, 5), Answer::Repeated(7));
    assert!(is_kept(&mut bench));
    bench.log_time_ms += 1;
    assert_eq!(add(&mut bench, 6), Answer::Value(6), "a day later it is a new one");
    assert_eq!(add(&mut bench, 6), Answer::Repeated(6));
    assert!(!is_kept(&mut bench), "none is left to look for");
}

#[test]
fn an_id_is_forgotten_by_log_time_and_stays_forgotten_when_ids_are_kept_longer() {
    let keep = |hours: u64| Declarations::parse(&format!("idempotency: {{keep: {hours}h}}")).expect("it is valid");
    let add = |bench: &mut Bench| {
        let mut submission = Submission::default();
        let key = crate::fact::answer_key(&hasher(), b"c", b"k");
        submission.add_once(&crate::counter::Target::ad_hoc(hasher().key(b"c"), b"c"), 1, key, b"k");
        bench.commit(&submission);
        bench.answers[0]
    };
    // Whether the row has been dropped or not, the answer is the same.
    for drops in [false, true] {
        let mut bench = Bench::new();
        bench.state.configure(keep(1), bench.offset);
        assert_eq!(add(&mut bench), Answer::Value(1));
        let key = crate::fact::answer_key(&hasher(), b"c", b"k").key;
        let row = *bench.state.values.facts.answers.get(key).expect("it was put there just now");
        bench.log_time_ms += 3_600_000 - 1;
        assert_eq!(add(&mut bench), Answer::Repeated(1));
        bench.state.values.forget_answers(vec![(key, row)]);
        assert_eq!(add(&mut bench), Answer::Repeated(1), "it is not over by the time of the log");
        bench.log_time_ms += 1;
        let mut tick = Submission::default();
        tick.record(&Record::Tick);
        bench.commit(&tick);
        if drops {
            bench.state.values.forget_answers(vec![(key, row)]);
            assert_eq!(bench.state.values.facts.answers.get(key), None);
        }
        bench.state.configure(keep(24), bench.offset);
        let (bytes, _) = bench.state.checkpoint(bench.offset);
        assert_eq!(add(&mut bench), Answer::Value(2), "what is over stays over");
        let mut resumed = Machine::new(hasher());
        resumed.resume(&bytes).expect("it was written just now");
        assert_eq!(resumed.values.keys_known_from_ms(0), bench.state.values.keys_known_from_ms(0));
    }
}

#[test]
fn a_correction_is_visible_as_a_generation_and_keeps_what_was_said_before() {
    let mut bench = Bench::new();
    bench.send(&[event("ad", "e1", 1, &[("video", "a")])]);
    let first = bench.clear("shown:a");
    assert_eq!((first.generation, first.deltas[0].delta), (1, -1));
    bench.revert(&first);
    assert_eq!(bench.value("shown:a"), 1);
    assert_eq!(bench.try_revert(1), Err(Unfit::Reverted { number: 1, by: 2 }));
    let steps: Vec<_> = bench.state.values.facts.steps.of(hasher().key(b"shown:a")).collect();
    assert_eq!(steps.iter().map(|(generation, step)| (*generation, step.before)).collect::<Vec<_>>(), [(1, 1), (2, 0)]);
}

#[test]
fn a_checkpoint_resumes_boxes_watermarks_proposals_and_what_is_parked() {
    let mut bench = Bench::new();
    bench.send(&[event("viewed", "x", 10_000, &[("video", "a")]), event("viewed", "x", 5_000, &[("video", "a")])]);
    bench.clear("hosts");
    let (bytes, read_from) = bench.state.checkpoint(bench.offset);
    assert_eq!(read_from, 0, "the windows of the repeats began there");
    let mut resumed = Machine::new(hasher());
    assert_eq!(resumed.resume(&bytes).expect("it was written just now"), 0);
    resumed.resumed().expect("one configuration");
    assert_eq!(resumed.balances(), bench.state.balances());
    assert_eq!(resumed.fates.contracts.meanings(), bench.state.fates.contracts.meanings());
    assert_eq!(resumed.values.generations.current, 1);
    let parked = |state: &Machine| state.fates.contracts.parked.due(LateRun::due_by(u64::MAX));
    assert_eq!(parked(&resumed), parked(&bench.state));
    for cut in 0..bytes.len() {
        assert!(Machine::new(hasher()).resume(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_counter_that_was_removed_is_still_corrected() {
    let mut bench = Bench::new();
    let mut viewed = Event::new("viewed", 100_000);
    viewed.dimensions = vec![("video".into(), "v".into())];
    bench.send(&[viewed]);
    assert_eq!(bench.value("timely:v"), 1);
    bench.configure("counters: [{counterName: other, mode: simple, rules: [{on: x, op: increment}]}]");
    bench.clear("timely:v");
    assert_eq!(bench.value("timely:v"), 0);
    let sums = bench.state.balance("timely").and_then(|balance| balance.sums).expect("it has counted");
    assert_eq!((sums.counted, sums.corrected()), (1, -1));
}
