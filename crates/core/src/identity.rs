//! What makes an event unique, and the partition it therefore belongs to.
//!
//! An event goes to the partition of its identity, not of the key it counts for: there its fate is decided once, and a
//! hot key is no hot partition. The hash is unseeded and pinned, since every collector and every replay must agree.
//!
//! | mode | identity |
//! |---|---|
//! | `simple`, `unique`, `top`, `frequency`, `window` | the counter's id (name and key) |
//! | `display` | the fields of `dedup.by` without `seq`, by default the session; without one of them, the event id |
//! | `transition` | the entity; without one of its fields, and for a counter without `entity`, the event id |
//! | `persistent` | the event id |
//!
//! Without an event id either, it is the counter's id. Modes that do not exist yet are in the table for what is to come.

use crate::counter::{Counter, Field};
use crate::event::Event;
use crate::id::{SEPARATOR, encode_part};
use std::num::NonZeroU32;
use xxhash_rust::xxh3::xxh3_64;

/// The stable hash of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// The identity of `event` for `counter`, where it counts for the cell `id`.
    pub fn of(counter: &Counter, event: &Event<'_>, id: &[u8]) -> Identity {
        let Some(fields) = counter.contract.identity() else { return Identity::of_bytes(id) };
        let otherwise = || Identity::of_bytes(event.event_id.as_ref().map_or(id, |event_id| event_id.as_bytes()));
        Identity::of_fields(fields, event).unwrap_or_else(otherwise)
    }

    /// One value is taken as it is, several as the key of an id: no two lists of the same fields are the same bytes.
    fn of_fields(fields: &[Field], event: &Event<'_>) -> Option<Identity> {
        match fields {
            [] => None,
            [field] => Some(Identity::of_bytes(field.text(event)?.as_bytes())),
            fields => {
                let mut joined = Vec::new();
                for field in fields {
                    encode_part(field.text(event)?.as_bytes(), &mut joined);
                    joined.push(SEPARATOR);
                }
                Some(Identity::of_bytes(&joined))
            }
        }
    }

    pub fn of_bytes(identity: &[u8]) -> Identity {
        Identity(xxh3_64(identity))
    }

    pub fn hash(self) -> u64 {
        self.0
    }

    /// Which of `partitions` it belongs to: the hash as a fraction of 2⁶⁴, times their number.
    pub fn partition(self, partitions: NonZeroU32) -> u32 {
        ((u128::from(self.0) * u128::from(partitions.get())) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Declarations;

    fn partitions(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    #[test]
    fn hashes_and_partitions_are_pinned() {
        // Collectors of different versions must agree on them, and so must a replay.
        for (text, hash, of_7, of_64) in PINNED {
            let identity = Identity::of_bytes(text.as_bytes());
            assert_eq!(identity.hash(), hash, "{text}: {:#x}", identity.hash());
            assert_eq!(
                (identity.partition(partitions(7)), identity.partition(partitions(64))),
                (of_7, of_64),
                "{text}"
            );
        }
    }

    const PINNED: [(&str, u64, u32, u32); 3] = [
        ("", 0x2d06_8005_38d3_94c2, 1, 11),
        ("s1", 0x9a27_5e3f_4549_30d1, 4, 38),
        ("views:v42", 0x2d33_f11e_b00a_2dca, 1, 11),
    ];

    /// A counter of which all that matters is given.
    fn counter(settings: &str) -> Counter {
        let yaml = format!("counters: [{{counterName: c, rules: [{{on: t, op: increment}}], {settings}}}]");
        Declarations::parse(&yaml).unwrap().counter(0).clone()
    }

    #[track_caller]
    fn is(counter: &Counter, event: &Event<'_>, text: &str) {
        assert_eq!(Identity::of(counter, event, b"c:key"), Identity::of_bytes(text.as_bytes()));
    }

    #[test]
    fn an_event_is_known_by_what_its_mode_says() {
        let mut event = Event::new("t", 0);
        let simple = counter("mode: simple");
        let display = counter("mode: display");
        let free = counter("mode: display, dedup: none");
        let persistent = counter("mode: persistent");
        for counter in [&simple, &display, &free, &persistent] {
            is(counter, &event, "c:key");
        }
        event.event_id = Some("e1".into());
        is(&display, &event, "e1");
        event.session = Some("s1".into());
        is(&display, &event, "s1");
        is(&free, &event, "s1");
        is(&simple, &event, "c:key");
        is(&persistent, &event, "e1");
    }

    #[test]
    fn fields_that_make_an_event_unique_keep_it_in_one_partition() {
        let by = |list: &str| counter(&format!("mode: display, dedup: {{by: [{list}]}}"));
        let likes = counter("mode: transition, entity: [user, content]");
        let raw = counter("mode: transition");
        let mut event = Event { event_id: Some("e1".into()), session: Some("s:1".into()), ..Event::new("t", 0) };
        is(&likes, &event, "e1");
        event.dimensions = vec![("content".into(), "v%".into()), ("user".into(), "u1".into())];
        is(&by("eventId"), &event, "e1");
        is(&by("user, seq"), &event, "u1");
        is(&by("type, session"), &event, "t:s%3A1:");
        is(&by("seq, session"), &event, "s:1");
        is(&likes, &event, "u1:v%25:");
        is(&raw, &event, "e1");
    }

    #[test]
    fn partitions_are_filled_evenly() {
        let mut filled = [0; 10];
        for n in 0..10_000u32 {
            filled[Identity::of_bytes(&n.to_le_bytes()).partition(partitions(10)) as usize] += 1;
        }
        assert!(filled.iter().all(|n| (850..1150).contains(n)), "{filled:?}");
        assert_eq!(Identity(u64::MAX).partition(partitions(u32::MAX)), u32::MAX - 1);
        assert_eq!(Identity(u64::MAX).partition(partitions(1)), 0);
    }
}
