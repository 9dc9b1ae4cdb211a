//! `GET /v1/snapshot`: every counter at one position, from which the commits go on.
//!
//! It is a view of the store as of a checkpoint, which is taken for it, so it costs the writer nothing. The view is held while
//! somebody reads it, and for a while after he was cut off, so that he can go on behind the last line he has.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Serialize;
use tally_core::counter::Declarations;
use tally_core::database::Space;
use tally_core::position::Position;
use tokio::sync::OwnedSemaphorePermit;

use super::commits::place;
use crate::counters::{Page, Reading, Refusal, Snapshot};
use crate::frontend::budget::Charge;
use crate::frontend::http::Api;
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Counters that are read and told at a time.
const PAGE_COUNTERS: usize = 1000;
const NDJSON: &str = "application/x-ndjson";

/// The first line.
#[derive(Serialize)]
struct SnapshotHead {
    position: String,
    counters: u64,
}

/// Each of the others.
#[derive(Serialize)]
struct SnapshotLine<'a> {
    id: Cow<'a, str>,
    value: i64,
    generation: u64,
    /// The true sum, where a read shows 0 for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
}

/// Every counter at one position
///
/// Lines of JSON. The first says the position, and how many counters there are; each of the others is a counter, in the order of
/// ids. `GET /v1/commits?from=` that position goes on from there: whoever folds both has every value. Whoever is cut off asks
/// again with `from`, the position of the first line, and `after`, the id of the last line he has; this works for ten minutes.
#[utoipa::path(get, path = "/v1/snapshot", tag = "counters",
    params(("from" = Option<String>, Query, description = "The position of a snapshot that was begun", example = "1-0-4711"),
        ("after" = Option<String>, Query, description = "Go on behind this id", example = "views:v42")),
    responses((status = 200, description = "Lines of JSON", body = String, content_type = "application/x-ndjson"), Problem))]
pub async fn snapshot(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let parameters = Parameters::read(&uri, &["from", "after"])?;
    let place = place(&api)?;
    let snapshot = match parameters.text("from") {
        Some(text) => held(&api, position(text)?)?,
        None => api.counters.snapshot().await?,
    };
    let reader = SnapshotReader {
        head: Some(head(&snapshot)),
        after: parameters.text("after").map(|id| Space::MAIN.id(id.as_bytes()).into_owned()),
        is_over: false,
        declarations: api.counters.declarations(),
        charge: Charge::new(&api.budget),
        api,
        snapshot,
        _place: place,
    };
    let headers = [(CONTENT_TYPE, NDJSON), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(reader.lines())).into_response())
}

fn position(text: &str) -> Result<Position, Problem> {
    text.parse().map_err(|_| refused("from", text, "send the position of the first line, such as 1-0-4711"))
}

fn held(api: &Api, position: Position) -> Result<Arc<Snapshot>, Problem> {
    api.counters.held_snapshot(position).ok_or_else(|| {
        let detail = format!("the snapshot at {position} is not held any more; begin anew with GET /v1/snapshot");
        Problem::new(ProblemKind::PositionGone, detail).with("value", position.to_string())
    })
}

fn head(snapshot: &Snapshot) -> Bytes {
    let head = SnapshotHead { position: snapshot.position().to_string(), counters: snapshot.counters() };
    let mut line = serde_json::to_vec(&head).expect("strings and numbers are JSON");
    line.push(b'\n');
    line.into()
}

/// Somebody who reads a snapshot.
struct SnapshotReader {
    api: Api,
    snapshot: Arc<Snapshot>,
    head: Option<Bytes>,
    after: Option<Vec<u8>>,
    is_over: bool,
    declarations: Arc<Declarations>,
    /// For what was handed out last: it is taken when more is asked for.
    charge: Charge,
    _place: OwnedSemaphorePermit,
}

impl SnapshotReader {
    fn lines(self) -> impl Stream<Item = io::Result<Bytes>> {
        stream::unfold(self, async |mut reader| {
            let lines = reader.next().await?;
            // A line that cannot be read cuts the answer off, so that nobody takes it for the whole.
            reader.is_over |= lines.is_err();
            Some((lines.map_err(|problem| io::Error::other(problem.detail)), reader))
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        self.charge.release();
        if let Some(head) = self.head.take() {
            return Some(Ok(head));
        }
        while !self.is_over && !*self.api.stopping.borrow() {
            match self.page().await {
                Ok(lines) if lines.is_empty() => {}
                Ok(lines) => return Some(self.charge.set(lines.len()).map(|()| lines).map_err(Problem::from)),
                Err(problem) => return Some(Err(problem)),
            }
        }
        if self.is_over {
            self.api.counters.told_snapshot(&self.snapshot);
            return None;
        }
        self.is_over = true;
        Some(Err(Refusal::ShuttingDown.into()))
    }

    /// The next lines; there may be none although more will come.
    async fn page(&mut self) -> Result<Bytes, Problem> {
        let (snapshot, declarations, after) = (self.snapshot.clone(), self.declarations.clone(), self.after.take());
        let spawner = self.api.host.spawner;
        let read = spawner.blocking(move || {
            let Page { counters, next } = snapshot.page(after.as_deref(), PAGE_COUNTERS)?;
            let mut lines = Vec::new();
            counters.iter().for_each(|(id, reading)| put_line(&mut lines, &declarations, id, *reading));
            Ok::<_, Refusal>((lines, next))
        });
        let (lines, next) = read.await.ok_or(Refusal::ShuttingDown)??;
        self.is_over = next.is_none();
        self.after = next;
        // It is in use.
        let _ = self.api.counters.held_snapshot(self.snapshot.position());
        Ok(lines.into())
    }
}

fn put_line(out: &mut Vec<u8>, declarations: &Declarations, id: &[u8], reading: Reading) {
    let value = declarations.shown(id, reading.value);
    let sum = (value != reading.value).then_some(reading.value);
    let line = SnapshotLine { id: String::from_utf8_lossy(id), value, generation: reading.generation, sum };
    serde_json::to_writer(&mut *out, &line).expect("strings and numbers are JSON");
    out.push(b'\n');
}
