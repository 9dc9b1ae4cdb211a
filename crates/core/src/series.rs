//! Series: what the parts of a key came to, step by step of time and by values of dimensions.
//!
//! Which roll-up can answer is decided here, and what its parts add up to; whoever reads them feeds them in, bucket by bucket.

mod known;

use crate::counter::rollup::{Minutes, Rollup, Unit, Zone};
use crate::ledger::parts::block::{BlockParts, values_of};
use crate::record::{DecodeError, take_bytes};
use crate::values::KeptRollup;
use known::KnownParts;
use std::fmt;
use std::ops::Range;

pub use known::Part;

/// A stretch of time that a point stands for: so many minutes or hours, or one of a longer unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub unit: Unit,
    pub times: u32,
}

const WRITTEN: [(&str, Unit); 5] =
    [("mo", Unit::Month), ("m", Unit::Minute), ("h", Unit::Hour), ("d", Unit::Day), ("w", Unit::Week)];

impl Step {
    /// Reads `5m`, `1h`, `1d`, `1w` or `1mo`. Several minutes divide the hour, and several hours the day.
    pub fn parse(text: &str) -> Option<Step> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (times, unit) = text.split_at(digits);
        let (_, unit) = WRITTEN.into_iter().find(|(written, _)| *written == unit)?;
        let times: u32 = times.parse().ok()?;
        let most = match unit {
            Unit::Minute => 60,
            Unit::Hour => 24,
            Unit::Day | Unit::Week | Unit::Month => 1,
        };
        (times > 0 && most % times == 0).then_some(Step { unit, times })
    }

    /// The first minute of the step that a minute lies in.
    pub fn start(self, minute: Minutes, zone: &Zone) -> Minutes {
        let (around, length) = match self.unit {
            _ if self.times == 1 => return self.unit.bucket(minute, zone),
            Unit::Minute => (Unit::Hour, self.times),
            _ => (Unit::Day, 60 * self.times),
        };
        let begun = around.bucket(minute, zone);
        begun + (minute - begun) / length * length
    }

    /// The step behind the one that begins here.
    pub fn next(self, start: Minutes, zone: &Zone) -> Minutes {
        if self.times == 1 {
            return self.unit.next(start, zone);
        }
        let length = if self.unit == Unit::Minute { self.times } else { 60 * self.times };
        // A day may be an hour shorter than its clock says.
        self.start(start.saturating_add(length), zone).max(start + 1)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = WRITTEN.iter().find(|(_, unit)| *unit == self.unit).map_or("", |(written, _)| written);
        write!(f, "{}{written}", self.times)
    }
}

/// The roll-up that answers a question about some dimensions at some step, or what would have to be declared. Of several the one with
/// the fewest dimensions does, and of those the one with the longest bucket.
pub fn choose<'k>(kept: &'k [KeptRollup], by: &[&str], unit: Option<Unit>) -> Result<&'k KeptRollup, Rollup> {
    let has = |rollup: &Rollup, name: &str| rollup.dimensions.iter().any(|dimension| **dimension == *name);
    let fits = |rollup: &Rollup| match (rollup.unit, unit) {
        (_, None) => true,
        (Some(bucket), Some(unit)) => bucket.fits_into(unit),
        (None, Some(_)) => false,
    };
    let able = kept.iter().filter(|kept| fits(&kept.rollup) && by.iter().all(|name| has(&kept.rollup, name)));
    let cost = |kept: &&KeptRollup| (kept.rollup.dimensions.len(), kept.rollup.unit.map(|unit| u8::MAX - unit as u8));
    // Whoever asks for neither a dimension nor a step needs any roll-up at all.
    let unit = unit.or(by.is_empty().then_some(Unit::Hour));
    able.min_by_key(cost).ok_or_else(|| Rollup { dimensions: by.iter().map(|name| (*name).into()).collect(), unit })
}

/// What parts come to, step by step.
#[derive(Clone, Debug)]
pub struct Series {
    /// Where each step begins, and where the last one ends.
    bounds: Vec<Minutes>,
    /// Which dimensions of the roll-up are asked for, in the order of the question.
    by: Box<[usize]>,
    /// They are all of the roll-up's, in its own order.
    by_all: bool,
    /// Their values, each combination once.
    parts: KnownParts,
    /// What each part comes to, step by step; those that a step has not seen yet may be missing at its end.
    sums: Vec<Vec<i64>>,
    values: Vec<u8>,
}

