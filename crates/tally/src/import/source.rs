//! Reads all keys of a Redis, a page of a scan at a time.

use super::LeftOut;
use crate::access::first_line;
use crate::client::{Pipeline, RespClient, ServerAnswer};
use crate::failure::{Failure, Result};
use std::path::Path;
use std::sync::mpsc::SyncSender;

const PORT: u16 = 6379;
/// Keys of a page, more or less.
const PAGE: &str = "1000";
/// An integer of 64 bits has at most 20 characters, so one more tells it from a longer text.
const LAST_BYTE: &str = "20";

/// What a key was found to be.
pub enum Found {
    Integer {
        key: Vec<u8>,
        value: i64,
        ttl_ms: Option<u64>,
    },
    Other(LeftOut),
    /// It has ended between the scan and the look.
    Gone,
}

pub struct Source {
    redis: RespClient,
}

impl Source {
    pub fn connect(url: &str, password_file: Option<&Path>) -> Result<Source> {
        let Address { server, user, password, database } = parse(url)?;
        let from_file = password_file.map(first_line).transpose()?;
        let mut redis = RespClient::connect_to(&server, None)?;
        if let Some(password) = from_file.or(password) {
            let words: Vec<String> = ["AUTH".to_owned()].into_iter().chain(user).chain([password]).collect();
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

    /// Hands on all keys, until nobody listens.
    pub fn read_all(&mut self, batches: &SyncSender<Vec<Found>>) -> Result<()> {
        let (mut cursor, mut keys) = page(self.redis.call(&["SCAN", "0", "COUNT", PAGE])?)?;
        loop {
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
            let mut answers = self.redis.exchange(&pipeline)?.into_iter();
            let found = keys.drain(..).map(|key| found(key, answers.next(), answers.next())).collect::<Result<_>>()?;
            if batches.send(found).is_err() || is_last {
                return Ok(());
            }
            let next = answers.next().expect("there is an answer to each command");
            let next = next.map_err(|text| Failure::new("the Redis refused SCAN").why(text))?;
            (cursor, keys) = page(next)?;
        }
    }
}

type Answered = Option<std::result::Result<ServerAnswer, String>>;

fn found(key: Vec<u8>, value: Answered, ttl: Answered) -> Result<Found> {
    let text = match value.expect("there is an answer to each command") {
        Ok(ServerAnswer::Text(text)) => text,
        Ok(other) => return Err(other.strange()),
        Err(text) if text.starts_with("WRONGTYPE") => {
            return Ok(Found::Other(LeftOut { key, why: "it is no string".to_owned() }));
        }
        Err(text) => return Err(Failure::new("the Redis refused GETRANGE").why(text)),
    };
    let ttl_ms = match ttl.expect("there is an answer to each command") {
        Ok(ServerAnswer::Integer(-2)) => return Ok(Found::Gone),
        Ok(ServerAnswer::Integer(ttl)) => u64::try_from(ttl).ok(),
        Ok(other) => return Err(other.strange()),
        Err(text) => return Err(Failure::new("the Redis refused PTTL").why(text)),
    };
    Ok(match integer(&text) {
        Some(value) => Found::Integer { key, value, ttl_ms },
        None => Found::Other(LeftOut { key, why: format!("{:?} is no integer", String::from_utf8_lossy(&text)) }),
    })
}

/// As Redis itself takes one for an integer: no sign, space or zero too many.
fn integer(text: &[u8]) -> Option<i64> {
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (value.to_string().as_bytes() == text).then_some(value)
}

fn page(answer: ServerAnswer) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let ServerAnswer::List(mut parts) = answer else { return Err(answer.strange()) };
    match (parts.pop(), parts.pop()) {
        (Some(ServerAnswer::List(keys)), Some(ServerAnswer::Text(cursor))) => {
            Ok((cursor, keys.into_iter().filter_map(ServerAnswer::bytes).collect()))
        }
        (other, _) => Err(other.unwrap_or(ServerAnswer::Nothing).strange()),
    }
}

#[derive(Debug, PartialEq)]
struct Address {
    server: String,
    user: Option<String>,
    password: Option<String>,
    database: Option<String>,
}

fn parse(url: &str) -> Result<Address> {
    let wrong = |why: &str| {
        Failure::new(format!("{url} cannot be imported from")).why(why).remedy("Write redis://HOST:PORT/DATABASE.")
    };
    let rest = url.strip_prefix("redis://").ok_or_else(|| match url.starts_with("rediss://") {
        true => wrong("TLS is not spoken here; put a tunnel between them"),
        false => wrong("only a running Redis can be"),
    })?;
    let (rest, database) = rest.split_once('/').map_or((rest, ""), |(rest, database)| (rest, database));
    if !database.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong("behind the / stands the number of a database"));
    }
    let (secret, server) = rest.rsplit_once('@').map_or((None, rest), |(secret, server)| (Some(secret), server));
    let (user, password) = secret.map_or((None, None), |secret| match secret.split_once(':') {
        Some((user, password)) => (Some(user).filter(|user| !user.is_empty()), Some(password)),
        None => (None, Some(secret)),
    });
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let server = if has_port { server.to_owned() } else { format!("{server}:{PORT}") };
    Ok(Address {
        server,
        user: user.map(str::to_owned),
        password: password.map(str::to_owned),
        database: Some(database.to_owned()).filter(|database| !database.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_others_write_it() {
        let plain = parse("redis://localhost").unwrap();
        assert_eq!((&*plain.server, plain.password, plain.database), ("localhost:6379", None, None));
        let full = parse("redis://me:se:cret@10.0.0.7:7000/3").unwrap();
        assert_eq!((&*full.server, full.user.as_deref()), ("10.0.0.7:7000", Some("me")));
        assert_eq!((full.password.as_deref(), full.database.as_deref()), (Some("se:cret"), Some("3")));
        assert_eq!(parse("redis://:secret@h").unwrap().user, None);
        for bad in ["localhost", "rediss://h", "http://h", "redis://h/x", "dump.rdb"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_redis_would_increment_is_an_integer() {
        assert_eq!((integer(b"-7"), integer(b"0")), (Some(-7), Some(0)));
        assert_eq!(integer(i64::MIN.to_string().as_bytes()), Some(i64::MIN));
        for other in ["", "07", "+7", " 7", "7.0", "-0", "9223372036854775808", "1e3", "x"] {
            assert_eq!(integer(other.as_bytes()), None, "{other:?}");
        }
    }
}
