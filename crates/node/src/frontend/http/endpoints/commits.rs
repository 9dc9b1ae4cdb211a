//! `GET /v1/commits`: what the log came to, as server-sent events that can be taken up again.
//!
//! Only what is durable and applied is told: nobody acts on a record that is lost later, and whoever is told of a correction
//! reads it. A subscription is a stream that is asked for more when its client has taken what there was. It reads commits on
//! a thread that may wait for a disk, and only while there is something to read; when the client goes it is dropped. What
//! it is about to tell is charged to the budget of all clients until the client has taken it, and a client that does not
//! take it is cut off.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::time::Duration;
use tally_core::counter::Pattern;
use tally_core::position::Position;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::sleep;

use crate::counters::{Counters, Host, RETRY_AFTER};
use crate::frontend::budget::Charge;
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::frontend::http::{Api, PROTOCOL};
use crate::metrics::CutOff;
use follow::Follower;

pub use render::{heartbeat, problem, put_json};

mod follow;
mod render;

const PARAMETERS: &[&str] = &["from", "match"];
const LAST_EVENT_ID: &str = "last-event-id";
const EVENT_STREAM: &str = "text/event-stream";
/// Tells a proxy that would gather the events to pass them on.
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Follows every commit: what it did to each counter, and what was not simply counted
///
/// Server-sent events. A `commit` is a tenth of a second of the log: which positions it covers, the delta and the value of every
/// counter that changed, the fate of every entry that was not simply counted, the event ids that came again (`audit`: the first 1,000,
/// and `auditCount` if there are more), the version of the rules, and a digest chained to the commit before. Its
/// `id` is the position behind it, from which a subscription can be taken up again; `from` of one is `to` of the one before. A
/// `count_correction` says what a correction changed and why; it comes before its commit, so whoever is cut off between the two
/// is told again. Whoever folds `GET /v1/snapshot` and the commits behind its position has every value.
#[utoipa::path(get, path = "/v1/commits", tag = "corrections",
    params(("from" = Option<String>, Query, description = "A position, such as the token of a write or that of a snapshot; it begins with the commit that holds it. The end of the log if left out", example = "1-0-4711"),
        ("match" = Option<String>, Query, description = "A pattern: only deltas of these counters are told, of every commit", example = "views:*"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that was seen; it goes before `from`")),
    responses((status = 200, description = "Events without end", body = String, content_type = "text/event-stream"), Problem))]
pub async fn commits(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let asked = asked(&uri, &headers)?;
    let pattern = pattern(&api, &uri)?;
    let place = place(&api)?;
    let recorded_from = api.counters.follow().await?;
    let from = asked.unwrap_or(recorded_from);
    let follower = Follower::open(&api, from, recorded_from, pattern).await?;
    let subscription = Subscription {
        counters: api.counters.clone(),
        host: api.host.clone(),
        follower: Some(follower),
        greeting: Some(render::greeting(from)),
        heartbeat: api.options.heartbeat,
        stopping: api.stopping.clone(),
        charge: Charge::new(&api.budget),
        _place: place,
    };
    Ok(event_stream(Body::from_stream(subscription.events())))
}

/// The answer that server-sent events come in.
pub fn event_stream(body: Body) -> Response {
    let headers = [(CONTENT_TYPE, EVENT_STREAM), (CACHE_CONTROL, "no-store"), (UNBUFFERED, "no")];
    (headers, body).into_response()
}

/// A place among those who may have a stream open.
pub fn place(api: &Api) -> Result<OwnedSemaphorePermit, Problem> {
    api.subscribers.clone().try_acquire_owned().map_err(|_| too_many(api.options.subscribers_max))
}

/// The counters that the client wants to hear of.
fn pattern(api: &Api, uri: &Uri) -> Result<Option<Pattern>, Problem> {
    let parameters = Parameters::read(uri, PARAMETERS)?;
    let pattern = parameters.text("match").map(|text| Pattern::resolve(&api.counters.declarations(), text));
    Ok(pattern.transpose()?)
}

