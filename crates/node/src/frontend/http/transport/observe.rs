//! Every answer passes here on its way out: it is counted and timed, and errors of the framework become problems.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::clock::Stopwatch;
use crate::frontend::http::words::problem::{CONTENT_TYPE_PROBLEM, Problem, ProblemKind};
use crate::metrics::{HttpRequest, HttpRoute, Metrics};

/// Sees every answer: counts it, and makes a problem of errors that come from the framework.
pub async fn observe(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
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
