//! Every error of the HTTP interface: RFC 9457 problem details, and the one place where they get their status.
//!
//! A client decides by `type`, which never changes; a human reads `detail`, which names the field, its value and the fix.
//! Further members carry the same facts for programs.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use utoipa::openapi::{self, RefOr};

use crate::counters::{RETRY_AFTER as RETRY_AFTER_BUSY, Refusal};
use crate::frontend::budget::Full;

pub const CONTENT_TYPE_PROBLEM: &str = "application/problem+json";

/// How much of a wrong value an error repeats, in bytes.
const QUOTED_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    InvalidHead,
    HeadTooLarge,
    UriTooLong,
    InvalidBody,
    InvalidField,
    UnknownField,
    InvalidId,
    InvalidParameter,
    NoValidEvent,
    NotAllCountable,
    Unauthorized,
    ForeignOrigin,
    UnknownHost,
    NotFound,
    MethodNotAllowed,
    Timeout,
    CountsEvents,
    CounterRemoved,
    CorrectionState,
    GenerationMoved,
    TooManyProposals,
    UnknownGeneration,
    PositionGone,
    PositionUnknown,
    Overflow,
    IdempotencyConflict,
    IdempotencyFull,
    TokenLost,
    TokenNotReached,
    TooLarge,
    UnsupportedEncoding,
    UnsupportedMediaType,
    TooManyCounters,
    NotRolledUp,
    NotKept,
    NoArchive,
    NotProvable,
    InvalidQuery,
    QueryTimeout,
    QueryTooLarge,
    NoBackups,
    NoProbes,
    TooManyExpected,
    Busy,
    RepeatsFull,
    DiskFull,
    LogFailed,
    StoreFailed,
    ArchiveFailed,
    ShuttingDown,
    NotReady,
    /// A status that the framework chose.
    Other(StatusCode),
}

impl ProblemKind {
    pub fn status(self) -> StatusCode {
        self.row().1
    }

