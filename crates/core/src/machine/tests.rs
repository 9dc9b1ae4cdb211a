//! A replay agrees with what happened, and expiry follows the log's time.

mod bands;
mod combined;
mod contracts;
mod fill;
mod followed;
mod honesty;
mod parts;
mod remedies;
mod repeats;
mod tops;
mod transitions;
mod trial;
mod voids;

use super::*;
use crate::id::CellKey;
use crate::ledger::{Delta, Proposal, Purpose, Row};
use crate::op::Submission;
use crate::record::{CopyManner, ExpireCondition, Expiry, SetCondition};
use proptest::prelude::*;

const CONFIG: &str = "\
counters:
  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}, {on: undo, op: decrement}]}
  - {counterName: total, mode: display, dedup: {by: [session, seq], window: 1s}, rules: [{on: hit, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [page], entity: [user], rules: [{on: hit, op: increment}, {on: undo, op: decrement}]}
  - {counterName: paid, mode: persistent, dimensions: [page], rules: [{on: hit, op: increment}, {on: undo, op: decrement}]}
  - {counterName: late, mode: display, dedup: none, lateness: {allowed: 1s, corrected: 1m, every: 1s}, rules: [{on: hit, op: increment}]}
";

fn state() -> Machine {
    let mut state = Machine::new(CellHasher::new(7));
    state.configure(Declarations::parse(CONFIG).expect("the sample is valid"), 0);
    state
}

fn id(n: u8) -> Vec<u8> {
    format!("c{n}").into_bytes()
}

fn key(n: u8) -> CellKey {
    CellHasher::new(7).key(&id(n))
}

type Stage = Box<dyn Fn(&mut Stager, &mut Submission)>;

/// Something that can be in a submission.
fn operation() -> impl Strategy<Value = (String, u8, i64, u64)> {
    let kind = proptest::sample::select(vec![
        "add", "set", "nx", "delete", "expire", "gt", "persist", "once", "event", "event", "propose", "flush", "copy",
        "move", "new", "many", "same",
    ]);
    (kind.prop_map(str::to_owned), 0u8..6, prop_oneof![-5i64..5, Just(i64::MAX)], 0u64..300)
}

fn stage((kind, n, number, at_ms): (String, u8, i64, u64)) -> Stage {
    Box::new(move |stager, out| match kind.as_str() {
        "add" => out.add(key(n), &id(n), number),
        "many" => out.add_many(&crate::counter::Target::ad_hoc(key(n), &id(n)), &[number, -1, number, at_ms as i64]),
        "same" => out.add_many(&crate::counter::Target::ad_hoc(key(n), &id(n)), &vec![number; 1 + n as usize]),
        "set" => out.set(key(n), &id(n), number, SetCondition::Always, Expiry::At(at_ms)),
        "nx" => out.set(key(n), &id(n), number, SetCondition::IfAbsent, Expiry::Keep),
        "delete" => out.delete(key(n), &id(n)),
        "expire" => out.expire(key(n), &id(n), at_ms, ExpireCondition::Always),
        "gt" => out.expire(key(n), &id(n), at_ms, ExpireCondition::IfGreater),
        "persist" => out.persist(key(n), &id(n)),
        "copy" | "move" => {
            let manner = match (kind.as_str(), number % 2 == 0) {
                ("copy", false) => CopyManner::IfAbsent,
                ("copy", true) => CopyManner::Replace,
                (_, false) => CopyManner::MoveIfAbsent,
                (_, true) => CopyManner::MoveReplace,
            };
            let other = (at_ms % 6) as u8;
            out.copy((key(n), &id(n)), (key(other), &id(other)), manner);
        }
        "new" => {
            let other = (at_ms % 6) as u8;
            out.set_new([(key(n), &id(n)[..], number), (key(other), &id(other), 1)].into_iter());
        }
        "once" => {
            let key_of_id = crate::fact::answer_key(&CellHasher::new(7), &id(n), b"k");
            out.add_once(&crate::counter::Target::ad_hoc(key(n), &id(n)), number, key_of_id, b"k");
        }
        "propose" => {
            let deltas = vec![Delta { id: id(n), bucket_ms: None, delta: number }];
            let (reason, author) = ("r".into(), "a".into());
            let proposal =
                Proposal { number: 0, reason, author, at_ms: 0, deltas, if_generation: None, purpose: Purpose::Adjust };
            out.record_op(OpKind::Propose, CellKey::NONE, 0, &Record::Propose(&proposal.to_bytes()));
        }
        "flush" if n == 0 => out.flush(),
        "flush" => out.add(key(n), &id(n), 1),
        _ => {
            let mut event = crate::event::Event::new(if n % 2 == 0 { "hit" } else { "undo" }, 0);
            event.delta = if at_ms % 2 == 0 { 1 } else { number };
            event.event_id = Some(format!("e{}", at_ms % 40).into());
            event.session = Some("s".into());
            event.seq = Some(at_ms % 10);
            event.occurred_at_ms = Some(at_ms as i64 * 20);
            event.dimensions.push(("user".into(), format!("u{}", number % 2).into()));
            event.dimensions.push(("page".into(), format!("p{n}").into()));
            let at = out.event(&event);
            stager.stage(&event, at, out, &mut |_, _| {});
        }
    })
}

fn batch(submission: &Submission, log_time_ms: u64) -> Batch<'_> {
    let Submission { records, ops, stamps, .. } = submission;
    Batch { head: None, first: 0, records, ops, stamps, log_time_ms, offset: 0 }
}

/// Everything that can be seen of a state.
fn seen(state: &mut Machine) -> impl PartialEq + std::fmt::Debug + use<> {
    let ids = (0..6)
        .map(id)
        .chain((0..6).map(|n| format!("hits:p{n}").into_bytes()))
        .chain([b"total".to_vec(), b"late".to_vec()])
        .chain((0..6).flat_map(|n| [format!("likes:p{n}").into_bytes(), format!("paid:p{n}").into_bytes()]));
    let keys = ids.map(|id| CellHasher::new(7).key(&id));
    let cells = keys
        .map(|key| state.values.table.get(key).map(|value| (value, state.values.table.deadline(key))))
        .collect::<Vec<_>>();
    let names = state.values.names.sorted().map(|(id, exists)| (id.to_vec(), exists)).collect::<Vec<_>>();
    let checkpoint = state.checkpoint(0).0;
    (cells, names, state.values.table.cells().len(), checkpoint)
}

proptest! {
    #[test]
    fn a_replay_gives_the_same_answers_and_the_same_state(
        batches in proptest::collection::vec((proptest::collection::vec(operation(), 1..8), 0u64..60), 1..12)
    ) {
        let (mut live, mut replayed) = (state(), state());
        let (mut answers, mut again) = (Vec::new(), Vec::new());
        let (mut submission, mut decoded) = (Submission::default(), Submission::default());
        let (mut log_time_ms, mut offset) = (0, 0);
        for (operations, pause) in batches {
            log_time_ms += pause;
            submission.clear();
            let mut stager = live.stager.clone();
            operations.into_iter().for_each(|operation| stage(operation)(&mut stager, &mut submission));
            let records = &submission.records;
            let Submission { ops, stamps, .. } = &submission;
            live.apply(&Batch { head: None, first: 0, records, ops, stamps, log_time_ms, offset }, &mut answers);
            replayed.decode(records, &mut decoded).expect("what was encoded is decoded");
            let Submission { ops, stamps, .. } = &decoded;
            prop_assert_eq!((ops, stamps), (&submission.ops, &submission.stamps));
            replayed.apply(&Batch { head: None, first: 0, records, ops, stamps, log_time_ms, offset }, &mut again);
            offset += u64::from(submission.record_count);
            prop_assert_eq!(&answers, &again);
            prop_assert_eq!(seen(&mut live), seen(&mut replayed));
        }
    }
}

#[test]
fn a_counter_expires_when_the_log_reaches_its_time_and_not_before() {
    let mut state = state();
    let mut answers = Vec::new();
    let mut submission = Submission::default();
    submission.set(key(1), &id(1), 5, SetCondition::Always, Expiry::At(100));
    submission.ttl(key(1));
    let mut apply = |submission: &Submission, log_time_ms| {
        state.apply(&batch(submission, log_time_ms), &mut answers);
        (answers.clone(), state.values.names.sorted().last().map(|(id, exists)| (id.to_vec(), exists)))
    };
    let set = Answer::Set { previous: None, applied: true };
    assert_eq!(apply(&submission, 60), (vec![set, Answer::Value(40)], Some((id(1), true))));
    submission.clear();
    submission.add(key(1), &id(1), 1);
    assert_eq!(apply(&submission, 99).0, [Answer::Value(6)]);
    assert_eq!(apply(&submission, 100).0, [Answer::Value(1)], "it began anew");
    submission.clear();
    submission.expire(key(1), &id(1), 100, ExpireCondition::Always);
    assert_eq!(apply(&submission, 100), (vec![Answer::Yes], Some((id(1), false))), "a time that has passed deletes");
}

#[test]
fn a_read_between_commits_does_not_move_the_logs_time() {
    let mut state = state();
    let mut answers = Vec::new();
    let mut write = Submission::default();
    write.set(key(1), &id(1), 5, SetCondition::Always, Expiry::At(100));
    state.apply(&batch(&write, 10), &mut answers);
    let mut read = Submission::default();
    read.get(key(1));
    state.apply(&batch(&read, 200), &mut answers);
    assert_eq!(answers, [Answer::Absent], "the reader's clock says that it has expired");
    assert_eq!(state.log_time_ms(), 10);
    assert_eq!(state.values.table.get(key(1)), Some(5), "it goes when the log's time says so");
}

#[test]
fn a_checkpoint_of_the_first_version_is_carried_over_with_its_proposals_and_idempotency_keys() {
    use crate::record::{put_bytes, put_varint};
    let deltas = vec![Delta { id: id(1), bucket_ms: None, delta: 1 }];
    let proposal = Proposal {
        number: 3,
        reason: "r".into(),
        author: "a".into(),
        at_ms: 9,
        deltas,
        if_generation: None,
        purpose: Purpose::Adjust,
    };
    let hour_ms = 60 * 60 * 1000;
    // Log time, read from, no declarations, no counters, no rows of the ledger, generation and last number.
    let mut bytes = vec![1];
    [hour_ms + 5, 0, 0, 0, 0, 0, 0, 2, 3, 1].iter().for_each(|n| put_varint(&mut bytes, *n));
    put_bytes(&mut bytes, &proposal.to_bytes());
    // Nothing reverted, seven keys of the second hour, nothing parked, no audit.
    [0, 1, 1, 7, 0, 0].iter().for_each(|n| put_varint(&mut bytes, *n));
    let mut resumed = Machine::new(CellHasher::new(7));
    assert_eq!(resumed.resume(&bytes).expect("the first version is read"), 0);
    assert_eq!(resumed.values.facts.proposals.get(3), Some(proposal.clone()));
    assert_eq!(resumed.facts_changed(), 1, "the next cut makes a row of it");
    assert_eq!((resumed.values.answered.used(2 * hour_ms), resumed.values.answered.used(2 * hour_ms + 1)), (7, 0));
}
