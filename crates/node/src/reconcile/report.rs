//! What a reconciliation found: which keys are not worth what they should be, in which bucket of time, and by how much.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use tally_core::counter::Unit;
use tally_core::ledger::Delta;
use tally_core::limits::{CORRECTION_DELTAS_MAX, RECONCILE_DIFFERENCES_KEPT};
use tally_core::position::Position;

/// The share of a counter from which on somebody should look, and in how many windows of time: hours, and runs.
pub const DRIFT_MAX: f64 = 0.001;
pub const DRIFT_WINDOWS: usize = 3;

#[derive(Clone, Debug)]
pub struct Report {
    /// Where both sides were seen.
    pub position: Position,
    pub at_ms: u64,
    /// Only this time was looked at, where counters tell it apart.
    pub range_ms: Option<Range<u64>>,
    pub counters: Vec<CounterReport>,
    /// The number of the proposal that would put right what differs.
    pub proposal: Option<u64>,
    /// It was applied.
    pub applied: bool,
    /// Why there is no proposal, or why it was not applied, or is not all.
    pub not_corrected: Option<String>,
}

#[derive(Clone, Debug)]
pub struct CounterReport {
    pub counter: String,
    pub compared: Compared,
    /// What was found bucket by bucket, if the counter has a roll-up by time.
    pub by_time: Option<ByTime>,
    /// Keys that were not compared with the others, if there are any.
    pub left_out: Option<KeysLeftOut>,
}

/// Keys of which nobody knows what they should be worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysLeftOut {
    pub keys: u64,
    pub why: String,
}

/// A counter in buckets of time.
#[derive(Clone, Debug)]
pub struct ByTime {
    /// As which buckets are told: no shorter than an hour.
    pub unit: Unit,
    /// From where on they are compared.
    pub from_ms: u64,
    /// The last ones, and those that differ.
    pub hours: Vec<Hour>,
    /// The last one that is over.
    pub last_closed: Hour,
    /// More buckets of keys differ than are told.
    pub has_more: bool,
}

/// What all keys came to in a bucket, as the counters say and as the recount says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hour {
    pub at_ms: u64,
    pub live: i128,
    pub recount: i128,
    /// By how much keys differ, each for itself.
    pub difference: u128,
}

#[derive(Clone, Debug)]
pub enum Compared {
    /// Why not.
    Not(String),
    /// Why not this time.
    Failed(String),
    With {
        keys: u64,
        /// What all keys come to, as the counters say, late entries that wait included.
        live: i128,
        /// And as the recount says.
        recount: i128,
        differing: u64,
        /// By how much keys differ, each for itself.
        difference: u128,
        /// The worst first.
        differences: Vec<Difference>,
        /// There are more of them.
        has_more: bool,
    },
}

/// A key that is not worth what it should be, in a bucket of time or as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub id: String,
    pub bucket_ms: Option<u64>,
    pub live: i64,
    pub recount: i64,
}

impl Difference {
    fn off(&self) -> i128 {
        i128::from(self.live) - i128::from(self.recount)
    }
}

impl Compared {
    /// What differs as a whole, and what differs bucket by bucket. The first is told only where the second does not explain it.
    pub fn new(keys: u64, live: i128, whole: Vec<Difference>, by_bucket: Vec<Difference>, has_more: bool) -> Compared {
        let sum: i128 = whole.iter().map(Difference::off).sum();
        let mut explained = BTreeMap::<&str, i128>::new();
        by_bucket.iter().for_each(|it| *explained.entry(&it.id).or_default() += it.off());
        let is_explained = |it: &Difference| explained.get(&*it.id) == Some(&it.off());
        let whole: Vec<Difference> = whole.iter().filter(|it| !is_explained(it)).cloned().collect();
        Compared::of(keys, live, sum, whole.into_iter().chain(by_bucket).collect(), has_more)
    }