    fn row(self) -> (&'static str, StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            ProblemKind::InvalidHead => ("invalid-head", S::BAD_REQUEST, "This is no HTTP request"),
            ProblemKind::HeadTooLarge => {
                ("head-too-large", S::REQUEST_HEADER_FIELDS_TOO_LARGE, "The head of the request is too large")
            }
            ProblemKind::UriTooLong => ("uri-too-long", S::URI_TOO_LONG, "The address of the request is too long"),
            ProblemKind::InvalidBody => ("invalid-body", S::BAD_REQUEST, "The body cannot be read"),
            ProblemKind::InvalidField => ("invalid-field", S::BAD_REQUEST, "A field has a value that it cannot have"),
            ProblemKind::UnknownField => ("unknown-field", S::BAD_REQUEST, "A field is not known"),
            ProblemKind::InvalidId => ("invalid-id", S::BAD_REQUEST, "This is no counter id"),
            ProblemKind::InvalidParameter => ("invalid-parameter", S::BAD_REQUEST, "A query parameter cannot be used"),
            ProblemKind::NoValidEvent => ("no-valid-event", S::BAD_REQUEST, "None of the events can be read"),
            ProblemKind::NotAllCountable => {
                ("not-all-countable", S::UNPROCESSABLE_ENTITY, "Not all of it can be counted, so nothing was")
            }
            ProblemKind::Unauthorized => ("unauthorized", S::UNAUTHORIZED, "A token is needed"),
            ProblemKind::ForeignOrigin => ("foreign-origin", S::FORBIDDEN, "A page of another site asks"),
            ProblemKind::UnknownHost => {
                ("unknown-host", S::MISDIRECTED_REQUEST, "The server is not known by this name")
            }
            ProblemKind::NotFound => ("not-found", S::NOT_FOUND, "There is nothing here"),
            ProblemKind::MethodNotAllowed => {
                ("method-not-allowed", S::METHOD_NOT_ALLOWED, "This path has other methods")
            }
            ProblemKind::Timeout => ("timeout", S::REQUEST_TIMEOUT, "The request came too slowly"),
            ProblemKind::CountsEvents => ("counts-events", S::CONFLICT, "This counter counts events"),
            ProblemKind::CounterRemoved => ("counter-removed", S::CONFLICT, "This counter was removed"),
            ProblemKind::CorrectionState => ("correction-state", S::CONFLICT, "The correction is in another state"),
            ProblemKind::GenerationMoved => ("generation-moved", S::CONFLICT, "The counter was corrected meanwhile"),
            ProblemKind::TooManyProposals => ("too-many-proposals", S::CONFLICT, "Too many proposals are open"),
            ProblemKind::UnknownGeneration => ("unknown-generation", S::NOT_FOUND, "There is no such generation yet"),
            ProblemKind::PositionGone => ("position-gone", S::GONE, "The log begins later"),
            ProblemKind::PositionUnknown => ("position-unknown", S::CONFLICT, "This is no position of the log"),
            ProblemKind::Overflow => ("overflow", S::CONFLICT, "The result does not fit into 64 bits"),
            ProblemKind::IdempotencyConflict => {
                ("idempotency-conflict", S::CONFLICT, "The key was used for another change")
            }
            ProblemKind::IdempotencyFull => {
                ("idempotency-full", S::INSUFFICIENT_STORAGE, "Too many idempotency keys are kept")
            }
            ProblemKind::TokenLost => ("token-lost", S::CONFLICT, "The write of this token is gone"),
            ProblemKind::TokenNotReached => ("token-not-reached", S::SERVICE_UNAVAILABLE, "The write is not there yet"),
            ProblemKind::TooLarge => ("too-large", S::PAYLOAD_TOO_LARGE, "The request is too large"),
            ProblemKind::UnsupportedEncoding => {
                ("unsupported-encoding", S::UNSUPPORTED_MEDIA_TYPE, "The content encoding is not known")
            }
            ProblemKind::UnsupportedMediaType => {
                ("unsupported-media-type", S::UNSUPPORTED_MEDIA_TYPE, "The body is of another type")
            }
            ProblemKind::TooManyCounters => {
                ("too-many-counters", S::UNPROCESSABLE_ENTITY, "There are too many counters")
            }
            ProblemKind::NotRolledUp => ("not-rolled-up", S::UNPROCESSABLE_ENTITY, "No roll-up can answer this"),
            ProblemKind::NotKept => ("not-kept", S::UNPROCESSABLE_ENTITY, "It is not kept as fine or as long as this"),
            ProblemKind::NoArchive => ("no-archive", S::NOT_FOUND, "There is no archive"),
            ProblemKind::NotProvable => ("not-provable", S::UNPROCESSABLE_ENTITY, "There is no proof of this"),
            ProblemKind::InvalidQuery => ("invalid-query", S::UNPROCESSABLE_ENTITY, "The query cannot be answered"),
            ProblemKind::QueryTimeout => ("query-timeout", S::UNPROCESSABLE_ENTITY, "The query takes too long"),
            ProblemKind::QueryTooLarge => {
                ("query-too-large", S::UNPROCESSABLE_ENTITY, "The query needs too much memory")
            }
            ProblemKind::NoBackups => ("no-backups", S::NOT_FOUND, "No backups are taken"),
            ProblemKind::NoProbes => ("no-probes", S::NOT_FOUND, "No probes are sent"),
            ProblemKind::TooManyExpected => ("too-many-expected", S::CONFLICT, "Too many trends are expected"),
            ProblemKind::Busy => ("busy", S::SERVICE_UNAVAILABLE, "Tally is busy"),
            ProblemKind::RepeatsFull => ("repeats-full", S::SERVICE_UNAVAILABLE, "The memory of repeats is full"),
            ProblemKind::DiskFull => ("disk-full", S::INSUFFICIENT_STORAGE, "The disk is full"),
            ProblemKind::LogFailed => ("log-failed", S::SERVICE_UNAVAILABLE, "The log has failed"),
            ProblemKind::StoreFailed => ("store-failed", S::SERVICE_UNAVAILABLE, "The store cannot be read"),
            ProblemKind::ArchiveFailed => ("archive-failed", S::SERVICE_UNAVAILABLE, "The archive cannot be used"),
            ProblemKind::ShuttingDown => ("shutting-down", S::SERVICE_UNAVAILABLE, "Tally is shutting down"),
            ProblemKind::NotReady => ("not-ready", S::SERVICE_UNAVAILABLE, "No writes are taken at the moment"),
            ProblemKind::Other(status) => ("http", status, status.canonical_reason().unwrap_or("The request failed")),
        }
    }
}

/// An error answer.
#[derive(Debug)]
pub struct Problem {
    pub kind: ProblemKind,
    pub detail: String,
    members: Map<String, Value>,
    retry_after_s: Option<u64>,
}

