//! What people ask for: proposals, and the reason and author of everything that changes the past.

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use tally_core::ledger::{Delta, Proposal, Purpose};
use tally_core::limits::{
    AUTHOR_BYTES_MAX, BODY_BYTES_MAX, CORRECTION_DELTAS_MAX, REASON_BYTES_MAX, SMALL_BODY_BYTES_MAX,
};

use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::document::{Object, given, given_number, parse};
use crate::frontend::http::words::id;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Deltas belong to minutes: no bucket of a roll-up is shorter, and hours begin elsewhere in some time zones.
const BUCKET_MS: u64 = 60_000;

const CORRECTIONS: &str = "/v1/corrections/";

const PROPOSAL_EXAMPLE: &str = r#"{"reason":"bot traffic","author":"ops","deltas":[{"id":"views:v42","bucket":"2026-11-15T18:00:00Z","delta":-5}]}"#;

/// A correction to be made, and why.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ProposalRequest)]
pub struct ProposalBody<'a> {
    #[schema(example = "bot traffic of campaign 7")]
    reason: String,
    #[schema(example = "ops@example.com")]
    author: String,
    /// `adjust` (if left out): it changes what is right. `restore`: it brings counters to what was counted. A recount may undo
    /// the second, and never the first.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = ProposedKind, required = false)]
    kind: Option<ProposedKind>,
    /// Refuse it, now and when it is applied, if a later generation has touched one of the counters.
    #[serde(default, rename = "ifGeneration", deserialize_with = "given_number")]
    #[schema(example = 3)]
    if_generation: Option<u64>,
    #[serde(borrow)]
    #[schema(value_type = Vec<DeltaBody>)]
    deltas: Vec<Object<DeltaBody<'a>>>,
}

/// What a proposal is for.
#[derive(Clone, Copy, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProposedKind {
    /// It changes what is right, as somebody decided.
    Adjust,
    /// It brings counters to what was counted.
    Restore,
}

/// What to add to one counter.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DeltaRequest)]
pub struct DeltaBody<'a> {
    #[schema(example = "views:v42")]
    id: String,
    /// A moment of the time that the delta belongs to, as RFC 3339 has it, such as the `at` of a series; it is kept as the beginning of its minute.
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "2026-11-15T18:00:00Z")]
    bucket: Option<String>,
    /// Not 0.
    #[serde(borrow)]
    #[schema(value_type = i64, example = -5)]
    delta: &'a RawValue,
}

/// Why, and who says so; both may be left out.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RevertRequest)]
pub struct WhyBody {
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "it was no bot after all")]
    pub reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "ops@example.com")]
    pub author: Option<String>,
    /// Refuse it if a later generation has touched one of the counters.
    #[serde(default, rename = "ifGeneration", deserialize_with = "given_number")]
    #[schema(example = 3)]
    pub if_generation: Option<u64>,
}

/// Who applies a proposal; everything may be left out.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ApplyRequest)]
pub struct ApplyBody {
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "boss@example.com")]
    pub author: Option<String>,
    /// Refuse it if a later generation has touched one of the counters.
    #[serde(default, rename = "ifGeneration", deserialize_with = "given_number")]
    #[schema(example = 3)]
    pub if_generation: Option<u64>,
}

/// The number in the path of a request.
pub struct Number(pub u64);

impl<S: Sync> FromRequestParts<S> for Number {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Number, Problem> {
        let path = parts.uri.path();
        let segment = path.strip_prefix(CORRECTIONS).unwrap_or(path).split('/').next().unwrap_or_default();
        let refused =
            || Problem::field("the number in the path", segment, "GET /v1/corrections lists the numbers there are");
        segment.parse().map(Number).map_err(|_| refused())
    }
}

/// Reads a proposal and checks everything about it that does not depend on values.
pub async fn proposal(api: &Api, headers: &HeaderMap, body: Body) -> Result<Proposal, Problem> {
    let body = Pieces::new(api, headers, body, BODY_BYTES_MAX)?.collect().await?;
    let ProposalBody { reason, author, kind, if_generation, deltas } = parse(&body, PROPOSAL_EXAMPLE)?;
    check_why(&reason, &author)?;
    let purpose = match kind {
        None | Some(ProposedKind::Adjust) => Purpose::Adjust,
        Some(ProposedKind::Restore) => Purpose::Restore,
    };
    match deltas.len() {
        0 => return Err(Problem::field("deltas", "[]", "say what to add to which counter")),
        1..=CORRECTION_DELTAS_MAX => {}
        _ => {
            return Err(Problem::too_large(
                "there are too many deltas",
                CORRECTION_DELTAS_MAX,
                "make several corrections",
            ));
        }
    }
    let (declarations, hasher) = (api.counters.declarations(), api.counters.hasher());
    let delta = |(index, Object(body)): (usize, &Object<DeltaBody<'_>>)| -> Result<Delta, Problem> {
        let delta = body.delta(index)?;
        let bucket_ms = body.bucket.as_deref().map(|bucket| bucket_ms(index, bucket)).transpose()?;
        let target = id::target(&declarations, &hasher, &body.id).map_err(|problem| at(index, problem))?;
        Ok(Delta { id: target.id.into_owned(), bucket_ms, delta })
    };
    let deltas = deltas.iter().enumerate().map(delta).collect::<Result<Vec<_>, _>>()?;
    Ok(Proposal { number: 0, reason, author, at_ms: 0, deltas, if_generation, purpose })
}

