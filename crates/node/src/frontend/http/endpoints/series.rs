//! What a counter came to, step by step of time and by dimensions: from its roll-ups, or else from the archive, or not at all.

mod archived;
pub(super) mod kept;
pub mod many;
mod pattern;
mod told;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use tally_core::available::Available;
use tally_core::counter::rollup::{Minutes, bucket_ms, minute_of};
use tally_core::counter::{Counter, Declarations, Reach, Rollup};
use tally_core::limits::{SERIES_NUMBERS_MAX, SERIES_POINTS_MAX};
use tally_core::nearest::nearest;
use tally_core::series::{Series, Step, choose};
use tally_core::values::KeptRollup;

use crate::counters::{Matching, PartsOf, SeriesFound, SeriesWanted};
use crate::frontend::http::Api;
use crate::frontend::http::words::format::{self, CSV, JSON};
use crate::frontend::http::words::id::{self, ID, IdPath};
use crate::frontend::http::words::moment;
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::pattern::matching;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use told::{csv, json};

/// Points of a series if nobody says where it begins.
const POINTS: u32 = 24;

/// What a counter came to, step by step.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeriesBody<'a> {
    #[schema(example = "views:v42")]
    id: &'a str,
    /// Only for a pattern: how many keys match it and were added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    /// Where the first step begins.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    from: String,
    /// Where the last step ends.
    #[schema(example = "2026-11-16T18:00:00.000Z")]
    to: String,
    /// Left out if there is one point for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1h")]
    step: Option<String>,
    /// The dimensions that each point is split by.
    by: Vec<&'a str>,
    /// Where the numbers come from: `rollup`, or `archive` if no roll-up can answer.
    #[schema(example = "rollup")]
    source: &'static str,
    /// From the archive only: every event before this position was counted, and none behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1-0-4711")]
    archived_to: Option<String>,
    /// From the archive only: the time of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-11-16T17:58:00.000Z")]
    as_of: Option<String>,
    /// The roll-up that has answered; empty for the archive.
    #[schema(example = json!(["country", "hour"]))]
    rollup: Vec<&'a str>,
    #[schema(example = "UTC")]
    timezone: &'a str,
    /// The roll-up was added to a running counter at this time, and knows of nothing before; `null` if it always was there.
    since: Option<String>,
    /// The newest generation.
    generation: u64,
    /// What may still change.
    provisional: Provisional,
    /// One for each step. They are written behind the rest ([`told::Told::json`]).
    #[schema(value_type = Vec<Point>)]
    points: [(); 0],
}

/// What may still change in a series.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Provisional {
    /// The step that time is in; left out if the series ends before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// How many late entries wait for their run.
    parked: u64,
}

/// One step.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "it describes what is written one by one")]
pub struct Point {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    at: String,
    value: i64,
    /// What it is made of, by the values of the dimensions, `|` between them; left out without `by`.
    parts: Option<BTreeMap<String, i64>>,
}

/// Tells what a counter came to, step by step and by dimensions
///
/// Also for a declared name alone: over all its keys; and for a pattern such as `views:v*`: over the keys that match. A roll-up of the counter
/// answers that has the dimensions and a bucket that fits into the step; if there is none, the archive does, where it has the events.
#[utoipa::path(get, path = "/v1/counters/{id}/series", tag = "counters",
    params(("id" = String, Path, description = ID, example = "views:v42"),
        ("from" = Option<String>, Query, description = "RFC 3339, or a duration before now such as `-24h`; 24 steps before `to` if left out"),
        ("to" = Option<String>, Query, description = "The same; now if left out"),
        ("step" = Option<String>, Query, description = "`1m`, `5m`, `1h`, `6h`, `1d`, `1w`, `1mo`; one point for all of it if left out", example = "1h"),
        ("by" = Option<String>, Query, description = "Dimensions to split by, with commas between them", example = "country"),
        ("top" = Option<u64>, Query, description = "Only so many parts, the greatest; the others are `(rest)`"),
        ("fill" = Option<String>, Query, description = "`zero`: also steps in which nothing was counted"),
        ("format" = Option<String>, Query, description = "`json` or `csv`")),
    responses((status = 200, description = "The series", content((SeriesBody = "application/json"), (String = "text/csv"))), Problem))]
