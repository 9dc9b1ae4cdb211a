//! Series that no roll-up can answer, from the archive: the same points, and the answer says where they come from.

use tally_core::counter::rollup::{Bands, bucket_ms};
use tally_core::counter::{Declarations, Rollup};
use tally_core::limits::{ROLLUP_DIMENSIONS_MAX, SERIES_POINTS_MAX};
use tally_core::record::put_bytes;
use tally_core::series::Series;
use tally_core::values::KeptRollup;

use super::told::Told;
use super::{Asked, Whose, too_long};
use crate::counters::SeriesFound;
use crate::frontend::http::Api;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::reconcile::{ArchivedParts, ArchivedWanted};

/// Whether something is refused only because it is not kept beside the counter.
pub fn may_have(problem: &Problem) -> bool {
    matches!(problem.kind, ProblemKind::NotRolledUp | ProblemKind::NotKept)
}

/// A series from the archive; `None` if that does not have it either.
pub async fn told<'a>(
    api: &Api,
    declarations: &'a Declarations,
    id: &str,
    asked: &'a Asked,
) -> Result<Option<Told<'a>>, Problem> {
    let (Some(sql), Some(archive)) = (&api.host.sql, &api.host.archive) else { return Ok(None) };
    let Ok(whose) = Whose::read(api, declarations, id) else { return Ok(None) };
    if whose.matching.is_some() || asked.by.len() > ROLLUP_DIMENSIONS_MAX {
        return Ok(None);
    }
    let kept = as_if_kept(&whose, asked);
    let minutes = asked.minutes(&kept, None);
    let mut series = Series::new(&kept, &asked.by(), asked.step, minutes, SERIES_POINTS_MAX).ok_or_else(too_long)?;
    let minutes = series.minutes();
    let wanted = ArchivedWanted {
        counter: whose.counter,
        id: (!whose.of_whole).then_some(&*whose.id),
        by: &asked.by,
        unit: asked.step.map(|step| step.unit),
        zone: &kept.zone,
        ms: bucket_ms(minutes.start)..bucket_ms(minutes.end),
    };
    let Some(ArchivedParts { parts, is_truncated, position, generation }) = wanted.ask(sql).await? else {
        return Ok(None);
    };
    if is_truncated {
        return Err(too_long());
    }
    let mut values = Vec::new();
    for (at_ms, texts, sum) in &parts {
        values.clear();
        texts.iter().for_each(|text| put_bytes(&mut values, text.as_bytes()));
        series.feed((at_ms / 60_000) as u32, [(values.as_slice(), *sum)].into_iter());
    }
    let as_of_ms = archive.status().reached.map_or(0, |reached| reached.log_time_ms);
    let found = SeriesFound { series, keys: 0, parked: 0, generation, as_of_ms, kept: None };
    Ok(Some(Told::archived(whose, kept, asked, found, position)))
}

/// The roll-up that would have answered.
fn as_if_kept(whose: &Whose<'_>, asked: &Asked) -> KeptRollup {
    let dimensions = asked.by.iter().map(|name| name.as_str().into()).collect();
    let rollup = Rollup { dimensions, unit: asked.step.map(|step| step.unit) };
    let zone = whose.counter.rollups.zone.clone();
    KeptRollup { number: 0, rollup, zone, since_ms: None, bands: Bands::default(), stands_in_for: None }
}
