//! `GET /v1/counters/{id}/watch` and `GET /v1/counters/watch?match=`: live values, as server-sent events.
//!
//! For screens, not for books: a counter that changes a thousand times a second is told four times, with the value it has then.
//! The first word is the value now. One counter is read again whenever something was written; of many, the commits say
//! which ones to read.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Serialize;
use tally_core::counter::{Pattern, Target};
use tally_core::database::Space;
use tally_core::limits::WATCHED_AT_FIRST_MAX;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

use super::commits::{event_stream, heartbeat, place, problem, put_json};
use crate::clock::Stopwatch;
use crate::counters::{CommitReader, CommitsError, Counters, Reading, Refusal};
use crate::frontend::budget::Charge;
use crate::frontend::http::words::id::{self, ID, IdPath};
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::frontend::http::{Api, ApiParts};

/// The least time between two words about a counter.
const EVERY: Duration = Duration::from_millis(250);

/// What is told of a counter.
#[derive(Serialize)]
struct ValueView<'a> {
    id: std::borrow::Cow<'a, str>,
    /// `null` if there is no such counter.
    value: Option<i64>,
    generation: u64,
}

/// Follows the value of a counter
///
/// Server-sent events named `value`: at once the value now, then whenever it is another one, four times a second at most. A value is
/// `null` while there is no such counter.
#[utoipa::path(get, path = "/v1/counters/{id}/watch", tag = "counters",
    params(("id" = String, Path, description = ID, example = "views:v42")),
    responses((status = 200, description = "Events without end", body = String, content_type = "text/event-stream"), Problem))]
pub async fn watch(State(api): State<Api>, IdPath(id): IdPath, uri: Uri) -> Result<Response, Problem> {
    Parameters::read(&uri, &[])?;
    let target = id::target(&api.counters.declarations(), &api.counters.hasher(), &id)?;
    let one = One { target, told: None };
    open(api, LiveWatch::One(one))
}

/// Follows the values of all counters that match a pattern
///
/// The same for many counters: at first those there are, 10,000 at most, then each that changes.
#[utoipa::path(get, path = "/v1/counters/watch", tag = "counters",
    params(("match" = String, Query, description = "A pattern", example = "views:*")),
    responses((status = 200, description = "Events without end", body = String, content_type = "text/event-stream"), Problem))]
pub async fn watch_all(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let parameters = Parameters::read(&uri, &["match"])?;
    let text = parameters.text("match").ok_or_else(|| refused("match", "", "send a pattern, such as views:*"))?;
    let pattern = Pattern::resolve(&api.counters.declarations(), text)?;
    let from = api.counters.follow().await?;
    let changed = first(&api, &pattern).await?;
    open(api, LiveWatch::Many(Many { pattern, reader: None, reached: from.offset, changed }))
}

/// The ids that match now.
async fn first(api: &Api, pattern: &Pattern) -> Result<BTreeSet<Vec<u8>>, Problem> {
    let _turn = api.walks.clone().acquire_owned().await.map_err(|_| Problem::from(Refusal::ShuttingDown))?;
    let (mut ids, mut after) = (BTreeSet::new(), None);
    loop {
        let page = api.counters.scan(Space::MAIN, pattern.prefix().to_vec(), after, PAGE).await?;
        ids.extend(page.counters.into_iter().map(|(id, _)| id).filter(|id| pattern.matches(id)));
        if ids.len() > WATCHED_AT_FIRST_MAX {
            let detail = format!(
                "more than {WATCHED_AT_FIRST_MAX} counters match {pattern}; name fewer, or follow GET /v1/commits"
            );
            return Err(Problem::new(ProblemKind::InvalidParameter, detail).with("limit", WATCHED_AT_FIRST_MAX));
        }
        after = page.next;
        if after.is_none() {
            return Ok(ids);
        }
    }
}

/// Ids looked at at a time.
const PAGE: usize = 1000;

fn open(api: Api, watched: LiveWatch) -> Result<Response, Problem> {
    let place = place(&api)?;
    let charge = Charge::new(&api.budget);
    let stopping = api.stopping.clone();
    let watcher = Watcher { api, stopping, watched, charge, looked: None, is_over: false, _place: place };
    Ok(event_stream(Body::from_stream(watcher.events())))
}

struct Watcher {
    api: Api,
    stopping: watch::Receiver<bool>,
    watched: LiveWatch,
    /// For what was handed out last: it is taken when more is asked for.
    charge: Charge,
    /// Since the last look.
    looked: Option<Stopwatch>,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

enum LiveWatch {
    One(One),
    Many(Many),
}

struct One {
    target: Target<'static>,
    /// What was told last, once something was.
    told: Option<Option<Reading>>,
}

struct Many {
    pattern: Pattern,
    /// `None` until there is a commit to begin with.
    reader: Option<CommitReader>,
    reached: u64,
    /// Counters that have changed and are to be told.
    changed: BTreeSet<Vec<u8>>,
}

impl Watcher {
    fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, async |mut watcher| {
            let text = watcher.next().await?;
            Some((Ok(text), watcher))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        self.charge.release();
        loop {
            if self.is_over || *self.stopping.borrow() {
                return None;
            }
            self.pause().await;
            let seen = self.api.counters.applied().offset;
            let text = match self.look().await {
                Ok(text) => text,
                Err(found) => return Some(self.end(&found)),
            };
            if !text.is_empty() {
                return Some(match self.charge.set(text.len()) {
                    Ok(()) => text,
                    Err(full) => self.end(&full.into()),
                });
            }
            if !self.wait(seen).await {
                return Some(heartbeat());
            }
        }
    }