pub async fn series(
    State(api): State<Api>,
    IdPath(id): IdPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let declarations = api.counters.declarations();
    let asked = Asked::read(&Parameters::read(&uri, &PARAMETERS)?, &headers, api.host.clock.now_ms())?;
    let told = many::told(&api, &declarations, &[id], &asked).await?;
    match (asked.csv, &*told) {
        (false, [told]) => Ok(json(told.json())),
        _ => Ok(csv(&asked.by, &told, false)),
    }
}

/// What a question says beside the id.
const PARAMETERS: [&str; 7] = ["from", "to", "step", "by", "top", "fill", "format"];

/// Whose series is asked for.
#[derive(Clone)]
struct Whose<'d> {
    id: String,
    counter: &'d Counter,
    of_whole: bool,
    matching: Option<Matching>,
}

impl<'d> Whose<'d> {
    fn read(api: &Api, declarations: &'d Declarations, id: &str) -> Result<Whose<'d>, Problem> {
        if let Some((pattern, counter)) = pattern::read(declarations, id)? {
            let (id, matching) = (pattern.to_string(), Some(matching(&pattern)));
            return Ok(Whose { id, counter, of_whole: false, matching });
        }
        let id = pattern::of_whole(declarations, id).unwrap_or(id);
        let (id, counter, of_whole) = counter_of(declarations, api, id)?;
        Ok(Whose { id, counter, of_whole, matching: None })
    }
}

/// A series that can be added up.
struct Planned<'d> {
    whose: Whose<'d>,
    kept: KeptRollup,
    wanted: SeriesWanted,
}

impl<'d> Planned<'d> {
    fn new(api: &Api, declarations: &'d Declarations, id: &str, asked: &Asked) -> Result<Planned<'d>, Problem> {
        let whose = Whose::read(api, declarations, id)?;
        let unit = asked.step.map(|step| step.unit).or(asked.needs_time());
        let kept = choose(declarations.rollups_of(&whose.counter.name), &asked.by(), unit)
            .map_err(|lacking| not_rolled_up(whose.counter, &lacking))?;
        // At first as if nothing were old: at which log time it is answered is known by the answer.
        Planned::at(api, declarations, whose, asked, kept.clone(), 0)
    }

    /// As the roll-up was kept at a log time.
    fn at(
        api: &Api,
        declarations: &Declarations,
        whose: Whose<'d>,
        asked: &Asked,
        kept: KeptRollup,
        log_time_ms: u64,
    ) -> Result<Planned<'d>, Problem> {
        let minutes = asked.minutes(&kept, kept.available(log_time_ms).as_ref());
        let empty = Series::new(&kept, &asked.by(), asked.step, minutes, SERIES_POINTS_MAX).ok_or_else(too_long)?;
        kept::check(&whose.counter.name, &kept, asked.step, &empty, log_time_ms)?;
        let of = PartsOf {
            cell: api.counters.hasher().key(whose.id.as_bytes()),
            rollup: kept.number,
            deciding: deciding(declarations, whose.counter),
            whole: whose.of_whole.then(|| whose.counter.name.clone()),
            counter: whose.counter.name.clone(),
            coarser: kept.bands.coarser().collect(),
        };
        let wanted = SeriesWanted { of, matching: whose.matching.clone(), empty };
        Ok(Planned { whose, kept, wanted })
    }

    /// Whether it asks for a time at which the roll-up was not there yet.
    fn begins_too_early(&self) -> bool {
        let first = bucket_ms(self.wanted.empty.minutes().start);
        self.kept.since_ms.is_some_and(|since_ms| first < since_ms)
    }

