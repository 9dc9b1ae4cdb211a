//! Old buckets of a whole engine: moved by its worker, cut by cut, while everybody reads the same.

use super::alone::{START_MS, Time, shown, simulated};
use super::ground::Ground;
use super::*;
use std::ops::ControlFlow;
use tally_core::counter::rollup::{Minutes, minute_of};
use tally_core::ledger::{LedgerKey, LedgerKind};
use tally_core::limits::FOLDS_PER_CUT_MAX;
use tally_core::series::{Series, Step as SeriesStep};

const CONFIG: &str = "\
counters:
  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}], rollups: [[hour], [country, hour]],
     retention: {hour: 2d, day: 10d, month: forever}}
";

const HOUR_MS: u64 = 3_600_000;

fn ground() -> Ground {
    Ground { config: Some(CONFIG), ..Ground::new(4 << 20) }
}

fn hit(engine: &Engine, page: &str, at_ms: u64, out: &mut Submission) {
    let mut event = Event::new("hit", engine.clock().now_ms());
    event.occurred_at_ms = Some(at_ms as i64);
    event.dimensions = vec![("page".into(), page.to_owned().into()), ("country".into(), "DE".into())];
    let at = out.event(&event);
    let mut stager = tally_core::counter::Stager::new(engine.declarations(), engine.hasher());
    stager.stage(&event, at, out, &mut |_, rejection| panic!("{rejection}"));
}

/// An event for each hour of so many days before now.
async fn hit_hourly(engine: &Engine, pages: &[&str], days: u64) {
    let mut out = Submission::default();
    for hours_ago in 0..24 * days {
        pages.iter().for_each(|page| hit(engine, page, engine.clock().now_ms() - hours_ago * HOUR_MS, &mut out));
    }
    engine.submit(out).await.unwrap();
}

/// So many rows of parts the store has.
fn rows(engine: &Engine) -> usize {
    let (range, mut rows) = (LedgerKey::range(LedgerKind::Part), 0);
    let count = &mut |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    engine.shared.store.ledger_rows(&range.start, &range.end, count).unwrap();
    rows
}

/// What an id came to from a minute on, month by month.
async fn months(engine: &Engine, id: &str, from_ms: u64) -> Vec<i64> {
    let declarations = engine.declarations();
    let kept = &declarations.rollups_of("hits")[1];
    let minutes = minute_of(from_ms as i64)..minute_of(engine.clock().now_ms() as i64) + 1;
    let empty = Series::new(kept, &["country"], SeriesStep::parse("1mo"), minutes, 100).unwrap();
    let of = PartsOf {
        cell: engine.hasher().key(id.as_bytes()),
        rollup: kept.number,
        deciding: Vec::new(),
        whole: None,
        counter: "hits".into(),
        coarser: kept.bands.coarser().collect(),
    };
    let found = engine.series(vec![SeriesWanted { of, matching: None, empty }]).await.unwrap().unwrap();
    found[0].series.totals()
}

/// Until the worker has looked at everything that was old a moment ago, and moved it.
async fn moved(engine: &Engine, time: &Time) {
    let looked = shown(engine, "bands").units;
    time.until(|| shown(engine, "bands").units > looked + 3 && !is_moving(engine)).await;
}

fn is_moving(engine: &Engine) -> bool {
    // It waits a second if there is nothing to do, and not at all in the middle of something.
    shown(engine, "bands").next_at_ms.is_none_or(|at_ms| at_ms < engine.clock().now_ms() + 500)
}

const FROM_MS: u64 = START_MS - 70 * 24 * HOUR_MS;

