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
