//! `POST /v1/restatements`: a range of time counted again from the archive, and the correction that it comes to.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use tally_core::ledger::Purpose;
use tally_core::limits::{CONFIG_BYTES_MAX, REASON_BYTES_MAX, SMALL_BODY_BYTES_MAX};

use super::corrections::{check_author, check_text};
use super::counters::idempotency_key;
use super::reconciliation::{check_declared, range, reconciler};
use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::document::{given, parse};
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::moment;
use crate::frontend::http::words::problem::Problem;
use crate::reconcile::{CounterRestated, RestateWanted, Restated, RestatedKey, Restatement};

const EXAMPLE: &str = r#"{"from":"2026-11-15T18:00:00Z","to":"2026-11-15T20:00:00Z","counter":"views"}"#;

/// What a reason says of the range, at most.
const RANGE_BYTES_MAX: usize = 192;

/// A range of time to be counted again.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RestatementRequest)]
pub struct RestateBody {
    /// Where it begins, in whole buckets of each counter: RFC 3339, or a duration before now such as `-24h`
    #[schema(example = "2026-11-15T18:00:00Z")]
    from: String,
    /// Where it ends; now if left out
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "2026-11-15T20:00:00Z")]
    to: Option<String>,
    /// Only this declared counter
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "views")]
    counter: Option<String>,
    /// The configuration, as YAML, that events of the range are judged by; that of their time if left out
    #[serde(default, deserialize_with = "given")]
    config: Option<String>,
    /// Why; if left out it says which range was counted again
    #[serde(default, deserialize_with = "given")]
    reason: Option<String>,
    /// Who proposes it, and applies it
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "ops@example.com")]
    author: Option<String>,
    /// Apply the correction as well
    #[serde(default)]
    apply: bool,
}

/// What a range of time comes to when it is counted again.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestatementView {
    /// Where counters and events were seen
    #[schema(example = "1-0-4711")]
    position: String,
    #[schema(example = "2026-11-15T20:01:00.000Z")]
    at: String,
    from: String,
    to: String,
    /// `restore` by the rules of its time, `adjust` by others
    #[schema(example = "restore")]
    kind: &'static str,
    counters: Vec<CounterRestatedView>,
    /// The number of the correction that is proposed; `null` if nothing changes
    proposal: Option<u64>,
    applied: bool,
    /// The generation that it made, if it was applied
    generation: Option<u64>,
}

/// A counter, and what of it changes.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CounterRestatedView {
    #[schema(example = "views")]
    counter: String,
    /// Why it was not counted again; `null` if it was
    not_restated: Option<String>,
    /// In which buckets of time: `hour` or longer; `null` if it has no roll-up by time
    #[schema(example = "hour")]
    buckets: Option<&'static str>,
    /// By how much all keys change together
    delta: i64,
    /// The greatest change first
    keys: Vec<RestatedKeyView>,
}

/// A key that changes.
#[derive(Serialize, utoipa::ToSchema)]
pub struct RestatedKeyView {
    #[schema(example = "views:v42")]
    id: String,
    /// In which bucket of time; left out if the counter has none, and then `live` is all of it
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    bucket: Option<String>,
    live: i64,
    restated: i64,
    delta: i64,
}

impl RestatementView {
    fn new(made: &Restatement) -> RestatementView {
        RestatementView {
            position: made.position.to_string(),
            at: rfc3339(made.at_ms),
            from: rfc3339(made.range_ms.start),
            to: rfc3339(made.range_ms.end),
            kind: if made.purpose == Purpose::Restore { "restore" } else { "adjust" },
            counters: made.counters.iter().map(CounterRestatedView::new).collect(),
            proposal: made.proposal,
            applied: made.generation.is_some(),
            generation: made.generation,
        }
    }
}

impl CounterRestatedView {
    fn new(of: &CounterRestated) -> CounterRestatedView {
        let (not_restated, buckets, keys) = match &of.restated {
            Restated::Not(why) => (Some(why.clone()), None, &[][..]),
            Restated::Keys { buckets, keys } => (None, buckets.map(|unit| unit.name()), &keys[..]),
        };
        let delta = keys.iter().fold(0i64, |sum, key| sum.saturating_add(key.delta));
        let keys = keys.iter().map(RestatedKeyView::new).collect();
        CounterRestatedView { counter: of.counter.clone(), not_restated, buckets, delta, keys }
    }
}

impl RestatedKeyView {
    fn new(key: &RestatedKey) -> RestatedKeyView {
        let RestatedKey { id, bucket_ms, live, delta } = key.clone();
        RestatedKeyView { id, bucket: bucket_ms.map(rfc3339), live, restated: live.saturating_add(delta), delta }
    }
}

/// Count a range of time again
///
/// By the rules of its time, or by those of another configuration. What changes is answered key by key and proposed as one correction; with
/// `apply` it is applied as well. `POST /v1/corrections/{n}/revert` takes it back.
#[utoipa::path(post, path = "/v1/restatements", tag = "archive", request_body = RestateBody,
    responses((status = 200, description = "What changes", body = RestatementView), Problem))]
pub async fn restate(State(api): State<Api>, headers: HeaderMap, body: Body) -> Result<Json<RestatementView>, Problem> {
    if let Some(key) = idempotency_key(&headers)? {
        let fix =
            "leave it out: what a restatement has done is taken off the next one of its range, so asking again is safe";
        return Err(Problem::field("Idempotency-Key", key, fix));
    }
    let wanted = wanted(&api, &headers, body).await?;
    Ok(Json(RestatementView::new(&*reconciler(&api)?.restate(wanted).await?)))
}

async fn wanted(api: &Api, headers: &HeaderMap, body: Body) -> Result<RestateWanted, Problem> {
    // A configuration grows when it is written as a text of JSON.
    let bytes_max = 2 * CONFIG_BYTES_MAX + SMALL_BODY_BYTES_MAX;
    let body = Pieces::new(api, headers, body, bytes_max)?.collect().await?;
    let RestateBody { from, to, counter, config, reason, author, apply } = parse(&body, EXAMPLE)?;
    // With other rules it goes on with what was counted again.
    let reason_max = if config.is_some() { REASON_BYTES_MAX - RANGE_BYTES_MAX } else { REASON_BYTES_MAX };
    reason.as_deref().map_or(Ok(()), |reason| check_text("reason", reason, reason_max))?;
    author.as_deref().map_or(Ok(()), check_author)?;
    if let Some(name) = &counter {
        check_declared(api, name)?;
    }
    let range_ms = range(Some(&from), to.as_deref(), api.host.clock.now_ms())?;
    let range_ms = range_ms.ok_or_else(|| Problem::field("from", &from, moment::FIX))?;
    Ok(RestateWanted { range_ms, counter, config, reason, author, apply })
}
