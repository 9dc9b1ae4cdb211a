//! What kind of body a request may have.
//!
//! A form of any page can send `text/plain`, `multipart/form-data`, `application/x-www-form-urlencoded`, or nothing at all. It
//! cannot send a type that says JSON without the browser asking first.

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;

use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

const EVENTS: &str = "/v1/events";

const JSON: &str = "application/json";

/// Names that people have given to lines of JSON.
const LINES: [&str; 4] = ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// Refuses a body that does not say that it is JSON.
pub fn check(request: &Request) -> Result<(), Problem> {
    if request.method().is_safe() || request.body().is_end_stream() {
        return Ok(());
    }
    let headers = request.headers();
    let takes_lines = request.uri().path() == EVENTS;
    if essence(headers).is_some_and(|essence| essence == JSON) || (takes_lines && is_lines(headers)) {
        return Ok(());
    }
    let found = headers.get(CONTENT_TYPE).map(|found| quoted(found.to_str().unwrap_or("not text")));
    let or_lines = if takes_lines { ", or application/x-ndjson for one event per line" } else { "" };
    let detail = format!(
        "Content-Type is {}; send application/json{or_lines} (curl: -H 'content-type: application/json')",
        found.as_deref().unwrap_or("missing")
    );
    Err(Problem::new(ProblemKind::UnsupportedMediaType, detail).with("value", found))
}

/// Whether the sender says that each line is a document of its own.
pub fn is_lines(headers: &HeaderMap) -> bool {
    essence(headers).is_some_and(|essence| LINES.contains(&essence.as_str()))
}

/// The type without its parameters.
fn essence(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn verdict(path: &str, content_type: Option<&str>, body: &'static str) -> Option<ProblemKind> {
        let mut builder = Request::post(path);
        if let Some(content_type) = content_type {
            builder = builder.header(CONTENT_TYPE, content_type);
        }
        check(&builder.body(Body::from(body)).unwrap()).err().map(|problem| problem.kind)
    }

    #[test]
    fn a_body_says_that_it_is_json() {
        let refused = Some(ProblemKind::UnsupportedMediaType);
        for (content_type, counters, events) in [
            (Some("application/json"), None, None),
            (Some("Application/JSON; charset=utf-8"), None, None),
            (Some("application/x-ndjson"), refused, None),
            (Some("application/jsonl;charset=utf-8"), refused, None),
            (Some("text/plain"), refused, refused),
            (Some("application/x-www-form-urlencoded"), refused, refused),
            (Some("multipart/form-data; boundary=application/json"), refused, refused),
            (Some("text/plain; application/json"), refused, refused),
            (None, refused, refused),
        ] {
            assert_eq!(verdict("/v1/counters/a/increment", content_type, "{}"), counters, "{content_type:?}");
            assert_eq!(verdict(EVENTS, content_type, "{}"), events, "{content_type:?}");
            assert_eq!(verdict("/v1/counters/a/increment", content_type, ""), None, "nothing to have a type");
        }
    }
}