    /// How it has to be asked again, if the roll-up was kept otherwise when it was answered.
    fn again(
        &self,
        api: &Api,
        declarations: &Declarations,
        asked: &Asked,
        found: &SeriesFound,
    ) -> Result<Option<Planned<'d>>, Problem> {
        let Whose { counter, .. } = self.whose;
        let Some(now) = &found.kept else {
            // Another one has taken its place, with what was before it.
            let declarations = api.counters.declarations();
            let mut kept = declarations.rollups_of(&counter.name).iter();
            let by_now = kept.find(|kept| kept.rollup == self.kept.rollup);
            let by_now = by_now.ok_or_else(|| not_rolled_up(counter, &self.kept.rollup))?.clone();
            return Planned::at(api, &declarations, self.whose.clone(), asked, by_now, found.as_of_ms).map(Some);
        };
        let is_whole = kept::check(&counter.name, now, asked.step, &found.series, found.as_of_ms).is_ok();
        if is_whole && self.kept.bands.coarser().eq(now.bands.coarser()) {
            return Ok(None);
        }
        Planned::at(api, declarations, self.whose.clone(), asked, now.clone(), found.as_of_ms).map(Some)
    }
}

/// What an id stands for: its canonical text, its counter, and whether it is the counter as a whole.
fn counter_of<'d>(declarations: &'d Declarations, api: &Api, id: &str) -> Result<(String, &'d Counter, bool), Problem> {
    let (text, whole) = match id::reach(declarations, &api.counters.hasher(), id)? {
        Reach::All(name) => (name.into_owned(), true),
        Reach::One(target) => (target.text().into_owned(), false),
    };
    match declarations.counter_of(text.as_bytes()) {
        Some(counter) => Ok((text, counter, whole)),
        None => {
            let detail = format!(
                "{text} is not declared, so it has no parts; declare a counter with roll-ups, such as [[hour]]"
            );
            Err(Problem::new(ProblemKind::NotRolledUp, detail).with("id", text))
        }
    }
}

/// The roll-ups that decide which values of limited dimensions a key admits.
pub(super) fn deciding(declarations: &Declarations, counter: &Counter) -> Vec<u16> {
    let is_limited = |rollup: &Rollup| match &*rollup.dimensions {
        [only] => rollup.unit.is_none() && counter.rollups.limits.iter().any(|(name, _)| name == only),
        _ => false,
    };
    let all = declarations.rollups_of(&counter.name).iter();
    all.filter(|kept| is_limited(&kept.rollup)).map(|kept| kept.number).collect()
}

/// What a request asks for.
struct Asked {
    from_ms: Option<i64>,
    to_ms: Option<i64>,
    now_ms: u64,
    step: Option<Step>,
    by: Vec<String>,
    top: Option<usize>,
    fill: bool,
    csv: bool,
}

impl Asked {
    fn read(parameters: &Parameters, headers: &HeaderMap, now_ms: u64) -> Result<Asked, Problem> {
        let time = |name: &str| parameters.text(name).map(|text| moment(name, text, now_ms)).transpose();
        let asked = Asked {
            from_ms: time("from")?,
            to_ms: time("to")?,
            now_ms,
            step: parameters.text("step").map(step).transpose()?,
            by: parameters.text("by").map(dimensions).transpose()?.unwrap_or_default(),
            top: parameters.number("top")?.map(|top| usize::try_from(top).unwrap_or(usize::MAX)),
            fill: zero(parameters)?,
            csv: format::chosen(parameters, headers, &[JSON, CSV])? == CSV,
        };
        asked.check(parameters)?;
        Ok(asked)
    }

    /// What has to fit together.
    fn check(&self, parameters: &Parameters) -> Result<(), Problem> {
        let text = |name: &str| parameters.text(name).unwrap_or_default();
        if self.from_ms.zip(self.to_ms).is_some_and(|(from, to)| from >= to) {
            return Err(refused("to", text("to"), "it must be later than from"));
        }
        if self.top.is_some() && self.by.is_empty() {
            return Err(refused("top", text("top"), "it is about parts; say by which dimensions, such as by=country"));
        }
        Ok(())
    }

