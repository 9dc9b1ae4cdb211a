//! A topic with faults by a seed: appends fail, come late, come twice or lose their answer; readers have to try again.

use super::{Appender, Source};
use crate::chance::{Chance, Fault};
use crate::log::{Appended, LogBatch, LogError, LogReader};
use std::sync::{Arc, Mutex, PoisonError};
use tally_core::limits::DELAYED_APPENDS_MAX;
use tally_core::position::Position;

pub struct FaultyTopic<T> {
    topic: T,
    chance: Arc<Chance>,
    /// Batches that are still on their way.
    delayed: Mutex<Vec<Sent>>,
}

struct Sent {
    partition: u32,
    count: u32,
    records: Vec<u8>,
}

impl<T> FaultyTopic<T> {
    pub fn new(topic: T, chance: Arc<Chance>) -> FaultyTopic<T> {
        FaultyTopic { topic, chance, delayed: Mutex::default() }
    }

    fn may_fail(&self) -> Result<(), LogError> {
        self.chance.draw(&[Fault::Fails]).map_or(Ok(()), |_| Err(retry()))
    }
}

impl<T: Appender> FaultyTopic<T> {
    /// Lets some of what is on its way arrive: all of it if there is more than may be.
    fn arrive(&self) {
        let mut delayed = self.delayed.lock().unwrap_or_else(PoisonError::into_inner);
        while delayed.len() > DELAYED_APPENDS_MAX || (!delayed.is_empty() && self.chance.toss()) {
            let Sent { partition, count, records } = delayed.remove(0);
            // Nobody waits for it any more.
            let _ = self.topic.append(partition, count, &records);
        }
    }
}

impl<T: Appender> Appender for FaultyTopic<T> {
    fn partitions(&self) -> u32 {
        self.topic.partitions()
    }

    fn append(&self, partition: u32, count: u32, records: &[u8]) -> Result<Appended, LogError> {
        self.arrive();
        match self.chance.draw(&Fault::ALL) {
            None => self.topic.append(partition, count, records),
            Some(Fault::Fails) => Err(retry()),
            Some(Fault::LosesAnswer) => self.topic.append(partition, count, records).and(Err(unknown())),
            Some(Fault::Delays) => {
                let sent = Sent { partition, count, records: records.to_vec() };
                self.delayed.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
                Err(unknown())
            }
            Some(Fault::Repeats) => {
                let appended = self.topic.append(partition, count, records)?;
                let _ = self.topic.append(partition, count, records);
                Ok(appended)
            }
        }
    }
}

impl<T: Source> Source for FaultyTopic<T> {
    type Reader = FaultyReader<T::Reader>;

    fn assigned(&self) -> Vec<u32> {
        self.topic.assigned()
    }

    fn batches(&self, partition: u32, from: Position) -> Result<Self::Reader, LogError> {
        self.may_fail()?;
        Ok(FaultyReader { reader: self.topic.batches(partition, from)?, chance: self.chance.clone() })
    }

    fn high_water(&self, partition: u32) -> Result<Position, LogError> {
        self.may_fail()?;
        self.topic.high_water(partition)
    }

    fn release(&self, partition: u32, to: Position) -> Result<(), LogError> {
        match self.chance.draw(&[Fault::Fails, Fault::LosesAnswer]) {
            Some(Fault::Fails) => Err(retry()),
            Some(_) => self.topic.release(partition, to).and(Err(unknown())),
            None => self.topic.release(partition, to),
        }
    }
}

pub struct FaultyReader<R> {
    reader: R,
    chance: Arc<Chance>,
}

impl<R: LogReader> LogReader for FaultyReader<R> {
    fn next(&mut self) -> Result<Option<LogBatch<'_>>, LogError> {
        match self.chance.draw(&[Fault::Fails]) {
            Some(_) => Err(retry()),
            None => self.reader.next(),
        }
    }

    fn rest(&mut self) {
        self.reader.rest();
    }
}

fn retry() -> LogError {
    LogError::Retry("a fault of the seed".to_owned())
}

fn unknown() -> LogError {
    LogError::Unknown("a fault of the seed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Odds;
    use crate::log::memory::{MemoryDisk, MemoryLog};
    use crate::topic::partitions::Partitions;
    use crate::topic::suite;

    const SEEDS: u64 = 50;

    #[test]
    fn a_faulty_topic_keeps_what_its_contract_promises_under_every_seed() {
        for seed in 0..SEEDS {
            let chance = Arc::new(Chance::new(seed, Odds::all(100)));
            let make = |n, now_ms| {
                let logs = (0..n).map(|_| MemoryLog::open(&MemoryDisk::default())).collect();
                FaultyTopic::new(Partitions::new(logs, now_ms), chance.clone())
            };
            suite::what_is_sent_until_it_is_answered_is_there_in_order_and_copies_are_copies(make);
            assert!(chance.hit().iter().all(|(_, hit)| *hit > 0), "{:?}", chance.hit());
        }
    }

    #[test]
    fn without_faults_it_is_the_topic_that_it_wraps() {
        let chance = Arc::new(Chance::new(1, Odds::default()));
        suite::all(|n, now_ms| {
            let logs = (0..n).map(|_| MemoryLog::open(&MemoryDisk::default())).collect();
            FaultyTopic::new(Partitions::new(logs, now_ms), chance.clone())
        });
    }
}
