//! `GET /v1/counters/{id}/explain`: where a number comes from, and that it all adds up.
//!
//! Everything is as of one position of the log. What can be known in two ways is looked up in both, and `holds` says whether
//! they agree; each comparison is listed, so that one that fails names itself.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use tally_core::counter::Target;
use tally_core::fates::ParkedEntry;
use tally_core::ledger::{BoxKind, Boxes, Cause, Step};
use tally_core::position::Position;
use tally_core::values::Sums;

use super::balance::Account;
use super::corrections::CorrectionKind;
use crate::counters::{CounterFacts, Explained, Total, ValuesStanding, Why};
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{ReadKind, rfc3339, rfc3339_signed};
use crate::frontend::http::words::id::{self, ID, IdPath};
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::Problem;

/// Where a number comes from.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    #[schema(example = "views:v42")]
    id: String,
    /// The true sum.
    value: i64,
    /// What reads show of it.
    shown: i64,
    exists: bool,
    kind: ReadKind,
    /// Late entries that wait for their run, of all buckets in `parked`.
    pending: u64,
    /// The last correction that touched it; 0 is none.
    generation: u64,
    /// Only for a counter that is declared with `floorAtZero`.
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<Floor>,
    /// What the last checkpoint has; none if there is no checkpoint, or the counter is newer.
    base: Option<Base>,
    /// By how much it has changed since then.
    #[schema(value_type = i64)]
    since_base: i128,
    /// What is there without corrections: for a single key it is `value` less `corrected`, and known in no other way. `sums` says
    /// what was counted for all keys, which is known apart from their values.
    #[schema(value_type = i64)]
    counted: i128,
    /// What all corrections together have changed.
    #[schema(value_type = i64)]
    corrected: i128,
    /// The part of it that was restored; the rest was adjusted. Left out while it is 0.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(value_type = i64)]
    restored: i128,
    /// How many corrections have touched it.
    corrections_total: u64,
    /// The newest 100 of them, the newest first.
    corrections: Vec<CorrectionOf>,
    /// None for ad-hoc counters.
    boxes: Option<BoxesOf>,
    /// What was counted and corrected for the declared counter over all of its keys, and what their values add up to. None for
    /// ad-hoc counters, and for those that counted under a version that did not add up.
    sums: Option<SumsOf>,
    /// Late entries that wait for their run.
    parked: Vec<ParkedOf>,
    positions: Positions,
    /// The latest time of an entry of the counter; none where lateness is not declared.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    watermark: Option<String>,
    /// Whether every check holds.
    holds: bool,
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Floor {
    at_zero: bool,
    /// How far the true sum lies below it.
    debt: u64,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Base {
    value: i64,
    #[schema(example = "1-0-4711")]
    position: String,
}

/// What one correction did to the counter.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CorrectionOf {
    generation: u64,
    number: u64,
    /// `proposal`, `late`, `clear` or `revert`.
    #[schema(example = "late")]
    cause: &'static str,
    kind: CorrectionKind,
    reason: String,
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    at: String,
    /// The true sum just before.
    before: i64,
    delta: i64,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct BoxesOf {
    /// Of this key, other than `counted` and only those that are not 0.
    key: BTreeMap<&'static str, i64>,
    /// Of the declared counter, over all of its keys.
    counter: Account,
}

/// Known in two ways: what was counted and corrected is summed when it is decided, the values are added up when you ask.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SumsOf {
    #[schema(value_type = i64)]
    counted: i128,
    #[schema(value_type = i64)]
    corrected: i128,
    /// The part of it that was restored; the rest was adjusted, and no recount may undo it. Left out while it is 0.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(value_type = i64)]
    restored: i128,
    /// Left out, as `values` is, if they were not added up; then `note` says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = i64)]
    values: Option<i128>,
    /// Only with `values=all`: the checkpoint as of which all of this is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1-0-4711")]
    position: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ParkedOf {
    /// The hour in which it happened.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    bucket: String,
    delta: i64,
    entries: u64,
    /// When it will count.
    #[schema(example = "2026-11-15T20:10:00.000Z")]
    due: String,
}

#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Positions {
    /// The oldest record that the log still has.
    #[schema(example = "1-0-0")]
    log_start: String,
    /// Where the base stands.
    checkpoint: Option<String>,
    /// Everything before it is in `value`.
    applied: String,
}

