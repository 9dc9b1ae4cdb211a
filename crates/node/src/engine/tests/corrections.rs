//! Corrections that are large: proposals that wait, and runs of late entries.

use super::ground::Ground;
use super::*;
use std::ops::ControlFlow;
use tally_core::ledger::{Delta, Grounds, LedgerKey, LedgerKind, Proposal, Purpose, Remedy};
use tally_core::machine::Unfit;

fn proposal(deltas: usize, id_bytes: usize) -> Proposal {
    let id = |n| format!("{n:0id_bytes$}").into_bytes();
    let deltas = (0..deltas).map(|n| Delta { id: id(n), bucket_ms: None, delta: 1 }).collect();
    Proposal {
        number: 0,
        reason: "why".into(),
        author: "who".into(),
        at_ms: 0,
        deltas,
        if_generation: None,
        purpose: Purpose::Adjust,
    }
}

fn stored(ground: &Ground) -> Vec<LedgerKey> {
    let range = LedgerKey::range(LedgerKind::Proposal);
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        keys.push(LedgerKey::decode(key).unwrap());
        ControlFlow::Continue(())
    };
    ground.store.ledger_rows(&range.start, &range.end, &mut visit).unwrap();
    keys
}

#[test]
fn open_proposals_are_rows_of_the_store_and_have_a_bound_together() {
    let ground = Ground { segment_bytes: 64 << 20, ..Ground::new(64 << 20) };
    ground.live(async |engine| {
        for number in 1..=3 {
            assert_eq!(engine.propose(proposal(5_000, 4_000), None).await.unwrap(), number);
        }
        let refused = engine.propose(proposal(5_000, 4_000), None).await.unwrap_err();
        assert!(matches!(refused, CorrectionError::Unfit(Unfit::OpenTooLarge { .. })), "{refused}");
        assert!(engine.withdraw(1).await.unwrap());
        assert_eq!(engine.propose(proposal(5_000, 4_000), None).await.unwrap(), 4, "there is room again");
        engine.stop().await.unwrap();
    });
    assert_eq!(stored(&ground), [2, 3, 4].map(LedgerKey::Proposal));
    let checkpoint = ground.store.checkpoint().unwrap().unwrap();
    assert!(checkpoint.state.len() < 1_000, "{} bytes", checkpoint.state.len());
    ground.live(async |engine| {
        let apply = Remedy::Apply { number: 2, author: "boss".into(), if_generation: None };
        let made = engine.correct(apply).await.unwrap();
        assert_eq!((made.deltas.len(), &*made.reason), (5_000, "why"));
    });
    ground.live(async |engine| {
        let open = engine.look(|state| state.values.facts.proposals.len()).await.unwrap();
        assert_eq!(open, 2, "a replay comes to the same");
        assert_eq!(engine.len(), 5_000);
        engine.stop().await.unwrap();
    });
    assert_eq!(stored(&ground), [3, 4].map(LedgerKey::Proposal));
}

#[test]
fn a_run_of_many_long_ids_is_one_small_record() {
    let config = "\
counters:
  - {counterName: heard, mode: display, dimensions: [page], dedup: none, lateness: {allowed: 1s, corrected: 1m, every: 1s}, rules: [{on: heard, op: increment}]}
";
    let start_ms = 1_700_000_000_000;
    let (clock, hands) = Clock::settable(start_ms);
    let mut ground = Ground { config: Some(config), segment_bytes: 64 << 10, ..Ground::new(4 << 20) };
    ground.options.clock = clock;
    ground.live(async |engine| {
        let heard = |page: String, occurred_ms: u64| {
            let mut event = Event::new("heard", start_ms);
            event.occurred_at_ms = Some(occurred_ms as i64);
            event.dimensions.push(("page".into(), page.into()));
            let mut out = Submission::default();
            let at = out.event(&event);
            let mut stager = tally_core::counter::Stager::new(engine.declarations(), engine.hasher());
            stager.stage(&event, at, &mut out, &mut |_, rejection| panic!("{rejection}"));
            out
        };
        engine.submit(heard("now".into(), start_ms)).await.unwrap();
        for n in 0..100 {
            let committed = engine.submit(heard(format!("{n:03000}"), start_ms - 10_000)).await.unwrap();
            assert_eq!(committed.answers, [Answer::Late]);
        }
        hands.pass(2_000);
        while engine.look(|state| !state.fates.contracts.parked.is_empty()).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(engine.len(), 101);
        let runs = engine.look(|state| state.values.generations.current).await.unwrap();
        assert_eq!(runs, 1, "however small the segments of the log are");
    });
}

#[test]
fn a_correction_that_only_the_store_has_is_reverted_and_a_replay_looks_it_up_again() {
    let ground = Ground::new(4 << 20);
    let value = |engine: &Engine, n: usize| engine.hasher().key(format!("{n:05}").as_bytes());
    ground.live(async |engine| {
        assert_eq!(engine.propose(proposal(3, 5), None).await.unwrap(), 1);
        engine.correct(Remedy::Apply { number: 1, author: "boss".into(), if_generation: None }).await.unwrap();
        engine.stop().await.unwrap();
    });
    let revert = || Remedy::Revert { number: 1, grounds: Grounds::new("why", "who"), if_generation: None };
    ground.live(async |engine| {
        assert_eq!(engine.get(value(&engine, 2)).await.unwrap().unwrap().value, 1);
        let undone = engine.correct(revert()).await.unwrap();
        assert_eq!((undone.number, undone.generation, undone.deltas.len()), (2, 2, 3));
    });
    ground.live(async |engine| {
        for n in 0..3 {
            let reading = engine.get(value(&engine, n)).await.unwrap().unwrap();
            assert_eq!((reading.value, reading.generation), (0, 2));
        }
        let again = engine.correct(revert()).await.unwrap_err();
        assert!(matches!(again, CorrectionError::Unfit(Unfit::Reverted { number: 1, by: 2 })), "{again}");
        let unknown = Remedy::Revert { number: 9, grounds: Grounds::new("why", "who"), if_generation: None };
        let unknown = engine.correct(unknown).await.unwrap_err();
        assert!(matches!(unknown, CorrectionError::Unfit(Unfit::NotThere(9))), "{unknown}");
    });
}

#[test]
fn a_configuration_that_is_too_large_for_one_record_is_in_force_after_a_crash() {
    let large = format!("# {}\ncounters: [{{counterName: hits, mode: simple}}]\n", "x".repeat(700 << 10));
    let ground = Ground { config: Some(large.leak()), ..Ground::new(4 << 20) };
    ground.live(async |engine| assert_eq!(engine.declarations().counters().len(), 1));
    ground.live(async |engine| {
        assert_eq!(engine.declarations().version(), 1, "it is the same, so it is not put there again")
    });
}
