//! One counter and its recount, side by side: each key as a whole, and in each bucket of time that its roll-ups tell apart.

use super::recount::{LeftOut, Recount, Slices, Start, WIDE_SUM, takes_back};
use super::report::{ByTime, Compared, CounterReport, Difference, Hour, KeysLeftOut};
use super::scene::{Scene, ahead_ms, first_number, numbers, texts, wide_numbers};
use super::{ReconcileError, Reconciler};
use crate::sql::Answer;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Range;
use tally_core::counter::rollup::{Minutes, bucket_ms, minute_of};
use tally_core::counter::{Counter, Unit, Zone};
use tally_core::limits::{RECONCILE_HOURS, RECONCILE_HOURS_MAX};

/// Why a key that was cleared is not compared, if it differs.
const CLEARED_SINCE: &str = "they were cleared, and whether they differ by what the clear took is not known";

/// By how much an event may be ahead of the log, beyond what the node is told to allow.
const AHEAD_MS: u64 = 5 * 60_000;

impl Scene {
    pub fn recount<'a>(&'a self, counter: &'a Counter) -> Recount<'a> {
        let (to, has_clears) = (self.snapshot.position().offset, self.cleared.contains(&*counter.name));
        Recount { counter, eras: &self.eras, archived: &self.eras, from: self.from, to, has_clears }
    }

    /// The buckets in which a counter can be compared, within a range of time if one is given. `None` if it tells no time apart.
    pub fn slices(&self, counter: &Counter, range_ms: Option<&Range<u64>>) -> Option<Slices> {
        let kept = self.declarations.rollups_of(&counter.name).iter().filter(|kept| kept.rollup.unit.is_some());
        let kept = kept.min_by_key(|kept| (kept.rollup.unit, kept.rollup.dimensions.len()))?;
        let unit = kept.rollup.unit?;
        if matches!(self.from, Start::Base(_)) && takes_back(counter) {
            // In which bucket something was counted that is taken back may be known by an event that is gone.
            return None;
        }
        let rollup = kept.rollup.words().collect::<Vec<_>>().join(", ");
        let mut slices = Slices { rollup, unit, zone: kept.zone.clone(), ms: 0..i64::MAX as u64 };
        // What came before these may have counted in a bucket that begins a little later.
        let since_ms = [kept.since_ms, self.base_ms].into_iter().flatten().max();
        let since = since_ms.map_or(0, |ms| minute_of((ms + ahead_ms(&self.eras) + AHEAD_MS) as i64));
        let moved = kept.available(self.now_ms).map_or(0, |available| available.moved_before(unit));
        slices.ms.start = bucket_ms(first_whole(slices.told(), since.max(moved), &slices.zone));
        if let Some(range) = range_ms {
            let wanted = widened(range, slices.told(), &slices.zone);
            slices.ms = slices.ms.start.max(wanted.start)..wanted.end;
        }
        Some(slices)
    }
}

/// A stretch of time in whole buckets.
pub fn widened(range: &Range<u64>, unit: Unit, zone: &Zone) -> Range<u64> {
    let last = unit.bucket(minute_of(range.end.saturating_sub(1) as i64), zone);
    bucket_ms(unit.bucket(minute_of(range.start as i64), zone))..bucket_ms(unit.next(last, zone))
}

/// The first bucket that begins at a minute or behind it.
fn first_whole(unit: Unit, minute: Minutes, zone: &Zone) -> Minutes {
    match unit.bucket(minute, zone) {
        start if start == minute => start,
        start => unit.next(start, zone),
    }
}

impl Reconciler {
    pub(super) async fn compare(
        &self,
        scene: &Scene,
        counter: &Counter,
        range_ms: Option<&Range<u64>>,
    ) -> Result<CounterReport, ReconcileError> {
        if let Some(why) = scene.cannot_compare(counter) {
            return Ok(CounterReport::not(&counter.name, why));
        }
        if let Some(why) = self.counted_by_name(scene, counter).await? {
            return Ok(CounterReport::not(&counter.name, why));
        }
        let name = counter.name.to_string();
        let Some(slices) = scene.slices(counter, range_ms) else {
            let (compared, left_out) = self.compare_whole(scene, counter, Vec::new(), false).await?;
            return Ok(CounterReport { counter: name, compared, by_time: None, left_out });
        };
        if slices.ms.is_empty() {
            return Ok(CounterReport::not(&counter.name, too_early(&slices)));
        }
        let recount = scene.recount(counter);
        let found = self.ask(scene, recount.differences_by(&slices)).await?;
        let by_bucket = sliced(&found);
        let hours = self.ask(scene, recount.live_hours(&slices)).await?;
        let told = HourSums::read(&hours, &by_bucket, &slices);
        let by_time = ByTime { has_more: found.is_truncated, ..told.by_time(&slices, scene.now_ms) };
        let (compared, left_out) = match range_ms {
            Some(_) => (Compared::within(told.keys, told.live, by_bucket, found.is_truncated), None),
            None => self.compare_whole(scene, counter, by_bucket, found.is_truncated).await?,
        };
        Ok(CounterReport { counter: name, compared, by_time: Some(by_time), left_out })
    }

