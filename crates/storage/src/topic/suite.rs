//! What every appender and source must do, written once against the contracts on the traits.
//!
//! A check is given a maker of topics with so many partitions, whose keepers have such a clock. [`all`] runs every check;
//! [`tests`](crate::topic_suite_tests) turns them into tests.

#![allow(clippy::unwrap_used, reason = "what does not go well fails the check")]

use super::partitions::AppendTime;
use super::{Appender, Source};
use crate::log::{LogError, LogReader};
use std::collections::BTreeMap;
use tally_core::position::Position;

/// How often something that is worth it is tried again.
const TRIES_MAX: usize = 10_000;

fn at(offset: u64) -> Position {
    Position { epoch: 0, log: 0, offset }
}

fn clock() -> Box<AppendTime> {
    Box::new(|partition| 1000 + u64::from(partition))
}

/// Tries again what is worth trying again, as every caller has to.
fn again<T>(mut call: impl FnMut() -> Result<T, LogError>) -> T {
    for _ in 0..TRIES_MAX {
        match call() {
            Err(LogError::Retry(_) | LogError::Unknown(_)) => {}
            result => return result.unwrap(),
        }
    }
    panic!("it never went well")
}

/// Offset, append time, count and records of every batch from a record on.
fn read_all(topic: &impl Source, partition: u32, from: u64) -> Vec<(u64, u64, u32, Vec<u8>)> {
    let mut reader = again(|| topic.batches(partition, at(from)));
    let mut read = Vec::new();
    loop {
        let batch = again(|| {
            let batch = reader.next()?;
            Ok(batch.map(|batch| (batch.position.offset, batch.log_time_ms, batch.count, batch.records.to_vec())))
        });
        match batch {
            Some(batch) => read.push(batch),
            None => return read,
        }
    }
}

pub fn partitions_are_logs_of_their_own<T: Appender + Source>(make: impl Fn(u32, Box<AppendTime>) -> T) {
    let topic = make(3, clock());
    assert_eq!((topic.partitions(), topic.assigned()), (3, vec![0, 1, 2]));
    let first = topic.append(1, 2, b"ab").unwrap();
    let second = topic.append(1, 1, b"c").unwrap();
    topic.append(2, 1, b"x").unwrap();
    assert_eq!((first.position.offset, second.position.offset), (0, 2));
    assert_eq!(read_all(&topic, 1, 0), [(0, 1001, 2, b"ab".to_vec()), (2, 1001, 1, b"c".to_vec())]);
    assert_eq!(read_all(&topic, 2, 0), [(0, 1002, 1, b"x".to_vec())]);
    assert!(read_all(&topic, 0, 0).is_empty());
    assert_eq!([0, 1, 2].map(|partition| topic.high_water(partition).unwrap().offset), [0, 3, 1]);
}

pub fn an_answer_means_that_readers_have_it<T: Appender + Source>(make: impl Fn(u32, Box<AppendTime>) -> T) {
    let topic = make(1, clock());
    let mut reader = topic.batches(0, at(0)).unwrap();
    for n in 0..50u8 {
        assert!(reader.next().unwrap().is_none());
        let appended = topic.append(0, 1, &[n]).unwrap();
        let batch = reader.next().unwrap().unwrap();
        assert_eq!((batch.position.offset, batch.records), (appended.position.offset, &[n][..]));
    }
}

pub fn reading_begins_anywhere_and_what_is_released_is_refused<T: Appender + Source>(
    make: impl Fn(u32, Box<AppendTime>) -> T,
) {
    let topic = make(1, clock());
    for n in 0..100u8 {
        topic.append(0, 10, &[n; 1000]).unwrap();
    }
    assert_eq!(read_all(&topic, 0, 555)[0].0, 550);
    topic.release(0, at(505)).unwrap();
    assert_eq!(read_all(&topic, 0, 505).len(), 50);
    let Err(LogError::Trimmed { first, .. }) = topic.batches(0, at(0)).map(drop) else {
        panic!("what was released is gone")
    };
    assert!(first > 0 && first <= 500, "{first}");
}

/// Also where answers are lost and batches come late or twice: whoever sends until he has an answer has it there, in his order.
pub fn what_is_sent_until_it_is_answered_is_there_in_order_and_copies_are_copies<T: Appender + Source>(
    make: impl Fn(u32, Box<AppendTime>) -> T,
) {
    const BATCHES: u32 = 200;
    let topic = make(2, clock());
    let sent = |partition: u32, n: u32| [partition.to_le_bytes(), n.to_le_bytes()].concat();
    for n in 0..BATCHES {
        for partition in 0..2 {
            again(|| topic.append(partition, 1, &sent(partition, n)));
        }
    }
    for partition in 0..2 {
        let mut firsts = BTreeMap::new();
        for (offset, .., records) in read_all(&topic, partition, 0) {
            firsts.entry(records).or_insert(offset);
        }
        let mut order: Vec<_> = firsts.into_iter().map(|(records, offset)| (offset, records)).collect();
        order.sort_unstable();
        let records: Vec<_> = order.into_iter().map(|(_, records)| records).collect();
        assert_eq!(records, (0..BATCHES).map(|n| sent(partition, n)).collect::<Vec<_>>());
    }
}

macro_rules! checks {
    ($dollar:tt $($name:ident)*) => {
        /// Runs every check.
        pub fn all<T: Appender + Source>(make: impl Fn(u32, Box<AppendTime>) -> T) {
            $($name(&make);)*
        }

        /// A test per check, for the topics that the expression makes.
        #[macro_export]
        macro_rules! topic_suite_tests {
            ($dollar make:expr) => {
                $(#[test]
                fn $name() {
                    $dollar crate::topic::suite::$name($dollar make);
                })*
            };
        }
    };
}

checks! {
    $
    partitions_are_logs_of_their_own
    an_answer_means_that_readers_have_it
    reading_begins_anywhere_and_what_is_released_is_refused
    what_is_sent_until_it_is_answered_is_there_in_order_and_copies_are_copies
}

pub use topic_suite_tests as tests;
