//! Every answer passes here on its way out: it is counted and timed, and errors of the framework become problems.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prometheus_client::metrics::counter::Counter;

use super::guard::EVENTS;
use crate::clock::Stopwatch;
use crate::frontend::http::words::problem::{CONTENT_TYPE_PROBLEM, Problem, ProblemKind};
use crate::metrics::{HttpRequest, HttpRoute, Metrics, Timings};

/// The answer that nearly all are, as method, route and status.
const USUAL: (&str, &str, StatusCode) = ("POST", EVENTS, StatusCode::OK);

/// Counts and times answers.
pub struct Observer {
    metrics: Arc<Metrics>,
    /// Where the usual answer is counted: to look it up takes longer than to count.
    usual: OnceLock<(Timings, Counter)>,
}

impl Observer {
    pub fn new(metrics: Arc<Metrics>) -> Observer {
        Observer { metrics, usual: OnceLock::new() }
    }

    /// Takes note of an answer; errors that come from the framework become problems.
    pub fn observed(&self, response: Response, method: &Method, route: &str, took: Duration) -> Response {
        let response = explained(response, method);
        let (method, status) = (method_label(method), response.status());
        match (method, route, status) == USUAL {
            true => count(self.usual.get_or_init(|| self.look_up(method, route, status)), took),
            false => count(&self.look_up(method, route, status), took),
        }
        response
    }

    fn look_up(&self, method: &'static str, route: &str, status: StatusCode) -> (Timings, Counter) {
        let timed = HttpRoute { method, route: route.to_owned() };
        let counted = HttpRequest { method, route: route.to_owned(), status: status.as_u16() };
        let Metrics { http_request_seconds, http_requests, .. } = &*self.metrics;
        (http_request_seconds.get_or_create_owned(&timed), http_requests.get_or_create_owned(&counted))
    }
}

fn count((seconds, requests): &(Timings, Counter), took: Duration) {
    seconds.observe(took, 1);
    requests.inc();
}

/// Sees every answer of the router.
pub async fn observe(State(observer): State<Arc<Observer>>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let took = Stopwatch::start();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    observer.observed(response, &method, route, took.elapsed())
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
            Problem::new(ProblemKind::MethodNotAllowed, detail)
        }
        _ => Problem::new(ProblemKind::Other(status), "the request cannot be answered; /docs shows what can be asked"),
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