/// The position that the client names: the one that a browser remembered, or the one in the query.
fn asked(uri: &Uri, headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    let parameters = Parameters::read(uri, PARAMETERS)?;
    let remembered = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or("not text"));
    let (name, text) = match (remembered, parameters.text("from")) {
        (Some(id), _) => ("Last-Event-ID", id),
        (None, Some(from)) => ("from", from),
        (None, None) => return Ok(None),
    };
    let fix = "send a position such as 1-0-4711: the token of a write, or the id of an event";
    text.parse().map(Some).map_err(|_| refused(name, text, fix))
}

fn too_many(limit: usize) -> Problem {
    let detail = format!("{limit} subscriptions are open, which is the bound; close one or come back");
    Problem::new(ProblemKind::Busy, detail).with("limit", limit).retry_after(RETRY_AFTER.as_secs())
}

struct Subscription {
    counters: Arc<dyn Counters>,
    host: Host,
    /// `None` once it has failed.
    follower: Option<Follower>,
    greeting: Option<Bytes>,
    heartbeat: Duration,
    stopping: watch::Receiver<bool>,
    /// For what was handed out last: it is taken when more is asked for.
    charge: Charge,
    _place: OwnedSemaphorePermit,
}

/// Why a subscription stopped waiting.
enum Woken {
    Moved,
    Quiet,
    Stopping,
}

impl Subscription {
    fn events(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, async |mut subscription| {
            let text = subscription.next().await?;
            Some((Ok(text), subscription))
        })
    }

    /// The next thing to tell; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        self.charge.release();
        loop {
            if *self.stopping.borrow() {
                return None;
            }
            let (follower, text) = match self.follower.take()?.read().await {
                Ok(read) => read,
                // The last word: there is nobody to follow any more.
                Err(problem) => return Some(render::problem(&problem)),
            };
            let (reached, held) = (follower.reached(), follower.bytes());
            self.follower = Some(follower);
            self.counters.commits().hold(self.host.clock.now_ms());
            if !text.is_empty() {
                if let Err(full) = self.charge.set(text.len() + held) {
                    self.follower = None;
                    self.host.metrics.cuts.of(PROTOCOL, CutOff::Memory).inc();
                    return Some(render::problem(&full.into()));
                }
                return Some(text);
            }
            match self.wait(reached).await {
                Woken::Moved => {}
                Woken::Quiet => return Some(render::heartbeat()),
                Woken::Stopping => return None,
            }
        }
    }

    /// Waits for a commit behind an offset, but not too long.
    async fn wait(&mut self, offset: u64) -> Woken {
        tokio::select! {
            () = self.counters.commits().wait_behind(offset) => Woken::Moved,
            // An error means that the sender is gone, and with it the node.
            _ = self.stopping.wait_for(|stop| *stop) => Woken::Stopping,
            () = sleep(self.heartbeat) => Woken::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_that_comes_back_goes_on_where_it_was() {
        let asked = |query: &str, remembered: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.extend(remembered.map(|id| (HeaderName::from_static(LAST_EVENT_ID), id.parse().unwrap())));
            super::asked(&format!("/v1/commits{query}").parse().unwrap(), &headers)
        };
        let position = |offset| Some(Position { epoch: 1, log: 0, offset });
        assert_eq!(asked("", None).unwrap(), None);
        assert_eq!(asked("?from=1-0-5", None).unwrap(), position(5));
        assert_eq!(asked("?from=1-0-5", Some("1-0-9")).unwrap(), position(9));
        for (query, remembered, named) in [
            ("?from=5", None, "from is 5; send a position"),
            ("?from=1-0-5", Some("x"), "Last-Event-ID is x;"),
            ("?form=1-0-5", None, "the parameter form is not known; there is from, match"),
        ] {
            let problem = asked(query, remembered).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::InvalidParameter);
            assert!(problem.detail.starts_with(named), "{}", problem.detail);
        }
    }
}
