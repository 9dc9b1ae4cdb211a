//! Bodies over HTTP, on axum as its manual shows it: a constant is answered, with or without a durable write before it.

use crate::disk::{BATCH_BYTES_MAX, Disk};
use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use http_body_util::BodyExt;
use memchr::memchr_iter;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// What of a line is written: as many bytes as a server's record of it has, which keeps values and no names of fields.
const RECORD_BYTES: usize = 146;
/// Requests that wait for the disk.
const WAITING_MAX: usize = 1024;

/// What is answered.
#[derive(Clone, Copy)]
pub struct Answers {
    pub events: u64,
    pub constant: bool,
}

/// What a request has to have on the disk before it is answered.
struct Write {
    bytes: Vec<u8>,
    durable: oneshot::Sender<()>,
}

struct Floor {
    events: u64,
    /// That of a body without lines.
    answer: Bytes,
    writes: mpsc::Sender<Write>,
}

/// Serves until the process is ended.
pub fn serve(listener: TcpListener, disk: Disk, answers: Answers) -> Result<()> {
    listener.set_nonblocking(true)?;
    let (writes, waiting) = mpsc::channel(WAITING_MAX);
    std::thread::spawn(move || write(disk, waiting).expect("the disk of the floor failed"));
    let floor = Arc::new(Floor { events: answers.events, answer: Bytes::from(counted(answers.events)), writes });
    let events = if answers.constant { post(constant) } else { post(durable) };
    let router = Router::new().route("/v1/events", events).with_state(floor);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { Ok(axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await?) })
}

fn counted(events: u64) -> String {
    format!("{{\"counted\":{events}}}")
}

fn json(body: impl Into<Body>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], body.into())
}

async fn constant(State(floor): State<Arc<Floor>>, _: Bytes) -> impl IntoResponse {
    json(floor.answer.clone())
}

async fn durable(
    State(floor): State<Arc<Floor>>,
    headers: HeaderMap,
    mut body: Body,
) -> Result<impl IntoResponse, StatusCode> {
    let has_lines = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/x-ndjson");
    let (mut bytes, mut lines) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        let data = frame.data_ref().ok_or(StatusCode::BAD_REQUEST)?;
        if has_lines {
            lines += keep_lines(&mut bytes, data);
        } else {
            bytes.extend_from_slice(data);
        }
    }
    let (sender, durable) = oneshot::channel();
    floor.writes.send(Write { bytes, durable: sender }).await.map_err(|_| StatusCode::INSUFFICIENT_STORAGE)?;
    durable.await.map_err(|_| StatusCode::INSUFFICIENT_STORAGE)?;
    Ok(json(counted(if has_lines { lines } else { floor.events })))
}

/// Keeps the share of each line that is written; answers how many ended here.
fn keep_lines(kept: &mut Vec<u8>, data: &[u8]) -> u64 {
    let (mut from, mut lines) = (0, 0);
    for end in memchr_iter(b'\n', data) {
        kept.extend_from_slice(&data[from..end.min(from + RECORD_BYTES)]);
        from = end + 1;
        lines += 1;
    }
    kept.extend_from_slice(&data[from..data.len().min(from + RECORD_BYTES)]);
    lines
}

/// Everything that waits goes to the disk as one batch.
fn write(mut disk: Disk, mut waiting: mpsc::Receiver<Write>) -> Result<()> {
    let (mut next, mut batch) = (waiting.blocking_recv(), Vec::new());
    while let Some(write) = next {
        anyhow::ensure!(write.bytes.len() <= BATCH_BYTES_MAX, "a body is larger than a batch");
        if disk.has_room(write.bytes.len()) {
            disk.push(&write.bytes);
            batch.push(write.durable);
            next = waiting.try_recv().ok();
            if next.is_some() {
                continue;
            }
        } else {
            next = Some(write);
        }
        disk.commit()?;
        for durable in batch.drain(..) {
            let _ = durable.send(()); // Whoever has gone needs no answer.
        }
        if next.is_none() {
            next = waiting.blocking_recv();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_line_the_beginning_is_kept_and_its_end_counted_once() {
        let mut kept = Vec::new();
        let long = [b'x'; 200];
        assert_eq!(keep_lines(&mut kept, &[b"ab\ncd\n", &long[..]].concat()), 2);
        assert_eq!(kept, [b"abcd", &long[..RECORD_BYTES]].concat());
        assert_eq!(keep_lines(&mut kept, b"rest\n"), 1);
    }
}
