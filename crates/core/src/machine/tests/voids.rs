//! A batch that stands in the log twice counts once, and what its head says is held against the log.

use super::*;
use crate::event::Event;
use crate::fates::Void;
use crate::head::{Group, HEAD_BYTES_MAX, Head, RULES};

fn head(sender: u64, seq: u64, clock_ms: u64) -> Head {
    Head { rules: RULES, sender, incarnation: 1, seq, settled: seq.saturating_sub(3), clock_ms, ..Head::default() }
}

/// A batch as it is in a log.
#[derive(Clone)]
struct Logged {
    bytes: Vec<u8>,
    log_time_ms: u64,
    offset: u64,
}

/// Applies a batch of the log as a replay does.
fn replay(state: &mut Machine, logged: &Logged, answers: &mut Vec<Answer>) -> Option<Void> {
    let mut decoded = Submission::default();
    let Decoded { head, first, .. } = state.decode(&logged.bytes, &mut decoded).expect("it was encoded");
    let Submission { ops, stamps, .. } = &decoded;
    let Logged { bytes: records, log_time_ms, offset } = logged;
    state.apply(&Batch { head, records, first, ops, stamps, log_time_ms: *log_time_ms, offset: *offset }, answers)
}

/// Everything that can be seen of a state but for who sent what.
fn counted(state: &mut Machine) -> impl PartialEq + std::fmt::Debug + use<> {
    state.fates.senders = Default::default();
    state.timeline.resume_voids(Default::default());
    (seen(state), state.balances())
}

proptest! {
    #[test]
    fn a_log_with_batches_that_came_again_is_worth_what_it_is_without_them(
        sent in proptest::collection::vec(
            (0u64..2, proptest::collection::vec(operation(), 1..5), 0u64..40, proptest::option::of(0usize..8)), 1..20
        )
    ) {
        let (mut live, mut naive) = (state(), state());
        let (mut answers, mut expected) = (Vec::new(), Vec::new());
        let (mut log, mut stood) = (Vec::<Logged>::new(), Vec::<Vec<u8>>::new());
        let (mut log_time_ms, mut offset, mut seqs) = (0, 0, [0, 0]);
        for (sender, operations, pause, again) in sent {
            log_time_ms += pause;
            // One that came before comes again, as it was; or something new comes.
            let known = again.and_then(|back| stood.len().checked_sub(back + 1)).map(|at| stood[at].clone());
            let is_new = known.is_none();
            let bytes = known.unwrap_or_else(|| {
                let mut submission = Submission::default();
                submission.begin_batch();
                let mut stager = live.stager.clone();
                operations.into_iter().for_each(|operation| stage(operation)(&mut stager, &mut submission));
                let seq = &mut seqs[sender as usize];
                *seq += 1;
                submission.payload(&head(sender, *seq - 1, log_time_ms)).to_vec()
            });
            let logged = Logged { bytes, log_time_ms, offset };
            let void = replay(&mut live, &logged, &mut answers);
            prop_assert_eq!(void, (!is_new).then_some(Void::Repeated));
            if is_new {
                stood.push(logged.bytes.clone());
                replay(&mut naive, &logged, &mut expected);
                prop_assert_eq!(&answers, &expected);
            } else {
                prop_assert!(answers.is_empty() && live.was_void(offset));
                naive.pass_time(log_time_ms, offset);
            }
            log.push(logged);
            offset += 10;
        }
        let mut replayed = state();
        for logged in &log {
            replay(&mut replayed, logged, &mut answers);
        }
        prop_assert_eq!(seen(&mut replayed), seen(&mut live));
        prop_assert_eq!(counted(&mut live), counted(&mut naive));
    }
}

/// A view of session `s`, as a batch of the log.
fn view(state: &Machine, sender: u64, seq: u64, log_time_ms: u64, offset: u64) -> Logged {
    let mut event = Event::new("hit", 0);
    (event.session, event.seq) = (Some("s".into()), Some(1));
    let mut submission = Submission::default();
    submission.begin_batch();
    let at = submission.event(&event);
    state.stager.clone().stage(&event, at, &mut submission, &mut |_, _| {});
    Logged { bytes: submission.payload(&head(sender, seq, log_time_ms)).to_vec(), log_time_ms, offset }
}

