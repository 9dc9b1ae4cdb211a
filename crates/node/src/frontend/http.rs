//! HTTP/1.1 and HTTP/2: events in, counters out (DESIGN "What the user touches").
//!
//! Four parts: [`front`] says who answers a request, [`transport`] is how bytes and connections come and go, [`words`] how things are said, [`endpoints`] what can
//! be asked. Requests are read on threads of their own, each with its own listener and runtime; what they write goes to the
//! engine as one submission per request, what they read comes from shared memory. Every error is a [`words::problem`].

mod endpoints;
mod front;
mod options;
mod transport;
mod words;

use std::ops::Deref;
use std::sync::Arc;

use tally_core::limits::HTTP_WALKS_MAX;
use tokio::sync::{Semaphore, watch};

pub use options::{HttpOptions, Surface};
pub use transport::guard::{Access, HostName, Origin};
pub use transport::server::{HttpServer, serve};

use crate::counters::{Counters, Host};
use crate::frontend::budget::Budget;

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
