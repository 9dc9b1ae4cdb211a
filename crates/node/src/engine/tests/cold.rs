//! Counters that do not fit into memory: what a start makes of them.

use super::ground::Ground;
use super::*;

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
