//! Sample traffic: a few events every tenth of a second, over HTTP like anybody else's, until there were enough.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tally_node::worker::Spawner;

const EVERY: Duration = Duration::from_millis(100);
const EVENTS_PER_REQUEST: u64 = 30;
const VIDEOS: u64 = 20;
const COUNTRIES: [&str; 5] = ["DE", "US", "BR", "IN", "JP"];
const DEVICES: [&str; 3] = ["tv", "phone", "web"];
const TYPES: [&str; 5] = ["video.opened", "video.viewed", "video.viewed", "video.viewed", "video.closed"];

/// Traffic that ends when this is dropped.
pub struct Traffic {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    pub fn start(server: SocketAddr, events_max: u64) -> io::Result<Traffic> {
        let (stop, stopped) = sync_channel(1);
        let thread = Spawner::thread("demo-traffic", move || match send_until(&stopped, server, events_max) {
            Ok(TrafficEnded::Enough) => tracing::info!("the sample traffic has ended; the server goes on"),
            Ok(TrafficEnded::Stopped) => {}
            Err(error) => tracing::warn!("the sample traffic has ended: {error}"),
        })?;
        Ok(Traffic { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum TrafficEnded {
    Enough,
    Stopped,
}

fn send_until(stopped: &Receiver<()>, server: SocketAddr, events_max: u64) -> io::Result<TrafficEnded> {
    let mut stream = BufReader::new(TcpStream::connect(server)?);
    let mut random = SmallRng::seed_from_u64(1);
    let mut sent = 0;
    while sent < events_max {
        match stopped.recv_timeout(EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(TrafficEnded::Stopped),
        }
        let events = EVENTS_PER_REQUEST.min(events_max - sent);
        let body: String = (sent..sent + events).map(|n| event(n, &mut random)).collect();
        post(&mut stream, server, &body)?;
        sent += events;
    }
    Ok(TrafficEnded::Enough)
}

/// The `n`-th event, as a line of JSON. Low numbers of videos are popular.
fn event(n: u64, random: &mut SmallRng) -> String {
    let video = random.random_range(0..VIDEOS).min(random.random_range(0..VIDEOS));
    let mut pick = |choices: &[&'static str]| choices[random.random_range(0..choices.len())];
    let (event_type, country, device) = (pick(&TYPES), pick(&COUNTRIES), pick(&DEVICES));
    let mut line = String::new();
    writeln!(
        line,
        r#"{{"type":"{event_type}","session":"demo-{}","seq":{},"dimensions":{{"video":"v{video}","country":"{country}","device":"{device}"}}}}"#,
        n / 10,
        n % 10,
    )
    .expect("writing to a string cannot fail");
    line
}

fn post(stream: &mut BufReader<TcpStream>, server: SocketAddr, body: &str) -> io::Result<()> {
    write!(
        stream.get_mut(),
        "POST /v1/events HTTP/1.1\r\nHost: {server}\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        let head = line.trim_end().to_ascii_lowercase();
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
        if head.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_a_line_of_json_with_a_session_and_a_seq_of_its_own() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut seen = std::collections::HashSet::new();
        for n in 0..1000 {
            let line = event(n, &mut random);
            let event: serde_json::Value = serde_json::from_str(line.strip_suffix('\n').unwrap()).unwrap();
            assert!(seen.insert((event["session"].to_string(), event["seq"].to_string())), "{line}");
        }
    }
}