/// The parts of a series in the order in which they are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranking {
    /// The greatest first.
    pub shown: Vec<Part>,
    /// What all others come to, step by step, if there are any.
    pub rest: Option<Vec<i64>>,
}

impl Series {
    /// One point for each step that touches a stretch of time. `None` if there would be more than `most`.
    pub fn new(
        kept: &KeptRollup,
        by: &[&str],
        step: Option<Step>,
        minutes: Range<Minutes>,
        most: usize,
    ) -> Option<Series> {
        let bounds = match step {
            None => vec![minutes.start, minutes.end],
            Some(step) => bounds(step, &kept.zone, &minutes, most)?,
        };
        let at = |name: &&str| kept.rollup.dimensions.iter().position(|known| **known == **name).unwrap_or(0);
        let by: Box<[usize]> = by.iter().map(at).collect();
        Some(Series {
            sums: vec![Vec::new(); bounds.len() - 1],
            bounds,
            by_all: by.iter().copied().eq(0..kept.rollup.dimensions.len()),
            by,
            parts: KnownParts::default(),
            values: Vec::new(),
        })
    }

    /// The minutes whose buckets belong to it.
    pub fn minutes(&self) -> Range<Minutes> {
        self.bounds[0]..self.bounds[self.bounds.len() - 1]
    }

    /// Takes in a row of the store.
    pub fn feed_row(&mut self, bucket: Minutes, row: &[u8]) -> Result<(), DecodeError> {
        let Some(step) = self.step_of(bucket) else { return Ok(()) };
        let mut parts = BlockParts::of(row)?;
        let is_known = self.by_all && usize::from(parts.width) == self.by.len();
        let mut before = None;
        loop {
            let expected = if is_known { self.parts.expected(before, parts.rest()) } else { None };
            let (part, sum) = match expected {
                Some((part, bytes)) => (part, parts.take_sum_behind(bytes)?),
                None => match parts.take()? {
                    Some((values, sum)) => {
                        (self.with_projected(values, |parts, values| parts.behind(before, values)), sum)
                    }
                    None => return Ok(()),
                },
            };
            self.add_to(step, part, sum);
            before = Some(part);
        }
    }

