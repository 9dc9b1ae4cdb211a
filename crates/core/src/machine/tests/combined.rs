//! Additions that were combined come to what they would have come to one by one.

use super::*;
use crate::counter::{Declared, Target};

/// What single additions are answered and leave behind.
fn one_by_one(state: &mut Machine, to: &Target<'_>, deltas: &[i64], offset: u64) -> Vec<Answer> {
    let (mut submission, mut answers) = (Submission::default(), Vec::new());
    deltas.iter().for_each(|delta| submission.add_to(to, *delta));
    let Submission { records, ops, stamps, .. } = &submission;
    state.apply(&Batch { head: None, first: 0, records, ops, stamps, log_time_ms: 1, offset }, &mut answers);
    answers
}

fn combined(state: &mut Machine, to: &Target<'_>, deltas: &[i64], offset: u64) -> Vec<Answer> {
    let (mut submission, mut answers) = (Submission::default(), Vec::new());
    submission.add_many(to, deltas);
    let Submission { records, ops, stamps, .. } = &submission;
    let batch = Batch { head: None, first: 0, records, ops, stamps, log_time_ms: 1, offset };
    state.apply(&batch, &mut answers);
    let [Answer::Many { before, counted }] = answers[..] else { panic!("{answers:?}") };
    let Record::AddMany { deltas, .. } = batch.record(&ops[0]) else { unreachable!("it was staged above") };
    let each: Vec<Answer> = deltas.answers(&ops[0], before).collect();
    let fit = each.iter().filter(|answer| matches!(answer, Answer::Value(_))).count();
    assert_eq!(fit, counted as usize);
    each
}

proptest! {
    #[test]
    fn combined_additions_are_answered_and_counted_as_single_ones(
        batches in proptest::collection::vec((any::<bool>(), any::<bool>(), proptest::collection::vec(
            prop_oneof![-3i64..4, any::<i64>(), Just(i64::MAX), Just(i64::MIN), Just(1i64 << 62), Just(-1i64 << 62)], 1..7
        )), 1..8)
    ) {
        let (mut single, mut together) = (state(), state());
        let hits = CellHasher::new(7).key(b"hits:p1");
        for (n, (declared, same, mut deltas)) in batches.into_iter().enumerate() {
            if same {
                let first = deltas[0];
                deltas.fill(first);
            }
            let to = match declared {
                true => Target { declared: Declared::Now(0), ..Target::ad_hoc(hits, b"hits:p1") },
                false => Target::ad_hoc(key(1), b"c1"),
            };
            let offset = n as u64 * 10;
            let expected = one_by_one(&mut single, &to, &deltas, offset);
            prop_assert_eq!(combined(&mut together, &to, &deltas, offset), expected);
            prop_assert_eq!(seen(&mut together), seen(&mut single));
        }
    }
}
