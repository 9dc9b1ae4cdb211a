//! `GET /v1/anomalies`: rates that jumped. `/v1/anomalies/expected`: trends that are told in advance.

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tally_core::counter::{Jumps, Pattern};
use tally_core::limits::{
    ANOMALY_FACTOR_MAX, ANOMALY_FACTOR_MIN, EXPECTED_MS_MAX, ID_BYTES_MAX, REASON_BYTES_MAX, SMALL_BODY_BYTES_MAX,
};

use super::corrections::check_text;
use crate::anomalies::{AnomaliesHandle, Anomaly, ExpectError, Expected};
use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::document::{given, given_number, parse};
use crate::frontend::http::words::parameters::{Parameters, limit};
use crate::frontend::http::words::problem::{Problem, ProblemKind};

const EXAMPLE: &str =
    r#"{"match":"views:*","from":"2026-11-18T18:00:00Z","to":"2026-11-18T20:00:00Z","reason":"the final is on"}"#;
const EXPECTED: &str = "/v1/anomalies/expected/";
const DAY_MS: u64 = 86_400_000;

/// What is told as a jump.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = AnomalyRule)]
pub struct RuleView {
    /// At least so many times what a key used to come to in a minute
    #[schema(example = 10)]
    factor: u64,
    /// And at least so much
    #[schema(example = 1000)]
    least: u64,
}

/// Rates that jumped, the newest first.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Anomalies)]
pub struct AnomalyList {
    /// `null` if nobody looks for them: the configuration says `anomalies: none`
    rule: Option<RuleView>,
    /// Enough is known of what keys used to come to; it is not in the first minutes after a start
    warm: bool,
    anomalies: Vec<Anomaly>,
}

/// Trends that were told in advance.
#[derive(Serialize, utoipa::ToSchema)]
pub struct ExpectedList {
    expected: Vec<Expected>,
}

/// A trend that is told in advance.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExpectedRequest)]
pub struct ExpectedBody {
    /// Of which keys: an id, in which `*` stands for any text
    #[schema(example = "views:*")]
    r#match: String,
    /// When it begins; now if it is left out
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "2026-11-18T18:00:00Z")]
    from: Option<String>,
    /// When it is over
    #[schema(example = "2026-11-18T20:00:00Z")]
    to: String,
    #[schema(example = "the final is on")]
    reason: String,
    /// Up to how many times what a key used to come to; whatever comes if it is left out
    #[serde(default, deserialize_with = "given_number")]
    #[schema(example = 100)]
    factor: Option<u64>,
}

impl From<ExpectError> for Problem {
    fn from(error: ExpectError) -> Problem {
        let detail = error.to_string();
        match error {
            ExpectError::Refused(refusal) => refusal.into(),
            ExpectError::TooMany => Problem::new(ProblemKind::TooManyExpected, detail),
            ExpectError::NotThere(_) => Problem::new(ProblemKind::NotFound, detail),
        }
    }
}

fn handle(api: &Api) -> Result<&AnomaliesHandle, Problem> {
    api.host.anomalies.as_ref().ok_or_else(|| Problem::new(ProblemKind::NotFound, "nobody looks for anomalies here"))
}

/// Rates that jumped
///
/// Keys that came to at least ten times as much in a minute as they used to, and to at least 1000, unless the configuration says otherwise
/// (`anomalies`). Each is told once until it has calmed down. The newest first; the last 1000 are kept.
#[utoipa::path(get, path = "/v1/anomalies", tag = "node",
    params(("limit" = Option<u64>, Query, description = "How many at most; 100 if left out")),
    responses((status = 200, description = "Anomalies", body = AnomalyList), Problem))]
pub async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<AnomalyList>, Problem> {
    let limit = limit(&Parameters::read(&uri, &["limit"])?)?;
    let handle = handle(&api)?;
    let looking = handle.looking();
    let rule = looking.rule.map(|Jumps { factor, least }| RuleView { factor, least });
    Ok(Json(AnomalyList { rule, warm: looking.is_warm(), anomalies: handle.newest(limit) }))
}

/// Trends that were told in advance
#[utoipa::path(get, path = "/v1/anomalies/expected", tag = "node",
    responses((status = 200, description = "Trends", body = ExpectedList), Problem))]
pub async fn list_expected(State(api): State<Api>) -> Result<Json<ExpectedList>, Problem> {
    Ok(Json(ExpectedList { expected: handle(&api)?.expected() }))
}

/// Tell a trend in advance
///
/// A jump of a key that matches, within this time and no larger than the factor, is recorded as expected, and nobody is told.
#[utoipa::path(post, path = "/v1/anomalies/expected", tag = "node", request_body(content = ExpectedBody),
    responses((status = 201, description = "It is expected", body = Expected), Problem))]
pub async fn expect(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Expected>), Problem> {
    let body = Pieces::new(&api, &headers, body, SMALL_BODY_BYTES_MAX)?.collect().await?;
    let expected = checked(&api, parse(&body, EXAMPLE)?)?;
    Ok((StatusCode::CREATED, Json(handle(&api)?.expect(expected).await?)))
}

/// A trend is not expected any more
#[utoipa::path(delete, path = "/v1/anomalies/expected/{n}", tag = "node",
    params(("n" = u64, Path, description = "Its number")),
    responses((status = 200, description = "It is forgotten", body = Expected), Problem))]
pub async fn forget(State(api): State<Api>, TrendNumber(number): TrendNumber) -> Result<Json<Expected>, Problem> {
    Ok(Json(handle(&api)?.forget(number).await?))
}

/// The number in a path.
pub struct TrendNumber(u64);

impl<S: Sync> FromRequestParts<S> for TrendNumber {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<TrendNumber, Problem> {
        let path = parts.uri.path();
        let segment = path.strip_prefix(EXPECTED).unwrap_or(path);
        let refused = || {
            Problem::field("the number in the path", segment, "GET /v1/anomalies/expected lists the numbers there are")
        };
        segment.parse().map(TrendNumber).map_err(|_| refused())
    }
}

fn checked(api: &Api, body: ExpectedBody) -> Result<Expected, Problem> {
    let ExpectedBody { r#match, from, to, reason, factor } = body;
    check_text("match", &r#match, ID_BYTES_MAX)?;
    check_text("reason", &reason, REASON_BYTES_MAX)?;
    let from_ms = from.map_or(Ok(api.host.clock.now_ms()), |from| moment("from", &from))?;
    let to_ms = moment("to", &to)?;
    if to_ms <= from_ms || to_ms - from_ms > EXPECTED_MS_MAX {
        let fix = format!("send a moment behind from, by {} days at most", EXPECTED_MS_MAX / DAY_MS);
        return Err(Problem::field("to", &to, &fix));
    }
    if let Some(factor) = factor.filter(|factor| !(ANOMALY_FACTOR_MIN..=ANOMALY_FACTOR_MAX).contains(factor)) {
        let fix = format!("send a whole number from {ANOMALY_FACTOR_MIN} to {ANOMALY_FACTOR_MAX}");
        return Err(Problem::field("factor", &factor.to_string(), &fix));
    }
    let pattern = Pattern::resolve(&api.counters.declarations(), &r#match)?.to_string();
    Ok(Expected { number: 0, pattern, from_ms, to_ms, reason, factor })
}

fn moment(field: &str, text: &str) -> Result<u64, Problem> {
    let moment = text.parse::<Timestamp>().ok().and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
    let fix = "send a moment since 1970 as RFC 3339 has it, such as 2026-11-18T18:00:00Z";
    moment.ok_or_else(|| Problem::field(field, text, fix))
}
