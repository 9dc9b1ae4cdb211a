//! Counters that do not fit into memory: what a start makes of them.

use super::super::lookup::Found;
use super::alone::{shown, simulated};
use super::ground::Ground;
use super::*;
use tally_core::memory::cell::SEGMENTS;

#[test]
fn an_id_that_the_store_does_not_have_is_looked_up_once_in_a_replay() {
    let ground = Ground::new(options().table_bytes);
    ground.live(async |engine| {
        engine.submit(numbered(&engine, "x", 10_000)).await.unwrap();
        engine.stop().await.unwrap();
    });
    ground.live(async |engine| {
        assert!(engine.cold() > 0, "some counters do not fit");
        let mut unknown = numbered(&engine, "new", 1);
        unknown.delete(engine.hasher().key(b"nobody"), b"nobody");
        unknown.append(&numbered(&engine, "x", 3));
        let answers = engine.submit(unknown).await.unwrap().answers;
        let twice = Answer::Value(2);
        assert_eq!(answers, [Answer::Value(1), Answer::Absent, twice, twice, twice]);
    });
    ground.live(async |engine| {
        let value = async |id: &str| engine.get(engine.hasher().key(id.as_bytes())).await.unwrap().map(|r| r.value);
        assert_eq!((value("new0").await, value("nobody").await, value("x0").await), (Some(1), None, Some(2)));
        assert_eq!(engine.len(), 10_001);
    });
}

#[test]
fn after_a_restart_the_table_is_as_full_as_before_it() {
    let ground = Ground::new(2 << 20);
    let before = ground.live(async |engine| {
        for part in 0..20 {
            engine.submit(numbered(&engine, &format!("x{part}-"), 10_000)).await.unwrap();
            engine.checkpoint(Wanted::Everything).await.unwrap();
        }
        // Commits that drive out what is over the bound.
        for n in 0..1_000 {
            engine.submit(one_each(&engine, std::iter::once(format!("y{n}")))).await.unwrap();
        }
        engine.stop().await.unwrap();
        engine.len() - engine.cold()
    });
    let (_, recovered) = ground.open();
    assert_eq!(recovered.counters, 201_000);
    assert!(before < 100_000, "{before} of them fit");
    assert!(recovered.in_memory >= before * 9 / 10, "{} now, {before} before", recovered.in_memory);
}

#[test]
fn after_a_restart_what_is_in_memory_is_of_all_over_each_segment() {
    const COUNTERS: usize = 60_000;
    const PARTS: usize = 8;
    let ground = Ground::new(1 << 20);
    ground.live(async |engine| {
        engine.submit(numbered(&engine, "x", COUNTERS)).await.unwrap();
        engine.stop().await.unwrap();
    });
    let parts = ground.live(async |engine| {
        let mut parts = [0; PARTS];
        for cell in (0..COUNTERS).map(|n| engine.hasher().key(format!("x{n}").as_bytes())) {
            let within = cell.as_u128() << SEGMENTS.ilog2() >> (u128::BITS - PARTS.ilog2());
            parts[within as usize] += usize::from(engine.read(cell) != Hot::Cold);
        }
        parts
    });
    let all: usize = parts.iter().sum();
    assert!((COUNTERS / 8..COUNTERS * 7 / 8).contains(&all), "{all} of them fit");
    // Where only the first were taken, they would all want the same slots.
    assert!(parts.iter().all(|part| *part >= all / PARTS / 2), "{parts:?}");
}

#[test]
fn what_the_store_said_before_a_cut_is_asked_again() {
    let ground = Ground::new(options().table_bytes);
    ground.live(async |engine| {
        engine.submit(numbered(&engine, "x", 10_000)).await.unwrap();
        engine.stop().await.unwrap();
    });
    let (thread, _) = ground.open();
    let submission = numbered(&thread.engine(), "x", 10_000);
    let missing = thread.writer.missing(&submission, &Found::default());
    assert!(!missing.is_empty(), "some do not fit");
    let cuts = thread.shared.cuts.load(Ordering::Acquire);
    let found = Found::in_store(&*ground.store, cuts, missing.clone()).unwrap();
    assert_eq!(thread.writer.missing(&submission, &found), []);
    thread.shared.cuts.fetch_add(1, Ordering::Release);
    assert_eq!(thread.writer.missing(&submission, &found), missing);
}

/// Pages of which each was hit once.
const PAGES: u8 = 100;

/// The page's counter.
fn hits(engine: &Engine, page: u8) -> CellKey {
    engine.hasher().key(format!("hits:p{page}").as_bytes())
}

#[test]
fn an_entry_of_a_cold_counter_is_answered_although_the_store_cannot_be_read_for_the_moment() {
    let store = full::Stubborn::default();
    let is_unreadable = store.is_unreadable.clone();
    let mut ground = Ground { store: Arc::new(store), config: Some(CONFIG), ..Ground::new(1 << 20) };
    ground.options.listed_keys = options().listed_keys;
    let hit = |engine: &Engine, page| submission(&[Step::Event(page, 1)], engine);
    simulated(&mut ground, async |engine, time| {
        for page in 0..PAGES {
            engine.submit(hit(&engine, page)).await.unwrap();
        }
        for part in 0..10 {
            time.during(engine.submit(numbered(&engine, &format!("x{part}-"), 10_000))).await.unwrap();
        }
        time.during(engine.stop()).await.unwrap();
    });
    let counters = i64::from(PAGES) + 100_000;
    let cell = std::cell::Cell::new(None);
    simulated(&mut ground, async |engine, time| {
        let page = (0..PAGES).find(|page| engine.read(hits(&engine, *page)) == Hot::Cold).expect("some do not fit");
        let known = hits(&engine, page);
        cell.set(Some(known));
        is_unreadable.store(true, Ordering::Release);
        // A counter that the store has, and one that nobody has: both only the store could tell.
        for page in [page, PAGES, page] {
            assert_eq!(engine.submit(hit(&engine, page)).await.unwrap().answers, [Answer::Counted]);
        }
        time.until(|| shown(&engine, "settle").errors_in_a_row > 0).await;
        let refused = engine.get(known).await.unwrap_err();
        assert!(refused.to_string().contains("it cannot be read"), "{refused}: nobody is told a part of it");
        assert!(
            time.during(engine.checkpoint(Wanted::Everything)).await.is_err(),
            "a cut does not begin without the rows"
        );
        assert_eq!((engine.metrics().checkpoints.get(), engine.health().is_ok()), (0, true));

        // No time passes, so nobody has settled anything: readers add up, and the number of counters waits for the rows.
        is_unreadable.store(false, Ordering::Release);
        let value = async |cell| engine.get(cell).await.unwrap().map(|reading| reading.value);
        assert_eq!((value(known).await, value(hits(&engine, PAGES)).await), (Some(3), Some(1)));
        let has_unsettled = |state: &tally_core::machine::Machine| state.values.table.has_unsettled();
        assert!(engine.look(has_unsettled).await.unwrap(), "what was read was counted blindly");
        assert_eq!(size(&engine).await, Answer::Value(counters + 1), "DBSIZE has the one that was created blindly");

        time.during(engine.checkpoint(Wanted::Everything)).await.unwrap();
        assert!(!engine.look(has_unsettled).await.unwrap());
        assert_eq!((value(known).await, size(&engine).await), (Some(3), Answer::Value(counters + 1)));
    });
    let row = ground.store.get(cell.get().expect("it was chosen")).unwrap();
    assert_eq!(row.map(|row| row.value), Some(3), "the cut has the whole of it");
}
