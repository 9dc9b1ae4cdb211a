//! The parts of a counter as the server tells them, held against its value and against the model.

use super::counters::{Counter, Dimension, Rollup, Unit};
use super::event::{COUNTRIES, DEVICES, FIRST_MS, Place, SLOT_MS, SLOTS};
use super::lane::Lane;
use crate::client::HttpClient;
use anyhow::{Context, Result, ensure};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const CORRECTION: &str = "(correction)";
const OTHER: &str = "other";
/// When everything is that was dated by the run itself: the model does not know of each the hour.
const OF_THE_RUN: Timestamp = Timestamp::MAX;

/// Parts by the beginning of their bucket and by their values. Those that are 0 are left out.
type Parts = BTreeMap<(Option<Timestamp>, Vec<String>), i64>;

#[derive(Deserialize)]
struct Series {
    rollup: Vec<String>,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    at: String,
    value: i64,
    parts: Option<BTreeMap<String, i64>>,
}

pub struct Verifier<'a> {
    pub client: HttpClient,
    pub lanes: &'a [Lane],
    /// When the run began.
    pub since: Timestamp,
}

impl Verifier<'_> {
    /// What the model says a key, or a counter as a whole, is.
    pub fn value(&self, counter: Counter, video: Option<usize>) -> i64 {
        self.lanes.iter().map(|lane| value_of(lane, counter, video)).sum()
    }

    /// Holds every roll-up of a key, or of a counter as a whole, against its value and the model; answers how many parts there are.
    pub fn verify(&mut self, counter: Counter, video: Option<usize>) -> Result<usize> {
        let mut parts = 0;
        for rollup in counter.rollups() {
            let id = counter.id(video);
            parts += self.verify_rollup(counter, video, *rollup).with_context(|| format!("{rollup:?} of {id}"))?;
        }
        Ok(parts)
    }

    fn verify_rollup(&mut self, counter: Counter, video: Option<usize>, rollup: Rollup) -> Result<usize> {
        let found = self.read(&counter.id(video), rollup)?;
        let value = self.value(counter, video);
        let sum: i64 = found.values().sum();
        ensure!(sum == value, "the parts come to {sum}, and the counter must be {value}");
        let admitted = admitted(counter, rollup, &found)?;
        let expected = self.expected(counter, video, rollup, admitted.as_ref());
        let differs = found.keys().chain(expected.keys()).find(|part| found.get(part) != expected.get(part));
        if let Some(part) = differs {
            anyhow::bail!("{part:?} is {:?} and must be {:?}", found.get(part), expected.get(part));
        }
        Ok(found.len())
    }

    fn expected(
        &self,
        counter: Counter,
        video: Option<usize>,
        rollup: Rollup,
        admitted: Option<&BTreeSet<String>>,
    ) -> Parts {
        let zone = TimeZone::get(counter.zone()).expect("the time zones are built in");
        let mut parts = Parts::new();
        for lane in self.lanes {
            for (place, sum) in lane.model.places(counter, video) {
                let values = rollup.0.iter().map(|dimension| value_at(*dimension, place, admitted)).collect();
                let at = rollup.1.map(|unit| bucket(slot_start(place.slot), unit, &zone));
                *parts.entry((at, values)).or_default() += sum;
            }
            for (when, sum) in lane.corrector.corrected(counter, video) {
                let values = rollup.0.iter().map(|_| CORRECTION.to_owned()).collect();
                let at = |unit| when.map_or(OF_THE_RUN, |slot| bucket(slot_start(slot), unit, &zone));
                *parts.entry((rollup.1.map(at), values)).or_default() += sum;
            }
        }
        parts.retain(|_, sum| *sum != 0);
        parts
    }

    fn read(&mut self, id: &str, rollup: Rollup) -> Result<Parts> {
        let (dimensions, unit) = rollup;
        let by: Vec<&str> = dimensions.iter().map(|dimension| dimension.name()).collect();
        let mut path = format!("/v1/counters/{id}/series?");
        if !by.is_empty() {
            path += &format!("by={}&", by.join(","));
        }
        let mut parts = Parts::new();
        let Some(unit) = unit else {
            self.read_stretch(&path, rollup, &mut parts, |_| None)?;
            return Ok(parts);
        };
        let first = Timestamp::from_millisecond(FIRST_MS)?;
        let last = first + SignedDuration::from_millis(SLOTS as i64 * SLOT_MS);
        let step = unit.step();
        let stretch = |from: Timestamp, to: Timestamp| format!("{path}step={step}&from={from}&to={to}");
        self.read_stretch(&stretch(first, last), rollup, &mut parts, Some)?;
        let now = Timestamp::now();
        let of_the_run = stretch(self.since - 1.hour(), now + 1.hour());
        self.read_stretch(&of_the_run, rollup, &mut parts, |_| Some(OF_THE_RUN))?;
        parts.retain(|_, sum| *sum != 0);
        Ok(parts)
    }

    fn read_stretch(
        &mut self,
        path: &str,
        rollup: Rollup,
        parts: &mut Parts,
        at: impl Fn(Timestamp) -> Option<Timestamp>,
    ) -> Result<()> {
        let text = self.client.get(path)?;
        let series: Series = serde_json::from_str(&text).with_context(|| format!("{path} was answered {text}"))?;
        let (dimensions, unit) = rollup;
        let words = dimensions.iter().map(|dimension| dimension.name()).chain(unit.map(Unit::name));
        ensure!(series.rollup.iter().map(String::as_str).eq(words), "{:?} has answered {path}", series.rollup);
        for point in series.points {
            let at = at(point.at.parse()?);
            let split = point.parts.unwrap_or_else(|| [(String::new(), point.value)].into());
            let sum: i64 = split.values().sum();
            ensure!(sum == point.value, "the parts at {} come to {sum}, and the point is {}", point.at, point.value);
            for (name, sum) in split {
                let values = if name.is_empty() { Vec::new() } else { name.split('|').map(str::to_owned).collect() };
                *parts.entry((at, values)).or_default() += sum;
            }
        }
        Ok(())
    }
}

