//! Lists and totals of a whole engine, with cold keys, restarts and walks.

use super::alone::{shown, simulated};
use super::ground::Ground;
use super::*;
use crate::worker::WorkerState;
use tally_core::values::Greatest;

/// Counters with keys, of [`CONFIG`].
const LISTED: [&str; 3] = ["hits", "paid", "likes"];

async fn greatest(engine: &Engine, counter: &str, k: usize) -> Greatest {
    engine.greatest(counter, None, k).await.unwrap().unwrap().greatest
}

/// What is told for certain is what a look at all keys tells. Everything is settled.
pub(super) async fn check(engine: &Engine, model: &Model) {
    for counter in LISTED {
        let prefix = format!("{counter}:").into_bytes();
        let keys = model.iter().filter(|(id, _)| id.starts_with(&prefix));
        let mut truth: Vec<_> = keys.map(|(_, key)| key.value).collect();
        truth.sort_unstable_by_key(|value| std::cmp::Reverse(*value));
        let total = engine.total(counter).await.unwrap().unwrap().value;
        assert_eq!(total, Some(truth.iter().copied().map(i128::from).sum()), "{counter}");
        for k in 1..=options().listed_keys {
            let greatest = greatest(engine, counter, k).await;
            for key in &greatest.keys {
                assert_eq!(model.get(&*key.id).map(|known| known.value), Some(key.value), "{counter}");
            }
            let told: Vec<_> = greatest.keys.iter().map(|key| key.value).collect();
            assert!(!greatest.is_exact || told == truth[..k.min(truth.len())], "{counter}: {told:?} of {truth:?}");
            let untold = truth.len() - told.len();
            let bound = greatest.bound.unwrap_or(i64::MAX).max(told.last().copied().unwrap_or(i64::MIN));
            assert!(untold == 0 || truth[told.len().min(k)..].iter().all(|value| *value <= bound), "{counter}");
        }
    }
}

/// Whether a walk has ended: the next one waits a little.
fn has_walked(engine: &Engine) -> bool {
    shown(engine, "leaders").state == WorkerState::Waiting
}

/// Adds to keys of a counter by their names, to each by its number.
pub(super) fn added(engine: &Engine, numbers: impl Iterator<Item = i64>) -> Submission {
    let (declarations, hasher, mut out) = (engine.declarations(), engine.hasher(), Submission::default());
    for number in numbers {
        let id = format!("hits:p{number}").into_bytes();
        out.add_to(&declarations.resolve(&hasher, &id).unwrap(), number);
    }
    out
}

#[test]
fn those_that_are_worth_most_stay_in_memory_and_are_there_after_a_restart() {
    let ground = Ground { config: Some(CONFIG), ..Ground::new(400_000) };
    let leaders = async |engine: &Engine| {
        let greatest = greatest(engine, "hits", 3).await;
        assert!(greatest.is_exact, "{greatest:?}");
        for key in &greatest.keys {
            assert_ne!(engine.read(engine.hasher().key(&key.id)), Hot::Cold);
        }
        greatest.keys.iter().map(|key| key.value).collect::<Vec<_>>()
    };
    ground.live(async |engine| {
        engine.submit(added(&engine, 1..=3000)).await.unwrap();
        engine.checkpoint(Wanted::Everything).await.unwrap();
        for part in 0..10 {
            engine.submit(numbered(&engine, &format!("x{part}-"), 2_000)).await.unwrap();
            engine.checkpoint(Wanted::Everything).await.unwrap();
        }
        assert!(engine.cold() > 3000, "{} are cold", engine.cold());
        assert_eq!(leaders(&engine).await, [3000, 2999, 2998]);
        engine.stop().await.unwrap();
    });
    ground.live(async |engine| {
        assert!(engine.cold() > 3000, "{} are cold", engine.cold());
        assert_eq!(leaders(&engine).await, [3000, 2999, 2998]);
        engine.submit(added(&engine, 2990..=2999)).await.unwrap();
        assert_eq!(leaders(&engine).await, [5998, 5996, 5994]);
    });
    // Where it was killed, and nothing of the last batch is in the store.
    ground.live(async |engine| assert_eq!(leaders(&engine).await, [5998, 5996, 5994]));
}

#[test]
fn keys_from_before_their_counter_was_declared_are_found_by_a_walk() {
    let mut ground = Ground::new(1 << 20);
    simulated(&mut ground, async |engine, time| {
        let ids = (0..2000).map(|n| format!("hits:p{n}")).chain(["hits:not:a:key".to_owned()]);
        engine.submit(one_each(&engine, ids)).await.unwrap();
        engine.submit(one_each(&engine, std::iter::once("hits:p7".to_owned()))).await.unwrap();
        time.during(engine.stop()).await.unwrap();
    });
    ground.config = Some(CONFIG);
    simulated(&mut ground, async |engine, time| {
        time.until(|| has_walked(&engine)).await;
        let greatest = greatest(&engine, "hits", 2).await;
        assert!(greatest.is_exact, "{greatest:?}");
        assert_eq!((&*greatest.keys[0].id, greatest.keys[0].value, greatest.keys[1].value), (&b"hits:p7"[..], 2, 1));
    });
}

#[test]
fn whoever_is_told_an_estimate_is_told_the_truth_when_somebody_has_looked() {
    let mut ground = Ground { config: Some(CONFIG), ..Ground::new(1 << 20) };
    ground.options.listed_keys = 2;
    simulated(&mut ground, async |engine, time| {
        engine.submit(added(&engine, 1..=20)).await.unwrap();
        assert!(greatest(&engine, "hits", 2).await.is_exact);
        // Those that are worth most fall below all others.
        let mut fall = Submission::default();
        for number in 11..=20 {
            let id = format!("hits:p{number}").into_bytes();
            fall.add_to(&engine.declarations().resolve(&engine.hasher(), &id).unwrap(), -100);
        }
        engine.submit(fall).await.unwrap();
        let estimate = greatest(&engine, "hits", 2).await;
        assert!(!estimate.is_exact && estimate.bound.is_some_and(|bound| bound >= 10), "{estimate:?}");
        time.until(|| has_walked(&engine)).await;
        let found = greatest(&engine, "hits", 2).await;
        let told: Vec<_> = found.keys.iter().map(|key| key.value).collect();
        assert_eq!((told, found.is_exact), (vec![10, 9], true));
    });
}
