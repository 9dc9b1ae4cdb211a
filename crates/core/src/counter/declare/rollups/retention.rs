//! `retention`: every bucket that a roll-up has is named, and each fits into the one that it is rolled into.

use super::super::fields::Fields;
use crate::counter::ConfigError;
use crate::counter::rollup::{FOREVER, Keep, Retention, Rollup, Unit};

/// `None` if it is wrong. `all` are the roll-ups, if they could be read.
pub(super) fn retention(counter: &Fields<'_>, all: Option<&[Rollup]>) -> Option<Retention> {
    let source = counter.source;
    let before = source.kept();
    let Some(fields) = source.keep(counter.group("retention"))? else { return Some(Retention::default()) };
    let keep = |unit: Unit| Some(Keep { unit, ms: source.keep(fields.keep(unit.name()))?? });
    let retention = Retention::new(Unit::ALL.into_iter().filter_map(keep).collect());
    // Whatever else is wrong follows from what could not be read.
    if source.kept() == before {
        let units = all.map(|all| all.iter().filter_map(|rollup| rollup.unit).collect::<Vec<_>>());
        units.and_then(|units| source.keep(check(&fields, &units, &retention)));
    }
    Some(retention)
}

fn check(fields: &Fields<'_>, units: &[Unit], retention: &Retention) -> Result<(), ConfigError> {
    let source = fields.source;
    if units.is_empty() {
        let message = "no roll-up of this counter has a bucket of time, so there is nothing to roll up";
        return Err(source.error(fields.item, message, "remove it, or add a bucket such as hour to a roll-up"));
    }
    for unit in units {
        if !retention.keeps().iter().any(|keep| keep.unit == *unit) {
            let name = unit.name();
            let message = format!("a roll-up has the bucket {name}, and retention does not say how long it is kept");
            return Err(source.error(fields.item, message, format!("add {name}: {FOREVER}, for example")));
        }
        check_way(fields, retention.way(*unit))?;
    }
    let is_reached = |keep: &Keep| units.iter().any(|unit| retention.way(*unit).contains(keep));
    match retention.keeps().iter().find(|keep| !is_reached(keep)) {
        None => Ok(()),
        Some(Keep { unit, .. }) => {
            let name = unit.name();
            let message = format!("no roll-up has the bucket {name}, and none is rolled into it");
            Err(error_at(fields, *unit, message, "remove it"))
        }
    }
}

/// Each lasts longer than the one before, and is made of whole ones of it.
fn check_way(fields: &Fields<'_>, way: &[Keep]) -> Result<(), ConfigError> {
    for pair in way.windows(2) {
        let [finer, coarser] = [pair[0], pair[1]];
        let (fine, coarse) = (finer.unit.name(), coarser.unit.name());
        if !finer.unit.fits_into(coarser.unit) {
            let message = format!("a {fine} cannot be rolled into a {coarse}: it may lie in two of them");
            let fix = format!("remove {fine} or {coarse}, or keep each {fine} forever");
            return Err(error_at(fields, coarser.unit, message, &fix));
        }
        if coarser.ms.is_some_and(|ms| finer.ms.is_none_or(|finer_ms| ms <= finer_ms)) {
            let message = format!("each {coarse} is kept no longer than the {fine}s that are rolled into it");
            return Err(error_at(fields, coarser.unit, message, &format!("keep it longer, or remove {coarse}")));
        }
    }
    Ok(())
}

fn error_at(fields: &Fields<'_>, unit: Unit, message: String, fix: &str) -> ConfigError {
    match fields.get(unit.name()) {
        Some(item) => fields.source.error(item, message, fix),
        None => fields.source.error(fields.item, message, fix),
    }
}
