//! What makes an event unique, and the partition it therefore belongs to.
//!
//! An event goes to the partition of its identity, not of the key it counts for: there its fate is decided once, and a
//! hot key is no hot partition. The hash is unseeded and pinned, since every collector and every replay must agree.
//!
//! | mode | identity |
//! |---|---|
//! | `simple`, `unique`, `top`, `frequency`, `window` | the counter's id (name and key) |
//! | `display` | the session; without one, the event id; without either, the counter's id |
//! | `transition` | the entity |
//! | `persistent` | the event id |
//!
//! Only `simple` and `display` exist so far.

use crate::counter::Mode;
use crate::event::Event;
use std::num::NonZeroU32;
use xxhash_rust::xxh3::xxh3_64;

/// The stable hash of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// The identity of `event` for a counter of `mode`, where it counts for the cell `id`.
    pub fn of(mode: Mode, event: &Event<'_>, id: &[u8]) -> Identity {
        match mode {
            Mode::Simple => Identity::of_bytes(id),
            Mode::Display => {
                let own = event.session.as_ref().or(event.event_id.as_ref());
                Identity::of_bytes(own.map_or(id, |text| text.as_bytes()))
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

    #[test]
    fn an_event_is_known_by_what_its_mode_says() {
        let mut event = Event::new("t", 0);
        let is = |event: &Event<'_>, mode, text: &str| {
            Identity::of(mode, event, b"c:key") == Identity::of_bytes(text.as_bytes())
        };
        assert!(is(&event, Mode::Display, "c:key"));
        event.event_id = Some("e1".into());
        assert!(is(&event, Mode::Display, "e1"));
        event.session = Some("s1".into());
        assert!(is(&event, Mode::Display, "s1"));
        assert!(is(&event, Mode::Simple, "c:key"));
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
