//! What kind of body a request may have.
//!
//! A form of any page can send `text/plain`, `multipart/form-data`, `application/x-www-form-urlencoded`, or nothing at all. It
//! cannot send a type that says JSON, protobuf or a batch of events without the browser asking first.

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;

use tally_batch::MEDIA_TYPE as BATCH;

use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

/// Where events go.
pub const EVENTS: &str = "/v1/events";
const EVENTS_STREAM: &str = "/v1/events/stream";

const JSON: &str = "application/json";

/// Names that people have given to lines of JSON.
const LINES: [&str; 4] = ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];

/// Names that people have given to protobuf.
const PROTOBUF: [&str; 2] = ["application/x-protobuf", "application/protobuf"];

/// What the sender of a body says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyType {
    Json,
    /// Each line is a document of its own.
    Lines,
    /// A compact batch of events.
    Batch,
    /// Events in protobuf.
    Protobuf,
    Other,
}

impl BodyType {
    pub fn of(headers: &HeaderMap) -> BodyType {
        let Some(found) = headers.get(CONTENT_TYPE) else { return BodyType::Other };
        // Without its parameters.
        let essence = found.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let is = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is(JSON) => BodyType::Json,
            () if LINES.iter().any(|name| is(name)) => BodyType::Lines,
            () if is(BATCH) => BodyType::Batch,
            () if PROTOBUF.iter().any(|name| is(name)) => BodyType::Protobuf,
            () => BodyType::Other,
        }
    }
}

/// Refuses a body that does not say that it is JSON.
pub fn check(request: &Request) -> Result<(), Problem> {
    if request.method().is_safe() || request.body().is_end_stream() {
        return Ok(());
    }
    let wanted = match (request.uri().path(), BodyType::of(request.headers())) {
        (EVENTS_STREAM, BodyType::Batch) => return Ok(()),
        (EVENTS_STREAM, _) => BATCH,
        (_, BodyType::Json) => return Ok(()),
        (EVENTS, BodyType::Lines | BodyType::Batch | BodyType::Protobuf) => return Ok(()),
        (EVENTS, BodyType::Other) => {
            "application/json, application/x-ndjson for one event per line, application/vnd.tally.batch for a compact batch, or \
             application/x-protobuf (curl: -H 'content-type: application/json')"
        }
        _ => "application/json (curl: -H 'content-type: application/json')",
    };
    Err(refuse(request.headers(), wanted))
}

fn refuse(headers: &HeaderMap, wanted: &str) -> Problem {
    let found = headers.get(CONTENT_TYPE).map(|found| quoted(found.to_str().unwrap_or("not text")));
    let detail = format!("Content-Type is {}; send {wanted}", found.as_deref().unwrap_or("missing"));
    Problem::new(ProblemKind::UnsupportedMediaType, detail).with("value", found)
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
            (Some("application/vnd.tally.batch"), refused, None),
            (Some("application/x-protobuf"), refused, None),
            (Some("application/protobuf; messageType=tally.v1.Events"), refused, None),
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
