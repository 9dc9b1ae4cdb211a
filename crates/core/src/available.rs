//! What there is of a roll-up at a moment: which of its buckets, as which unit, and what can be asked of them.
//!
//! Whether a row was moved to a coarser bucket yet plays no part in it ([`crate::counter::rollup::Bands`]).

use crate::counter::rollup::{Minutes, Unit, Zone};
use crate::series::Step;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    own: Unit,
    zone: Zone,
    /// Before each of these there may be nothing finer than its unit. Each is the beginning of one of its buckets.
    coarser: Vec<(Unit, Minutes)>,
    /// Before this there is nothing.
    from: Minutes,
}

/// Why a question cannot be answered, and what to ask instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// As which there is something; `None` if there is nothing.
    pub kept: Option<Unit>,
    /// Before when.
    pub before: Minutes,
    /// From where on the question can be answered with its step.
    pub from: Minutes,
    /// The step with which it can be answered as it is.
    pub step: Option<Step>,
}

/// What is to become of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    Into(Unit),
    Away,
}

impl Available {
    pub(crate) fn new(own: Unit, zone: Zone, coarser: Vec<(Unit, Minutes)>, from: Minutes) -> Available {
        Available { own, zone, coarser, from }
    }

    /// Whether everything that there ever was is there.
    pub fn is_all(&self) -> bool {
        self.from == 0 && self.coarser.iter().all(|(_, before)| *before == 0)
    }

    /// Whether nothing is gone, as which unit it may be.
    pub fn has_all(&self) -> bool {
        self.from == 0
    }

    /// The units as which there may be something at a minute, beside the roll-up's own.
    fn coarser_at(&self, minute: Minutes) -> impl Iterator<Item = Unit> {
        self.coarser.iter().filter(move |(_, before)| minute < *before).map(|(unit, _)| *unit)
    }

    /// The last minute, no later than this one, at which no bucket is under way.
    pub fn start(&self, minute: Minutes) -> Minutes {
        let mut start = self.own.bucket(minute, &self.zone);
        // Weeks and months begin together only now and then.
        while let Some(earlier) = self.under_way(start) {
            start = earlier;
        }
        start
    }

    /// The first minute behind this one at which no bucket is under way.
    pub fn end(&self, minute: Minutes) -> Minutes {
        let mut end = self.own.next(self.own.bucket(minute, &self.zone), &self.zone);
        while let Some(unit) = self.coarser_at(end).find(|unit| unit.bucket(end, &self.zone) != end) {
            end = unit.next(unit.bucket(end, &self.zone), &self.zone);
        }
        end
    }

    /// Where a coarser bucket begins that is under way at a minute.
    fn under_way(&self, minute: Minutes) -> Option<Minutes> {
        self.coarser_at(minute).map(|unit| unit.bucket(minute, &self.zone)).find(|start| *start < minute)
    }

    /// Whether a question about some time can be answered, step by step or as a whole.
    pub fn check(&self, step: Option<Step>, minutes: &Range<Minutes>) -> Result<(), Unavailable> {
        if minutes.start < self.from {
            let from = self.whole_step(step, self.from);
            return Err(Unavailable { kept: None, before: self.from, from, step: None });
        }
        let fits = |unit: Unit| match step {
            Some(step) => unit.fits_into(step.unit),
            None => [minutes.start, minutes.end]
                .iter()
                .all(|at| self.coarser_at(*at).all(|coarser| coarser != unit || unit.bucket(*at, &self.zone) == *at)),
        };
        let there: Vec<(Unit, Minutes)> =
            self.coarser.iter().copied().filter(|(_, before)| minutes.start < *before).collect();
        let unfit = there.iter().filter(|(unit, _)| !fits(*unit)).max_by_key(|(_, before)| *before);
        let Some(&(unit, before)) = unfit else { return Ok(()) };
        let whole = |unit: &Unit| there.iter().all(|(coarser, _)| coarser.fits_into(*unit));
        let whole = Unit::ALL.into_iter().find(whole).map(|unit| Step { unit, times: 1 });
        Err(Unavailable { kept: Some(unit), before, from: self.whole_step(step, before), step: whole })
    }

    /// The first whole step from a minute on.
    fn whole_step(&self, step: Option<Step>, minute: Minutes) -> Minutes {
        let Some(step) = step else { return self.end(minute.saturating_sub(1)) };
        match step.start(minute, &self.zone) {
            start if start == minute => start,
            start => step.next(start, &self.zone),
        }
    }

    /// What is to become of a bucket of some unit.
    pub fn moved(&self, unit: Unit, bucket: Minutes) -> Option<Moved> {
        if unit.next(bucket, &self.zone) <= self.from {
            return Some(Moved::Away);
        }
        self.coarser_at(bucket).filter(|coarser| unit < *coarser && unit.fits_into(*coarser)).last().map(Moved::Into)
    }

    /// No bucket of this unit that begins here or later is moved.
    pub fn moved_before(&self, unit: Unit) -> Minutes {
        let coarser = self.coarser.iter().filter(|(coarser, _)| unit < *coarser && unit.fits_into(*coarser));
        coarser.map(|(_, before)| *before).fold(self.from, Minutes::max)
    }