/// Two ways to know the same.
#[derive(Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Check {
    #[schema(example = "received = counted + duplicate + conflict + rejected + ignored + late")]
    what: &'static str,
    #[schema(value_type = i64)]
    left: i128,
    #[schema(value_type = i64)]
    right: i128,
    holds: bool,
}

const AD_HOC: &str = "an ad-hoc counter has no boxes, because no events feed it; what clients added, set or deleted by \
    its name is in `counted`";

const NOT_SUMMED: &str = "the values were not added up and compared, because there are more than 10,000 keys, or a checkpoint is \
    being written: ask with ?values=all, which adds up any number of them";

/// Says where a number comes from
///
/// Base, boxes, corrections, parked entries and positions, all as of one moment, and whether they add up.
#[utoipa::path(get, path = "/v1/counters/{id}/explain", tag = "counters",
    params(("id" = String, Path, description = ID, example = "views:v42"),
        ("values" = Option<String>, Query, description = "`all`: adds up the values of all keys of the counter, however many, as of a checkpoint; without it up to 10,000, as of now", example = "all")),
    responses((status = 200, description = "Where the number comes from", body = Explanation), Problem))]
pub async fn explain(State(api): State<Api>, IdPath(id): IdPath, uri: Uri) -> Result<Json<Explanation>, Problem> {
    let all_values = match Parameters::read(&uri, &["values"])?.text("values") {
        None => false,
        Some("all") => true,
        Some(other) => return Err(refused("values", other, "send all, or leave it out")),
    };
    let target = id::target(&api.counters.declarations(), &api.counters.hasher(), &id)?;
    // Whoever waits for a turn holds nothing.
    let _turn = if all_values { Some(api.walks.acquire().await) } else { None };
    Ok(Json(Explanation::new(&target, api.counters.explain(&target, all_values).await?)))
}

/// What was counted and corrected, and what the values add up to, at one moment.
struct Summed {
    sums: Option<Sums>,
    total: Option<Total>,
    /// `None`: the moment of everything else.
    position: Option<Position>,
}

impl Summed {
    fn of(explained: &Explained) -> Summed {
        match (&explained.standing, &explained.facts) {
            (Some(ValuesStanding { sums, total, position }), _) => {
                Summed { sums: *sums, total: Some(*total), position: Some(*position) }
            }
            (None, CounterFacts { balance, total, .. }) => {
                Summed { sums: balance.as_ref().and_then(|balance| balance.sums), total: *total, position: None }
            }
        }
    }
}

impl Explanation {
    fn new(target: &Target<'_>, explained: Explained) -> Explanation {
        let summed = Summed::of(&explained);
        let Explained { facts, whys, log_start, .. } = explained;
        let value = facts.sum.unwrap_or(0);
        let (base, corrected) = (facts.base.unwrap_or(0), facts.history.delta);
        let pending = facts.parked.iter().map(|(_, entry)| entry.entries).sum();
        let checks = checks(&facts, &summed, &whys);
        let account = facts.balance.as_ref().map(|balance| Account::new(balance.received, &balance.boxes));
        let position = facts.checkpoint.map(|position| position.to_string());
        Explanation {
            value,
            shown: target.shown(value),
            exists: facts.sum.is_some(),
            kind: ReadKind::with_pending(pending),
            pending,
            generation: facts.generation,
            floor: target.floor_at_zero.then(|| Floor { at_zero: true, debt: value.min(0).unsigned_abs() }),
            base: facts.base.zip(position.clone()).map(|(value, position)| Base { value, position }),
            since_base: i128::from(value) - i128::from(base),
            counted: i128::from(value) - corrected,
            corrected,
            restored: facts.history.restored,
            corrections_total: facts.history.steps,
            corrections: facts.history.newest.iter().zip(whys).map(CorrectionOf::new).collect(),
            boxes: account.map(|counter| BoxesOf { key: non_zero(&facts.boxes), counter }),
            sums: summed.sums.map(|sums| SumsOf::new(sums, &summed)),
            parked: facts.parked.iter().map(ParkedOf::new).collect(),
            positions: Positions {
                log_start: log_start.to_string(),
                checkpoint: position,
                applied: facts.applied.to_string(),
            },
            watermark: facts.balance.as_ref().and_then(|balance| balance.watermark_ms).map(rfc3339_signed),
            holds: checks.iter().all(|check| check.holds),
            checks,
            note: target.is_ad_hoc().then_some(AD_HOC),
            id: target.text().into_owned(),
        }
    }
}

