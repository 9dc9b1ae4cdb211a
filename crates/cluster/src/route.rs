//! Where things belong: entries to the fates partition of their identity, keys to the values partition of their slot.

use std::num::NonZeroU32;
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::head::Group;
use tally_core::id::CellKey;
use tally_core::identity::Identity;
use tally_core::limits::SLOTS;

/// The values partition of a counter. Partitions own ranges of slots, and the keys of everything that is kept of a counter begin with its
/// slot ([`CellKey::slot`]): so what a partition owns are ranges of its store, and can be moved.
pub fn values_partition(cell: CellKey, partitions: NonZeroU32) -> u32 {
    (u64::from(cell.slot()) * u64::from(partitions.get()) / SLOTS as u64) as u32
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
    use tally_core::fact::answer_key;
    use tally_core::id::CellHasher;

    #[test]
    fn a_partition_owns_a_range_of_what_is_kept_of_its_counters() {
        let hasher = CellHasher::new(42);
        let partitions = NonZeroU32::new(7).expect("it is not 0");
        let mut cells: Vec<CellKey> = (0..1000).map(|n| hasher.key(format!("hits{n}").as_bytes())).collect();
        cells.sort_unstable();
        let owners: Vec<u32> = cells.iter().map(|cell| values_partition(*cell, partitions)).collect();
        assert!(owners.is_sorted() && owners.first() == Some(&0) && owners.last() == Some(&6));
        for n in 0..100 {
            let id = format!("hits{n}");
            let answer = answer_key(&hasher, id.as_bytes(), b"k").key;
            let owner = values_partition(hasher.key(id.as_bytes()), partitions);
            assert_eq!(values_partition(answer, partitions), owner, "an answer is where its counter is");
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
