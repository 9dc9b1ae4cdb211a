//! How a probe gets in: as any client's event does, over a connection to the node's own address; straight to the counters where nobody
//! listens for HTTP.

use crate::clock::{Clock, Stopwatch};
use crate::engine::Engine;
use serde::Deserialize;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;
use tally_core::counter::Stager;
use tally_core::counter::probes::PROBE;
use tally_core::event::Event;
use tally_core::limits::PROBE_ANSWER_BYTES_MAX;
use tally_core::op::{Answer, Submission};
use tally_core::position::Position;

pub enum Door {
    Http {
        address: SocketAddr,
        /// What tells a probe from what somebody else sends.
        secret: String,
    },
    Straight,
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    pub fate: Fate,
    /// Behind it in the log.
    pub token: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Counted,
    Duplicate,
    Other,
}

/// What a probe reads of an answer to events.
#[derive(Deserialize)]
struct Outcome {
    counted: u64,
    duplicate: u64,
    token: Option<String>,
}

impl Door {
    /// The door that an address leads to; one that stands for all addresses is found on this machine.
    pub fn http(address: SocketAddr, secret: String) -> Door {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Door::Http { address: SocketAddr::new(ip, address.port()), secret }
    }

    /// Sends an event, and waits for what becomes of it; in words why nobody knows.
    pub async fn send(&self, engine: &Engine, id: &str, within: Duration) -> Result<Answered, String> {
        match self {
            Door::Http { address, secret } => {
                let answer = ask(*address, secret, id, within).map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("{address} did not answer in time"),
                    _ => format!("{address}: {error}"),
                })?;
                read(&answer)
            }
            Door::Straight => submit(engine, engine.clock(), id, within).await,
        }
    }
}

/// One request on a connection of its own, as a client who has just come makes it.
fn ask(address: SocketAddr, secret: &str, id: &str, within: Duration) -> io::Result<Vec<u8>> {
    let since = Stopwatch::start();
    let left = || within.checked_sub(since.elapsed()).filter(|left| !left.is_zero()).ok_or(ErrorKind::TimedOut);
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    let body = format!(r#"{{"type":"{PROBE}","eventId":"{id}"}}"#);
    let request = format!(
        "POST /v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    loop {
        let mut piece = [0; 1024];
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece)? {
            0 => return Ok(answer),
            bytes => answer.extend_from_slice(&piece[..bytes]),
        }
        if answer.len() as u64 > PROBE_ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer has no end"));
        }
    }
}

fn read(answer: &[u8]) -> Result<Answered, String> {
    let answer = String::from_utf8_lossy(answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the connection was closed before an answer came")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(format!("{status}: {body}"));
    }
    let outcome: Outcome = serde_json::from_str(body).map_err(|error| format!("{error} in {body}"))?;
    let token = outcome.token.and_then(|token| token.parse().ok()).ok_or_else(|| format!("no token in {body}"))?;
    let fate = match (outcome.counted, outcome.duplicate) {
        (1, 0) => Fate::Counted,
        (0, 1) => Fate::Duplicate,
        _ => Fate::Other,
    };
    Ok(Answered { fate, token })
}

async fn submit(engine: &Engine, clock: &Clock, id: &str, within: Duration) -> Result<Answered, String> {
    let declarations = engine.declarations();
    let mut submission = Submission { staged_under: Some(declarations.version()), ..Submission::default() };
    let mut event = Event::new(PROBE, clock.now_ms());
    event.event_id = Some(id.into());
    let record_at = submission.event(&event);
    Stager::new(declarations, engine.hasher()).stage(&event, record_at, &mut submission, &mut |_, _| {});
    let committed = clock.timeout(within, engine.submit(submission)).await.ok_or("it was not committed in time")?;
    let committed = committed.map_err(|refusal| refusal.to_string())?;
    let fate = match committed.answers.last() {
        Some(Answer::Counted) => Fate::Counted,
        Some(Answer::Duplicate) => Fate::Duplicate,
        _ => Fate::Other,
    };
    Ok(Answered { fate, token: committed.position })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_for_what_became_of_one_entry() {
        let answer = |status: &str, body: &str| read(format!("HTTP/1.1 {status}\r\na: b\r\n\r\n{body}").as_bytes());
        let token = Position { epoch: 1, log: 0, offset: 7 };
        let of = |counted: u64, duplicate: u64| {
            format!(r#"{{"events":1,"counted":{counted},"duplicate":{duplicate},"token":"1-0-7"}}"#)
        };
        assert_eq!(answer("200 OK", &of(1, 0)), Ok(Answered { fate: Fate::Counted, token }));
        assert_eq!(answer("200 OK", &of(0, 1)), Ok(Answered { fate: Fate::Duplicate, token }));
        assert_eq!(answer("200 OK", &of(0, 0)), Ok(Answered { fate: Fate::Other, token }));
        assert!(answer("503 Service Unavailable", "later").unwrap_err().contains("503"));
        assert!(answer("200 OK", "{}").is_err());
        assert!(read(b"HTTP/1.1 200 OK\r\n").unwrap_err().contains("closed"));
    }

    #[test]
    fn who_listens_everywhere_is_found_here() {
        let to = |address: &str| match Door::http(address.parse().unwrap(), String::new()) {
            Door::Http { address, .. } => address.to_string(),
            Door::Straight => unreachable!("it has an address"),
        };
        assert_eq!(to("0.0.0.0:7070"), "127.0.0.1:7070");
        assert_eq!(to("[::]:7070"), "[::1]:7070");
        assert_eq!(to("10.1.2.3:7070"), "10.1.2.3:7070");
    }
}
