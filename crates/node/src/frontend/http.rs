//! HTTP/1.1 and HTTP/2: events in, counters out (DESIGN "What the user touches").
//!
//! Three parts: [`transport`] is how bytes and connections come and go, [`words`] how things are said, [`endpoints`] what can
//! be asked. Requests are read on threads of their own, each with its own listener and runtime; what they write goes to the
//! engine as one submission per request, what they read comes from shared memory. Every error is a [`words::problem`].

mod endpoints;
mod options;
mod transport;
mod words;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::middleware::from_fn_with_state;
use tally_core::limits::HTTP_WALKS_MAX;
use tokio::sync::{Semaphore, watch};

pub use options::{HttpOptions, Surface};
pub use transport::guard::{Access, HostName, Origin};
pub use transport::server::{HttpServer, serve};

use crate::counters::{Counters, Host};
use crate::frontend::budget::Budget;
use endpoints::{health, openapi};
use transport::guard::guard;
use transport::observe::observe;
use words::problem::{self, Problem, ProblemKind};

/// How metrics call it.
const PROTOCOL: &str = "http";

/// What every handler works with: one pointer, since each request has copies of it.
#[derive(Clone)]
struct Api(Arc<ApiParts>);

struct ApiParts {
    counters: Arc<dyn Counters>,
    host: Host,
    options: Arc<HttpOptions>,
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
    fn new(
        counters: Arc<dyn Counters>,
        host: Host,
        options: HttpOptions,
        budget: Arc<Budget>,
        stopping: watch::Receiver<bool>,
    ) -> Api {
        let walks = Arc::new(Semaphore::new(HTTP_WALKS_MAX));
        let subscribers = Arc::new(Semaphore::new(options.subscribers_max.min(Semaphore::MAX_PERMITS)));
        let turn = Arc::new(Semaphore::new(1));
        Api(Arc::new(ApiParts {
            counters,
            host,
            options: Arc::new(options),
            budget,
            walks,
            subscribers,
            turn,
            stopping,
        }))
    }
}

impl Deref for Api {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.0
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
        .layer(from_fn_with_state(access, guard))
        .layer(from_fn_with_state(Arc::clone(&api.host.metrics), observe))
        .with_state(api)
}

async fn nothing_here(uri: Uri) -> Problem {
    let path = problem::quoted(uri.path());
    Problem::new(ProblemKind::NotFound, format!("there is no {path}; /docs shows what there is")).with("path", path)
}
