//! What is asked for about the past, against a naive model: a map of values, a list of what was corrected.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::fact::Request;
use crate::ledger::{Cause, Correction, Delta, Grounds, LateRun, Purpose, Remedy};
use crate::limits::RECORD_BYTES_MAX;
use crate::values::Sums;
use std::collections::BTreeMap;

const CONFIG: &str = "
counters:
  - counterName: timely
    mode: display
    dimensions: [video]
    dedup: none
    lateness: {allowed: 1s, corrected: 5s, every: 10s, restated: 1m}
    rules: [{on: viewed, op: increment}]
";

const IDS: [&str; 4] = ["timely:a", "timely:b", "x", "y"];

#[derive(Clone, Debug)]
enum Act {
    Add(usize, i64),
    Late {
        video: bool,
        hours_ago: i64,
    },
    Run {
        sums_max: u64,
    },
    Clear(Vec<usize>),
    Propose(Vec<(usize, i64)>, bool),
    Apply(u64),
    Revert(u64),
    Withdraw(u64),
    /// A cut has taken corrections and steps to the store.
    Cut,
    Pause(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let deltas = proptest::collection::vec((0..IDS.len(), prop_oneof![-9i64..-1, 1i64..9]), 1..4);
    prop_oneof![
        1 => (2..IDS.len(), -5i64..5).prop_map(|(n, delta)| Act::Add(n, delta)),
        3 => (any::<bool>(), 1i64..4).prop_map(|(video, hours_ago)| Act::Late { video, hours_ago }),
        1 => (1u64..4).prop_map(|sums_max| Act::Run { sums_max }),
        1 => proptest::collection::vec(0..IDS.len(), 1..4).prop_map(Act::Clear),
        1 => (deltas, any::<bool>()).prop_map(|(deltas, restores)| Act::Propose(deltas, restores)),
        2 => (1u64..12).prop_map(Act::Apply),
        2 => (1u64..12).prop_map(Act::Revert),
        1 => (1u64..12).prop_map(Act::Withdraw),
        1 => Just(Act::Cut),
        1 => (0u64..40_000).prop_map(Act::Pause),
    ]
}

/// What is added to which counters.
type Changes = Vec<(&'static str, i64)>;

/// Knows what should be there, and shares no code with what is.
#[derive(Default)]
struct Model {
    values: BTreeMap<&'static str, i64>,
    /// By number: what it did, whether it restores, and by which it was reverted.
    made: BTreeMap<u64, (Changes, bool, Option<u64>)>,
    open: BTreeMap<u64, (Changes, bool)>,
    /// Sums that wait: by id and hour, when they are due.
    parked: Vec<(&'static str, i64, i64, u64)>,
    number: u64,
    generation: u64,
    sums: Sums,
}

impl Model {
    fn value(&self, id: &str) -> i64 {
        self.values.get(id).copied().unwrap_or(0)
    }

    fn correct(&mut self, number: u64, deltas: Changes, purpose: Purpose) {
        self.number = self.number.max(number);
        self.generation += 1;
        for (id, delta) in &deltas {
            *self.values.entry(id).or_default() += delta;
            if id.starts_with("timely") {
                let sum = match purpose {
                    Purpose::Adjust => &mut self.sums.adjusted,
                    Purpose::Restore => &mut self.sums.restored,
                    Purpose::Count => &mut self.sums.counted,
                };
                *sum += i128::from(*delta);
            }
        }
        self.made.insert(number, (deltas, purpose == Purpose::Restore, None));
    }

    fn revert(&mut self, number: u64) -> bool {
        let next = self.number + 1;
        let Some((deltas, restores, by @ None)) = self.made.get_mut(&number) else { return false };
        *by = Some(next);
        let opposite = deltas.iter().map(|(id, delta)| (*id, -delta)).collect();
        let purpose = if *restores { Purpose::Restore } else { Purpose::Adjust };
        self.correct(next, opposite, purpose);
        true
    }
}

/// A node whose cuts take corrections away from memory, and a second one that replays its log.
struct Twins {
    live: Bench,
    replayed: Bench,
    stored: BTreeMap<u64, Correction>,
}

impl Twins {
    fn new() -> Twins {
        Twins { live: Bench::with(CONFIG), replayed: Bench::with(CONFIG), stored: BTreeMap::new() }
    }

    fn commit(&mut self, submission: &Submission) {
        self.live.commit(submission);
        let mut decoded = Submission::default();
        let replayed = &mut self.replayed;
        replayed.state.decode(&submission.records, &mut decoded).expect("what was encoded is decoded");
        assert_eq!((&decoded.ops, &decoded.stamps), (&submission.ops, &submission.stamps));
        decoded.records.clone_from(&submission.records);
        decoded.record_count = submission.record_count;
        replayed.log_time_ms = self.live.log_time_ms;
        replayed.commit(&decoded);
        assert_eq!(replayed.answers, self.live.answers);
        assert_eq!(replayed.state.just_made(), self.live.state.just_made());
    }

    /// Looks up what the store has, as an engine does, in both.
    fn look_up(&mut self, submission: &Submission) {
        for bench in [&mut self.live, &mut self.replayed] {
            loop {
                let needs = bench.state.needs(&submission.ops, &submission.stamps, |_| None);
                if needs.is_empty() {
                    break;
                }
                for need in needs {
                    let Need::Correction(number) = need else { panic!("{need:?}: nothing else was taken away") };
                    bench.state.load(need, Stored::Correction(self.stored.get(&number).cloned()));
                }
            }
        }
    }

    fn ask(&mut self, remedy: Remedy) -> Result<RemedyOutcome, Unfit> {
        let request = CorrectionRequest::from(remedy);
        let mut submission = Submission::default();
        let at = submission.remedy(&request.remedy.encode(None));
        self.live.state.touch(&request, at, &mut submission);
        self.look_up(&submission);
        self.commit(&submission);
        let outcome = self.live.state.take_outcome().expect("it was asked for");
        assert_eq!(self.replayed.state.take_outcome().as_ref(), Some(&outcome));
        [&mut self.live, &mut self.replayed].into_iter().for_each(|bench| bench.state.forget_loaded());
        outcome
    }

    /// Corrections are in the store from here on, and in neither memory.
    fn cut(&mut self) {
        self.stored.extend(self.live.state.values.facts.corrections.iter());
        for bench in [&mut self.live, &mut self.replayed] {
            bench.state.begin_facts_cut();
            bench.state.finish_facts_cut();
        }
    }
}

fn deltas(of: &[(usize, i64)]) -> Changes {
    of.iter().map(|(n, delta)| (IDS[*n], *delta)).collect()
}

fn run_one(twins: &mut Twins, model: &mut Model, act: Act) {
    let now_ms = twins.live.log_time_ms;
    let grounds = || Grounds::new("why", "who");
    match act {
        Act::Pause(ms) => {
            twins.live.log_time_ms += ms;
            let mut tick = Submission::default();
            tick.record(&Record::Tick);
            twins.commit(&tick);
        }
        Act::Cut => twins.cut(),
        Act::Add(n, delta) => {
            let mut add = Submission::default();
            add.add(hasher().key(IDS[n].as_bytes()), IDS[n].as_bytes(), delta);
            twins.commit(&add);
            *model.values.entry(IDS[n]).or_default() += delta;
        }
        Act::Late { video, hours_ago } => {
            let (video, id) = if video { ("a", IDS[0]) } else { ("b", IDS[1]) };
            let at_ms = now_ms as i64 - hours_ago * 3_600_000;
            let mut late = event("viewed", "x", at_ms, &[("video", video)]);
            late.received_at_ms = now_ms;
            let mut submission = Submission::default();
            let at = submission.event(&late);
            twins.live.state.stager.clone().stage(&late, at, &mut submission, &mut |_, _| {});
            twins.commit(&submission);
            if twins.live.answers == [Answer::Late] {
                let (hour, due_ms) = (at_ms / 3_600_000, (now_ms / 60_000 + 1) * 60_000);
                match model.parked.iter_mut().find(|(of, at, ..)| (*of, *at) == (id, hour)) {
                    Some((.., delta, due)) => (*delta, *due) = (*delta + 1, due_ms.min(*due)),
                    None => model.parked.push((id, hour, 1, due_ms)),
                }
            } else {
                *model.values.entry(id).or_default() += 1;
                model.sums.counted += 1;
            }
        }
        Act::Run { sums_max } => {
            let outcome = twins.ask(Remedy::Late(LateRun { sums_max, ..LateRun::due_by(now_ms) }));
            let due = model.parked.iter().filter(|(.., due_ms)| *due_ms <= now_ms).count();
            let Ok(RemedyOutcome::Corrected(made)) = outcome else {
                return assert_eq!((outcome, due), (Err(Unfit::Nothing), 0));
            };
            assert_eq!(made.deltas.len(), due.min(sums_max as usize), "as many as a run takes, and no fewer");
            let mut taken = Vec::new();
            for delta in &made.deltas {
                let bucket = delta.bucket_ms.expect("late entries have an hour") as i64 / 3_600_000;
                let found = model.parked.iter().position(|(id, hour, _, due_ms)| {
                    id.as_bytes() == delta.id && *hour == bucket && *due_ms <= now_ms
                });
                let (id, _, waited, _) = model.parked.remove(found.expect("it waits and is due"));
                assert_eq!(delta.delta, waited);
                taken.push((id, waited));
            }
            assert_eq!((made.cause, made.purpose), (Cause::Late { run: made.generation }, Purpose::Count));
            model.correct(model.number + 1, taken, Purpose::Count);
        }
        Act::Clear(of) => {
            let ids = of.iter().map(|n| IDS[*n].into()).collect();
            let outcome = twins.ask(Remedy::Clear { ids, grounds: grounds(), if_generation: None });
            let mut cleared = Vec::new();
            for id in of.into_iter().map(|n| IDS[n]) {
                let value = model.value(id);
                if value != 0 && !cleared.contains(&(id, -value)) {
                    cleared.push((id, -value));
                }
            }
            match cleared.is_empty() {
                true => assert_eq!(outcome, Err(Unfit::Nothing)),
                false => {
                    assert!(outcome.is_ok(), "{outcome:?}");
                    model.correct(model.number + 1, cleared, Purpose::Adjust);
                }
            }
        }
        Act::Propose(of, restores) => {
            let of = deltas(&of);
            let purpose = if restores { Purpose::Restore } else { Purpose::Adjust };
            let named = of.iter().map(|(id, delta)| Delta { id: (*id).into(), bucket_ms: None, delta: *delta });
            let (reason, author) = ("why".into(), "who".into());
            let (deltas, if_generation) = (named.collect(), None);
            let proposal = Proposal { number: 0, reason, author, at_ms: 0, deltas, if_generation, purpose };
            let number = twins.ask(Remedy::Propose(proposal)).expect("there is room").number();
            model.number += 1;
            assert_eq!(number, model.number);
            model.open.insert(number, (of, restores));
        }
        Act::Withdraw(number) => {
            let mut withdraw = Submission::default();
            withdraw.record_op(OpKind::Withdraw, CellKey::NONE, 0, &Record::Withdraw { number });
            twins.commit(&withdraw);
            let was_open = model.open.remove(&number).is_some();
            assert_eq!(twins.live.answers, [if was_open { Answer::Yes } else { Answer::No }]);
        }
        Act::Apply(number) => {
            let outcome = twins.ask(Remedy::Apply { number, author: "boss".into(), if_generation: None });
            let Some((of, restores)) = model.open.remove(&number) else {
                return assert_eq!(outcome, Err(Unfit::NotOpen(number)));
            };
            assert_eq!(outcome.map(|outcome| outcome.number()), Ok(number));
            model.correct(number, of, if restores { Purpose::Restore } else { Purpose::Adjust });
        }
        Act::Revert(number) => {
            let outcome = twins.ask(Remedy::Revert { number, grounds: grounds(), if_generation: None });
            let by = model.made.get(&number).map(|(.., by)| *by);
            let (is_open, next) = (model.open.contains_key(&number), model.number + 1);
            let expected = match by {
                _ if is_open => Err(Unfit::OnlyProposed(number)),
                None => Err(Unfit::NotThere(number)),
                Some(Some(by)) => Err(Unfit::Reverted { number, by }),
                Some(None) => Ok(next),
            };
            assert_eq!(outcome.map(|outcome| outcome.number()), expected);
            assert_eq!(expected.is_ok(), model.revert(number));
        }
    }
}

proptest! {
    #[test]
    fn corrections_come_to_what_a_naive_model_says_and_a_replay_to_the_same(
        acts in proptest::collection::vec(act(), 1..60)
    ) {
        let (mut twins, mut model) = (Twins::new(), Model::default());
        twins.live.log_time_ms = 10 * 3_600_000;
        // The first entry sets the watermark: what is an hour old is late from then on.
        let mut first = event("viewed", "x", twins.live.log_time_ms as i64, &[("video", "a")]);
        first.received_at_ms = twins.live.log_time_ms;
        let mut submission = Submission::default();
        let at = submission.event(&first);
        twins.live.state.stager.clone().stage(&first, at, &mut submission, &mut |_, _| {});
        twins.commit(&submission);
        *model.values.entry(IDS[0]).or_default() += 1;
        (model.sums.counted, model.sums.is_touched) = (1, true);
        for act in acts {
            run_one(&mut twins, &mut model, act);
            let live = &mut twins.live;
            for id in IDS {
                prop_assert_eq!(live.value(id), model.value(id), "{}", id);
            }
            let generations = &live.state.values.generations;
            prop_assert_eq!((generations.current, generations.number), (model.generation, model.number));
            prop_assert_eq!(live.state.balance("timely").unwrap().sums, Some(model.sums));
            let parked = live.state.fates.contracts.parked.len();
            prop_assert_eq!(parked, model.parked.len());
            prop_assert_eq!(live.state.checkpoint(0).0, twins.replayed.state.checkpoint(0).0);
        }
    }
}

#[test]
fn what_is_asked_for_under_an_id_is_done_once_and_answered_the_same() {
    let mut bench = Bench::with(CONFIG);
    let clear = |bench: &mut Bench, id: &[u8], of: &str| {
        let remedy = Remedy::Clear { ids: vec![of.into()], grounds: Grounds::new("", ""), if_generation: None };
        let once = Some(Request::new(&hasher(), id, &[b"clear", of.as_bytes()]));
        bench.ask(&CorrectionRequest { remedy, once }).map(|outcome| outcome.number())
    };
    assert_eq!(clear(&mut bench, b"k1", "x"), Err(Unfit::Nothing));
    bench.adjust(&[Delta { id: b"x".to_vec(), bucket_ms: None, delta: 5 }]).expect("it fits");
    assert_eq!(clear(&mut bench, b"k1", "x"), Err(Unfit::Repeated(0)), "whatever there is by now");
    assert_eq!(bench.value("x"), 5);
    assert_eq!(clear(&mut bench, b"k2", "x"), Ok(2));
    bench.adjust(&[Delta { id: b"x".to_vec(), bucket_ms: None, delta: 5 }]).expect("it fits");
    assert_eq!(clear(&mut bench, b"k2", "x"), Err(Unfit::Repeated(2)));
    assert_eq!(clear(&mut bench, b"k2", "y"), Err(Unfit::OtherRequest));
    assert_eq!(bench.value("x"), 5);
}

#[test]
fn a_run_takes_what_is_due_at_its_place_in_the_log_and_leaves_the_rest_to_the_next() {
    let mut bench = Bench::with(CONFIG);
    let names: Vec<_> = (0..7).map(|n| format!("v{n}")).collect();
    let view = |video: &'static str, at_ms| event("viewed", "x", at_ms, &[("video", video)]);
    bench.send(&[view("now", 100_000)]);
    for name in &names {
        let video: &'static str = name.clone().leak();
        assert_eq!(bench.send(&[view(video, 50_000)]), [Answer::Late]);
    }
    let run = Remedy::Late(LateRun { sums_max: 3, ..LateRun::due_by(u64::MAX) });
    let request = CorrectionRequest::from(run.clone());
    // It is planned, and then one more entry joins a sum: that counts as well.
    bench.send(&[view("v0", 50_000)]);
    let sizes: Vec<_> = (0..3).map(|_| bench.ask(&request).expect("something is due")).collect();
    let taken = |outcome: &RemedyOutcome| match outcome {
        RemedyOutcome::Corrected(made) => made.deltas.len(),
        RemedyOutcome::Proposed(_) => 0,
    };
    assert_eq!(sizes.iter().map(taken).collect::<Vec<_>>(), [3, 3, 1]);
    assert_eq!(bench.ask(&request), Err(Unfit::Nothing));
    assert_eq!(bench.value("timely:v0"), 2);
    assert_eq!(names.iter().map(|name| bench.value(&format!("timely:{name}"))).sum::<i64>(), 8);
}

#[test]
fn what_an_earlier_version_was_asked_for_under_an_id_is_answered_the_same() {
    let mut bench = Bench::with(CONFIG);
    let clear = || Remedy::Clear { ids: vec![b"x".to_vec()], grounds: Grounds::new("", ""), if_generation: None };
    let once = Request::new(&hasher(), b"k", &[b"clear"]);
    bench.adjust(&[Delta { id: b"x".to_vec(), bucket_ms: None, delta: 5 }]).expect("it fits");
    let Ok(RemedyOutcome::Corrected(drafted)) = bench.state.assess(&clear().into()) else { panic!("it is not 0") };
    let mut written = Submission::default();
    written.record(&Record::Once { id: b"k", content: once.content, number: drafted.number });
    written.record(&Record::Correct(&drafted.to_bytes()));
    let mut decoded = Submission::default();
    bench.state.decode(&written.records, &mut decoded).expect("it is still read");
    (decoded.records, decoded.record_count) = (written.records, written.record_count);
    bench.commit(&decoded);
    assert_eq!((bench.value("x"), bench.state.values.generations.current), (0, 2));
    let again = bench.ask(&CorrectionRequest { remedy: clear(), once: Some(once) });
    assert_eq!(again, Err(Unfit::Repeated(drafted.number)));
}

#[test]
fn a_correction_of_an_earlier_version_is_reverted_like_any_other() {
    let mut bench = Bench::with(CONFIG);
    bench.adjust(&[Delta { id: b"x".to_vec(), bucket_ms: None, delta: 5 }]).expect("it fits");
    bench.run_of_old(&[Delta { id: b"x".to_vec(), bucket_ms: None, delta: -3 }]);
    assert_eq!(bench.value("x"), 2);
    let back = bench.try_revert(2).expect("it was made");
    assert_eq!((back.number, back.generation, back.deltas[0].delta), (3, 3, 3));
    assert_eq!(bench.value("x"), 5);
}

#[test]
fn what_is_too_large_for_one_record_is_in_parts_and_comes_to_the_same() {
    let mut twins = Twins::new();
    let id = |n: usize| format!("{n:01000}").into_bytes();
    let propose = |bytes: usize| {
        let deltas = (0..bytes / 1000).map(|n| Delta { id: id(n), bucket_ms: None, delta: 1 }).collect();
        let (reason, author) = ("why".into(), "who".into());
        let (number, at_ms, if_generation, purpose) = (0, 0, None, Purpose::Adjust);
        Remedy::Propose(Proposal { number, reason, author, at_ms, deltas, if_generation, purpose })
    };
    for (number, bytes) in [(1, 1_000), (2, RECORD_BYTES_MAX), (3, 3 * RECORD_BYTES_MAX)] {
        assert_eq!(twins.ask(propose(bytes)).map(|outcome| outcome.number()), Ok(number));
        let apply = Remedy::Apply { number, author: "boss".into(), if_generation: None };
        let Ok(RemedyOutcome::Corrected(made)) = twins.ask(apply) else { panic!("it is open") };
        assert_eq!(made.deltas.len(), bytes / 1000);
    }
    assert_eq!(twins.live.value(std::str::from_utf8(&id(0)).unwrap()), 3);
}

#[test]
fn no_part_is_larger_than_a_record_may_be() {
    const PART: usize = RECORD_BYTES_MAX - 16;
    for (bytes, records) in [(0, 1), (1, 1), (PART, 1), (PART + 1, 2), (3 * PART, 3), (3 * PART + 1, 4)] {
        let mut submission = Submission::default();
        submission.record(&Record::Tick);
        let remedy: Vec<u8> = (0..bytes).map(|n| n as u8).collect();
        let at = submission.remedy(&remedy);
        assert_eq!((at, submission.record_count), (1, 1 + records), "{bytes}");
        let (mut parts, record) = crate::record::take_with_parts(&mut &submission.records[1..]).unwrap();
        let Record::Remedy(rest) = record else { panic!("{record:?}") };
        parts.extend_from_slice(rest);
        assert!(parts == remedy, "{bytes}");
        let mut rest = submission.records.as_slice();
        while !rest.is_empty() {
            let before = rest.len();
            Record::decode(&mut rest).unwrap();
            assert!(before - rest.len() <= RECORD_BYTES_MAX, "{bytes}");
        }
    }
}

#[test]
fn declarations_that_are_too_large_for_one_record_are_in_parts() {
    let yaml = format!("# {}\n{CONFIG}", "x".repeat(2 * RECORD_BYTES_MAX));
    let mut submission = Submission::default();
    submission.config(7, yaml.as_bytes());
    assert_eq!(submission.record_count, 3);
    let decoded = Bench::new().state.decode(&submission.records, &mut Submission::default()).expect("it is alone");
    let Replayed::Config { version, yaml: again } = decoded.what else { panic!("it is a configuration") };
    assert_eq!((version, again), (7, yaml));
    submission.record(&Record::Tick);
    assert!(Bench::new().state.decode(&submission.records, &mut Submission::default()).is_err(), "it is not alone");
}