    /// Takes in the parts of a bucket.
    pub fn feed<'a>(&mut self, bucket: Minutes, parts: impl Iterator<Item = (&'a [u8], i64)>) {
        let Some(step) = self.step_of(bucket) else { return };
        for (values, sum) in parts {
            let part = self.known_as(values);
            self.add_to(step, part, sum);
        }
    }

    /// Under which number a part is known, for [`Series::feed_known`].
    pub fn known_as(&mut self, values: &[u8]) -> Part {
        self.with_projected(values, KnownParts::number)
    }

    /// Takes in one part of a bucket.
    #[inline]
    pub fn feed_known(&mut self, bucket: Minutes, part: Part, sum: i64) {
        if let Some(step) = self.step_of(bucket) {
            self.add_to(step, part, sum);
        }
    }

    #[inline]
    fn step_of(&self, bucket: Minutes) -> Option<usize> {
        let minutes = self.minutes();
        if !minutes.contains(&bucket) {
            return None;
        }
        // Most steps are as long as the others.
        let (passed, all) = (u64::from(bucket - minutes.start), u64::from(minutes.end - minutes.start));
        let guess = (passed * self.sums.len() as u64 / all) as usize;
        let is_it = (self.bounds[guess]..self.bounds[guess + 1]).contains(&bucket);
        Some(if is_it { guess } else { self.bounds.partition_point(|start| *start <= bucket) - 1 })
    }

    #[inline]
    fn add_to(&mut self, step: usize, part: Part, sum: i64) {
        let (sums, at) = (&mut self.sums[step], part as usize);
        if at >= sums.len() {
            sums.resize(self.parts.len(), 0);
        }
        sums[at] = sums[at].saturating_add(sum);
    }

    /// Does something with the values that are asked for.
    fn with_projected<T>(&mut self, values: &[u8], call: impl FnOnce(&mut KnownParts, &[u8]) -> T) -> T {
        if self.by_all {
            return call(&mut self.parts, values);
        }
        let Series { by, parts, values: wanted, .. } = self;
        wanted.clear();
        let mut texts = [&b""[..]; crate::limits::ROLLUP_DIMENSIONS_MAX];
        let mut rest = values;
        for text in &mut texts {
            let begun = rest;
            let Ok(_) = take_bytes(&mut rest) else { break };
            *text = &begun[..begun.len() - rest.len()];
        }
        by.iter().for_each(|at| wanted.extend_from_slice(texts[*at]));
        call(parts, wanted)
    }

    /// The steps: where each begins.
    pub fn steps(&self) -> &[Minutes] {
        &self.bounds[..self.bounds.len() - 1]
    }

    /// The values of a part, in the order of the question.
    pub fn values(&self, part: Part) -> impl Iterator<Item = &[u8]> {
        values_of(self.parts.values(part))
    }

    /// What parts come to in a step, by their numbers; nothing where there is none.
    pub fn sums(&self, step: usize) -> &[i64] {
        &self.sums[step]
    }

    /// What a part comes to, step by step.
    pub fn sums_of(&self, part: Part) -> impl Iterator<Item = i64> {
        self.sums.iter().map(move |sums| sums.get(part as usize).copied().unwrap_or(0))
    }

    /// The parts, the greatest first, and those that come to the same in the order of their values; beyond `top` of them the rest is one.
    pub fn ranked(&self, top: Option<usize>) -> Ranking {
        let mut totals = vec![0i128; self.parts.len()];
        for sums in &self.sums {
            totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += i128::from(*sum));
        }
        let mut order: Vec<Part> = self.parts.all().collect();
        let total = |part: &Part| totals[*part as usize];
        order.sort_unstable_by(|a, b| total(b).cmp(&total(a)).then_with(|| self.parts.compare(*a, *b)));
        let others = order.split_off(top.unwrap_or(order.len()).min(order.len()));
        let rest = (!others.is_empty()).then(|| self.added_up(&others));
        Ranking { shown: order, rest }
    }

    /// What the part of one value comes to in all steps; all of it, if nothing was split.
    pub fn sum_of(&self, value: &[u8]) -> i64 {
        let is_it = |part: &Part| self.by.is_empty() || self.values(*part).eq([value]);
        let parts = self.parts.all().filter(is_it);
        parts.flat_map(|part| self.sums_of(part)).fold(0i64, i64::saturating_add)
    }

    /// How many numbers it has: parts times steps.
    pub fn numbers(&self) -> usize {
        self.parts.len() * (self.bounds.len() - 1)
    }

    /// What all parts come to, step by step.
    pub fn totals(&self) -> Vec<i64> {
        self.sums.iter().map(|sums| sums.iter().copied().fold(0i64, i64::saturating_add)).collect()
    }

    fn added_up(&self, parts: &[Part]) -> Vec<i64> {
        let of = |sums: &Vec<i64>| {
            let sums = parts.iter().map(|part| sums.get(*part as usize).copied().unwrap_or(0));
            sums.fold(0i64, i64::saturating_add)
        };
        self.sums.iter().map(of).collect()
    }
}