/// Reads the reason and author of a change; an empty body says neither.
pub async fn why(api: &Api, headers: &HeaderMap, body: Body) -> Result<WhyBody, Problem> {
    let body = Pieces::new(api, headers, body, SMALL_BODY_BYTES_MAX)?.collect().await?;
    if body.is_empty() {
        return Ok(WhyBody::default());
    }
    parse(&body, r#"{"reason":"it was no bot after all","author":"ops"}"#)
}

/// Reads who applies a proposal; an empty body does not say.
pub async fn application(api: &Api, headers: &HeaderMap, body: Body) -> Result<ApplyBody, Problem> {
    let body = Pieces::new(api, headers, body, SMALL_BODY_BYTES_MAX)?.collect().await?;
    if body.is_empty() {
        return Ok(ApplyBody::default());
    }
    parse(&body, r#"{"author":"ops","ifGeneration":3}"#)
}

pub fn check_why(reason: &str, author: &str) -> Result<(), Problem> {
    check_reason(reason)?;
    check_author(author)
}

pub fn check_reason(reason: &str) -> Result<(), Problem> {
    check_text("reason", reason, REASON_BYTES_MAX)
}

pub fn check_author(author: &str) -> Result<(), Problem> {
    check_text("author", author, AUTHOR_BYTES_MAX)
}

pub fn check_text(field: &str, value: &str, bytes_max: usize) -> Result<(), Problem> {
    if value.trim().is_empty() || value.len() > bytes_max {
        return Err(Problem::field(field, &format!("{value:?}"), &format!("send 1 to {bytes_max} bytes of text")));
    }
    Ok(())
}

impl DeltaBody<'_> {
    fn delta(&self, index: usize) -> Result<i64, Problem> {
        let text = self.delta.get();
        // The least number has no opposite, so nobody could revert it.
        text.parse().ok().filter(|delta| ![0, i64::MIN].contains(delta)).ok_or_else(|| {
            let fix = "send an integer between -9223372036854775807 and 9223372036854775807 that is not 0";
            at(index, Problem::field(&format!("deltas[{index}].delta"), text, fix))
        })
    }
}

/// The beginning of the minute of a moment.
fn bucket_ms(index: usize, bucket: &str) -> Result<u64, Problem> {
    let moment = bucket.parse::<Timestamp>().ok().and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    let fix = "send a moment since 1970 as RFC 3339 has it, such as 2026-11-15T18:00:00Z";
    let refused = || at(index, Problem::field(&format!("deltas[{index}].bucket"), bucket, fix));
    moment.map(|ms| ms - ms % BUCKET_MS).ok_or_else(refused)
}

/// Says which delta a problem is about.
fn at(index: usize, mut problem: Problem) -> Problem {
    if problem.kind == ProblemKind::InvalidId {
        problem.detail = format!("deltas[{index}].id: {}", problem.detail);
    }
    problem.with("index", index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_the_minute_of_its_moment() {
        for bucket in ["2026-11-15T18:30:00Z", "2026-11-15T18:30:59.999Z", "2026-11-15T19:30:00+01:00"] {
            assert_eq!(bucket_ms(0, bucket).unwrap(), 1_794_767_400_000, "{bucket}");
        }
        for bucket in ["", "yesterday", "2026-11-15", "2026-11-15T18:00:00", "1969-12-31T23:00:00Z"] {
            let problem = bucket_ms(3, bucket).unwrap_err();
            assert!(problem.detail.starts_with("deltas[3].bucket is "), "{}", problem.detail);
        }
    }

    #[test]
    fn a_delta_is_an_integer_that_can_be_undone() {
        let delta = |text: &str| {
            let body = format!(r#"{{"id":"a","delta":{text}}}"#);
            serde_json::from_str::<DeltaBody<'_>>(&body).unwrap().delta(7)
        };
        assert_eq!(delta("-5").unwrap(), -5);
        assert_eq!(delta("9223372036854775807").unwrap(), i64::MAX);
        for text in ["0", "-0", "1.5", "\"1\"", "null", "-9223372036854775808", "9223372036854775808"] {
            let problem = delta(text).unwrap_err();
            assert!(problem.detail.starts_with(&format!("deltas[7].delta is {text};")), "{}", problem.detail);
        }
    }

    #[test]
    fn a_reason_and_an_author_are_text_of_a_bounded_length() {
        check_why("why", &"x".repeat(AUTHOR_BYTES_MAX)).unwrap();
        for (reason, author, field) in
            [("", "who", "reason"), ("why", " ", "author"), (&"x".repeat(REASON_BYTES_MAX + 1), "who", "reason")]
        {
            let problem = check_why(reason, author).unwrap_err();
            assert!(problem.detail.starts_with(&format!("{field} is ")), "{}", problem.detail);
            assert!(problem.detail.len() < 200, "{}", problem.detail);
        }
    }
}