fn non_zero(boxes: &Boxes) -> BTreeMap<&'static str, i64> {
    let boxes = BoxKind::ALL.into_iter().map(|kind| (kind.name(), boxes.get(kind)));
    boxes.filter(|(_, entries)| *entries != 0).collect()
}

/// Whatever is known in two ways.
fn checks(facts: &CounterFacts, summed: &Summed, whys: &[Why]) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |what, left: i128, right: i128| checks.push(Check { what, left, right, holds: left == right });
    if let Some(balance) = &facts.balance {
        let boxes = balance.boxes.received();
        let what = "received = counted + duplicate + conflict + rejected + ignored + late";
        check(what, balance.received.into(), boxes.into());
    }
    if let (Some(sums), Some(total)) = (summed.sums, summed.total) {
        check("values of all keys = counted + corrected", total.value, sums.counted + sums.corrected());
    }
    let newest = facts.history.newest.first().map_or(0, |(generation, _)| *generation);
    check("the generation is that of the last correction", facts.generation.into(), newest.into());
    let parked: u64 = facts.parked.iter().map(|(_, entry)| entry.entries).sum();
    check("late = entries that are parked", facts.boxes.late.into(), parked.into());
    let steps = facts.history.newest.iter().map(|(_, step)| i128::from(step.delta));
    let said = whys.iter().map(|why| why.delta);
    check("what corrections did = what they say they do", steps.sum(), said.sum());
    let checkpoint = facts.checkpoint.map_or(0, |position| position.offset);
    let not_passed = checkpoint.min(facts.applied.offset);
    check("the checkpoint is not ahead of what is applied", checkpoint.into(), not_passed.into());
    checks
}

impl CorrectionOf {
    fn new(((generation, step), why): (&(u64, Step), Why)) -> CorrectionOf {
        CorrectionOf {
            generation: *generation,
            number: step.number,
            cause: cause(why.cause),
            kind: CorrectionKind::of(why.purpose),
            reason: why.reason,
            at: rfc3339(step.at_ms),
            before: step.before,
            delta: step.delta,
        }
    }
}

fn is_zero(number: &i128) -> bool {
    *number == 0
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Proposal(_) => "proposal",
        Cause::Late { .. } => "late",
        Cause::Clear => "clear",
        Cause::Revert(_) => "revert",
    }
}

impl SumsOf {
    fn new(sums: Sums, Summed { total, position, .. }: &Summed) -> SumsOf {
        SumsOf {
            counted: sums.counted,
            corrected: sums.corrected(),
            restored: sums.restored,
            keys: total.map(|total| total.keys),
            values: total.map(|total| total.value),
            position: position.map(|position| position.to_string()),
            note: total.is_none().then_some(NOT_SUMMED),
        }
    }
}

impl ParkedOf {
    fn new((bucket_ms, entry): &(u64, ParkedEntry)) -> ParkedOf {
        ParkedOf { bucket: rfc3339(*bucket_ms), delta: entry.delta, entries: entry.entries, due: rfc3339(entry.due_ms) }
    }
}
