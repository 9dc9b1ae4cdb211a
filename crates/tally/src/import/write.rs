//! Sets counters of a running server, a batch at a time.

use super::source::{Found, TimeToLive};
use super::{LeftOut, LeftOuts};
use crate::client::{Pipeline, RespClient, ServerAnswer};
use crate::failure::{Failure, Result};
use std::time::Duration;

/// How often a batch is sent again while the server is busy, and what comes between.
const ATTEMPTS_MAX: usize = 60;
const PAUSE: Duration = Duration::from_secs(1);

const RUN_AGAIN: &str =
    "Run it again when that is mended: what is there already is set once more, or left alone with --only-new.";

/// What became of the keys so far.
#[derive(Default)]
pub struct Written {
    pub set: u64,
    pub expiring: u64,
    pub kept: u64,
    pub skipped: LeftOuts,
    pub refused: LeftOuts,
}

impl Written {
    pub fn read(&self) -> u64 {
        self.set + self.kept + self.skipped.count + self.refused.count
    }
}

struct Counter {
    key: Vec<u8>,
    value: i64,
    ttl: Option<TimeToLive>,
}

impl Counter {
    /// It has ended meanwhile, as a key that ends between the scan and the look.
    fn is_gone(&self) -> bool {
        self.ttl.is_some_and(|ttl| ttl.left_ms() == 0)
    }
}

impl TimeToLive {
    /// What is left of it now: batches wait for each other, and for a server that is busy.
    fn left_ms(&self) -> u64 {
        self.ms.saturating_sub(self.asked.elapsed().as_millis() as u64)
    }
}

pub fn write(target: &mut RespClient, batch: Vec<Found>, only_new: bool, written: &mut Written) -> Result<()> {
    let mut counters = Vec::with_capacity(batch.len());
    for found in batch {
        match found {
            Found::Integer { key, value, ttl } => counters.push(Counter { key, value, ttl }),
            Found::Other(left_out) => written.skipped.add(left_out),
            Found::Gone => {}
        }
    }
    for _ in 0..ATTEMPTS_MAX {
        counters.retain(|counter| !counter.is_gone());
        counters = set(target, counters, only_new, written)?;
        if counters.is_empty() {
            return Ok(());
        }
        std::thread::park_timeout(PAUSE);
    }
    Err(Failure::new("the server is busy, and does not come to an end with it")
        .remedy("Run it again later: what is there already is set once more."))
}

/// Sets all of them; answers those for which the server had no time.
fn set(target: &mut RespClient, counters: Vec<Counter>, only_new: bool, written: &mut Written) -> Result<Vec<Counter>> {
    let mut pipeline = Pipeline::default();
    for Counter { key, value, ttl } in &counters {
        // One that ends just now has a moment left: a time to live of nothing is refused.
        let (value, ttl) = (value.to_string(), ttl.map(|ttl| ttl.left_ms().max(1).to_string()));
        let mut words: Vec<&[u8]> = vec![b"SET", key, value.as_bytes()];
        words.extend(ttl.iter().flat_map(|ttl| [&b"PX"[..], ttl.as_bytes()]));
        words.extend(only_new.then_some(&b"NX"[..]));
        pipeline.add(&words);
    }
    let mut busy = Vec::new();
    for (counter, answer) in counters.into_iter().zip(target.exchange(&pipeline)?) {
        match answer {
            Ok(ServerAnswer::Nothing) => written.kept += 1,
            Ok(_) => {
                written.set += 1;
                written.expiring += u64::from(counter.ttl.is_some());
            }
            Err(text) if text.starts_with("BUSY") => busy.push(counter),
            Err(why) if is_of_one_key(&why) => written.refused.add(LeftOut::new(&counter.key, why)),
            Err(why) => return Err(target.refused("SET", &why).or_remedy(RUN_AGAIN)),
        }
    }
    Ok(busy)
}

/// Whether an error is about the key that was set. Every other code is about the server or who asks, and each key would meet the same:
/// nobody is let in, the disk is full, memory is short, it stops.
fn is_of_one_key(error: &str) -> bool {
    error.split(' ').next() == Some("ERR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself_is_not_taken_for_a_refusal_of_one_key() {
        assert!(is_of_one_key("ERR counter 'views' is declared"));
        for of_all in
            ["NOAUTH Authentication required.", "MISCONF the disk is full", "OOM clients", "SHUTDOWN", "LOADING"]
        {
            assert!(!is_of_one_key(of_all), "{of_all}");
        }
    }
}