    /// What differs in some buckets alone.
    pub fn within(keys: u64, live: i128, by_bucket: Vec<Difference>, has_more: bool) -> Compared {
        let sum = by_bucket.iter().map(Difference::off).sum();
        Compared::of(keys, live, sum, by_bucket, has_more)
    }

    fn of(keys: u64, live: i128, off: i128, mut differences: Vec<Difference>, has_more: bool) -> Compared {
        differences.sort_by(|a, b| b.off().abs().cmp(&a.off().abs()).then_with(|| a.id.cmp(&b.id)));
        let mut ids: Vec<&str> = differences.iter().map(|it| &*it.id).collect();
        ids.sort_unstable();
        ids.dedup();
        Compared::With {
            keys,
            live,
            recount: live - off,
            differing: ids.len() as u64,
            difference: differences.iter().map(|it| it.off().unsigned_abs()).sum(),
            differences,
            has_more,
        }
    }
}

/// A difference as a share of what was counted again. Where that came to nothing, it is a share of 1, so that it is a number and tells how
/// large it is.
fn share(difference: u128, recount: i128) -> f64 {
    if difference == 0 { 0.0 } else { difference as f64 / recount.unsigned_abs().max(1) as f64 }
}

impl Hour {
    pub fn drift(&self) -> f64 {
        share(self.difference, self.recount)
    }
}

impl ByTime {
    /// How many of those that are over differ by too much.
    fn hours_adrift(&self) -> usize {
        self.hours.iter().filter(|hour| hour.at_ms <= self.last_closed.at_ms && hour.drift() > DRIFT_MAX).count()
    }
}

impl CounterReport {
    pub fn not(counter: &str, why: String) -> CounterReport {
        CounterReport { counter: counter.to_owned(), compared: Compared::Not(why), by_time: None, left_out: None }
    }

    pub fn failed(counter: &str, why: String) -> CounterReport {
        CounterReport { compared: Compared::Failed(why), ..CounterReport::not(counter, String::new()) }
    }

    /// Which share of what was counted again keys differ by.
    pub fn drift(&self) -> f64 {
        match &self.compared {
            Compared::Not(_) | Compared::Failed(_) => 0.0,
            Compared::With { recount, difference, .. } => share(*difference, *recount),
        }
    }

    /// How many keys differ, if they were compared.
    pub fn differing(&self) -> Option<u64> {
        if let Compared::With { differing, .. } = self.compared { Some(differing) } else { None }
    }

    /// How many of its hours differ by too much, if it tells them apart.
    pub fn hours_adrift(&self) -> Option<usize> {
        self.by_time.as_ref().map(ByTime::hours_adrift)
    }

    fn differences(&self) -> &[Difference] {
        match &self.compared {
            Compared::With { differences, .. } => differences,
            Compared::Not(_) | Compared::Failed(_) => &[],
        }
    }

    /// What would bring the keys to what was counted again. What no bucket explains is from before those that are compared, if there is
    /// such a time; nobody knows what that is as long as there are more buckets than these.
    fn deltas(&self) -> Vec<Delta> {
        let has_more_buckets = self.by_time.as_ref().is_some_and(|by| by.has_more);
        let mut explained = BTreeMap::<&str, i128>::new();
        for it in self.differences().iter().filter(|it| it.bucket_ms.is_some()) {
            *explained.entry(&it.id).or_default() += it.off();
        }
        let before = self.by_time.as_ref().and_then(|by| by.from_ms.checked_sub(MINUTE_MS));
        let delta = |it: &Difference| {
            let rest = it.off() - if it.bucket_ms.is_some() { 0 } else { explained.get(&*it.id).copied().unwrap_or(0) };
            let delta = (-rest).clamp((-i64::MAX).into(), i64::MAX.into()) as i64;
            Delta { id: it.id.clone().into_bytes(), bucket_ms: it.bucket_ms.or(before), delta }
        };
        let told = self.differences().iter().filter(|it| it.bucket_ms.is_some() || !has_more_buckets);
        told.map(delta).filter(|delta| delta.delta != 0).collect()
    }
}

