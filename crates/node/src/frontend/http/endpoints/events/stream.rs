//! `POST /v1/events/stream`: compact batches one behind the other in one long request, each answered as soon as it is durable.
//!
//! A few batches are under way at a time: while one is committed the next is read. Beyond that nothing is read from the
//! connection, so a sender who is too fast waits in his own socket; so does one who does not take his answers, since reading is
//! part of answering. What is held is charged batch by batch.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, Stream, StreamExt, unfold};
use serde::Serialize;
use tally_core::event::batch;
use tally_core::limits::{BODY_BYTES_MAX, HTTP_BATCHES_MAX};

use super::batch::{EventsBatch, Outcome};
use super::compact::BatchSplitter;
use super::{check, commit, judge, not_all, observe};
use crate::frontend::budget::Charge;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::transport::pulse::{Pulse, Working};
use crate::frontend::http::words::parameters::Parameters;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::frontend::http::{Api, ApiParts};

/// What is read until a batch is whole: it, whose own bound its header is held against, and what came along behind it.
const READ_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// What became of one batch.
#[derive(Serialize, utoipa::ToSchema)]
pub struct BatchLine {
    /// Which batch of the request; the first is 0.
    batch: u64,
    /// 200, or that of the problem which stands in its place.
    #[schema(example = 200)]
    status: u16,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Counts batches of events as they come
///
/// The body is any number of compact batches (`application/vnd.tally.batch`), one behind the other, and may go on for as long as it likes. The
/// answer begins at once and has a line of JSON for each batch, in their order, when what it counts is durable: the number of the `batch`, a
/// `status`, and what `POST /v1/events` would have answered. Batches may be sent before those before them are answered. One that cannot be
/// read ends the answer; any other refusal is about its batch alone.
#[utoipa::path(post, path = "/v1/events/stream", tag = "events",
    params(("strict" = Option<bool>, Query, description = "All or nothing, for each batch by itself")),
    responses((status = 200, description = "A line for each batch", body = BatchLine, content_type = "application/x-ndjson"), Problem))]
pub async fn stream_events(
    State(api): State<Api>,
    Extension(pulse): Extension<Arc<Pulse>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let is_strict = Parameters::read(&uri, &["strict"])?.flag("strict")?;
    let pieces = Pieces::endless(&api, &headers, body, READ_BYTES_MAX)?;
    let batches = BatchStream {
        api,
        is_strict,
        coming: Some(Coming { pieces, splitter: BatchSplitter::default() }),
        under_way: FuturesOrdered::new(),
        number: 0,
        _working: pulse.go_on(),
    };
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(batches.lines())).into_response())
}

struct BatchStream {
    api: Api,
    is_strict: bool,
    /// `None` when no more is read.
    coming: Option<Coming>,
    under_way: FuturesOrdered<BoxFuture<'static, Bytes>>,
    /// Of the batch that comes next.
    number: u64,
    /// The request is not over while its body is read.
    _working: Working,
}

/// The batches that are still to come.
struct Coming {
    pieces: Pieces,
    splitter: BatchSplitter,
}

impl Coming {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match self.splitter.next(&mut self.pieces).await {
            Ok(batch) => {
                self.pieces.renew();
                Ok(batch)
            }
            // Whoever rests between two batches for too long has sent all of them.
            Err(problem) if problem.kind == ProblemKind::Timeout && self.splitter.is_between() => Ok(None),
            Err(problem) => Err(problem),
        }
    }
}

impl BatchStream {
    fn lines(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        unfold(self, async |mut batches| {
            let line = batches.next().await?;
            Some((Ok(line), batches))
        })
    }

    /// The next answer; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let mut stopping = self.api.stopping.clone();
        loop {
            let reads = self.under_way.len() < HTTP_BATCHES_MAX;
            let coming = self.coming.as_mut().filter(|_| reads);
            let (is_done, is_open) = (self.under_way.is_empty(), coming.is_some());
            if is_done && !is_open {
                return None;
            }
            let next = async {
                match coming {
                    Some(coming) => coming.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(line) = self.under_way.next(), if !is_done => return Some(line),
                read = next, if is_open => self.take(read),
                // What is under way is answered; whoever sends more is cut off where he stands.
                _ = stopping.wait_for(|stop| *stop), if is_open => self.coming = None,
            }
        }
    }

    /// Begins what is to become of the batch that was read.
    fn take(&mut self, read: Result<Option<Bytes>, Problem>) {
        let begun = match read {
            Ok(None) => return self.coming = None,
            Ok(Some(bytes)) => self.begin(&bytes),
            Err(problem) => Err((problem, true)),
        };
        let number = self.number;
        self.number += 1;
        let line: BoxFuture<'static, Bytes> = match begun {
            Ok((events, charge)) => Box::pin(count(self.api.clone(), number, events, charge, self.is_strict)),
            Err((problem, ends)) => {
                let coming = self.coming.take_if(|_| ends);
                Box::pin(async move {
                    match coming {
                        Some(coming) => problem_line(number, &coming.pieces.refuse(problem).await),
                        None => problem_line(number, &problem),
                    }
                })
            }
        };
        self.under_way.push_back(line);
    }

    /// Reads a batch; a problem comes with whether nothing can be read behind it.
    fn begin(&self, bytes: &[u8]) -> Result<(EventsBatch, Charge), (Problem, bool)> {
        let ApiParts { counters, host, budget, .. } = &*self.api;
        let mut events = EventsBatch::new(counters.declarations(), counters.hasher());
        batch::read(bytes, host.clock.arrival(), &mut events).map_err(|error| (error.into(), true))?;
        let mut charge = Charge::new(budget);
        let checked = check(&events).and_then(|()| Ok(charge.set(events.bytes())?));
        checked.map_err(|problem| (problem, false))?;
        if self.is_strict
            && let Some(faults) = events.faults()
        {
            observe(&host.metrics, faults);
            return Err((not_all(faults), false));
        }
        Ok((events, charge))
    }
}

/// Counts a batch, and says what became of it.
async fn count(api: Api, number: u64, events: EventsBatch, charge: Charge, is_strict: bool) -> Bytes {
    let outcome = commit(&api, events, is_strict).await;
    drop(charge);
    let judged = outcome.and_then(|outcome| {
        observe(&api.host.metrics, &outcome);
        judge(outcome)
    });
    match judged {
        Ok(outcome) => line(&BatchLine { batch: number, status: 200, outcome }),
        Err(problem) => problem_line(number, &problem),
    }
}

fn line(content: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(content).expect("strings and numbers are JSON");
    line.push(b'\n');
    line.into()
}

/// A problem in the place of an outcome.
fn problem_line(number: u64, problem: &Problem) -> Bytes {
    let mut body: serde_json::Map<_, _> = serde_json::from_slice(&problem.body()).expect("a problem is an object");
    body.insert("batch".to_owned(), number.into());
    line(&body)
}
