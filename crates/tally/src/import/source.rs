//! Reads all keys of a Redis, a page of a scan at a time.

use super::LeftOut;
use super::redis_url::RedisUrl;
use crate::access::first_line;
use crate::client::{Peer, Pipeline, RespClient, ServerAnswer};
use crate::failure::{Failure, Result};
use std::path::Path;
use std::sync::mpsc::SyncSender;
use tally_core::limits::ID_BYTES_MAX;
use tally_node::clock::Stopwatch;

/// Keys of a page, more or less.
const PAGE: &str = "1000";
/// An integer of 64 bits has at most 20 characters, so one more tells it from a longer text.
const LAST_BYTE: &str = "20";

/// What a key was found to be.
pub enum Found {
    Integer {
        key: Vec<u8>,
        value: i64,
        ttl: Option<TimeToLive>,
    },
    Other(LeftOut),
    /// It has ended between the scan and the look.
    Gone,
}

/// As Redis tells it: what is left of it when it was asked.
#[derive(Clone, Copy)]
pub struct TimeToLive {
    pub ms: u64,
    pub asked: Stopwatch,
}

pub struct Source {
    redis: RespClient,
}

impl Source {
    pub fn connect(url: &str, password_file: Option<&Path>) -> Result<Source> {
        let RedisUrl { server, user, password, database } = RedisUrl::parse(url)?;
        let from_file = password_file.map(first_line).transpose()?.map(String::into_bytes);
        let mut redis = RespClient::reach(Peer::Redis, &server)?;
        if let Some(password) = from_file.or(password) {
            let words: Vec<_> = [b"AUTH".to_vec()].into_iter().chain(user).chain([password]).collect();
            redis.call(&words)?;
        }
        if let Some(database) = database {
            redis.call(&["SELECT", &database])?;
        }
        Ok(Source { redis })
    }

    /// How many there are.
    pub fn keys(&mut self) -> Result<u64> {
        match self.redis.call(&["DBSIZE"])? {
            ServerAnswer::Integer(keys) => Ok(keys.max(0) as u64),
            other => Err(other.strange()),
        }
    }

    /// A node of a cluster has a part of its keys, and does not say so when it is asked for all.
    pub fn refuse_part_of_cluster(&mut self) -> Result<()> {
        let mut pipeline = Pipeline::default();
        pipeline.add(&["INFO", "cluster"]);
        // One that does not answer this to everybody is believed to have all.
        let Some(Ok(ServerAnswer::Text(info))) = self.redis.exchange(&pipeline)?.pop() else { return Ok(()) };
        if !String::from_utf8_lossy(&info).lines().any(|line| line.trim() == "cluster_enabled:1") {
            return Ok(());
        }
        Err(Failure::new(format!("the Redis at {} is a node of a cluster", self.redis.server()))
            .why("it has a part of the keys, and the other masters have the rest")
            .remedy("Import from every master, one after the other, each with --cluster-node."))
    }

    /// Hands on all keys, until nobody listens.
    pub fn read_all(&mut self, batches: &SyncSender<Vec<Found>>) -> Result<()> {
        let mut page = Page::of(self.redis.call(&["SCAN", "0", "COUNT", PAGE])?)?;
        loop {
            let Page { cursor, keys, too_long } = page;
            let is_last = cursor == b"0";
            let mut pipeline = Pipeline::default();
            for key in &keys {
                pipeline.add(&[&b"GETRANGE"[..], key, b"0", LAST_BYTE.as_bytes()]);
                pipeline.add(&[&b"PTTL"[..], key]);
            }
            // The next page is on its way meanwhile.
            if !is_last {
                pipeline.add(&[b"SCAN", &*cursor, b"COUNT", PAGE.as_bytes()]);
            }
            let asked = Stopwatch::start();
            let mut answers = self.redis.exchange(&pipeline)?.into_iter();
            let looked_at = keys.into_iter().map(|key| found(key, asked, answers.next(), answers.next()));
            let left_out = too_long.into_iter().map(|left_out| Ok(Found::Other(left_out)));
            let found = looked_at.chain(left_out).collect::<Result<_>>()?;
            if batches.send(found).is_err() || is_last {
                return Ok(());
            }
            let next = answers.next().expect("there is an answer to each command");
            let next = next.map_err(|text| Failure::new("the Redis refused SCAN").why(text))?;
            page = Page::of(next)?;
        }
    }
}

type Answered = Option<std::result::Result<ServerAnswer, String>>;

fn found(key: Vec<u8>, asked: Stopwatch, value: Answered, ttl: Answered) -> Result<Found> {
    let text = match value.expect("there is an answer to each command") {
        Ok(ServerAnswer::Text(text)) => text,
        Ok(other) => return Err(other.strange()),
        Err(text) if text.starts_with("WRONGTYPE") => {
            return Ok(Found::Other(LeftOut::new(&key, "it is no string".to_owned())));
        }
        Err(text) => return Err(Failure::new("the Redis refused GETRANGE").why(text)),
    };
    let ttl = match ttl.expect("there is an answer to each command") {
        Ok(ServerAnswer::Integer(-2)) => return Ok(Found::Gone),
        Ok(ServerAnswer::Integer(ttl)) => u64::try_from(ttl).ok().map(|ms| TimeToLive { ms, asked }),
        Ok(other) => return Err(other.strange()),
        Err(text) => return Err(Failure::new("the Redis refused PTTL").why(text)),
    };
    Ok(match integer(&text) {
        Some(value) => Found::Integer { key, value, ttl },
        None => Found::Other(LeftOut::new(&key, format!("{:?} is no integer", String::from_utf8_lossy(&text)))),
    })
}

/// As Redis itself takes one for an integer: no sign, space or zero too many.
fn integer(text: &[u8]) -> Option<i64> {
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.to_string().as_bytes() == text).then_some(value)
}

/// What a scan answers.
struct Page {
    cursor: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// No counter has such a name, so what they are worth is not asked.
    too_long: Vec<LeftOut>,
}

impl Page {
    fn of(answer: ServerAnswer) -> Result<Page> {
        let ServerAnswer::List(mut parts) = answer else { return Err(answer.strange()) };
        let (listed, cursor) = match (parts.pop(), parts.pop()) {
            (Some(ServerAnswer::List(keys)), Some(ServerAnswer::Text(cursor))) => (keys, cursor),
            (other, _) => return Err(other.unwrap_or(ServerAnswer::Nothing).strange()),
        };
        let mut page = Page { cursor, keys: Vec::new(), too_long: Vec::new() };
        for key in listed {
            match key {
                ServerAnswer::Text(key) if key.len() <= ID_BYTES_MAX => page.keys.push(key),
                ServerAnswer::Text(key) => page.too_long.push(too_long(&key, key.len())),
                ServerAnswer::Long { start, bytes } => page.too_long.push(too_long(&start, bytes)),
                other => return Err(other.strange()),
            }
        }
        Ok(page)
    }
}

fn too_long(key: &[u8], bytes: usize) -> LeftOut {
    LeftOut::new(key, format!("its name has {bytes} bytes, and a counter's at most {ID_BYTES_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_redis_would_increment_is_an_integer() {
        assert_eq!((integer(b"-7"), integer(b"0")), (Some(-7), Some(0)));
        assert_eq!(integer(i64::MIN.to_string().as_bytes()), Some(i64::MIN));
        for other in ["", "07", "+7", " 7", "7.0", "-0", "9223372036854775808", "1e3", "x"] {
            assert_eq!(integer(other.as_bytes()), None, "{other:?}");
        }
    }
}