/// Windows have a second: a repeat is known for this one and the next.
#[test]
fn what_is_void_is_not_remembered_either_before_or_after_a_restart() {
    let mut live = state();
    let mut answers = Vec::new();
    let first = view(&live, 1, 0, 900, 0);
    let again = Logged { log_time_ms: 1_500, offset: 10, ..first.clone() };
    assert_eq!(replay(&mut live, &first, &mut answers), None);
    assert_eq!(replay(&mut live, &again, &mut answers), Some(Void::Repeated));
    let (checkpoint, read_from) = live.checkpoint(20);
    assert_eq!(read_from, 0);
    let mut resumed = Machine::new(CellHasher::new(7));
    assert_eq!(resumed.resume(&checkpoint).unwrap(), 0);
    for logged in [&first, &again] {
        let mut decoded = Submission::default();
        let Decoded { head, first, .. } = resumed.decode(&logged.bytes, &mut decoded).unwrap();
        let Submission { ops, stamps, .. } = &decoded;
        let Logged { bytes: records, log_time_ms, offset } = logged;
        let (log_time_ms, offset) = (*log_time_ms, *offset);
        resumed.remember(&Batch { head, records, first, ops, stamps, log_time_ms, offset });
    }
    resumed.resumed().unwrap();
    // Two windows behind the first, and one behind the void one.
    let later = view(&live, 2, 0, 2_100, 20);
    for state in [&mut live, &mut resumed] {
        assert_eq!(replay(state, &later, &mut answers), None);
        assert_eq!(answers.iter().filter(|answer| **answer == Answer::Duplicate).count(), 0, "{answers:?}");
        let again = Logged { log_time_ms: 2_100, offset: 30, ..first.clone() };
        assert_eq!(replay(state, &again, &mut answers), Some(Void::Repeated), "the checkpoint knows the sender");
    }
}

#[test]
fn a_batch_that_cannot_be_of_this_log_is_refused_by_name() {
    let mut state = state();
    let now_ms = 1_000_000;
    state.configure(state.declarations().as_ref().clone(), 7);
    state.pass_time(now_ms, 8);
    let good = Head { control: 7, ..head(1, 0, now_ms) };
    let five_minutes = 5 * 60 * 1000;
    assert_eq!(state.check_head(&good, now_ms), Ok(()));
    assert_eq!(state.check_head(&good, now_ms + five_minutes), Ok(()));
    let told = |head: Head, log_time_ms| state.check_head(&head, log_time_ms).unwrap_err().to_string();
    let newer = told(Head { rules: RULES + 1, ..good }, now_ms);
    assert!(
        newer.contains(&format!("rules of version {}", RULES + 1)) && newer.contains("start a newer one"),
        "{newer}"
    );
    assert!(told(Head { control: 6, ..good }, now_ms).contains("those from record 7 on are in force"));
    assert!(told(Head { control: 8, ..good }, now_ms).contains("record 8 on, which are not there"));
    assert!(told(Head { group: Group(99), ..good }, now_ms).contains("identity group 99"));
    assert!(told(good, now_ms + five_minutes + 1).contains("the clock of its appender was at 1000000"));
    assert!(told(good, now_ms - 1).contains("its log time is 999999, after 1000000"));
}

proptest! {
    /// One copy of each event for each group, in an order of its own, comes to what one copy for all comes to.
    #[test]
    fn an_event_whose_copies_are_routed_by_different_identities_counts_once_for_each_counter(
        events in proptest::collection::vec((0u8..6, -5i64..5, 0u64..300), 1..20),
    ) {
        let (mut whole, mut apart) = (state(), state());
        let (mut answers, mut offset, mut seq) = (Vec::new(), 0, 0);
        let groups: Vec<Group> = (0..5).map(|counter| whole.declarations().group_of(counter)).collect();
        // Simple, display by session, transition, persistent, display without repeats.
        prop_assert_eq!(&groups, &[Group(1), Group(2), Group(3), Group(4), Group(2)]);
        for (n, number, at_ms) in events {
            let operation = ("event".to_owned(), n, number, at_ms);
            let mut submission = Submission::default();
            submission.begin_batch();
            stage(operation)(&mut whole.stager.clone(), &mut submission);
            for group in [Group(4), Group(2), Group(3), Group(1), Group::ALL] {
                let state = if group == Group::ALL { &mut whole } else { &mut apart };
                let bytes = submission.payload(&Head { group, ..head(1, seq, 0) }).to_vec();
                replay(state, &Logged { bytes, log_time_ms: 0, offset }, &mut answers);
                seq += 1;
            }
            offset += 1;
        }
        prop_assert_eq!(counted(&mut apart), counted(&mut whole));
    }
}

#[test]
#[should_panic(expected = "rules of version 9")]
fn a_batch_of_ones_own_that_cannot_be_is_an_assertion() {
    let mut submission = Submission::default();
    submission.begin_batch();
    submission.add(key(1), &id(1), 1);
    let head = Head { rules: 9, ..head(1, 0, 5) };
    assert_eq!(submission.batch(None, 5, 0).first as usize, HEAD_BYTES_MAX);
    state().apply(&submission.batch(Some(head), 5, 0), &mut Vec::new());
}
