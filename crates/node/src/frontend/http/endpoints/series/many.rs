//! `GET /v1/series`: several series at once, all that roll-ups answer as of one moment.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use std::collections::BTreeMap;
use tally_core::counter::Declarations;
use tally_core::limits::{SERIES_IDS_MAX, SERIES_KEYS_MAX, SERIES_NAMES_MAX, SERIES_NUMBERS_MAX, SERIES_SUMS_MAX};

use super::told::{Told, csv, json};
use super::{Asked, PARAMETERS, Planned, SeriesBody, archived, too_long};
use crate::counters::{Refusal, TooMuch};
use crate::frontend::http::Api;
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Several series.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written one by one")]
pub struct SeriesList<'a> {
    /// One for each id, in the order of the request.
    series: Vec<SeriesBody<'a>>,
}

/// Tells what several counters came to, step by step and by dimensions
///
/// Each as `/v1/counters/{id}/series` tells it, all as of one moment. As CSV each line begins with the id.
#[utoipa::path(get, path = "/v1/series", tag = "counters",
    params(("id" = Vec<String>, Query, description = "An id, the name of a declared counter or a pattern such as `views:v*`; say it once for each", example = json!(["views:v1", "views:v2"])),
        ("from" = Option<String>, Query, description = "RFC 3339, or a duration before now such as `-24h`; 24 steps before `to` if left out"),
        ("to" = Option<String>, Query, description = "The same; now if left out"),
        ("step" = Option<String>, Query, description = "`1m`, `5m`, `1h`, `6h`, `1d`, `1w`, `1mo`; one point for all of it if left out", example = "1h"),
        ("by" = Option<String>, Query, description = "Dimensions to split by, with commas between them", example = "country"),
        ("top" = Option<u64>, Query, description = "Only so many parts of each, the greatest; the others are `(rest)`"),
        ("fill" = Option<String>, Query, description = "`zero`: also steps in which nothing was counted"),
        ("format" = Option<String>, Query, description = "`json` or `csv`")),
    responses((status = 200, description = "The series", content((SeriesList = "application/json"), (String = "text/csv"))), Problem))]
pub async fn series_many(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let (ids, parameters) = Parameters::read_with_many(&uri, "id", &PARAMETERS)?;
    check_number(&ids)?;
    let declarations = api.counters.declarations();
    let asked = Asked::read(&parameters, &headers, api.host.clock.now_ms())?;
    let told = told(&api, &declarations, &ids, &asked).await?;
    if asked.csv {
        return Ok(csv(&asked.by, &told, true));
    }
    let all: Vec<Vec<u8>> = told.iter().map(Told::json).collect();
    Ok(json([b"{\"series\":[", &*all.join(&b','), b"]}"].concat()))
}

fn check_number(ids: &[String]) -> Result<(), Problem> {
    match ids.len() {
        0 => Err(refused("id", "missing", "send one or more, such as id=views:v1&id=views:v2")),
        1..=SERIES_IDS_MAX => Ok(()),
        many => Err(refused(
            "id",
            &format!("there {many} times"),
            &format!("at most {SERIES_IDS_MAX} are answered at once; ask for them in several requests"),
        )),
    }
}

/// How often a question is put again because old buckets were rolled up meanwhile.
const TRIES_MAX: usize = 8;

/// A series for each id: from roll-ups, all as of one moment, or from the archive where there is no roll-up for it.
pub(super) async fn told<'a>(
    api: &Api,
    declarations: &'a Declarations,
    ids: &[String],
    asked: &'a Asked,
) -> Result<Vec<Told<'a>>, Problem> {
    let mut answered = BTreeMap::new();
    for (at, id) in ids.iter().enumerate() {
        let planned = Planned::new(api, declarations, id, asked);
        if planned.is_ok_and(|planned| planned.begins_too_early())
            && let Some(told) = archived::told(api, declarations, id, asked).await?
        {
            answered.insert(at, told);
        }
    }
    loop {
        let rest: Vec<usize> = (0..ids.len()).filter(|at| !answered.contains_key(at)).collect();
        let rolled = rolled_up(api, declarations, rest.iter().map(|at| &*ids[*at]).collect(), asked).await;
        let (at, problem) = match rolled {
            Ok(rolled) => {
                answered.extend(rest.into_iter().zip(rolled));
                return checked(answered.into_values());
            }
            Err(Missing { at, problem }) => (rest.get(at).copied(), problem),
        };
        let Some(at) = at.filter(|_| archived::may_have(&problem)) else { return Err(problem) };
        let told = archived::told(api, declarations, &ids[at], asked).await?;
        answered.insert(at, told.ok_or(problem)?);
    }
}

/// Which of several series cannot be answered, and why; one beyond the last if that is none of them.
struct Missing {
    at: usize,
    problem: Problem,
}

/// Adds up a series for each id from its roll-up.
async fn rolled_up<'a>(
    api: &Api,
    declarations: &'a Declarations,
    ids: Vec<&str>,
    asked: &'a Asked,
) -> Result<Vec<Told<'a>>, Missing> {
    let of_none = |problem: Problem| Missing { at: ids.len(), problem };
    let planned = ids
        .iter()
        .enumerate()
        .map(|(at, id)| Planned::new(api, declarations, id, asked).map_err(|problem| Missing { at, problem }));
    let mut planned = planned.collect::<Result<Vec<_>, _>>()?;
    let walks = planned.iter().any(|planned| planned.wanted.matching.is_some());
    // Whoever waits for a turn holds nothing.
    let _turn = if walks { api.walks.acquire().await.ok() } else { None };
    for _ in 0..TRIES_MAX {
        let wanted = planned.iter().map(|planned| planned.wanted.clone()).collect();
        let found = api.counters.series(wanted).await.map_err(|refusal| of_none(refusal.into()))?;
        let found = found.map_err(|much| of_none(too_much(much)))?;
        let mut is_final = true;
        for (at, (planned, found)) in planned.iter_mut().zip(&found).enumerate() {
            let again = planned.again(api, declarations, asked, found);
            if let Some(again) = again.map_err(|problem| Missing { at, problem })? {
                (*planned, is_final) = (again, false);
            }
        }
        if is_final {
            return Ok(planned
                .into_iter()
                .zip(found)
                .map(|(planned, found)| Told::new(planned, asked, found))
                .collect());
        }
    }
    Err(of_none(Refusal::busy().into()))
}

fn checked<'a>(told: impl Iterator<Item = Told<'a>>) -> Result<Vec<Told<'a>>, Problem> {
    let told: Vec<_> = told.collect();
    if told.iter().map(Told::numbers).sum::<usize>() > SERIES_NUMBERS_MAX {
        return Err(too_long());
    }
    Ok(told)
}

fn too_much(too_much: TooMuch) -> Problem {
    let (detail, limit) = match too_much {
        TooMuch::Names => (
            format!(
                "a pattern is looked for among {SERIES_NAMES_MAX} ids at most; write more of the id before the first *"
            ),
            SERIES_NAMES_MAX,
        ),
        TooMuch::Keys => (
            format!(
                "more than {SERIES_KEYS_MAX} keys match, and no more are added up in one request; narrow the pattern, or ask for the name of the counter alone, which is over all its keys"
            ),
            SERIES_KEYS_MAX,
        ),
        TooMuch::Sums => (
            format!(
                "these keys come to more than {SERIES_SUMS_MAX} numbers; ask for a shorter time, a longer step or fewer dimensions, or narrow the pattern"
            ),
            SERIES_SUMS_MAX,
        ),
    };
    Problem::new(ProblemKind::TooManyCounters, detail).with("limit", limit)
}
