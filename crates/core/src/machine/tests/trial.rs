//! A trial gives the answers that the batch then gets, and changes nothing.

use super::*;

/// Events alone, of which some do not fit, stand before, are late or conflict.
fn events() -> impl Strategy<Value = Vec<(String, u8, i64, u64)>> {
    let number = prop_oneof![4 => Just(1i64), 2 => Just(i64::MAX), 1 => Just(-5)];
    let event = (Just("event".to_owned()), 0u8..6, number, 0u64..300);
    proptest::collection::vec(event, 1..8)
}

proptest! {
    #[test]
    fn a_trial_answers_what_the_batch_is_answered(
        batches in proptest::collection::vec((events(), any::<bool>(), prop_oneof![Just(0u64), 0u64..1500]), 1..12)
    ) {
        let mut state = state();
        let (mut submission, mut answers) = (Submission::default(), Vec::new());
        let (mut log_time_ms, mut offset) = (0, 0);
        for (events, repeats_are_full, pause) in batches {
            log_time_ms += pause;
            submission.clear();
            if repeats_are_full {
                submission.record_op(OpKind::RepeatsFull, CellKey::NONE, 0, &Record::RepeatsFull);
            }
            let mut stager = state.stager.clone();
            events.into_iter().for_each(|event| super::stage(event)(&mut stager, &mut submission));
            let Submission { records, ops, stamps, .. } = &submission;
            let batch = Batch { head: None, first: 0, records, ops, stamps, log_time_ms, offset };
            let before = seen(&mut state);
            let tried = state.try_out(&batch);
            prop_assert_eq!(seen(&mut state), before);
            state.apply(&batch, &mut answers);
            prop_assert_eq!(tried, answers.clone());
            offset += u64::from(submission.record_count);
        }
    }
}