/// An error as RFC 9457 has it.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody<'a> {
    /// What went wrong; a stable relative reference.
    #[schema(example = "/problems/unknown-field")]
    r#type: String,
    title: &'a str,
    status: u16,
    /// Names the field, its value and the fix.
    detail: &'a str,
    /// What else there is to say, by name: `field`, `value`, `limit`, `rejected` and so on.
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl Problem {
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        Problem { kind, detail: detail.into(), members: Map::new(), retry_after_s: None }
    }

    /// A value that a field cannot have, what was found there, and what would be right.
    pub fn field(field: &str, value: &str, fix: &str) -> Problem {
        let value = quoted(value);
        Problem::new(ProblemKind::InvalidField, format!("{field} is {value}; {fix}"))
            .with("field", field)
            .with("value", value)
    }

    /// Nothing is to be found at a path.
    pub fn nothing_at(path: &str) -> Problem {
        let path = quoted(path);
        Problem::new(ProblemKind::NotFound, format!("there is no {path}; /docs shows what there is")).with("path", path)
    }

    /// A limit that the request went beyond.
    pub fn too_large(what: &str, limit: usize, fix: &str) -> Problem {
        Problem::new(ProblemKind::TooLarge, format!("{what}: the limit is {limit}; {fix}")).with("limit", limit)
    }

    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Problem {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    pub fn retry_after(self, seconds: u64) -> Problem {
        Problem { retry_after_s: Some(seconds), ..self }
    }

    /// In one line of JSON.
    pub fn body(&self) -> Vec<u8> {
        let (slug, status, title) = self.kind.row();
        let body = ProblemBody {
            r#type: format!("/problems/{slug}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            members: &self.members,
        };
        serde_json::to_vec(&body).expect("strings and numbers are JSON")
    }
}

impl Problem {
    /// The whole answer as HTTP/1.1 has it, for those whose request was never understood. The connection ends with it.
    pub fn raw(&self) -> Vec<u8> {
        let (status, body) = (self.kind.status(), self.body());
        let retry_after = self.retry_after_s.map_or(String::new(), |seconds| format!("retry-after: {seconds}\r\n"));
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {CONTENT_TYPE_PROBLEM}\r\n{retry_after}connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.kind.status(), self.body()).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE_PROBLEM));
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// In the API's description every operation may end in a problem.
impl utoipa::IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let schema = openapi::Ref::from_schema_name(ProblemBody::name());
        let response = openapi::ResponseBuilder::new()
            .description("What went wrong, and how to mend it")
            .content(CONTENT_TYPE_PROBLEM, openapi::ContentBuilder::new().schema(Some(schema)).build());
        BTreeMap::from([("default".to_owned(), response.build().into())])
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Problem {
        match full.beyond_bytes {
            Some(bytes) => {
                let fix = "send it in several requests, or give the node more --memory";
                Problem::too_large("the request needs more memory than this node has for one", bytes, fix)
            }
            None => {
                let detail = "the memory that this node has for clients is in use; come back, or give it more --memory";
                Problem::new(ProblemKind::Busy, detail).retry_after(RETRY_AFTER_BUSY.as_secs())
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let detail = refusal.to_string();
        match refusal {
            // Rounded up: a client that comes back early is refused again.
            Refusal::Busy { retry_after } => Problem::new(ProblemKind::Busy, detail)
                .retry_after(retry_after.as_millis().div_ceil(1000).max(1) as u64),
            Refusal::DiskFull(_) => Problem::new(ProblemKind::DiskFull, detail),
            Refusal::TooLarge(_) => Problem::new(ProblemKind::TooLarge, detail),
            Refusal::NotAll(_) => Problem::new(ProblemKind::NotAllCountable, detail),
            Refusal::LogFailed(_) => Problem::new(ProblemKind::LogFailed, detail),
            Refusal::WorkerFailed(_) => Problem::new(ProblemKind::NotReady, detail),
            Refusal::ShuttingDown => Problem::new(ProblemKind::ShuttingDown, detail).retry_after(1),
            Refusal::StoreFailed(_) => Problem::new(ProblemKind::StoreFailed, detail),
            Refusal::ArchiveFailed(_) => Problem::new(ProblemKind::ArchiveFailed, detail),
        }
    }
}

/// A strange value as an error repeats it: never long.
pub fn quoted(value: &str) -> String {
    if value.len() <= QUOTED_BYTES_MAX {
        return value.to_owned();
    }
    let end = value.floor_char_boundary(QUOTED_BYTES_MAX);
    format!("{}… ({} bytes)", &value[..end], value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_problem_says_what_is_wrong_and_how_to_mend_it() {
        let problem = Problem::field("delta", "1.5", "send an integer such as 1");
        let body: Value = serde_json::from_slice(&problem.body()).unwrap();
        assert_eq!(
            body,
            serde_json::json!({
                "type": "/problems/invalid-field", "title": "A field has a value that it cannot have", "status": 400,
                "detail": "delta is 1.5; send an integer such as 1", "field": "delta", "value": "1.5",
            })
        );
        let response = problem.into_response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[CONTENT_TYPE], CONTENT_TYPE_PROBLEM);
    }

    #[test]
    fn a_refusal_for_lack_of_room_says_when_to_come_back() {
        let refusal = Refusal::Busy { retry_after: Duration::from_millis(1200) };
        let response = Problem::from(refusal).into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let text = quoted(&"ä".repeat(1_000_000));
        assert!(text.len() < 100, "{text}");
        assert!(text.ends_with("(2000000 bytes)"), "{text}");
    }
}