const MINUTE_MS: u64 = 60_000;

impl Report {
    pub fn at(position: Position, at_ms: u64) -> Report {
        let (counters, proposal, not_corrected) = (Vec::new(), None, None);
        Report { position, at_ms, range_ms: None, counters, proposal, applied: false, not_corrected }
    }

    /// What would put right what differs, as far as one correction can; and whether that is all of it.
    pub fn deltas(&self) -> (Vec<Delta>, bool) {
        let mut deltas: Vec<Delta> = self.counters.iter().flat_map(CounterReport::deltas).collect();
        let is_told = |it: &CounterReport| !matches!(it.compared, Compared::With { has_more: true, .. });
        let is_all = deltas.len() <= CORRECTION_DELTAS_MAX && self.counters.iter().all(is_told);
        deltas.truncate(CORRECTION_DELTAS_MAX);
        (deltas, is_all)
    }

    /// Whether nothing of what was found is left.
    pub fn is_put_right(&self) -> bool {
        self.applied && self.not_corrected.is_none()
    }

    /// As it is kept.
    pub fn shortened(&self) -> Report {
        let mut report = self.clone();
        for counter in &mut report.counters {
            if let Compared::With { differences, has_more, .. } = &mut counter.compared {
                *has_more |= differences.len() > RECONCILE_DIFFERENCES_KEPT;
                differences.truncate(RECONCILE_DIFFERENCES_KEPT);
                differences.shrink_to_fit();
            }
        }
        report
    }

    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.counters.iter().flat_map(CounterReport::differences)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.counters.iter().map(|counter| &*counter.counter)
    }

    /// Whether nothing was found of a counter that there is something to find of.
    pub fn has_failed(&self, counter: &[u8]) -> bool {
        let is_it = |it: &&CounterReport| it.counter.as_bytes() == counter;
        self.counters.iter().find(is_it).is_some_and(|it| matches!(it.compared, Compared::Failed(_)))
    }

    /// What a webhook is told of a counter that keeps differing.
    pub fn told_of(&self, name: &str) -> Value {
        let of = self.compared(name);
        json!({
            "counter": name,
            "position": self.position.to_string(),
            "drift": of.map(CounterReport::drift),
            "differing": of.and_then(CounterReport::differing),
            "hours": of.and_then(CounterReport::hours_adrift),
            "proposal": self.proposal,
        })
    }

    /// What was found of a counter, if it was compared, and all of it.
    pub fn compared(&self, counter: &str) -> Option<&CounterReport> {
        self.told(counter).filter(|of| matches!(of.compared, Compared::With { .. }))
    }

    /// What is told of a counter, if all of it was looked at: what was found, or that it cannot be compared.
    pub fn told(&self, counter: &str) -> Option<&CounterReport> {
        let of = self.counters.iter().find(|report| report.counter == counter)?;
        (self.range_ms.is_none() && !matches!(of.compared, Compared::Failed(_))).then_some(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(id: &str, bucket_ms: Option<u64>, live: i64, recount: i64) -> Difference {
        Difference { id: id.to_owned(), bucket_ms, live, recount }
    }

    fn report(compared: Compared, from_ms: u64) -> CounterReport {
        let (hours, last_closed) = (Vec::new(), Hour::default());
        let by_time = ByTime { unit: Unit::Hour, from_ms, hours, last_closed, has_more: false };
        CounterReport { counter: "a".to_owned(), compared, by_time: Some(by_time), left_out: None }
    }

    #[test]
    fn what_buckets_explain_is_told_once_and_restored_in_them() {
        let whole = vec![difference("a:1", None, 12, 10), difference("a:2", None, 9, 4)];
        let by_bucket = vec![difference("a:1", Some(60_000), 5, 3), difference("a:2", Some(60_000), 3, 2)];
        let compared = Compared::new(2, 21, whole, by_bucket, false);
        let Compared::With { recount, differing, difference, ref differences, .. } = compared else { panic!() };
        assert_eq!((recount, differing, difference, differences.len()), (14, 2, 8, 3));
        let deltas = report(compared, 3_600_000).deltas();
        let told: Vec<_> = deltas.iter().map(|it| (&*it.id, it.bucket_ms, it.delta)).collect();
        let before = Some(3_540_000);
        assert_eq!(told, [(&b"a:2"[..], before, -4), (b"a:1", Some(60_000), -2), (b"a:2", Some(60_000), -1)]);
    }

    #[test]
    fn what_some_buckets_do_not_explain_is_restored_nowhere_as_long_as_there_are_more_of_them() {
        let whole = vec![difference("a:1", None, 12, 10), difference("a:2", None, 9, 4)];
        let by_bucket = vec![difference("a:1", Some(60_000), 6, 3)];
        let mut counter = report(Compared::new(2, 21, whole, by_bucket, true), 3_600_000);
        counter.by_time.as_mut().unwrap().has_more = true;
        let told: Vec<_> = counter.deltas().iter().map(|it| (it.bucket_ms, it.delta)).collect();
        assert_eq!(told, [(Some(60_000), -3)]);
    }

    #[test]
    fn a_correction_of_a_part_of_what_differs_is_not_all_of_it() {
        let of = |keys: i64, has_more| {
            let whole = (0..keys).map(|n| difference(&format!("a:{n}"), None, 1, 0)).collect();
            let (deltas, is_all) = run(vec![report(Compared::new(9, 9, whole, vec![], has_more), 0)]).deltas();
            (deltas.len(), is_all)
        };
        assert_eq!((of(2, false), of(2, true)), ((2, true), (2, false)));
        let most = CORRECTION_DELTAS_MAX;
        assert_eq!((of(most as i64, false), of(most as i64 + 1, false)), ((most, true), (most, false)));
    }

    fn run(counters: Vec<CounterReport>) -> Report {
        Report { counters, ..Report::at(Position::default(), 0) }
    }

    #[test]
    fn a_report_is_kept_with_its_worst_differences_and_says_that_there_were_more() {
        let whole = |keys: i64| (1..=keys).map(|n| difference(&format!("a:{n}"), None, n, 0)).collect();
        let kept = |keys: i64| {
            let compared = Compared::new(keys as u64, 0, whole(keys), Vec::new(), false);
            let kept = run(vec![report(compared, 0)]).shortened();
            let Compared::With { differing, ref differences, has_more, .. } = kept.counters[0].compared else {
                panic!()
            };
            assert!(differences.capacity() <= RECONCILE_DIFFERENCES_KEPT);
            (differing, differences[0].live, differences.len(), has_more)
        };
        assert_eq!((kept(100), kept(2000)), ((100, 100, 100, false), (2000, 2000, 100, true)));
    }

    #[test]
    fn what_differs_from_a_recount_of_nothing_is_a_share_of_one() {
        let drift = |live, recount| {
            let whole = vec![difference("a:1", None, live, recount)];
            report(Compared::new(1, live.into(), whole, Vec::new(), false), 0).drift()
        };
        assert_eq!([drift(7, 0), drift(0, 0), drift(0, 7), drift(-5, -10)], [7.0, 0.0, 1.0, 0.5]);
        assert_eq!(Hour { live: 3, difference: 3, ..Hour::default() }.drift(), 3.0);
    }

    #[test]
    fn an_entry_in_the_wrong_bucket_differs_twice_though_the_key_is_right() {
        let by_bucket = vec![difference("a:1", Some(0), 0, 1), difference("a:1", Some(60_000), 1, 0)];
        let compared = Compared::new(1, 1, Vec::new(), by_bucket, false);
        let Compared::With { recount, differing, difference, .. } = compared else { panic!() };
        assert_eq!((recount, differing, difference), (1, 1, 2));
        assert_eq!(report(compared, 0).deltas().iter().map(|it| it.delta).sum::<i64>(), 0);
    }
}
