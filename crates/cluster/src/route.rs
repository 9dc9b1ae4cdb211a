//! Where things belong: entries to the fates partition of their identity, keys to the values partition of their slot.

use std::num::NonZeroU32;
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::head::Group;
use tally_core::identity::Identity;

/// Keys fall into so many slots, as in a Redis Cluster, and partitions own ranges of them.
pub const SLOTS: u32 = 16_384;

/// The slot of a key: CRC16 of it, or of what stands between the first `{` and the next `}` if that is something.
///
/// It is not the slot that facts begin with, which is of their hash ([`tally_core::id::CellKey::slot`]): clients of Redis compute this
/// one, and tags let them keep keys together.
pub fn key_slot(id: &[u8]) -> u32 {
    let tag = id.iter().position(|byte| *byte == b'{').and_then(|open| {
        let len = id[open + 1..].iter().position(|byte| *byte == b'}')?;
        (len > 0).then(|| &id[open + 1..open + 1 + len])
    });
    u32::from(crc16(tag.unwrap_or(id))) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8)
            .fold(crc ^ (u16::from(*byte) << 8), |crc, _| if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 })
    })
}

/// The values partition of a counter.
pub fn values_partition(id: &[u8], partitions: NonZeroU32) -> u32 {
    key_slot(id) * partitions.get() / SLOTS
}

/// Where the copies of an event go: one for each group that it feeds.
pub fn routes(declarations: &Declarations, event: &Event<'_>, partitions: NonZeroU32) -> Vec<(Group, u32)> {
    let mut routes: Vec<(Group, u32)> = Vec::new();
    let mut id = Vec::new();
    for listener in declarations.listeners(&event.event_type) {
        let group = declarations.group_of(listener.counter);
        if routes.iter().any(|(known, _)| *known == group) {
            continue;
        }
        let counter = declarations.counter(listener.counter);
        // An entry without an id is rejected, wherever it is.
        if declarations.entry_id(listener.counter, event, &mut id).is_err() {
            id.clear();
        }
        routes.push((group, Identity::of(counter, event, &id).partition(partitions)));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_a_redis_cluster() {
        // As `CLUSTER KEYSLOT` says.
        for (key, slot) in [("123456789", 12_739), ("foo", 12_182), ("{foo}.x", 12_182), ("a{}b", 0), ("", 0)] {
            let expected = if key == "a{}b" { u32::from(crc16(b"a{}b")) % SLOTS } else { slot };
            assert_eq!(key_slot(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn counters_that_tell_events_apart_alike_are_one_group() {
        let yaml = "counters:
  - {counterName: a, mode: display, dedup: {by: [session, seq]}, rules: [{on: t, op: increment}]}
  - {counterName: b, mode: persistent, rules: [{on: t, op: increment}]}
  - {counterName: c, mode: display, dedup: {by: [session, seq]}, rules: [{on: t, op: increment}]}
  - {counterName: d, mode: persistent, rules: [{on: t, op: increment}]}
  - {counterName: e, mode: simple, rules: [{on: t, op: increment}]}
  - {counterName: f, mode: simple, rules: [{on: t, op: increment}]}
";
        let declarations = Declarations::parse(yaml).expect("it is well formed");
        let groups: Vec<u16> = (0..6).map(|counter| declarations.group_of(counter).0).collect();
        assert_eq!(groups, [1, 2, 1, 2, 5, 6]);
        let event = Event { event_id: Some("e".into()), session: Some("s".into()), seq: Some(1), ..Event::new("t", 0) };
        let partitions = NonZeroU32::new(4).expect("it is not 0");
        let to: Vec<u16> = routes(&declarations, &event, partitions).iter().map(|(group, _)| group.0).collect();
        assert_eq!(to, [1, 2, 5, 6]);
    }
}
