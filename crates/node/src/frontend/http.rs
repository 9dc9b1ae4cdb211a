//! HTTP/1.1 and HTTP/2: events in, counters out (DESIGN "What the user touches").
//!
//! Requests are read on threads of their own, each with its own listener and runtime ([`server`]); what they write goes to
//! the engine as one submission per request, what they read comes from shared memory. Every error is a [`problem`].

mod answer;
mod at_least;
mod balance;
mod body;
mod commits;
mod corrections;
mod counters;
mod document;
mod duplicates;
mod envelope;
mod events;
mod explain;
mod guard;
mod head;
mod health;
mod history;
mod id;
mod linger;
mod live;
mod openapi;
mod parameters;
mod patience;
mod pattern;
mod problem;
mod pulse;
mod server;
mod snapshot;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tally_core::limits::{HTTP_CONNECTIONS_MAX, HTTP_WALKS_MAX, SUBSCRIBERS_MAX};
use tokio::sync::{Semaphore, watch};

pub use guard::{Access, HostName, Origin};
pub use server::{Server, serve};

use crate::clock::Stopwatch;
use crate::engine::Engine;
use crate::frontend::budget::Budget;
use crate::metrics::{HttpRequest, HttpRoute, Metrics};
use problem::{CONTENT_TYPE_PROBLEM, Kind, Problem};

/// How metrics call it.
const PROTOCOL: &str = "http";

/// Cold counters that one request reads at the same time.
const READS_AT_ONCE: usize = 32;

/// What an address offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    Everything,
    /// Health and metrics, for machines that watch.
    Watch,
}

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Options {
    pub surface: Surface,
    pub access: Access,
    pub connections_max: usize,
    /// `None`: three quarters of them, or all for clients on this machine.
    pub connections_per_address_max: Option<usize>,
    /// How long the head of a request may take.
    pub head_timeout: Duration,
    /// How long a body may pause.
    pub body_idle_timeout: Duration,
    /// How long a body may take as a whole.
    pub body_timeout: Duration,
    /// How long a connection may stand still between requests.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of an answer or of a subscription that waits for it.
    pub write_timeout: Duration,
    /// How long a sender who was refused is listened to, so that he gets to read why.
    pub linger: Duration,
    /// How long requests under way may take to finish when the node stops.
    pub grace: Duration,
    pub subscribers_max: usize,
    /// How long a subscription may be silent.
    pub heartbeat: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            surface: Surface::Everything,
            access: Access::default(),
            connections_max: HTTP_CONNECTIONS_MAX,
            connections_per_address_max: None,
            head_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            grace: Duration::from_secs(10),
            subscribers_max: SUBSCRIBERS_MAX,
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// What every handler works with.
#[derive(Clone)]
struct Api {
    engine: Engine,
    metrics: Arc<Metrics>,
    options: Arc<Options>,
    /// Of all clients, those of other protocols included.
    budget: Arc<Budget>,
    /// Turns for walks through the store.
    walks: Arc<Semaphore>,
    /// Places for subscribers.
    subscribers: Arc<Semaphore>,
    /// The turn to read the log for a subscriber.
    turn: Arc<Semaphore>,
    /// Turns true when the node stops, or loses its sender: what has no end by itself ends then.
    stopping: watch::Receiver<bool>,
}

impl Api {
    fn new(engine: Engine, options: Options, budget: Arc<Budget>, stopping: watch::Receiver<bool>) -> Api {
        let walks = Arc::new(Semaphore::new(HTTP_WALKS_MAX));
        let subscribers = Arc::new(Semaphore::new(options.subscribers_max.min(Semaphore::MAX_PERMITS)));
        let metrics = Arc::clone(engine.metrics());
        let turn = Arc::new(Semaphore::new(1));
        Api { metrics, engine, options: Arc::new(options), budget, walks, subscribers, turn, stopping }
    }
}

fn router(api: Api) -> Router {
    let routes = match api.options.surface {
        Surface::Everything => openapi::routes(&api.options.access),
        Surface::Watch => health::routes(),
    };
    let access = Arc::new(api.options.access.clone());
    routes
        .fallback(nothing_here)
        .layer(from_fn_with_state(access, guard::guard))
        .layer(from_fn_with_state(Arc::clone(&api.metrics), observe))
        .with_state(api)
}

async fn nothing_here(uri: Uri) -> Problem {
    let path = problem::quoted(uri.path());
    Problem::new(Kind::NotFound, format!("there is no {path}; /docs shows what there is")).with("path", path)
}

/// Sees every answer: counts it, and makes a problem of errors that come from the framework.
async fn observe(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let took = Stopwatch::start();
    let response = explained(next.run(request).await, &method);
    let method = method_label(&method);
    let route = route.map_or_else(|| "other".to_owned(), |route| route.as_str().to_owned());
    let timed = HttpRoute { method, route: route.clone() };
    metrics.http_request_seconds.get_or_create(&timed).observe(took.elapsed(), 1);
    let counted = HttpRequest { method, route, status: response.status().as_u16() };
    metrics.http_requests.get_or_create(&counted).inc();
    response
}

fn explained(response: Response, method: &Method) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || response.headers().get(CONTENT_TYPE).is_some_and(|found| found == CONTENT_TYPE_PROBLEM) {
        return response;
    }
    let problem = match status {
        // Which methods the path does take is in the `Allow` header, which the router adds.
        StatusCode::METHOD_NOT_ALLOWED => {
            let detail = format!("this path does not take {method}; the header Allow says what it takes");
            Problem::new(Kind::MethodNotAllowed, detail)
        }
        _ => Problem::new(Kind::Other(status), "the request cannot be answered; /docs shows what can be asked"),
    };
    problem.into_response()
}

/// A fixed set, because anybody may invent a method.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "DELETE" => "DELETE",
        _ => "other",
    }
}
