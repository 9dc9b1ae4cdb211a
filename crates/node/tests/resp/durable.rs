//! What an answer over the Redis protocol rests on.

use crate::servers::{Settings, Tally};
use crate::wire::Wire;
use tally_node::engine::NodeDurability;

const DECLARATIONS: &str = "
counters:
  - {counterName: safe, mode: simple, durability: sync}
  - {counterName: loose, mode: simple, durability: none}
";

fn start() -> Tally {
    let settings = Settings {
        declarations: Some(DECLARATIONS.to_owned()),
        change: Some(|options| options.durability = NodeDurability::None),
        ..Settings::default()
    };
    Tally::start(&settings)
}

/// Whether all that was answered so far is on disk.
fn is_synced(tally: &Tally) -> bool {
    let engine = tally.node().engine();
    engine.log().synced_end().offset >= engine.applied().offset
}

#[test]
fn an_increment_with_an_id_is_as_durable_as_its_counter() {
    let tally = start();
    let mut wire = Wire::connect(tally.address());
    let mut add = |counter: &str, id: &str| {
        let reply = wire.command(&[b"TALLY.INCRBY", counter.as_bytes(), b"1", b"ID", id.as_bytes()]);
        assert_eq!(reply[2], b"+counted", "{reply:?}");
    };
    add("loose", "1");
    assert!(!is_synced(&tally), "nobody asked for a sync");
    add("safe", "2");
    assert!(is_synced(&tally), "the counter says sync, with an id as without one");
    add("loose", "3");
    assert!(!is_synced(&tally));
    add("ad-hoc", "4");
    assert!(!is_synced(&tally), "an ad-hoc counter is as the node");
    tally.stop();
}

#[test]
fn one_counter_that_asks_for_a_sync_makes_all_of_a_pipeline_and_of_a_transaction_durable() {
    let tally = start();
    let mut wire = Wire::connect(tally.address());
    wire.command(&[b"INCR", b"loose"]);
    assert!(!is_synced(&tally));
    wire.send(b"INCR loose\r\nTALLY.INCRBY safe 1 ID 1\r\nINCR loose\r\n");
    let replies: Vec<_> = (0..3).map(|_| wire.reply().unwrap()).collect();
    assert_eq!([&replies[0][0], &replies[1][2], &replies[2][0]], [&b":2"[..], b"+counted", b":3"]);
    assert!(is_synced(&tally));
    wire.command(&[b"INCR", b"loose"]);
    assert!(!is_synced(&tally));
    wire.send(b"MULTI\r\nINCR loose\r\nTALLY.INCRBY safe 1 ID 2\r\nEXEC\r\n");
    (0..3).for_each(|_| assert!(wire.reply().unwrap()[0].starts_with(b"+")));
    assert_eq!(wire.reply().unwrap()[0], b"*2");
    assert!(is_synced(&tally));
    tally.stop();
}
