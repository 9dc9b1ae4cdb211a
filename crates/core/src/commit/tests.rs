//! Commits survive their bytes, and the lines between them follow from the log alone.

use super::*;
use crate::counter::Declarations;
use crate::fates::Void;
use crate::head::RULES_WITH_AUDIT;
use crate::ledger::{BoxKind, Cause, Correction, Delta, Purpose};
use crate::limits::COMMIT_SLOT_MS;
use crate::position::Position;
use proptest::prelude::*;
use std::sync::Arc;

fn position(epoch: u32, offset: u64) -> Position {
    Position { epoch, log: 0, offset }
}

fn correction(delta: i64) -> Correction {
    Correction {
        number: 7,
        generation: 3,
        reason: "bots".into(),
        author: "ops".into(),
        at_ms: 5,
        deltas: vec![Delta { id: b"a".to_vec(), bucket_ms: None, delta }],
        cause: Cause::Proposal(7),
        purpose: Purpose::Adjust,
        applied_by: "boss".into(),
        proposed_ms: Some(4),
        reverted_generation: None,
    }
}

fn sample() -> Commit {
    let mut commit = Commit {
        from: position(1, 10),
        to: position(2, 300),
        log_time_ms: 1_000,
        generation: 3,
        exceptions: vec![
            NamedException { offset: 11, counter: b"views"[..].into(), fate: BoxKind::Duplicate },
            NamedException { offset: 11, counter: b"views"[..].into(), fate: BoxKind::Late },
            NamedException { offset: 200, counter: b"likes"[..].into(), fate: BoxKind::Ignored },
        ],
        corrections: vec![ToldCorrection { delta_count: 1, correction: correction(-2) }],
        rules: 0,
        voids: Vec::new(),
        audit: Audit::default(),
        digest: Digest(1),
        deltas: Some(Deltas {
            flushed: true,
            unnamed: 1,
            counters: CounterDeltas::from_iter([
                CounterDelta { id: b"a", delta: -2, value: Some(5) },
                CounterDelta { id: b"b", delta: i128::from(u64::MAX), value: None },
            ]),
        }),
    };
    commit.digest = Digest(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    commit
}

fn audit(rows: impl IntoIterator<Item = (u64, &'static str, u64, bool)>) -> Audit {
    let mut audit = Audit::default();
    for (offset, event_id, first_seen_ms, conflict) in rows {
        audit.push(|| AuditRow { offset, event_id: event_id.as_bytes().into(), first_seen_ms, conflict });
    }
    audit
}

fn check(commit: &Commit) {
    let bytes = commit.encode();
    assert_eq!(&Commit::decode(&bytes).expect("it is decoded"), commit);
    // Without its deltas it is a commit as well, one that nobody followed.
    let whole_head = Commit { deltas: None, ..commit.clone() }.encode().len();
    for cut in (0..bytes.len()).filter(|cut| *cut != whole_head) {
        assert!(Commit::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    assert!(Commit::decode(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn the_bytes_of_a_commit_are_pinned() {
    let commit = Commit { corrections: Vec::new(), ..sample() };
    check(&commit);
    check(&sample());
    let head: &[u8] = b"\x01\x00\x0a\x02\x00\xac\x02\xe8\x07\x03\x03\x01\x01\x05views\x85\x00\x04\xbd\x01\x05likes\x00";
    let deltas: &[u8] = b"\x01\x01\x02\x00\x01a\x03\x0a\x03\x01b\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0";
    let checksum = xxhash_rust::xxh3::xxh3_64(deltas).to_le_bytes();
    let expected = [
        &[1, head.len() as u8],
        head,
        b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10",
        &checksum,
        &[deltas.len() as u8],
        deltas,
    ];
    assert_eq!(commit.encode(), expected.concat());
    let voids = vec![
        VoidBatch { offset: 12, why: Void::Repeated },
        VoidBatch { offset: 300, why: Void::OtherBytes },
        VoidBatch { offset: 301, why: Void::Forgotten },
    ];
    let carrying = Commit { rules: 1, voids, deltas: None, ..commit };
    check(&carrying);
    let carried: &[u8] = b"\x01\x03\x02\x01\xa0\x02\x02\x01\x03";
    let with_voids = [&[2, (head.len() + carried.len()) as u8], head, carried, expected[2]];
    assert_eq!(carrying.encode(), with_voids.concat());
    let audited = Commit { rules: 2, audit: audit([(11, "e1", 300, false), (200, "e", 5, true)]), ..carrying };
    check(&audited);
    let carried: &[u8] = b"\x02\x03\x02\x01\xa0\x02\x02\x01\x03\x02\x02\x00\x01\xac\x02\x02e1\x01\xbd\x01\x05\x01e";
    let expected = [&[3, (head.len() + carried.len()) as u8], head, carried, expected[2]];
    assert_eq!(audited.encode(), expected.concat());
}

proptest! {
    #[test]
    fn a_commit_survives_its_bytes(
        from in 0u64..1_000,
        fates in proptest::collection::vec((0u64..50, 0usize..3, 1usize..6), 0..8),
        counters in proptest::option::of(proptest::collection::vec((any::<i64>(), any::<Option<i64>>(), any::<bool>()), 0..6)),
        generation: u64,
        log_time_ms: u64,
        rules in prop_oneof![Just(0u32), Just(1), any::<u32>()],
        voids in proptest::collection::vec((0u64..50, 0usize..3), 0..4),
        rows in proptest::collection::vec((0u64..50, 0usize..3, any::<u64>(), any::<bool>()), 0..4),
    ) {
        let mut offset = from;
        let exceptions = fates.into_iter().map(|(step, counter, fate)| {
            offset += step;
            let counter = ["views", "likes", "a:b"][counter].as_bytes().into();
            NamedException { offset, counter, fate: BoxKind::ALL[fate] }
        });
        let delta = |(n, (delta, value, wide)): (usize, (i64, Option<i64>, bool))| {
            let delta = if wide { i128::from(delta) << 1 } else { delta.into() };
            CounterDelta { id: &b"cccccccccccccccc"[..n % 16], delta, value }
        };
        let mut at = from;
        let void = |(step, why): (u64, usize)| {
            at += step;
            VoidBatch { offset: at, why: Void::ALL[why] }
        };
        let voids = if rules == 0 { Vec::new() } else { voids.into_iter().map(void).collect() };
        let mut at = from;
        let row = |(step, event_id, first_seen_ms, conflict): (u64, usize, u64, bool)| {
            at += step;
            (at, ["", "e", "another"][event_id], first_seen_ms, conflict)
        };
        let audit = if rules < RULES_WITH_AUDIT { Audit::default() } else { audit(rows.into_iter().map(row)) };
        let counters = counters.map(|counters| counters.into_iter().enumerate().map(delta).collect());
        check(&Commit {
            from: position(1, from),
            exceptions: exceptions.collect(),
            to: position(3, from + 1_000),
            log_time_ms,
            generation,
            corrections: vec![ToldCorrection { delta_count: 9, correction: correction(1) }],
            rules,
            voids,
            audit,
            digest: Digest(u128::from(generation) << 64),
            deltas: counters.map(|counters| Deltas { flushed: false, unnamed: 0, counters }),
        });
    }

    #[test]
    fn strange_bytes_are_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Commit::decode(&bytes);
        let _ = Commit::decode(&[&[1][..], &bytes].concat());
        let _ = Commit::decode(&[&[2][..], &bytes].concat());
        let _ = Commit::decode(&[&[3][..], &bytes].concat());
        let _ = Audit::take(0, &mut bytes.as_slice());
    }
}

/// What comes to a log: a batch after a pause, a configuration, a new epoch; or the clock passes.
#[derive(Clone, Debug)]
enum Step {
    Batch {
        pause_ms: u64,
    },
    Configured,
    Restarted,
    /// Somebody looks at the clock, so much later.
    Looked {
        after_ms: u64,
    },
    /// A cut is taken.
    Cut,
    /// A tick, because something is due.
    Ticked,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..70).prop_map(|pause_ms| Step::Batch { pause_ms }),
        1 => Just(Step::Configured),
        1 => Just(Step::Restarted),
        2 => (0u64..250).prop_map(|after_ms| Step::Looked { after_ms }),
        1 => Just(Step::Cut),
        1 => Just(Step::Ticked),
    ]
}

/// A batch in a log, with nothing but what the lines depend on.
#[derive(Clone)]
struct Logged {
    to: Position,
    log_time_ms: u64,
    declarations: Arc<Declarations>,
    is_config: bool,
    begins: bool,
}

/// The lines as the rule says them, from the whole log.
fn naive(log: &[Logged]) -> Vec<(u64, u64)> {
    let mut lines: Vec<(u64, u64)> = Vec::new();
    let mut before: Option<&Logged> = None;
    for batch in log {
        let joins = before.is_some_and(|before| {
            before.to.epoch == batch.to.epoch
                && before.log_time_ms / COMMIT_SLOT_MS == batch.log_time_ms / COMMIT_SLOT_MS
                && !batch.is_config
                && !batch.begins
        });
        match lines.last_mut() {
            Some(last) if joins => last.1 = batch.to.offset,
            _ => lines.push((before.map_or(0, |before| before.to.offset), batch.to.offset)),
        }
        before = Some(batch);
    }
    lines
}

proptest! {
    #[test]
    fn lines_between_commits_do_not_depend_on_when_somebody_looks(steps in proptest::collection::vec(step(), 1..80)) {
        let mut slots = Slots::new(position(1, 0));
        let (mut log, mut drawn) = (Vec::<Logged>::new(), Vec::new());
        let (mut epoch, mut now_ms, mut declarations) = (1, 0, Arc::<Declarations>::default());
        let mut cuts = vec![0];
        let line = |slot: Slot| (slot.from.offset, slot.to.offset);
        for step in steps {
            let (mut is_config, mut begins) = (false, false);
            match step {
                Step::Batch { pause_ms } => now_ms += pause_ms,
                Step::Ticked => begins = true,
                Step::Configured => {
                    declarations = Arc::default();
                    is_config = true;
                }
                Step::Restarted => {
                    drawn.extend(slots.close().map(line));
                    slots = Slots::new(slots.end());
                    epoch += 1;
                    continue;
                }
                Step::Looked { after_ms } => {
                    now_ms += after_ms;
                    if slots.is_over(now_ms) {
                        drawn.extend(slots.close().map(line));
                    }
                    continue;
                }
                Step::Cut => {
                    drawn.extend(slots.close().map(line));
                    cuts.push(log.len());
                    continue;
                }
            }
            let last = log.last().map_or((0, 0), |batch| (batch.to.offset, batch.log_time_ms));
            let log_time_ms = now_ms.max(last.1);
            let to = position(epoch, last.0 + 1);
            begins |= slots.must_mark(log_time_ms);
            drawn.extend(slots.enter(to, log_time_ms, begins, &declarations).map(line));
            log.push(Logged { to, log_time_ms, declarations: declarations.clone(), is_config, begins });
        }
        drawn.extend(slots.close().map(line));
        prop_assert_eq!(&drawn, &naive(&log));
        // A replay from any cut draws the rest of the same lines.
        for cut in cuts {
            let at = log[..cut].last().map_or(position(1, 0), |batch| batch.to);
            let mut slots = Slots::new(at);
            let mut again = Vec::new();
            for batch in &log[cut..] {
                again.extend(slots.enter(batch.to, batch.log_time_ms, batch.begins, &batch.declarations).map(line));
            }
            again.extend(slots.close().map(line));
            let rest: Vec<_> = drawn.iter().copied().filter(|(from, _)| *from >= at.offset).collect();
            prop_assert_eq!(again, rest);
        }
    }
}

#[test]
fn a_digest_is_of_all_before_it_and_not_of_the_deltas() {
    let slot = |to| {
        let mut slots = Slots::new(position(1, 0));
        slots.enter(position(1, to), 5, false, &Arc::default());
        slots.close().expect("a batch came")
    };
    let (first, other) = (Commit::new(slot(1), Digest::default(), None), Commit::new(slot(2), Digest::default(), None));
    assert_ne!(first.digest, other.digest);
    assert_ne!(Commit::new(slot(3), first.digest, None).digest, Commit::new(slot(3), other.digest, None).digest);
    assert_eq!(Commit::new(slot(1), Digest::default(), Some(Deltas::default())).digest, first.digest);
}

#[test]
fn a_commit_of_older_rules_is_made_again_with_the_digest_it_had() {
    let made = |rules, audit: Audit| {
        let mut slots = Slots::new(position(1, 0));
        slots.enter(position(1, 20), 5, false, &Arc::default());
        let mut slot = slots.close().expect("a batch came");
        (slot.rules, slot.audit) = (rules, audit);
        Commit::new(slot, Digest::default(), None)
    };
    let none = Audit::default;
    // What versions before this one have published: without heads, and without the audit.
    let published = [made(0, none()), made(1, none())].map(|commit| commit.encode()[0]);
    assert_eq!(published, [1, 2]);
    let digest = made(1, none()).digest;
    assert_ne!(made(2, none()).digest, digest);
    assert_ne!(made(2, none()).digest, made(2, audit([(7, "e", 5, true)])).digest, "the audit is part of it");
    assert!(made(1, none()).is_chained_to(Digest::default()) && !made(1, none()).is_chained_to(digest));
    // A version that its rules cannot have is no commit.
    let mut bytes = made(2, none()).encode();
    bytes[0] = 2;
    assert!(Commit::decode(&bytes).is_err());
}

#[test]
fn a_commit_in_parts_is_put_together_and_one_without_an_end_never_was() {
    let commit = sample();
    let bytes = commit.encode();
    let records = |room| parts(&bytes, room).map(|(flags, part)| [&[flags], part].concat()).collect::<Vec<_>>();
    for room in [2, 10, bytes.len(), bytes.len() + 1] {
        let records = records(room);
        assert!(records.iter().all(|record| record.len() <= room));
        let mut put_together = Parts::default();
        // The first attempt breaks off; word that deltas are recorded may stand between.
        assert!(records.len() == 1 || put_together.take(3, &records[0]) == Taken::Part);
        assert_eq!(put_together.take(4, FOLLOWED_RECORD), Taken::Followed);
        let mut taken: Vec<Taken> = (5..).zip(&records).map(|(n, record)| put_together.take(n, record)).collect();
        assert_eq!(taken.pop(), Some(Taken::Commit(Ok(Box::new(commit.clone())))));
        assert!(taken.iter().all(|taken| *taken == Taken::Part));
        assert_eq!(put_together.ordinal(), 5);
        assert!(records.len() == 1 || put_together.take(9, &records[1]) == Taken::Part, "its beginning is not there");
    }
}
