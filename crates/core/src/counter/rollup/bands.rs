//! Bands: as which unit the buckets of a roll-up are there, by how old they are.
//!
//! Buckets before a *boundary* are there only as those of a coarser unit. Where the boundaries are follows from log time and from what
//! is declared, never from which rows have been moved already. Longer retention brings nothing back: what was rolled up, or may have
//! been, under earlier declarations is remembered.

use super::{Keep, Minutes, Unit, Zone, minute_of};
use crate::available::Available;
use crate::record::{DecodeError, put_signed, put_varint, take_byte, take_signed, take_varint};

/// What becomes of the buckets of one roll-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bands {
    /// What is declared: the roll-up's own unit first. Without any, buckets stay as they are.
    way: Box<[Keep]>,
    /// Before the minute there is nothing finer than the unit. In the order of units, and never lowered.
    rolled: Vec<(Unit, Minutes)>,
    /// Nothing is there before it. Never lowered.
    gone: Minutes,
}

impl Bands {
    /// Goes over to another way. Where the boundaries of the old one stand is remembered.
    pub(crate) fn declare(&mut self, way: &[Keep], zone: &Zone, log_time_ms: u64) {
        if *self.way != *way {
            let (rolled, gone) = self.boundaries(zone, log_time_ms);
            (self.rolled, self.gone) = (rolled, gone);
            self.way = way.into();
        }
    }

    /// Whether nothing ever changes with age.
    pub fn is_empty(&self) -> bool {
        self.way.len() <= 1 && self.way.iter().all(|keep| keep.ms.is_none()) && self.rolled.is_empty() && self.gone == 0
    }

    /// The units of coarser buckets that there may be.
    pub fn coarser(&self) -> impl Iterator<Item = Unit> + Clone {
        let is_there = |unit: &Unit| {
            let mut all =
                self.way.iter().skip(1).map(|keep| keep.unit).chain(self.rolled.iter().map(|(unit, _)| *unit));
            all.any(|known| known == *unit)
        };
        Unit::ALL.into_iter().filter(is_there)
    }

    /// What there is at a log time.
    pub fn at(&self, own: Unit, zone: &Zone, log_time_ms: u64) -> Available {
        let (coarser, from) = self.boundaries(zone, log_time_ms);
        Available::new(own, zone.clone(), coarser, from)
    }

    /// Before which minute there is nothing finer than each unit; and before which there is nothing.
    fn boundaries(&self, zone: &Zone, log_time_ms: u64) -> (Vec<(Unit, Minutes)>, Minutes) {
        let (mut rolled, mut gone) = (self.rolled.clone(), self.gone);
        for (n, keep) in self.way.iter().enumerate() {
            let Some(ms) = keep.ms else { break };
            let until = minute_of(log_time_ms.saturating_sub(ms) as i64);
            match self.way.get(n + 1) {
                Some(next) => raise(&mut rolled, next.unit, next.unit.bucket(until, zone)),
                None => gone = gone.max(keep.unit.bucket(until, zone)),
            }
        }
        (rolled, gone)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.way.len() as u64);
        for Keep { unit, ms } in &self.way {
            out.push(*unit as u8);
            put_signed(out, ms.map_or(-1, |ms| ms as i64));
        }
        put_varint(out, self.rolled.len() as u64);
        for (unit, until) in &self.rolled {
            out.push(*unit as u8);
            put_varint(out, (*until).into());
        }
        put_varint(out, self.gone.into());
    }

    pub(crate) fn decode(bytes: &mut &[u8]) -> Result<Bands, DecodeError> {
        let keep =
            |bytes: &mut &[u8]| Ok(Keep { unit: take_unit(bytes)?, ms: u64::try_from(take_signed(bytes)?).ok() });
        let way = (0..take_varint(bytes)?).map(|_| keep(bytes)).collect::<Result<_, DecodeError>>()?;
        let until = |bytes: &mut &[u8]| Ok((take_unit(bytes)?, take_minutes(bytes)?));
        let rolled = (0..take_varint(bytes)?).map(|_| until(bytes)).collect::<Result<_, DecodeError>>()?;
        Ok(Bands { way, rolled, gone: take_minutes(bytes)? })
    }
}

fn raise(rolled: &mut Vec<(Unit, Minutes)>, unit: Unit, until: Minutes) {
    match rolled.binary_search_by_key(&unit, |(unit, _)| *unit) {
        Ok(at) => rolled[at].1 = rolled[at].1.max(until),
        Err(at) => rolled.insert(at, (unit, until)),
    }
}