fn value_of(lane: &Lane, counter: Counter, video: Option<usize>) -> i64 {
    let counted: i64 = lane.model.places(counter, video).map(|(_, sum)| sum).sum();
    counted + lane.corrector.corrected(counter, video).map(|(_, sum)| sum).sum::<i64>()
}

/// The devices that have parts, if only so many may: which of them, the order of all lanes decided.
fn admitted(counter: Counter, rollup: Rollup, found: &Parts) -> Result<Option<BTreeSet<String>>> {
    let at = rollup.0.iter().position(|dimension| *dimension == Dimension::Device);
    let (Some(max), Some(at)) = (counter.devices_max(), at) else { return Ok(None) };
    let named = found.keys().map(|(_, values)| &values[at]);
    let named: BTreeSet<String> =
        named.filter(|name| ![OTHER, CORRECTION, "(none)"].contains(&name.as_str())).cloned().collect();
    ensure!(named.len() <= max, "{max} devices may have parts, and {named:?} have");
    Ok(Some(named))
}

fn value_at(dimension: Dimension, place: Place, admitted: Option<&BTreeSet<String>>) -> String {
    let name = match dimension {
        Dimension::Country => return COUNTRIES[place.country].to_owned(),
        Dimension::Device => DEVICES[place.device],
    };
    let has_part = name == "(none)" || admitted.is_none_or(|admitted| admitted.contains(name));
    (if has_part { name } else { OTHER }).to_owned()
}

fn slot_start(slot: usize) -> Timestamp {
    Timestamp::from_millisecond(FIRST_MS + slot as i64 * SLOT_MS).expect("a time of this century is one")
}

/// The beginning of the bucket that a time lies in, by the clocks of a zone.
fn bucket(at: Timestamp, unit: Unit, zone: &TimeZone) -> Timestamp {
    let local = at.to_zoned(zone.clone());
    let start = match unit {
        // An hour that is struck twice is two hours.
        Unit::Hour => {
            return at
                - SignedDuration::from_mins(local.minute().into())
                - SignedDuration::from_secs(local.second().into());
        }
        Unit::Day => local.start_of_day(),
        Unit::Week => {
            let days = local.weekday().to_monday_zero_offset();
            local.checked_sub(i64::from(days).days()).and_then(|monday| monday.start_of_day())
        }
    };
    start.expect("a time of this century has a day").timestamp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(at: &str, unit: Unit, zone: &str) -> String {
        bucket(at.parse().unwrap(), unit, &TimeZone::get(zone).unwrap()).to_string()
    }

    #[test]
    fn buckets_begin_by_the_clocks_of_their_zone() {
        assert_eq!(begins("2025-10-25T18:45:00Z", Unit::Hour, "Asia/Kolkata"), "2025-10-25T18:30:00Z");
        assert_eq!(begins("2025-10-25T18:15:00Z", Unit::Day, "Asia/Kathmandu"), "2025-10-25T18:15:00Z");
        assert_eq!(begins("2025-10-26T01:15:00Z", Unit::Hour, "Europe/Berlin"), "2025-10-26T01:00:00Z");
        assert_eq!(begins("2025-10-26T22:59:00Z", Unit::Day, "Europe/Berlin"), "2025-10-25T22:00:00Z", "25 hours");
        assert_eq!(begins("2025-10-26T22:59:00Z", Unit::Week, "UTC"), "2025-10-20T00:00:00Z");
    }
}
