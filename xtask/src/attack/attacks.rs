//! The attacks: what each of them sends, as small as it can be made and as often as it was.

use super::{Attack, Deed, MIB, Target, push};
use anyhow::{Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

pub const ATTACKS: &[Attack] = &[
    Attack {
        name: "128 subscribers from the beginning, unread",
        options: &[],
        deed: Deed::Attack(unread_from_the_beginning),
    },
    Attack {
        name: "128 subscribers from the beginning, read",
        options: &[],
        deed: Deed::Attack(read_from_the_beginning),
    },
    Attack { name: "128 subscribers of what comes, unread", options: &[], deed: Deed::Attack(unread_subscribers) },
    Attack { name: "4,088 bodies of 33 MB, one byte sent", options: &[], deed: Deed::Attack(announced_bodies) },
    Attack { name: "1,000 zstd windows of 8 MiB", options: &[], deed: Deed::Attack(zstd_windows) },
    Attack { name: "4,000 strangers with 120 KB unfinished", options: GUARDED, deed: Deed::Attack(strangers) },
    Attack { name: "100 that PING and never read", options: &[], deed: Deed::Attack(deaf_pings) },
    Attack { name: "100 that ECHO megabytes and never read", options: &[], deed: Deed::Attack(deaf_echoes) },
    Attack { name: "CLIENT SETINFO with names of 1 MiB", options: &[], deed: Deed::Attack(long_names) },
    Attack { name: "40 unfinished commands of 31 MB", options: &[], deed: Deed::Attack(unfinished_commands) },
    Attack { name: "30 proposals of 27 MiB", options: &["--checkpoint-log", "16MiB"], deed: Deed::Attack(proposals) },
    Attack { name: "64 connections, bodies of 1 MB, 1 M keys", options: &[], deed: Deed::Flood(BODIES) },
    Attack { name: "200 connections, bodies of 1 MB, 10 M keys", options: &[], deed: Deed::Flood(MANY_BODIES) },
    Attack {
        name: "200 connections, a session for each of the events",
        options: &[],
        deed: Deed::Flood(FRESH_SESSIONS),
    },
    Attack { name: "64 connections, compact batches, 10 M keys", options: &[], deed: Deed::Flood(COMPACT) },
    Attack { name: "tens of millions of event ids", options: &[], deed: Deed::Flood(EVENT_IDS) },
    Attack { name: "INCR over 10 M keys", options: &[], deed: Deed::Flood(INCR) },
    Attack { name: "INCR over 50 M keys", options: &[], deed: Deed::Flood(INCR_MANY) },
];

#[rustfmt::skip]
mod floods {
    pub const BODIES: &[&str] =
        &["--op", "events", "--connections", "64", "--events-per-request", "4000", "--keys", "1000000", "--seconds", "15"];
    pub const MANY_BODIES: &[&str] =
        &["--op", "events", "--connections", "200", "--events-per-request", "4000", "--keys", "10000000", "--seconds", "30"];
    pub const FRESH_SESSIONS: &[&str] =
        &["--op", "events", "--connections", "200", "--events-per-request", "4000", "--keys", "30000000",
          "--sessions", "100000000", "--seconds", "30"];
    pub const COMPACT: &[&str] =
        &["--op", "events", "--compact", "--connections", "64", "--events-per-request", "4000", "--keys", "10000000",
          "--seconds", "30"];
    pub const EVENT_IDS: &[&str] =
        &["--op", "events", "--type", "ad.shown", "--dimension", "ad", "--ids", "--seconds", "60"];
    pub const INCR: &[&str] = &["--keys", "10000000", "--keep", "--seconds", "30"];
    pub const INCR_MANY: &[&str] = &["--keys", "50000000", "--keep", "--seconds", "60"];
}
use floods::*;

const GUARDED: &[&str] = &["--password", "sesame"];
const SUBSCRIBERS: usize = 128;
/// Of the log that subscribers are to read.
const LARGE_BATCHES: usize = 3;
const LARGE_BATCH_BYTES: usize = 20 << 20;

fn post_head(path: &str, media_type: &str, extra: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\n{extra}\r\n").into_bytes()
}

fn lines_head(extra: &str) -> Vec<u8> {
    post_head("/v1/events", "application/x-ndjson", extra)
}

/// Posts a body and answers the status line.
fn post(target: Target, path: &str, media_type: &str, body: &[u8]) -> Result<String> {
    let mut stream = target.http()?;
    let extra = format!("connection: close\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(&post_head(path, media_type, &extra))?;
    // It may answer before it has read everything, and close.
    push(&mut stream, body)?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}

fn write_large_batches(target: Target) -> Result<()> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..LARGE_BATCHES {
        let mut body = String::new();
        while body.len() < LARGE_BATCH_BYTES {
            body.push_str("{\"type\":\"t\",\"payload\":\"");
            for _ in 0..60 {
                // What does not compress.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                body.push_str(&format!("{state:016x}"));
            }
            body.push_str("\"}\n");
        }
        let answer = post(target, "/v1/events", "application/x-ndjson", body.as_bytes())?;
        ensure!(answer.contains(" 200 "), "{answer}");
    }
    Ok(())
}

fn subscribe(target: Target, query: &str) -> Result<Vec<TcpStream>> {
    let open = |_| {
        let mut stream = target.http()?;
        stream.write_all(format!("GET /v1/commits{query} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())?;
        Ok(stream)
    };
    (0..SUBSCRIBERS).map(open).collect()
}

/// What becomes of counters is written down from the first subscription on.
fn begin_following(target: Target) -> Result<()> {
    let mut stream = target.http()?;
    stream.write_all(b"GET /v1/commits HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    read_until(&mut stream, "id: ")
}

fn read_until(stream: &mut TcpStream, text: &str) -> Result<()> {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let mut bytes = [0; 4096];
        let read = stream.read(&mut bytes)?;
        ensure!(read > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&bytes[..read]);
    }
    Ok(())
}

fn unread_from_the_beginning(target: Target) -> Result<Vec<TcpStream>> {
    begin_following(target)?;
    write_large_batches(target)?;
    subscribe(target, "?from=1-0-0")
}

fn read_from_the_beginning(target: Target) -> Result<Vec<TcpStream>> {
    let mut subscribers = unread_from_the_beginning(target)?;
    subscribers.iter_mut().try_for_each(|stream| read_until(stream, "event: commit"))?;
    Ok(subscribers)
}

fn unread_subscribers(target: Target) -> Result<Vec<TcpStream>> {
    let subscribers = subscribe(target, "")?;
    write_large_batches(target)?;
    Ok(subscribers)
}

fn announced_bodies(target: Target) -> Result<Vec<TcpStream>> {
    let begun = [lines_head("content-length: 33000000\r\n"), b"{".to_vec()].concat();
    many(4_088, || target.http(), &begun)
}

fn zstd_windows(target: Target) -> Result<Vec<TcpStream>> {
    let head = lines_head("content-encoding: zstd\r\ncontent-length: 33000000\r\n");
    many(1_000, || target.http(), &[head, zstd_window()].concat())
}

/// The beginning of a frame with a window of 8 MiB, and 9 MiB of newlines in it.
fn zstd_window() -> Vec<u8> {
    const BLOCK_BYTES: u32 = 128 * 1024;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3];
    for _ in 0..9 * MIB as u32 / BLOCK_BYTES {
        // Not the last one; one byte over and over; how often.
        let header = BLOCK_BYTES << 3 | 1 << 1;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(b'\n');
    }
    frame
}

fn strangers(target: Target) -> Result<Vec<TcpStream>> {
    let unfinished = [&b"*10\r\n$4\r\nAUTH\r\n"[..], &argument(12_000).repeat(9), b"$12000\r\n"].concat();
    many(4_000, || target.resp(), &unfinished)
}

fn deaf_pings(target: Target) -> Result<Vec<TcpStream>> {
    many(100, || target.resp(), &b"PING\r\n".repeat(700_000))
}

fn deaf_echoes(target: Target) -> Result<Vec<TcpStream>> {
    many(100, || target.resp(), &[&b"*2\r\n$4\r\nECHO\r\n"[..], &argument(1_000_000)].concat().repeat(10))
}

fn long_names(target: Target) -> Result<Vec<TcpStream>> {
    let named = |field: &str| {
        let words = format!("*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n${}\r\n{field}\r\n", field.len());
        [words.as_bytes(), &argument(1 << 20)].concat()
    };
    many(400, || target.resp(), &[named("lib-name"), named("lib-ver")].concat())
}

fn unfinished_commands(target: Target) -> Result<Vec<TcpStream>> {
    many(40, || target.resp(), &[&b"*40\r\n$4\r\nMGET\r\n"[..], &argument(1_000_000).repeat(31)].concat())
}

fn argument(bytes: usize) -> Vec<u8> {
    [format!("${bytes}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
}

fn many(count: usize, connect: impl Fn() -> Result<TcpStream>, bytes: &[u8]) -> Result<Vec<TcpStream>> {
    let mut streams = (0..count).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    streams.iter_mut().try_for_each(|stream| push(stream, bytes))?;
    Ok(streams)
}

/// All at the same time; the node takes as many as it has room for, and says so to the others.
fn proposals(target: Target) -> Result<Vec<TcpStream>> {
    let delta = |n: u32| format!("{{\"id\":\"{}{n:06}\",\"delta\":1}}", "c".repeat(270));
    let deltas: Vec<String> = (0..90_000).map(delta).collect();
    let body = format!("{{\"reason\":\"r\",\"author\":\"a\",\"deltas\":[{}]}}", deltas.join(","));
    drop(deltas);
    let answers = thread::scope(|scope| {
        let ask = || post(target, "/v1/corrections", "application/json", body.as_bytes());
        let asked: Vec<_> = (0..30).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().expect("an attacker panicked")).collect::<Result<Vec<_>>>()
    })?;
    // A busy node asks to come back, so all of them are asked once more, one after the other.
    for _ in 0..30 {
        post(target, "/v1/corrections", "application/json", body.as_bytes())?;
    }
    ensure!(answers.len() == 30, "every one was answered or closed");
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_window_it_says() {
        let frame = zstd_window();
        assert_eq!(frame.len(), 6 + 72 * 4);
        assert_eq!(&frame[6..10], [0x02, 0x00, 0x10, b'\n']);
    }
}
