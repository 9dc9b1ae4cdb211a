//! Sums over many counters: all whose id matches a pattern.
//!
//! The walk is an ordered scan behind the literal beginning of the pattern, page by page, and never longer than a bound.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use tally_core::counter::Pattern;
use tally_core::limits::SCAN_NAMES_MAX;

use crate::frontend::http::Api;
use crate::frontend::http::words::at_least::{self, AtLeast};
use crate::frontend::http::words::envelope::{ReadKind, rfc3339};
use crate::frontend::http::words::id::IdPath;
use crate::frontend::http::words::pattern::matching;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// The sum over all counters that match a pattern.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aggregate {
    #[schema(example = "page_views_article_*")]
    pub pattern: String,
    /// The sum of what a read of each of them shows.
    pub value: i64,
    /// How many counters matched.
    pub counters: u64,
    pub kind: ReadKind,
    /// Only for a `provisional` sum: how many late entries wait for their run, which will change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// The last correction that touched one of them; 0 is none.
    pub generation: u64,
    /// When the walk began: no part of the sum is older.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    pub as_of: String,
    /// How long the walk took.
    pub staleness_ms: u64,
}

/// Adds up all counters whose id matches a pattern
///
/// `*` stands for any text, also for none. What stands before the first `*` narrows the walk, so put it late.
#[utoipa::path(get, path = "/v1/counters/{id}/aggregate", tag = "counters",
    params(("id" = String, Path, description = "A pattern", example = "page_views_article_*"),
        ("at_least" = Option<String>, Query, description = at_least::TOKEN, example = "1-0-4711"),
        ("wait_ms" = Option<u64>, Query, description = at_least::WAIT)),
    responses((status = 200, description = "The sum", body = Aggregate), Problem))]
pub async fn aggregate(State(api): State<Api>, IdPath(pattern): IdPath, uri: Uri) -> Result<Json<Aggregate>, Problem> {
    if let Some(at_least) = AtLeast::query(&uri)? {
        at_least.reached(&*api.counters).await?;
    }
    // Whoever waits for a turn holds nothing.
    let _turn = api.walks.acquire().await;
    let as_of_ms = api.host.clock.now_ms();
    let pattern = Pattern::resolve(&api.counters.declarations(), &pattern)?;
    let sum = api.counters.sum(&matching(&pattern)).await?.ok_or_else(too_many)?;
    let pattern = pattern.to_string();
    let value = i64::try_from(sum.value).map_err(|_| {
        let sum = sum.value.to_string();
        Problem::new(ProblemKind::Overflow, format!("the counters of {pattern} add up to {sum}; narrow the pattern"))
            .with("value", sum)
    })?;
    Ok(Json(Aggregate {
        pattern,
        value,
        counters: sum.counters,
        kind: ReadKind::with_pending(sum.pending),
        pending: (sum.pending > 0).then_some(sum.pending),
        generation: sum.generation,
        as_of: rfc3339(as_of_ms),
        staleness_ms: api.host.clock.now_ms().saturating_sub(as_of_ms),
    }))
}

fn too_many() -> Problem {
    let detail = format!(
        "there are more than {SCAN_NAMES_MAX} ids before the first * of the pattern; write more of the id before it"
    );
    Problem::new(ProblemKind::TooManyCounters, detail).with("limit", SCAN_NAMES_MAX)
}
