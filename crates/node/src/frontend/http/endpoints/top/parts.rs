//! Tops of an hour or a day, and by the values of a dimension: from the parts of the keys that may be among them.

use std::sync::Arc;
use tally_core::counter::rollup::{Minutes, Unit, bucket_ms, minute_of};
use tally_core::counter::{Counter, Declarations};
use tally_core::ledger::boards::ALL_TIME;
use tally_core::ledger::{BoardLine, OTHER};
use tally_core::limits::{SERIES_KEYS_MAX, TOP_KEYS_BESIDE, TOP_VALUES_MAX};
use tally_core::series::Series;
use tally_core::values::{KeptRollup, Sample, choose_board};

use super::super::series::{deciding, kept, not_rolled_up};
use super::{Top, TopGroup, TopKey, Window};
use crate::counters::{PartsOf, TopFound, TopWanted};
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{ReadKind, rfc3339};
use crate::frontend::http::words::problem::Problem;

/// Hours of a day, the running one included.
const HOURS: usize = 24;
const HOUR_MS: u64 = 3_600_000;

pub(super) struct Asked<'a> {
    pub counter: &'a Counter,
    pub k: u64,
    pub window: Window,
    pub by: Option<&'a str>,
}

pub(super) async fn top(api: &Api, asked: Asked<'_>) -> Result<Top, Problem> {
    loop {
        let declarations = api.counters.declarations();
        let kept = asked.kept(&declarations)?;
        let top = asked.top(api, &declarations, kept).await?;
        // One that has taken its place meanwhile had everything, and this one nothing new.
        if asked.kept(&api.counters.declarations())?.number == kept.number {
            return Ok(top);
        }
    }
}

impl Asked<'_> {
    fn kept<'d>(&self, declarations: &'d Declarations) -> Result<&'d KeptRollup, Problem> {
        choose_board(declarations.rollups_of(&self.counter.name), self.by, self.window != Window::All)
            .map_err(|lacking| not_rolled_up(self.counter, &lacking))
    }

    async fn top(&self, api: &Api, declarations: &Declarations, kept: &KeptRollup) -> Result<Top, Problem> {
        let Asked { counter, k, window, by } = *self;
        let now_ms = api.host.clock.now_ms();
        let hours = hours(window, kept, now_ms);
        let wanted = self.wanted(api, declarations, kept, &hours);
        if window != Window::All {
            // As of a while ahead: what is moved until the answer is there is in no window that is answered.
            kept::check_window(&counter.name, kept, &wanted.empty, now_ms + HOUR_MS)?;
        }
        let found = api.counters.top(wanted).await?;
        let ranking = Ranking { found, k: k as usize };
        let groups = by.map(|_| ranking.groups());
        let whole = by.is_none().then(|| ranking.group(""));
        let groups_are_exact = groups.iter().flatten().all(|group| group.kind != ReadKind::Estimate);
        let is_exact = groups_are_exact && whole.as_ref().is_none_or(|group| group.kind != ReadKind::Estimate);
        Ok(Top {
            counter: counter.name.to_string(),
            window: window.name(),
            k,
            from: (window != Window::All).then(|| rfc3339(bucket_ms(hours[hours.len() - 1]))),
            by: by.map(str::to_owned),
            rollup: Some(kept.rollup.words().map(str::to_owned).collect()),
            since: kept.since_ms.map(rfc3339),
            total: Some(ranking.found.whole.totals().first().copied().unwrap_or(0)),
            kind: if is_exact { ReadKind::with_pending(ranking.found.parked) } else { ReadKind::Estimate },
            bound: whole.as_ref().and_then(|group| group.bound),
            top: whole.map(|group| group.top),
            groups,
            as_of: rfc3339(now_ms),
            generation: ranking.found.generation,
        })
    }
}

/// The hours of a window, the running one first.
fn hours(window: Window, kept: &KeptRollup, now_ms: u64) -> Vec<Minutes> {
    let running = Unit::Hour.bucket(minute_of(now_ms as i64), &kept.zone);
    let before = |hour: &Minutes| Some(Unit::Hour.bucket(hour.saturating_sub(1), &kept.zone));
    match window {
        Window::All => vec![ALL_TIME],
        Window::Hour => vec![running],
        Window::Day => std::iter::successors(Some(running), before).take(HOURS).collect(),
    }
}

impl Asked<'_> {
    fn wanted(&self, api: &Api, declarations: &Declarations, kept: &KeptRollup, hours: &[Minutes]) -> TopWanted {
        let counter = self.counter;
        let cell = api.counters.hasher().key(counter.name.as_bytes());
        let minutes = match (hours.first(), hours.last()) {
            (Some(running), Some(first)) if self.window != Window::All => *first..Unit::Hour.next(*running, &kept.zone),
            _ => 0..Minutes::MAX,
        };
        TopWanted {
            of: PartsOf {
                cell,
                rollup: kept.number,
                deciding: deciding(declarations, counter),
                whole: None,
                counter: counter.name.clone(),
                coarser: kept.bands.coarser().collect(),
            },
            name: counter.name.clone(),
            line: counter.has_keys().then(|| BoardLine::new(cell, kept.number, self.by.is_none())),
            hours: hours.to_vec(),
            empty: Series::new(kept, self.by.as_slice(), None, minutes, 1).expect("it has one point"),
            sample: self.sample(),
        }
    }

    /// More than are told: those that have fallen stand on boards for a while.
    fn sample(&self) -> Sample {
        let k = self.k as usize;
        match self.by {
            None => Sample { per_value: k + TOP_KEYS_BESIDE, all: k + TOP_KEYS_BESIDE },
            Some(_) => Sample { per_value: 2 * k + 5, all: SERIES_KEYS_MAX },
        }
    }
}

/// What is told of what was found.
struct Ranking {
    found: TopFound,
    k: usize,
}

impl Ranking {
    /// The values that have most. What is `other` is many, and has no keys of its own.
    fn groups(&self) -> Vec<TopGroup> {
        let whole = &self.found.whole;
        let shown = whole.ranked(None).shown.into_iter().filter(|part| whole.sums_of(*part).any(|sum| sum != 0));
        let values = shown.filter_map(|part| whole.values(part).next()).filter(|value| *value != OTHER.as_bytes());
        values.take(TOP_VALUES_MAX).map(|value| self.group(&String::from_utf8_lossy(value))).collect()
    }

    /// The keys that came to most for a value, or at all.
    fn group(&self, value: &str) -> TopGroup {
        let mut keys: Vec<(i64, &Arc<[u8]>)> = self
            .found
            .keys
            .iter()
            .map(|(id, series)| (series.sum_of(value.as_bytes()), id))
            .filter(|(sum, _)| *sum > 0)
            .collect();
        keys.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        keys.truncate(self.k);
        let rest = self.found.rest.as_ref().map(|rest| rest.of(value.as_bytes()));
        // A key that came to nothing is none of them.
        let last = if keys.len() == self.k { keys.last().map_or(0, |(sum, _)| *sum) } else { 0 };
        let is_exact = rest.is_some_and(|rest| rest <= last);
        let told = |(sum, id): &(i64, &Arc<[u8]>)| TopKey { id: String::from_utf8_lossy(id).into_owned(), value: *sum };
        TopGroup {
            value: value.to_owned(),
            total: self.found.whole.sum_of(value.as_bytes()),
            kind: if is_exact { ReadKind::with_pending(self.found.parked) } else { ReadKind::Estimate },
            bound: (!is_exact).then_some(rest),
            top: keys.iter().map(told).collect(),
        }
    }
}
