//! `GET /v1/top/{counter}`: the keys of a declared counter that are worth most, from what memory keeps up to date; also of an hour or
//! a day, and by the values of a dimension ([`parts`]).

mod parts;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use tally_core::counter::Counter;
use tally_core::limits::LISTED_KEYS_MAX;
use tally_core::nearest::nearest;
use tally_core::values::RankedKey;

use crate::counters::Ranking;
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{ReadKind, rfc3339};
use crate::frontend::http::words::id::IdPath;
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

/// How many are told if nobody says otherwise.
const K: u64 = 10;

/// The keys of a counter that are worth most.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    #[schema(example = "views")]
    counter: String,
    #[schema(example = "all")]
    window: &'static str,
    k: u64,
    /// Where the window begins; left out for `all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    from: Option<String>,
    /// The dimension by whose values there are `groups`; left out without.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "country")]
    by: Option<String>,
    /// The roll-up that has answered, if one was needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["country", "hour"]))]
    rollup: Option<Vec<String>>,
    /// Only if that roll-up was added to a running counter: the time since when it knows of anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// What all keys of the counter come to; `null` if it is not known or does not fit into 64 bits.
    total: Option<i64>,
    kind: ReadKind,
    /// Only for an `estimate`: no key that is not listed has more than this; `null` if nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    bound: Option<Option<i64>>,
    /// The greatest first; left out with `by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    top: Option<Vec<TopKey>>,
    /// For each value of the dimension, those with the greatest totals first; left out without `by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<TopGroup>>,
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    as_of: String,
    /// The newest generation: all corrections up to it are in the answer.
    generation: u64,
}

/// The keys that came to most for one value of a dimension.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TopGroup {
    #[schema(example = "DE")]
    value: String,
    /// What all keys come to for it.
    total: i64,
    kind: ReadKind,
    /// Only for an `estimate`: no key that is not listed has more than this; `null` if nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    bound: Option<Option<i64>>,
    /// The greatest first.
    top: Vec<TopKey>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TopKey {
    #[schema(example = "views:v42")]
    id: String,
    value: i64,
}

/// The keys of a declared counter with the greatest values
///
/// Exact, whatever the number of keys. While it cannot be said for certain, because many of the greatest values have fallen, `kind` is `estimate`,
/// and a walk through all keys finds out. Of a window, or by a dimension, it is what keys came to there, and needs a roll-up.
#[utoipa::path(get, path = "/v1/top/{counter}", tag = "counters",
    params(("counter" = String, Path, description = "The name of a declared counter", example = "views"),
        ("k" = Option<u64>, Query, description = "How many keys; 10 if left out"),
        ("window" = Option<String>, Query, description = "`all`: since the beginning; `1h`: the running hour; `24h`: the running hour and the 23 before it"),
        ("by" = Option<String>, Query, description = "A dimension: the keys of each of its values that has most", example = "country")),
    responses((status = 200, description = "The keys, the greatest first", body = Top), Problem))]
pub async fn top(State(api): State<Api>, IdPath(name): IdPath, uri: Uri) -> Result<Json<Top>, Problem> {
    let parameters = Parameters::read(&uri, &["k", "window", "by"])?;
    let (k, window, by) = (k(&parameters)?, window(&parameters)?, by(&parameters)?);
    let declarations = api.counters.declarations();
    let index = declarations.find(name.as_bytes());
    let known = declarations.counters().iter().map(|counter| &*counter.name);
    let counter =
        index.map(|index| declarations.counter(index)).ok_or_else(|| unknown(&name, nearest(&name, known)))?;
    if window != Window::All || by.is_some() {
        let asked = parts::Asked { counter, k, window, by };
        return Ok(Json(parts::top(&api, asked).await?));
    }
    let ranking = api.counters.greatest(&name, None, k as usize).await?;
    let ranking = ranking.ok_or_else(|| unknown(&name, None))?;
    Ok(Json(Top::new(counter, k, ranking, rfc3339(api.host.clock.now_ms()))))
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    All,
    Hour,
    Day,
}

impl Window {
    fn name(self) -> &'static str {
        match self {
            Window::All => "all",
            Window::Hour => "1h",
            Window::Day => "24h",
        }
    }
}

fn window(parameters: &Parameters) -> Result<Window, Problem> {
    let Some(asked) = parameters.text("window") else { return Ok(Window::All) };
    let known = [Window::All, Window::Hour, Window::Day].into_iter().find(|window| window.name() == asked);
    known.ok_or_else(|| refused("window", asked, "send all, 1h for the running hour, or 24h for it and the 23 before"))
}

/// The values of several dimensions together have no tops.
fn by(parameters: &Parameters) -> Result<Option<&str>, Problem> {
    match parameters.text("by") {
        Some(by) if by.is_empty() || by.contains(',') => Err(refused("by", by, "send one dimension, such as country")),
        by => Ok(by),
    }
}

fn k(parameters: &Parameters) -> Result<u64, Problem> {
    let k = parameters.number("k")?.unwrap_or(K);
    let fix = format!("send 1 to {LISTED_KEYS_MAX}; GET /v1/counters lists all keys by name");
    if (1..=LISTED_KEYS_MAX as u64).contains(&k) { Ok(k) } else { Err(refused("k", &k.to_string(), &fix)) }
}

fn unknown(name: &str, meant: Option<&str>) -> Problem {
    let name = quoted(name);
    let fix = meant.map_or("name one that is".to_owned(), |meant| format!("did you mean {meant}?"));
    Problem::new(ProblemKind::InvalidId, format!("{name} is no declared counter; {fix}")).with("value", name)
}

impl Top {
    fn new(counter: &Counter, k: u64, ranking: Ranking, as_of: String) -> Top {
        let Ranking { greatest, total } = ranking;
        let key = |key: &RankedKey| TopKey {
            id: String::from_utf8_lossy(&key.id).into_owned(),
            value: counter.shown(key.value),
        };
        Top {
            counter: counter.name.to_string(),
            window: Window::All.name(),
            k,
            from: None,
            by: None,
            rollup: None,
            since: None,
            total: total.value.and_then(|total| i64::try_from(total).ok()),
            kind: if greatest.is_exact { ReadKind::with_pending(total.pending) } else { ReadKind::Estimate },
            bound: (!greatest.is_exact).then_some(greatest.bound),
            top: Some(greatest.keys.iter().map(key).collect()),
            groups: None,
            as_of,
            generation: total.generation,
        }
    }
}