    pub fn zone(&self) -> &Zone {
        &self.zone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: u32 = 60;
    const DAY: u32 = 24 * HOUR;

    /// Hours, before day 100 days, before 1 March months, and nothing before 1 February.
    fn available() -> Available {
        let coarser = vec![(Unit::Day, 100 * DAY), (Unit::Month, 59 * DAY)];
        Available::new(Unit::Hour, Zone::default(), coarser, 31 * DAY)
    }

    fn step(text: &str) -> Option<Step> {
        Some(Step::parse(text).unwrap())
    }

    #[test]
    fn time_is_widened_to_whole_buckets_as_they_are_there() {
        let all = available();
        assert_eq!((all.start(101 * DAY + 61), all.end(101 * DAY + 61)), (101 * DAY + 60, 101 * DAY + 120));
        assert_eq!((all.start(99 * DAY + 61), all.end(99 * DAY + 61)), (99 * DAY, 100 * DAY));
        assert_eq!((all.start(40 * DAY), all.end(40 * DAY)), (31 * DAY, 59 * DAY));
    }

    #[test]
    fn a_step_that_is_finer_than_what_is_kept_is_refused_with_what_to_ask() {
        let all = available();
        let day = all.check(step("1h"), &(90 * DAY..200 * DAY)).unwrap_err();
        assert_eq!((day.kept, day.before, day.from, day.step), (Some(Unit::Day), 100 * DAY, 100 * DAY, step("1d")));
        let month = all.check(step("6h"), &(40 * DAY..200 * DAY)).unwrap_err();
        assert_eq!((month.kept, month.from, month.step), (Some(Unit::Day), 100 * DAY, step("1mo")));
        let week = all.check(step("1w"), &(32 * DAY..200 * DAY)).unwrap_err();
        assert_eq!((week.kept, week.before, week.from), (Some(Unit::Month), 59 * DAY, 60 * DAY), "a Monday");
        for (step, from) in [(step("1h"), 100), (step("1d"), 59), (step("1mo"), 31), (None, 31), (None, 60)] {
            assert_eq!(all.check(step, &(from * DAY..200 * DAY)), Ok(()), "{step:?} {from}");
        }
        let unaligned = all.check(None, &(40 * DAY..200 * DAY)).unwrap_err();
        assert_eq!((unaligned.kept, unaligned.from), (Some(Unit::Month), 59 * DAY));
    }

    #[test]
    fn what_is_deleted_is_refused_whatever_the_step() {
        let all = available();
        for (step, from) in [(step("1h"), 31), (step("1mo"), 31), (None, 31), (step("1w"), 32)] {
            let gone = all.check(step, &(30 * DAY..200 * DAY)).unwrap_err();
            assert_eq!((gone.kept, gone.before, gone.from), (None, 31 * DAY, from * DAY), "{step:?}");
        }
    }

    #[test]
    fn a_bucket_goes_into_the_coarsest_one_that_is_kept_there() {
        let all = available();
        assert_eq!(all.moved(Unit::Hour, 100 * DAY), None);
        assert_eq!(all.moved(Unit::Hour, 100 * DAY - HOUR), Some(Moved::Into(Unit::Day)));
        assert_eq!(all.moved(Unit::Hour, 58 * DAY), Some(Moved::Into(Unit::Month)));
        assert_eq!(all.moved(Unit::Day, 58 * DAY), Some(Moved::Into(Unit::Month)));
        assert_eq!(all.moved(Unit::Day, 59 * DAY), None);
        assert_eq!(all.moved(Unit::Month, 31 * DAY), None);
        assert_eq!(all.moved(Unit::Month, 0), Some(Moved::Away));
        assert_eq!(all.moved(Unit::Hour, 30 * DAY), Some(Moved::Away));
        assert_eq!(all.moved(Unit::Week, 40 * DAY), None, "a week has no place in a month");
        assert_eq!(
            [Unit::Hour, Unit::Day, Unit::Month].map(|unit| all.moved_before(unit)),
            [100, 59, 31].map(|n| n * DAY)
        );
    }

    proptest! {
        #[test]
        fn what_was_widened_can_be_answered(first in 31u32 * DAY..150 * DAY, minutes in 0u32..50 * DAY, weeks in 0u32..20, months in 0usize..4) {
            // Also where weeks and months are mixed up because somebody declared one after the other.
            let month = [0, 31, 59, 90][months] * DAY;
            let week = Unit::Week.bucket(weeks * 7 * DAY, &Zone::default());
            let coarser = vec![(Unit::Day, 100 * DAY), (Unit::Week, week), (Unit::Month, month)];
            let all = Available::new(Unit::Hour, Zone::default(), coarser, 0);
            let last = first + minutes;
            let widened = all.start(first)..all.end(last);
            prop_assert!(widened.start <= first && last < widened.end);
            prop_assert_eq!(all.check(None, &widened), Ok(()));
            prop_assert_eq!(all.start(widened.start), widened.start);
        }
    }
}
