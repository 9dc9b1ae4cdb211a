//! What the engine does for its own health: filters that know all rows of the store, keys that are forgotten in their time.

use super::alone::{START_MS, Time, shown, simulated};
use super::ground::Ground;
use super::*;
use crate::worker::WorkerState;
use tally_core::ledger::LookedUp;

/// More than are read at a time.
const CLAIMS: u32 = 20_000;
const AT_ONCE: u32 = 1_000;

fn claims(engine: &Engine, ids: std::ops::Range<u32>) -> Submission {
    let mut out = Submission::default();
    let mut stager = tally_core::counter::Stager::new(engine.declarations(), engine.hasher());
    for id in ids {
        let mut event = event(&Step::Claim(0, 1));
        event.event_id = Some(format!("order-{id}").into());
        let at = out.event(&event);
        stager.stage(&event, at, &mut out, &mut |_, rejection| panic!("{rejection}"));
    }
    out
}

/// How many of some events were new.
async fn claim_all(engine: &Engine) -> usize {
    let mut new = 0;
    for first in (0..CLAIMS).step_by(AT_ONCE as usize) {
        let committed = engine.submit(claims(engine, first..first + AT_ONCE)).await.unwrap();
        new += committed.answers.iter().filter(|answer| **answer == Answer::Yes).count();
    }
    new
}

/// Waits until every pass is over.
async fn tended(engine: &Engine, time: &Time) {
    time.until(|| shown(engine, "tend").state == WorkerState::Waiting).await;
}

#[test]
fn filters_learn_all_rows_of_the_store_also_when_it_cannot_be_read_for_a_while() {
    let store = full::Stubborn::default();
    let is_unreadable = store.is_unreadable.clone();
    let mut ground = Ground { store: Arc::new(store), config: Some(CONFIG), ..Ground::new(32 << 20) };
    simulated(&mut ground, async |engine, _| {
        assert_eq!(claim_all(&engine).await, CLAIMS as usize);
        engine.stop().await.unwrap();
    });
    simulated(&mut ground, async |engine, time| {
        is_unreadable.store(true, Ordering::Release);
        time.until(|| shown(&engine, "tend").errors_in_a_row == 2).await;
        assert!(shown(&engine, "tend").last_error.unwrap().text.contains("it cannot be read"));
        let is_learning = |state: &tally_core::machine::Machine| state.fates.facts.claims.filter_is_learning();
        assert!(engine.look(is_learning).await.unwrap());
        is_unreadable.store(false, Ordering::Release);
        tended(&engine, &time).await;
        assert!(!engine.look(is_learning).await.unwrap(), "its no is believed");
        assert_eq!(claim_all(&engine).await, 0, "and it says no to none of them");
        let answers = engine.submit(claims(&engine, CLAIMS..CLAIMS + 1)).await.unwrap().answers;
        assert_eq!(answers[0], Answer::Yes);
    });
}

#[test]
fn idempotency_keys_are_forgotten_when_their_time_is_over_and_not_before() {
    let mut ground = Ground { config: Some(CONFIG), ..Ground::new(4 << 20) };
    simulated(&mut ground, async |engine, time| {
        let keys = async || engine.look(|state| state.values.facts.answers.len()).await.unwrap();
        engine.submit(submission(&[Step::Once(1, 1, 1), Step::Once(2, 2, 1)], &engine)).await.unwrap();
        // With the new ids the keys get into the store.
        contents(&engine).await;
        tended(&engine, &time).await;
        let keep_ms = engine.declarations().idempotency().keep_ms;
        time.pass(keep_ms - 1_000).await;
        engine.submit(submission(&[Step::Once(3, 3, 1)], &engine)).await.unwrap();
        contents(&engine).await;
        time.pass(11 * 60_000).await;
        tended(&engine, &time).await;
        assert_eq!(keys().await, 3, "time in the log stands still while nobody writes");
        engine.submit(submission(&[Step::Add(4, 1)], &engine)).await.unwrap();
        time.pass(11 * 60_000).await;
        tended(&engine, &time).await;
        assert_eq!(keys().await, 1, "at {} ms", engine.clock().now_ms() - START_MS);
        let again = engine.submit(submission(&[Step::Once(3, 3, 1), Step::Once(1, 1, 1)], &engine)).await.unwrap();
        assert_eq!(again.answers, [Answer::Repeated(1), Answer::Value(2)]);
    });
}