#[test]
fn old_buckets_are_moved_while_everybody_reads_the_same_and_a_restart_goes_on() {
    let mut ground = ground();
    let (kept, truth) = (std::cell::Cell::new(0), RefCell::new(Vec::new()));
    simulated(&mut ground, async |engine, time| {
        hit_hourly(&engine, &["a", "b"], 60).await;
        truth.replace(months(&engine, "hits", FROM_MS).await);
        assert_eq!(truth.borrow().iter().sum::<i64>(), 2 * 60 * 24);
        time.during(engine.checkpoint(Wanted::Everything)).await.unwrap();
        let before = rows(&engine);
        // The rows are old already, and it becomes known with the next boundary.
        time.pass(HOUR_MS * 24).await;
        let mut now = Submission::default();
        hit(&engine, "c", START_MS, &mut now);
        engine.submit(now).await.unwrap();
        *truth.borrow_mut().last_mut().unwrap() += 1;
        // Everybody reads the same in every moment of it.
        let has_ended = std::cell::Cell::new(false);
        let reads = async {
            let mut reads = 0;
            while !has_ended.get() {
                assert_eq!(months(&engine, "hits", FROM_MS).await, *truth.borrow());
                tokio::task::yield_now().await;
                reads += 1;
            }
            reads
        };
        let moves = async {
            moved(&engine, &time).await;
            has_ended.set(true);
        };
        // A read that finds the store ahead of memory waits a moment.
        let (reads, ()) = time.during(async { tokio::join!(reads, moves) }).await;
        assert!(reads > 10, "{reads}");
        kept.set(rows(&engine));
        assert!(6 * kept.get() < before, "{} of {before} rows are left", kept.get());
        assert_eq!(months(&engine, "hits", FROM_MS).await, *truth.borrow());
    });
    // It was killed, and comes back with what the store has and the log behind it. The clock begins anew.
    ground.options.accept_clock = true;
    simulated(&mut ground, async |engine, time| {
        assert_eq!(months(&engine, "hits", FROM_MS).await, *truth.borrow());
        moved(&engine, &time).await;
        assert_eq!(rows(&engine), kept.get(), "nothing more is old");
        assert_eq!(months(&engine, "hits", FROM_MS).await, *truth.borrow());
        time.during(engine.stop()).await.unwrap();
    });
    simulated(&mut ground, async |engine, _| assert_eq!(months(&engine, "hits", FROM_MS).await, *truth.borrow()));
}

#[test]
fn a_store_that_takes_no_cuts_loses_nothing_and_old_buckets_are_moved_when_it_does() {
    let store = full::Stubborn::default();
    let refuses = store.refuses.clone();
    let mut ground = Ground { store: Arc::new(store), ..ground() };
    simulated(&mut ground, async |engine, time| {
        hit_hourly(&engine, &["a"], 30).await;
        time.during(engine.checkpoint(Wanted::Everything)).await.unwrap();
        let before = rows(&engine);
        refuses.store(true, Ordering::Release);
        time.pass(HOUR_MS * 24).await;
        let mut late = Submission::default();
        hit(&engine, "a", START_MS - 20 * 24 * HOUR_MS, &mut late);
        engine.submit(late).await.unwrap();
        time.until(|| shown(&engine, "bands").errors > 2).await;
        assert_eq!(rows(&engine), before);
        assert_eq!(months(&engine, "hits:a", FROM_MS).await.iter().sum::<i64>(), 30 * 24 + 1);
        refuses.store(false, Ordering::Release);
        time.until(|| rows(&engine) < before / 4).await;
        moved(&engine, &time).await;
        assert_eq!(months(&engine, "hits:a", FROM_MS).await.iter().sum::<i64>(), 30 * 24 + 1);
        assert_eq!(months(&engine, "hits", FROM_MS).await.iter().sum::<i64>(), 30 * 24 + 1);
    });
}

#[test]
fn more_than_one_cut_can_move_is_moved_by_several() {
    let mut ground = ground();
    simulated(&mut ground, async |engine, time| {
        let pages = FOLDS_PER_CUT_MAX + 1000;
        let mut out = Submission::default();
        (0..pages).for_each(|page| hit(&engine, &format!("p{page}"), START_MS - 5 * 24 * HOUR_MS, &mut out));
        engine.submit(out).await.unwrap();
        time.during(engine.checkpoint(Wanted::Everything)).await.unwrap();
        let checkpoints = engine.metrics().checkpoints.get();
        time.pass(HOUR_MS * 24).await;
        let mut now = Submission::default();
        hit(&engine, "p0", START_MS, &mut now);
        engine.submit(now).await.unwrap();
        moved(&engine, &time).await;
        assert!(engine.metrics().checkpoints.get() >= checkpoints + 3, "for two roll-ups of each page");
        // Of each key, and of the counter as a whole, a day of each roll-up.
        let days: Minutes = minute_of((START_MS - 5 * 24 * HOUR_MS) as i64) / 1440 * 1440;
        let (range, mut of_days) = (LedgerKey::range(LedgerKind::Part), 0);
        let count = &mut |key: &[u8], _: &[u8]| {
            of_days +=
                usize::from(matches!(LedgerKey::decode(key), Ok(LedgerKey::Part(_, _, bucket)) if bucket == days));
            ControlFlow::Continue(())
        };
        engine.shared.store.ledger_rows(&range.start, &range.end, count).unwrap();
        assert_eq!(of_days, 2 * (pages + 1));
        assert_eq!(months(&engine, "hits", FROM_MS).await.iter().sum::<i64>(), pages as i64 + 1);
        assert_eq!(months(&engine, "hits:p7", FROM_MS).await.iter().sum::<i64>(), 1);
    });
}