fn take_unit(bytes: &mut &[u8]) -> Result<Unit, DecodeError> {
    let number = take_byte(bytes)?;
    Unit::numbered(number).ok_or(DecodeError::BadValue { field: "bucket", value: number.into() })
}

fn take_minutes(bytes: &mut &[u8]) -> Result<Minutes, DecodeError> {
    let minutes = take_varint(bytes)?;
    Minutes::try_from(minutes).map_err(|_| DecodeError::BadValue { field: "minute", value: minutes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY_MS: u64 = 86_400_000;

    fn keep(unit: Unit, days: Option<u64>) -> Keep {
        Keep { unit, ms: days.map(|days| days * DAY_MS) }
    }

    fn way() -> [Keep; 3] {
        [keep(Unit::Hour, Some(2)), keep(Unit::Day, Some(40)), keep(Unit::Month, None)]
    }

    #[test]
    fn boundaries_follow_log_time_by_whole_coarse_buckets() {
        let (zone, mut bands) = (Zone::default(), Bands::default());
        bands.declare(&way(), &zone, 0);
        let day = |n: u32| n * 24 * 60;
        let at = |ms| bands.boundaries(&zone, ms);
        assert_eq!(at(DAY_MS), (vec![(Unit::Day, 0), (Unit::Month, 0)], 0));
        assert_eq!(at(10 * DAY_MS + 5), (vec![(Unit::Day, day(8)), (Unit::Month, 0)], 0));
        assert_eq!(at(72 * DAY_MS), (vec![(Unit::Day, day(70)), (Unit::Month, day(31))], 0));
        let mut short = Bands::default();
        short.declare(&way()[..1], &zone, 0);
        assert_eq!(short.boundaries(&zone, 10 * DAY_MS), (vec![], day(8)), "the last one is deleted");
    }

    #[test]
    fn what_was_rolled_up_stays_so_under_a_longer_retention() {
        let (zone, mut bands) = (Zone::default(), Bands::default());
        bands.declare(&way(), &zone, 0);
        let before = bands.boundaries(&zone, 100 * DAY_MS);
        let longer = [keep(Unit::Hour, Some(90)), keep(Unit::Month, None)];
        bands.declare(&longer, &zone, 100 * DAY_MS);
        assert_eq!(bands.boundaries(&zone, 100 * DAY_MS), before);
        assert_eq!(bands.coarser().collect::<Vec<_>>(), [Unit::Day, Unit::Month]);
        let later = bands.boundaries(&zone, 300 * DAY_MS);
        assert_eq!(later.0[0], before.0[0], "nothing is rolled into days any more");
        assert!(later.0[1] > before.0[1]);
    }

    #[test]
    fn the_bytes_of_bands_are_pinned() {
        let (zone, mut bands) = (Zone::default(), Bands::default());
        bands.declare(&[keep(Unit::Hour, Some(2))], &zone, 0);
        bands.declare(&[keep(Unit::Hour, None)], &zone, 3 * DAY_MS);
        let mut bytes = Vec::new();
        bands.encode(&mut bytes);
        assert_eq!(bytes, [1, 2, 1, 0, 0xa0, 0x0b]);
    }

    proptest! {
        #[test]
        fn boundaries_never_go_back_whatever_is_declared(
            ways in prop::collection::vec((prop::sample::subsequence(&Unit::ALL[1..], 0..4), 1u64..50, any::<bool>(), 0u64..100), 1..6),
        ) {
            let (zone, mut bands, mut now_ms) = (Zone::named("Europe/Berlin").unwrap(), Bands::default(), 0);
            let mut last = bands.boundaries(&zone, 0);
            for (units, days, forever, passed) in ways {
                now_ms += passed * DAY_MS;
                let longer = |n: usize| (!forever || n + 1 < units.len()).then_some(days * (n as u64 + 1));
                let way: Vec<_> = units.iter().enumerate().map(|(n, unit)| keep(*unit, longer(n))).collect();
                bands.declare(&way, &zone, now_ms);
                let now = bands.boundaries(&zone, now_ms);
                for (unit, until) in &last.0 {
                    prop_assert!(now.0.iter().any(|(known, now)| known == unit && now >= until));
                }
                prop_assert!(now.1 >= last.1);
                let mut bytes = Vec::new();
                bands.encode(&mut bytes);
                prop_assert_eq!(Bands::decode(&mut &bytes[..]), Ok(bands.clone()));
                last = now;
            }
        }
    }
}