    /// Keys of which it is not known what they should be worth, so many of them because they were cleared.
    async fn keys_left_out(
        &self,
        scene: &Scene,
        counter: &Counter,
        cleared: u64,
    ) -> Result<Option<KeysLeftOut>, ReconcileError> {
        let mut told = vec![(cleared, CLEARED_SINCE)];
        if let Some(LeftOut { why, ids }) = scene.recount(counter).left_out() {
            let counted = self.ask(scene, format!("SELECT count(DISTINCT id) FROM ({ids}) AS left_out")).await?;
            told.push((first_number(&counted) as u64, why));
        }
        told.retain(|(keys, _)| *keys > 0);
        let why = told.iter().map(|(_, why)| *why).collect::<Vec<_>>().join("; or ");
        let keys = told.iter().map(|(keys, _)| keys).sum();
        Ok((keys > 0).then_some(KeysLeftOut { keys, why }))
    }

    async fn compare_whole(
        &self,
        scene: &Scene,
        counter: &Counter,
        by_bucket: Vec<Difference>,
        has_more: bool,
    ) -> Result<(Compared, Option<KeysLeftOut>), ReconcileError> {
        let recount = scene.recount(counter);
        let live = format!("SELECT count(DISTINCT id), {WIDE_SUM} FROM ({}) AS live", recount.live());
        let live = self.ask(scene, live).await?;
        let (keys, sum) = live.rows.first().map_or((0, 0), |row| (numbers(row, 0)[0], wide_numbers(row, 1)[0]));
        let found = self.ask(scene, recount.differences()).await?;
        let told = found.rows.iter().flat_map(|batch| {
            let values = numbers(batch, 1).into_iter().zip(numbers(batch, 2));
            let told = texts(batch, 0).into_iter().zip(values).zip(numbers(batch, 3));
            told.map(|((id, (live, recount)), cleared)| {
                (Difference { id, bucket_ms: None, live, recount }, cleared > 0)
            })
        });
        // A clear takes what a key is worth, with what was wrong in that.
        let (cleared, whole): (Vec<_>, Vec<_>) = told.partition(|(_, was_cleared)| *was_cleared);
        let left_out = self.keys_left_out(scene, counter, cleared.len() as u64).await?;
        let whole = whole.into_iter().map(|(it, _)| it).collect();
        Ok((Compared::new(keys as u64, sum, whole, by_bucket, has_more || found.is_truncated), left_out))
    }
}

fn too_early(slices: &Slices) -> String {
    let from = Timestamp::from_millisecond(slices.ms.start as i64).unwrap_or_default();
    format!("it tells time apart from {from} on; ask for a later time, or for all of it")
}

/// Differences as [`Recount::differences_by`] tells them.
pub fn sliced(found: &Answer) -> Vec<Difference> {
    let rows = found.rows.iter().flat_map(|batch| {
        let values = numbers(batch, 2).into_iter().zip(numbers(batch, 3));
        let told = texts(batch, 0).into_iter().zip(numbers(batch, 1)).zip(values);
        told.map(|((id, bucket), (live, recount))| Difference { id, bucket_ms: Some(bucket as u64), live, recount })
    });
    rows.collect()
}

/// What all keys came to, hour by hour.
struct HourSums {
    keys: u64,
    live: i128,
    hours: BTreeMap<u64, Hour>,
}

impl HourSums {
    /// The recount of an hour is what is live without what differs.
    fn read(answer: &Answer, differences: &[Difference], slices: &Slices) -> HourSums {
        let mut sums = HourSums { keys: 0, live: 0, hours: BTreeMap::new() };
        for batch in &answer.rows {
            for ((at, keys), live) in numbers(batch, 0).into_iter().zip(numbers(batch, 1)).zip(wide_numbers(batch, 2)) {
                match u64::try_from(at) {
                    Ok(at_ms) => _ = sums.hours.insert(at_ms, Hour { at_ms, live, recount: live, difference: 0 }),
                    Err(_) => (sums.keys, sums.live) = (keys as u64, live),
                }
            }
        }
        for Difference { bucket_ms: at, live, recount, .. } in differences {
            let at_ms = slices.told_at(at.unwrap_or(0));
            let hour = sums.hours.entry(at_ms).or_insert(Hour { at_ms, ..Hour::default() });
            hour.recount += i128::from(*recount) - i128::from(*live);
            hour.difference += u128::from(live.abs_diff(*recount));
        }
        sums
    }

    /// The last hours, and those that differ, the last one first.
    fn by_time(&self, slices: &Slices, now_ms: u64) -> ByTime {
        let (unit, zone) = (slices.told(), &slices.zone);
        let running = unit.bucket(minute_of(now_ms as i64), zone);
        let at_ms = bucket_ms(unit.bucket(running.saturating_sub(1), zone));
        let last_closed = self.hours.get(&at_ms).copied().unwrap_or(Hour { at_ms, ..Hour::default() });
        let latest = self.hours.values().rev().enumerate();
        let told = latest.filter(|(at, hour)| *at < RECONCILE_HOURS || hour.difference > 0);
        let hours = told.map(|(_, hour)| *hour).take(RECONCILE_HOURS_MAX).collect();
        ByTime { unit, from_ms: slices.ms.start, hours, last_closed, has_more: false }
    }
}