    fn by(&self) -> Vec<&str> {
        self.by.iter().map(String::as_str).collect()
    }

    /// Without a step a stretch of time still needs some bucket.
    fn needs_time(&self) -> Option<tally_core::counter::Unit> {
        let bounded = self.from_ms.is_some() || self.to_ms.is_some();
        bounded.then_some(tally_core::counter::Unit::Month)
    }

    /// The stretch of time, in whole buckets of the roll-up that answers, as they are there.
    fn minutes(&self, kept: &KeptRollup, available: Option<&Available>) -> Range<Minutes> {
        if self.step.is_none() && self.from_ms.is_none() && self.to_ms.is_none() {
            return 0..Minutes::MAX;
        }
        let last = minute_of(self.to_ms.unwrap_or(self.now_ms as i64).saturating_sub(1));
        let first = self.from_ms.map_or_else(|| self.first(last, kept), minute_of).min(last);
        available.map_or(first..last + 1, |available| available.start(first)..available.end(last))
    }

    /// Where a series begins that ends here and does not say.
    fn first(&self, last: Minutes, kept: &KeptRollup) -> Minutes {
        let Some(step) = self.step else { return 0 };
        (1..POINTS).fold(step.start(last, &kept.zone), |start, _| step.start(start.saturating_sub(1), &kept.zone))
    }
}

/// A time, or a duration before now.
pub(super) fn moment(name: &str, text: &str, now_ms: u64) -> Result<i64, Problem> {
    // In a query a + is a space.
    let plus = if text.contains(' ') { "; write %2B for a +" } else { "" };
    moment::parse(text, now_ms).ok_or_else(|| refused(name, text, &format!("{}{plus}", moment::FIX)))
}

fn dimensions(text: &str) -> Result<Vec<String>, Problem> {
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    let is_once = |(at, name): (usize, &String)| !name.is_empty() && !names[..at].contains(name);
    match names.iter().enumerate().all(is_once) {
        true => Ok(names),
        false => Err(refused("by", text, "send dimensions with commas between them, each once")),
    }
}

fn step(text: &str) -> Result<Step, Problem> {
    let fix = "send 1m, 5m, 15m, 1h, 6h, 1d, 1w or 1mo: minutes that divide an hour, hours that divide a day";
    Step::parse(text).ok_or_else(|| refused("step", text, fix))
}

/// Whether steps without anything are told, too.
fn zero(parameters: &Parameters) -> Result<bool, Problem> {
    match parameters.text("fill") {
        None => Ok(false),
        Some("zero") => Ok(true),
        Some(other) => Err(refused("fill", other, "send zero")),
    }
}

pub(super) fn not_rolled_up(counter: &Counter, lacking: &Rollup) -> Problem {
    let (name, rollup) = (&counter.name, lacking.to_string());
    let meant = meant(counter, lacking).map_or(String::new(), |meant| format!("did you mean {meant}? If not, "));
    let detail = format!("no roll-up of {name} can answer this; {meant}declare {rollup} among the rollups of {name}");
    Problem::new(ProblemKind::NotRolledUp, detail).with("counter", &**name).with("rollup", rollup)
}

/// The dimension of a roll-up that somebody may have misspelt.
fn meant<'c>(counter: &'c Counter, lacking: &Rollup) -> Option<&'c str> {
    let known: Vec<&str> =
        counter.rollups.all.iter().flat_map(|rollup| rollup.dimensions.iter().map(|name| &**name)).collect();
    let unknown = lacking.dimensions.iter().find(|name| !known.contains(&&***name))?;
    nearest(unknown, known)
}

fn too_long() -> Problem {
    let detail = format!(
        "a series has at most {SERIES_POINTS_MAX} points and {SERIES_NUMBERS_MAX} numbers; ask for a shorter time, a longer step or a top"
    );
    Problem::new(ProblemKind::InvalidParameter, detail).with("limit", SERIES_POINTS_MAX)
}
