//! Clearing a declared counter: a correction that brings it to 0, or all keys of it at once.

use axum::http::Uri;
use serde::Serialize;
use tally_core::counter::Reach;
use tally_core::ledger::Grounds;
use tally_core::position::Position;

use super::{ANONYMOUS, request};
use crate::counters::{ClearRequest, Cleared};
use crate::frontend::http::Api;
use crate::frontend::http::words::parameters::Parameters;
use crate::frontend::http::words::problem::Problem;

/// A declared counter after it was cleared.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Cleared)]
pub struct ClearedView {
    id: String,
    /// Whether there was anything to clear.
    cleared: bool,
    /// How many keys were not 0.
    counters: usize,
    /// The generation that the clearing made.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// The number of the correction; reverting it brings back what was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1-0-4711")]
    token: Option<String>,
    /// Only when the same `Idempotency-Key` was answered before, and then `true`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// Clears what a declared counter has: one key, or all of them.
pub async fn clear(api: &Api, reach: Reach<'static>, uri: &Uri, key: Option<&str>) -> Result<ClearedView, Problem> {
    let parameters = Parameters::read(uri, &["reason", "author", "ifGeneration"])?;
    let if_generation = parameters.number("ifGeneration")?;
    let reason = parameters.text("reason").unwrap_or("cleared").to_owned();
    let author = parameters.text("author").unwrap_or(ANONYMOUS).to_owned();
    request::check_why(&reason, &author)?;
    // Whoever waits for a turn holds nothing.
    let _turn = if let Reach::All(_) = reach { Some(api.walks.acquire().await) } else { None };
    let (grounds, key) = (Grounds { reason, author }, key.map(str::to_owned));
    let cleared = api.counters.clear(ClearRequest { reach, grounds, if_generation, key }).await?;
    Ok(ClearedView::new(cleared, api.counters.applied()))
}

impl ClearedView {
    fn new(Cleared { id, made, repeated }: Cleared, applied: Position) -> ClearedView {
        ClearedView {
            id,
            cleared: made.is_some(),
            counters: made.as_ref().map_or(0, |made| made.deltas.len()),
            generation: made.as_ref().map(|made| made.generation),
            number: made.as_ref().map(|made| made.number),
            token: made.map(|_| applied.to_string()),
            repeated,
        }
    }
}