fn bounds(step: Step, zone: &Zone, minutes: &Range<Minutes>, most: usize) -> Option<Vec<Minutes>> {
    let mut bounds = vec![step.start(minutes.start, zone)];
    loop {
        let next = step.next(*bounds.last()?, zone);
        bounds.push(next);
        if next >= minutes.end {
            return Some(bounds);
        }
        if bounds.len() > most {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::rollup::minute_of;
    use crate::record::put_bytes;

    fn values(texts: &[&str]) -> Vec<u8> {
        let mut values = Vec::new();
        texts.iter().for_each(|text| put_bytes(&mut values, text.as_bytes()));
        values
    }

    fn kept(words: &[&str], zone: &str) -> KeptRollup {
        let unit = words.last().and_then(|word| Unit::named(word));
        let dimensions = words.iter().filter(|word| Unit::named(word).is_none()).map(|word| (*word).into()).collect();
        let (rollup, zone) = (Rollup { dimensions, unit }, Zone::named(zone).unwrap());
        KeptRollup { number: 0, rollup, zone, since_ms: None, bands: Default::default(), stands_in_for: None }
    }

    #[test]
    fn a_step_is_written_as_it_is_read() {
        for text in ["1m", "5m", "30m", "1h", "6h", "1d", "1w", "1mo"] {
            assert_eq!(Step::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "m", "0m", "7m", "5h", "2d", "2w", "2mo", "1y", "1H", "-1h", "1.5h"] {
            assert_eq!(Step::parse(text), None, "{text}");
        }
    }

    #[test]
    fn steps_follow_each_other_where_clocks_are_put_back() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let minute = |text: &str| minute_of(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        let day = minute("2026-10-24T22:00:00Z")..minute("2026-10-25T23:00:00Z");
        let of = |step| bounds(Step::parse(step).unwrap(), &zone, &day, 1000).unwrap();
        assert_eq!(of("1d"), [day.start, day.end], "it has 25 hours");
        assert_eq!(of("1h").len() - 1, 25);
        for step in ["1h", "6h", "30m", "5m"] {
            let bounds = of(step);
            assert!(bounds.is_sorted_by(|a, b| a < b) && bounds[0] == day.start, "{step}");
        }
    }

    #[test]
    fn the_smallest_roll_up_that_can_answer_does() {
        let all =
            [&["country"][..], &["country", "device", "hour"], &["country", "hour"], &["day"], &["country", "day"]];
        let all: Vec<_> = all.iter().map(|words| kept(words, "UTC")).collect();
        let chosen = |by: &[&str], unit| choose(&all, by, unit).map(|kept| kept.rollup.to_string());
        assert_eq!(chosen(&["country"], None).unwrap(), "[country]");
        assert_eq!(chosen(&["country"], Some(Unit::Hour)).unwrap(), "[country, hour]");
        assert_eq!(chosen(&["country"], Some(Unit::Day)).unwrap(), "[country, day]");
        assert_eq!(chosen(&["device"], Some(Unit::Day)).unwrap(), "[country, device, hour]");
        assert_eq!(chosen(&[], Some(Unit::Hour)).unwrap(), "[country, hour]");
        assert_eq!(chosen(&[], Some(Unit::Month)).unwrap(), "[day]");
        assert_eq!(chosen(&["city"], Some(Unit::Hour)).unwrap_err().to_string(), "[city, hour]");
        assert_eq!(chosen(&[], Some(Unit::Minute)).unwrap_err().to_string(), "[minute]");
    }

    #[test]
    fn parts_are_added_up_by_what_is_asked_for() {
        let kept = kept(&["country", "device", "hour"], "UTC");
        let mut series = Series::new(&kept, &["device"], Step::parse("2h"), 0..240, 10).unwrap();
        for (bucket, country, device, sum) in
            [(0, "DE", "tv", 1), (0, "US", "tv", 2), (60, "DE", "web", 4), (120, "DE", "tv", 8), (240, "DE", "tv", 16)]
        {
            series.feed(bucket, [(values(&[country, device]).as_slice(), sum)].into_iter());
        }
        assert_eq!(series.steps(), [0, 120]);
        assert_eq!(series.totals(), [7, 8]);
        let told = |part: &Part| (series.values(*part).collect::<Vec<_>>(), series.sums_of(*part).collect::<Vec<_>>());
        let (all, one) = (series.ranked(None), series.ranked(Some(1)));
        let tv = (vec![&b"tv"[..]], vec![3, 8]);
        let web = (vec![&b"web"[..]], vec![4, 0]);
        assert_eq!((all.shown.iter().map(told).collect::<Vec<_>>(), all.rest), (vec![tv.clone(), web], None));
        assert_eq!((one.shown.iter().map(told).collect::<Vec<_>>(), one.rest), (vec![tv], Some(vec![4, 0])));
    }

    #[test]
    fn a_bucket_is_in_its_own_step_however_long_steps_are() {
        let minute = |text: &str| minute_of(text.parse::<jiff::Timestamp>().unwrap().as_millisecond());
        let year = minute("2026-01-01T00:00:00Z")..minute("2027-01-01T00:00:00Z");
        let mut series = Series::new(&kept(&["day"], "UTC"), &[], Step::parse("1mo"), year.clone(), 12).unwrap();
        year.step_by(24 * 60).for_each(|day| series.feed(day, [(&b""[..], 1)].into_iter()));
        assert_eq!(series.totals(), [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
    }

    #[test]
    fn too_many_steps_are_none() {
        let kept = kept(&["minute"], "UTC");
        assert!(Series::new(&kept, &[], Step::parse("1m"), 0..1000, 999).is_none());
        assert!(Series::new(&kept, &[], Step::parse("1m"), 0..1000, 1000).is_some());
    }
}
