//! Roll-ups of a counter: lists of dimensions and buckets, a time zone, and how many values are admitted.

mod retention;

use super::fields::{Fields, short_text};
use crate::counter::ConfigError;
use crate::counter::rollup::{Rollup, Rollups, Unit, Zone};
use crate::counter::yaml::Item;
use crate::limits::ROLLUP_DIMENSIONS_MAX;

/// `None` if they are wrong. `key` are the counter's own dimensions.
pub(super) fn rollups(counter: &Fields<'_>, key: &[(&Item, &str)]) -> Option<Rollups> {
    let source = counter.source;
    let all = source.keep(lists(counter, key));
    let zone = source.keep(zone(counter));
    let limits = source.keep(limits(counter, all.as_deref()));
    let retention = retention::retention(counter, all.as_deref());
    let (all, zone, limits, retention) = (all?, zone?, limits?, retention?);
    Some(Rollups { all: all.into(), zone, limits: limits.into(), retention })
}

fn lists(counter: &Fields<'_>, key: &[(&Item, &str)]) -> Result<Vec<Rollup>, ConfigError> {
    let mut all: Vec<Rollup> = Vec::new();
    for (list, names) in counter.name_lists("rollups")? {
        let rollup = rollup(counter, list, &names, key)?;
        if all.contains(&rollup) {
            let message = format!("the roll-up {rollup} is there twice");
            return Err(counter.source.error(list, message, "remove one"));
        }
        all.push(rollup);
    }
    Ok(all)
}

fn rollup(
    counter: &Fields<'_>,
    list: &Item,
    names: &[(&Item, &str)],
    key: &[(&Item, &str)],
) -> Result<Rollup, ConfigError> {
    let source = counter.source;
    let (mut dimensions, mut unit): (Vec<Box<str>>, Option<Unit>) = (Vec::new(), None);
    for (item, name) in names {
        match (Unit::named(name), unit) {
            (Some(new), None) => unit = Some(new),
            (Some(new), Some(known)) => {
                let (new, known) = (new.name(), known.name());
                let message = format!("a roll-up has one bucket of time, and this one has {known} and {new}");
                return Err(source.error(*item, message, "make two roll-ups of it"));
            }
            (None, _) if key.iter().any(|(_, of_key)| of_key == name) => {
                let message = format!("{name:?} is in the counter's key already, so each key has one value of it");
                return Err(source.error(*item, message, "remove it here"));
            }
            (None, _) => dimensions.push((*name).into()),
        }
    }
    if dimensions.len() > ROLLUP_DIMENSIONS_MAX {
        let message =
            format!("a roll-up has at most {ROLLUP_DIMENSIONS_MAX} dimensions, and this one {}", dimensions.len());
        return Err(source.error(list, message, "make several roll-ups of it"));
    }
    Ok(Rollup { dimensions: dimensions.into(), unit })
}

fn zone(counter: &Fields<'_>) -> Result<Zone, ConfigError> {
    let Some(item) = counter.get("timezone") else { return Ok(Zone::default()) };
    let name = short_text(counter.source, "timezone", item)?;
    Zone::named(name).ok_or_else(|| {
        let message = format!("{name:?} is not a time zone");
        counter.source.error(item, message, "write one of the IANA names, such as Europe/Berlin")
    })
}

fn limits(counter: &Fields<'_>, all: Option<&[Rollup]>) -> Result<Vec<(Box<str>, u64)>, ConfigError> {
    let numbers = counter.numbers("maxCardinality")?;
    for (key, _) in &numbers {
        let name = key.value.as_str();
        let is_rolled = |rollup: &Rollup| rollup.dimensions.iter().any(|dimension| **dimension == *name);
        if all.is_some_and(|all| !all.iter().any(is_rolled)) {
            let message = format!("{name:?} is in no roll-up of this counter, so nothing of it is kept");
            return Err(counter.source.error(*key, message, "remove it, or add it to a roll-up"));
        }
    }
    Ok(numbers.into_iter().map(|(key, most)| (key.value.as_str().into(), most)).collect())
}
