//! Memory for questions: part of what all clients may hold. Beyond it they spill to disk, and what cannot spill is refused.
//!
//! Who spills needs memory to do it: DataFusion sorts what it has of groups before it writes them, and asks for as much again. So what is
//! shared out is half. Who was refused just before, and so spills now, may have of the other half, and so may those who cannot spill, and
//! who has little.

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally_node::frontend::budget::{Budget, Charge};

/// Questions have all but one part in so many of the clients' budget.
const PARTS: usize = 4;
/// And share out one part in so many of that.
const SHARED_PARTS: usize = 2;
/// Who has no more than one part in so many has little.
const LITTLE_PARTS: usize = 16;
/// What a group or a sort asks for while it spills.
const ASKS_WHILE_SPILLING: u32 = 8;

#[derive(Debug)]
pub struct Pool {
    /// Shares it out among those who spill.
    shared: FairSpillPool,
    bytes: usize,
    charge: Mutex<Charge>,
    /// Who was refused a moment ago, and how often he may still ask for more.
    spilling: Mutex<HashMap<usize, u32>>,
}

impl Pool {
    pub fn new(budget: &Arc<Budget>) -> Pool {
        let bytes = budget.bytes() - budget.bytes() / PARTS;
        let shared = FairSpillPool::new(bytes / SHARED_PARTS);
        Pool { shared, bytes, charge: Mutex::new(Charge::new(budget)), spilling: Mutex::default() }
    }

    /// What is shared out.
    pub fn shared_bytes(&self) -> usize {
        self.bytes / SHARED_PARTS
    }

    fn take(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let consumer = reservation.consumer();
        let Err(error) = self.shared.try_grow(reservation, additional) else { return Ok(()) };
        // The last quarter is for who has little: a merge takes what there is and would do with less, but nobody begins with nothing.
        let most = match consumer.can_spill() {
            _ if reservation.size() + additional <= self.bytes / LITTLE_PARTS => self.bytes,
            true if !self.is_spilling(consumer.id()) => 0,
            _ => self.bytes - self.bytes / 4,
        };
        if self.shared.reserved() + additional <= most {
            self.shared.grow(reservation, additional);
            return Ok(());
        }
        self.spilling().insert(consumer.id(), ASKS_WHILE_SPILLING);
        Err(error)
    }

    /// Whether it was refused a moment ago; it is told so only a few times.
    fn is_spilling(&self, consumer: usize) -> bool {
        let mut spilling = self.spilling();
        let left = spilling.get(&consumer).copied().unwrap_or(0);
        match left {
            0 => spilling.remove(&consumer),
            _ => spilling.insert(consumer, left - 1),
        };
        left > 0
    }

    fn spilling(&self) -> MutexGuard<'_, HashMap<usize, u32>> {
        self.spilling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self) -> MutexGuard<'_, Charge> {
        self.charge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryPool for Pool {
    fn register(&self, consumer: &MemoryConsumer) {
        self.shared.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.shared.unregister(consumer);
        self.spilling().remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.shared.grow(reservation, additional);
        // It has it already, and it is little: what is asked for next is refused instead.
        let _ = self.charge().set(self.shared.reserved());
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.shared.shrink(reservation, shrink);
        let _ = self.charge().set(self.shared.reserved());
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.take(reservation, additional)?;
        self.charge().set(self.shared.reserved()).map_err(|_| {
            self.shared.shrink(reservation, additional);
            DataFusionError::ResourcesExhausted("other clients hold the memory that questions may have".to_owned())
        })
    }

    fn reserved(&self) -> usize {
        self.shared.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn who_has_little_gets_something_though_others_have_all_that_is_shared_out() {
        // Of 64 MiB questions have 48, of which 24 are shared out.
        let pool: Arc<dyn MemoryPool> = Arc::new(Pool::new(&Budget::new(64 * MIB)));
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
}
