//! What a read says: the value, what kind of number it is, and the moment it is true for.
//!
//! The headers say the same in the words of HTTP, so that a cache in front of Tally works untouched.

use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

pub use crate::clock::{rfc3339, rfc3339_signed};
use crate::counters::{CounterTotal, Seen};
use tally_core::counter::{Durability, Target};

const TALLY_GENERATION: HeaderName = HeaderName::from_static("tally-generation");
const TALLY_STALENESS_MS: HeaderName = HeaderName::from_static("tally-staleness-ms");
const CACHE_ONE_SECOND: HeaderValue = HeaderValue::from_static("max-age=1");

/// One counter as a reader sees it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    #[schema(example = "views:v42")]
    pub id: String,
    /// What was counted; a counter that is declared with `floorAtZero` shows 0 for a sum below it.
    pub value: i64,
    pub kind: ReadKind,
    /// Only for a `provisional` value: how many late entries wait for their run, which will change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// The number of the last correction that touched the counter; 0 is none.
    pub generation: u64,
    /// The moment for which the value is true.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    pub as_of: String,
    pub staleness_ms: u64,
    /// What an answered write to this counter means for the disk: `sync`, `interval` or `none`.
    #[schema(example = "sync")]
    pub durability: &'static str,
    /// Only when the counter does not exist, and then `false`: its value is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    /// Only for the bare name of a counter that has keys, and then `true`: the value is what all of them come to, debts below a
    /// floor included, and the generation is the newest there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<bool>,
}

/// What kind of number a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReadKind {
    Exact,
    /// Late entries wait for their run: the value is right for what has counted, and will change.
    Provisional,
    /// Only of lists: there may be others that belong before some of these. `bound` says how much they have at most.
    Estimate,
}

impl ReadKind {
    /// The kind of a value for which so many late entries wait.
    pub fn with_pending(pending: u64) -> ReadKind {
        if pending == 0 { ReadKind::Exact } else { ReadKind::Provisional }
    }
}

impl Envelope {
    /// `node` is the durability where a counter does not say.
    pub fn new(target: &Target<'_>, seen: Seen, as_of_ms: u64, node: Durability) -> Envelope {
        let Seen { reading, pending } = seen;
        Envelope {
            value: reading.map_or(0, |reading| target.shown(reading.value)),
            durability: target.durability.unwrap_or(node).name(),
            id: target.text().into_owned(),
            kind: ReadKind::with_pending(pending),
            pending: (pending > 0).then_some(pending),
            generation: reading.map_or(0, |reading| reading.generation),
            as_of: rfc3339(as_of_ms),
            staleness_ms: 0,
            exists: reading.is_none().then_some(false),
            total: None,
        }
    }

    /// What all keys of a counter come to.
    pub fn of_total(name: &str, value: i64, total: &CounterTotal, as_of_ms: u64, durability: Durability) -> Envelope {
        Envelope {
            id: name.to_owned(),
            value,
            kind: ReadKind::with_pending(total.pending),
            pending: (total.pending > 0).then_some(total.pending),
            generation: total.generation,
            as_of: rfc3339(as_of_ms),
            staleness_ms: 0,
            durability: durability.name(),
            exists: None,
            total: Some(true),
        }
    }

    /// Changes whenever the value, the generation or what is pending does; says nothing about when it was read.
    fn etag(&self) -> String {
        let pending = self.pending.map_or(String::new(), |pending| format!("-{pending}"));
        match self.exists {
            Some(false) => format!("\"{}-none{pending}\"", self.generation),
            _ => format!("\"{}-{}{pending}\"", self.generation, self.value),
        }
    }

    /// The answer to a read, or 304 if the reader has it already.
    pub fn respond(self, request: &HeaderMap) -> Response {
        let etag = self.etag();
        let known = is_known(request, &etag);
        let headers = [
            (CACHE_CONTROL, CACHE_ONE_SECOND),
            (ETAG, HeaderValue::try_from(etag).expect("digits and quotes are a header value")),
            (TALLY_GENERATION, HeaderValue::from(self.generation)),
            (TALLY_STALENESS_MS, HeaderValue::from(self.staleness_ms)),
        ];
        if known {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, axum::Json(self)).into_response()
    }
}

/// Whether the client has what the tag stands for.
pub fn is_known(request: &HeaderMap, etag: &str) -> bool {
    request.get_all(IF_NONE_MATCH).iter().any(|known| matches(known, etag))
}

/// Whether an `If-None-Match` names the tag; compared weakly, as RFC 9110 wants it for reads.
fn matches(known: &HeaderValue, etag: &str) -> bool {
    let Ok(known) = known.to_str() else { return false };
    known.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// The hash of an event's content, as people compare it.
pub fn content_hash(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::counters::Reading;

    const YAML: &str = "
counters:
  - {counterName: watching, mode: simple, floorAtZero: true, durability: none}
";

    fn envelope(id: &str, value: Option<i64>, as_of_ms: u64) -> Envelope {
        let declarations = tally_core::counter::Declarations::parse(YAML).unwrap();
        let target = declarations.resolve(&tally_core::id::CellHasher::new(1), id.as_bytes()).unwrap();
        let reading = value.map(|value| Reading { value, generation: 0 });
        Envelope::new(&target, Seen { reading, pending: 0 }, as_of_ms, Durability::Sync)
    }

    fn respond(value: Option<i64>, if_none_match: &'static str) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static(if_none_match));
        envelope("a", value, 0).respond(&headers)
    }

    #[test]
    fn an_envelope_says_what_its_value_is_worth() {
        let envelope = envelope("views:v42", Some(123), 1_794_765_600_007);
        assert_eq!(
            serde_json::to_string(&envelope).unwrap(),
            concat!(
                r#"{"id":"views:v42","value":123,"kind":"exact","generation":0,"asOf":"2026-11-15T18:00:00.007Z","#,
                r#""stalenessMs":0,"durability":"sync"}"#
            )
        );
        let absent = serde_json::to_value(self::envelope("x", None, 0)).unwrap();
        assert_eq!((&absent["value"], &absent["exists"]), (&0.into(), &false.into()));
    }

    #[test]
    fn a_floor_shows_zero_and_a_counter_tells_its_own_durability() {
        for (sum, shown) in [(-3, 0), (0, 0), (4, 4)] {
            let floored = envelope("watching", Some(sum), 0);
            assert_eq!((floored.value, floored.durability), (shown, "none"));
            assert_eq!(envelope("other", Some(sum), 0).value, sum);
        }
    }

    #[test]
    fn a_cache_can_work_with_the_headers() {
        let response = respond(Some(-5), "\"0-7\"");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[CACHE_CONTROL], "max-age=1");
        assert_eq!(response.headers()[ETAG], "\"0--5\"");
        assert_eq!(response.headers()["tally-generation"], "0");
        assert_eq!(response.headers()["tally-staleness-ms"], "0");
    }

    #[test]
    fn who_knows_the_value_is_not_told_it_again() {
        for known in ["\"0-5\"", "W/\"0-5\"", "\"x\", \"0-5\"", "*"] {
            let response = respond(Some(5), known);
            assert_eq!(response.status(), 304, "{known}");
            assert_eq!(response.headers()[ETAG], "\"0-5\"");
        }
        assert_eq!(respond(Some(5), "\"0-55\"").status(), 200);
    }

    #[test]
    fn an_absent_counter_and_a_zero_are_told_apart() {
        assert_eq!(respond(None, "\"0-0\"").status(), 200);
        assert_eq!(respond(Some(0), "\"0-none\"").status(), 200);
    }
}