    /// The last word.
    fn end(&mut self, found: &Problem) -> Bytes {
        self.is_over = true;
        problem(found)
    }

    /// Looks are some time apart, however much happens.
    async fn pause(&mut self) {
        let left = self.looked.as_ref().map_or(Duration::ZERO, |looked| EVERY.saturating_sub(looked.elapsed()));
        tokio::select! {
            () = sleep(left) => {}
            _ = self.stopping.wait_for(|stop| *stop) => {}
        }
        self.looked = Some(Stopwatch::start());
    }

    /// Waits until there may be something to tell; not for ever.
    async fn wait(&mut self, seen: u64) -> bool {
        let (ApiParts { counters, options, .. }, stopping) = (&*self.api, &mut self.stopping);
        let reached = match &self.watched {
            LiveWatch::One(_) => None,
            LiveWatch::Many(many) => Some(many.reached),
        };
        let moved = async {
            match reached {
                None => counters.wait_for(seen + 1).await,
                Some(reached) => counters.commits().wait_behind(reached).await,
            }
        };
        tokio::select! {
            () = moved => true,
            _ = stopping.wait_for(|stop| *stop) => true,
            () = sleep(options.heartbeat) => false,
        }
    }

    /// What is to be told now.
    async fn look(&mut self) -> Result<Bytes, Problem> {
        match &mut self.watched {
            LiveWatch::One(one) => one.look(&self.api).await,
            LiveWatch::Many(many) => many.look(&self.api).await,
        }
    }
}

impl One {
    async fn look(&mut self, api: &Api) -> Result<Bytes, Problem> {
        let reading = api.counters.see(&[self.target.cell]).await?[0].reading;
        let mut text = Vec::new();
        if self.told != Some(reading) {
            let value = reading.map(|reading| self.target.shown(reading.value));
            put_value(&mut text, &self.target.id, value, reading);
            self.told = Some(reading);
        }
        Ok(text.into())
    }
}

impl Many {
    async fn look(&mut self, api: &Api) -> Result<Bytes, Problem> {
        api.counters.commits().hold(api.host.clock.now_ms());
        self.read(api).await?;
        let (declarations, hasher, mut text) = (api.counters.declarations(), api.counters.hasher(), Vec::new());
        let changed: Vec<_> = std::mem::take(&mut self.changed).into_iter().collect();
        let cells: Vec<_> = changed.iter().map(|id| hasher.key(&Space::MAIN.id(id))).collect();
        for (id, seen) in changed.iter().zip(api.counters.see(&cells).await?) {
            let value = seen.reading.map(|reading| declarations.shown(id, reading.value));
            put_value(&mut text, id, value, seen.reading);
        }
        Ok(text.into())
    }

    /// Looks which counters have changed, on a thread that may wait for a disk.
    async fn read(&mut self, api: &Api) -> Result<(), Problem> {
        let turn = api.turn.clone().acquire_owned().await.map_err(|_| Problem::from(Refusal::ShuttingDown))?;
        let (counters, pattern, reader, reached) =
            (api.counters.clone(), self.pattern.clone(), self.reader.take(), self.reached);
        let spawner = api.host.spawner;
        let read = spawner.blocking(move || {
            let _turn = turn;
            changed(&*counters, &pattern, reader, reached)
        });
        let failed =
            |error: CommitsError| Problem::new(ProblemKind::LogFailed, format!("the commits cannot be read: {error}"));
        let (reader, reached, changed) = read.await.ok_or(Refusal::ShuttingDown)?.map_err(failed)?;
        (self.reader, self.reached) = (reader, reached);
        self.changed.extend(changed);
        Ok(())
    }
}

type ChangedCells = (Option<CommitReader>, u64, BTreeSet<Vec<u8>>);

/// The ids that match in the commits from an offset on.
fn changed(
    counters: &dyn Counters,
    pattern: &Pattern,
    reader: Option<CommitReader>,
    mut reached: u64,
) -> Result<ChangedCells, CommitsError> {
    let begun = |found: (_, CommitReader)| found.1;
    let mut reader = if reader.is_some() { reader } else { counters.commits().find(reached)?.map(begun) };
    let mut ids = BTreeSet::new();
    if let Some(reader) = &mut reader {
        while let Some(commit) = reader.read()? {
            let counters = commit.deltas.iter().flat_map(|deltas| deltas.counters.iter());
            ids.extend(counters.filter(|counter| pattern.matches(counter.id)).map(|counter| counter.id.to_vec()));
            reached = commit.to.offset;
        }
        reader.rest();
    }
    Ok((reader, reached, ids))
}

fn put_value(out: &mut Vec<u8>, id: &[u8], value: Option<i64>, reading: Option<Reading>) {
    let generation = reading.map_or(0, |reading| reading.generation);
    put_json(out, None, "value", &ValueView { id: String::from_utf8_lossy(id), value, generation });
}
