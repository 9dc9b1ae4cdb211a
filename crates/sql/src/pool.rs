//! Memory for a question, as far as DataFusion counts it. Beyond it what can spills to disk, and what cannot is refused.
//!
//! Half of it is shared out evenly among those who can spill and hold something: those who hold nothing yet wait for others, and a share that
//! is kept for them would only make others spill too early. Who spills needs memory to do it: DataFusion sorts what it has of groups
//! before it writes them, and asks for as much again. So who was refused just before may have of the other half, and so may those who cannot
//! spill, and who has little.

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One part in so many is shared out.
const SHARED_PARTS: usize = 2;
/// Who has no more than one part in so many has little.
const LITTLE_PARTS: usize = 16;
/// What a group or a sort asks for while it spills.
const ASKS_WHILE_SPILLING: u32 = 8;

#[derive(Debug)]
pub struct Pool {
    bytes: usize,
    held: Mutex<Held>,
}

/// Who holds what.
#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// Of that, what those hold who can spill, each by his number. Nobody is here who holds nothing.
    spillable: HashMap<usize, usize>,
    /// Who was refused a moment ago, and how often he may still ask for more.
    spilling: HashMap<usize, u32>,
}

impl Held {
    /// What each of those who can spill may hold of so many bytes, if this one is among them.
    fn share_of(&self, consumer: usize, bytes: usize) -> usize {
        let others = self.spillable.iter().filter(|(id, _)| **id != consumer).count();
        let fixed = self.bytes - self.spillable.values().sum::<usize>();
        bytes.saturating_sub(fixed) / (others + 1)
    }

    /// Whether it was refused a moment ago; it is told so only a few times.
    fn is_spilling(&mut self, consumer: usize) -> bool {
        let left = self.spilling.get(&consumer).copied().unwrap_or(0);
        match left {
            0 => self.spilling.remove(&consumer),
            _ => self.spilling.insert(consumer, left - 1),
        };
        left > 0
    }

    fn add(&mut self, consumer: &MemoryConsumer, bytes: usize) {
        self.bytes += bytes;
        if consumer.can_spill() && bytes > 0 {
            *self.spillable.entry(consumer.id()).or_default() += bytes;
        }
    }

    fn subtract(&mut self, consumer: &MemoryConsumer, bytes: usize) {
        self.bytes -= bytes;
        if let Some(held) = self.spillable.get_mut(&consumer.id()) {
            *held -= bytes;
            if *held == 0 {
                self.spillable.remove(&consumer.id());
            }
        }
    }
}

impl Pool {
    pub fn new(bytes: usize) -> Pool {
        Pool { bytes, held: Mutex::default() }
    }

    /// What is shared out.
    pub fn shared_bytes(&self) -> usize {
        self.bytes / SHARED_PARTS
    }

    /// Whether somebody may have more.
    fn allows(&self, held: &mut Held, reservation: &MemoryReservation, additional: usize) -> bool {
        let consumer = reservation.consumer();
        // Whoever can spill may hold it in several reservations.
        let has = held.spillable.get(&consumer.id()).copied().unwrap_or(reservation.size());
        let wanted = has + additional;
        let is_shared = match consumer.can_spill() {
            true => wanted <= held.share_of(consumer.id(), self.shared_bytes()),
            false => held.bytes + additional <= self.shared_bytes(),
        };
        // The last quarter is for who has little: a merge takes what there is and would do with less, but nobody begins with nothing.
        let most = match consumer.can_spill() {
            _ if is_shared || wanted <= self.bytes / LITTLE_PARTS => self.bytes,
            true if !held.is_spilling(consumer.id()) => 0,
            _ => self.bytes - self.bytes / 4,
        };
        held.bytes + additional <= most
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryPool for Pool {
    fn unregister(&self, consumer: &MemoryConsumer) {
        self.held().spilling.remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        // It has it already, and it is little: what is asked for next is refused instead.
        self.held().add(reservation.consumer(), additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.held().subtract(reservation.consumer(), shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let (consumer, mut held) = (reservation.consumer(), self.held());
        if !self.allows(&mut held, reservation, additional) {
            held.spilling.insert(consumer.id(), ASKS_WHILE_SPILLING);
            let (name, has, all) = (consumer.name(), reservation.size(), held.bytes);
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{name} has {has} bytes and wants {additional} more; the question has {all} of {}",
                self.bytes
            )));
        }
        held.add(consumer, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.held().bytes
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const MIB: usize = 1 << 20;

    #[test]
    fn who_has_little_gets_something_though_others_have_all_that_is_shared_out() {
        // Of 48 MiB 24 are shared out.
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(48 * MIB));
        let merging = MemoryConsumer::new("merging").register(&pool);
        merging.try_grow(24 * MIB).unwrap();
        merging.try_grow(12 * MIB).unwrap();
        assert!(merging.try_grow(MIB).is_err(), "who merges leaves something to others");
        let sorting = MemoryConsumer::new("sorting").with_can_spill(true).register(&pool);
        sorting.try_grow(MIB).unwrap();
        sorting.try_grow(2 * MIB).unwrap();
        assert!(sorting.try_grow(MIB).is_err(), "now it has something: it spills");
        let others = [(); 3].map(|()| MemoryConsumer::new("another merge").register(&pool));
        others.iter().for_each(|other| other.try_grow(3 * MIB).unwrap());
        assert!(MemoryConsumer::new("too late").register(&pool).try_grow(MIB).is_err(), "there is an end to it");
    }

    #[test]
    fn what_is_shared_out_is_shared_by_those_who_hold_something() {
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(48 * MIB));
        let [first, second, _idle] =
            ["first", "second", "idle"].map(|name| MemoryConsumer::new(name).with_can_spill(true).register(&pool));
        first.try_grow(20 * MIB).unwrap();
        second.try_grow(12 * MIB).unwrap();
        assert!(second.try_grow(MIB).is_err(), "it has half of 24");
        assert!(first.try_grow(MIB).is_err(), "it has more than half");
        first.free();
        second.try_grow(MIB).unwrap();
        assert_eq!(pool.reserved(), 13 * MIB);
        drop((first, second));
        assert_eq!(pool.reserved(), 0);
    }
}
