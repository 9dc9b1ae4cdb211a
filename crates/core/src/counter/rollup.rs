//! Roll-ups: into which parts the value of a key is split, by dimensions of the events and by time.
//!
//! A roll-up is a list of dimensions beside the key, and at most one *bucket*: the minute, hour, day, week or month of the event's own
//! time, in the counter's time zone. The parts of each add up to the key's value.

mod bands;
mod retention;

use jiff::civil::{Date, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use std::fmt;

pub use bands::Bands;
pub use retention::{FOREVER, Keep, Retention};

/// A stretch of time that a part may be for. The numbers stand on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    Minute = 1,
    Hour = 2,
    Day = 3,
    Week = 4,
    Month = 5,
}

/// Buckets are known by their first minute since 1970: what lies before belongs to the first one.
pub type Minutes = u32;

const MINUTE_MS: i64 = 60_000;
const HOUR: u32 = 60;
const DAY: u32 = 24 * HOUR;
/// 1970 began on a Thursday.
const DAYS_BEFORE_MONDAY: u32 = 3;

impl Unit {
    pub const ALL: [Unit; 5] = [Unit::Minute, Unit::Hour, Unit::Day, Unit::Week, Unit::Month];

    pub fn name(self) -> &'static str {
        match self {
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Week => "week",
            Unit::Month => "month",
        }
    }

    pub fn named(name: &str) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| unit.name() == name)
    }

    pub fn numbered(number: u8) -> Option<Unit> {
        Unit::ALL.into_iter().find(|unit| *unit as u8 == number)
    }

    /// Whether each bucket of this unit lies within one of the other, in any time zone.
    pub fn fits_into(self, other: Unit) -> bool {
        self <= other && !(self == Unit::Week && other == Unit::Month)
    }

    /// The bucket that a minute lies in.
    pub fn bucket(self, minute: Minutes, zone: &Zone) -> Minutes {
        match &zone.rules {
            None => self.bucket_utc(minute),
            Some(rules) => self.bucket_in(minute, rules),
        }
    }

    /// The bucket behind the one that begins here.
    pub fn next(self, bucket: Minutes, zone: &Zone) -> Minutes {
        // Into the middle of the next one, wherever a clock was put forward or back.
        let beyond = match self {
            Unit::Minute => 1,
            Unit::Hour => HOUR + HOUR / 2,
            Unit::Day => DAY + DAY / 2,
            Unit::Week => 10 * DAY,
            Unit::Month => 45 * DAY,
        };
        let mut next = self.bucket(bucket.saturating_add(beyond), zone);
        // An hour in which clocks change by a part of one is two short ones.
        while next > bucket {
            match self.bucket(next - 1, zone) {
                before if before > bucket => next = before,
                _ => break,
            }
        }
        next
    }

    fn bucket_utc(self, minute: Minutes) -> Minutes {
        match self {
            Unit::Minute => minute,
            Unit::Hour => minute / HOUR * HOUR,
            Unit::Day => minute / DAY * DAY,
            Unit::Week => {
                let day = minute / DAY + DAYS_BEFORE_MONDAY;
                (day / 7 * 7).saturating_sub(DAYS_BEFORE_MONDAY) * DAY
            }
            Unit::Month => self.bucket_in(minute, &TimeZone::UTC),
        }
    }

    fn bucket_in(self, minute: Minutes, rules: &TimeZone) -> Minutes {
        let Ok(at) = time_of(minute) else { return minute };
        let date = || rules.to_datetime(at).date();
        let date = match self {
            Unit::Minute => return minute,
            Unit::Hour => return hour_in(minute, at, rules),
            Unit::Day => Ok(date()),
            Unit::Week => monday_before(date()),
            Unit::Month => Ok(date().first_of_month()),
        };
        let start = date.and_then(|date| date.to_zoned(rules.clone()));
        start.map_or(minute, |start| minutes(start.timestamp().as_second().div_euclid(60)))
    }
}

/// What a clock on the wall calls an hour: it may begin at half past as others see it. Where clocks change by a part of an hour, what they show
/// from then on begins there.
fn hour_in(minute: Minutes, at: Timestamp, rules: &TimeZone) -> Minutes {
    let offset = rules.to_offset(at);
    let offset_minutes = i64::from(offset.seconds().div_euclid(60));
    let local = i64::from(minute) + offset_minutes;
    let start = minutes(local.div_euclid(HOUR.into()) * i64::from(HOUR) - offset_minutes);
    if time_of(start).is_ok_and(|start| rules.to_offset(start) == offset) {
        return start;
    }
    let behind = at.checked_add(SignedDuration::from_secs(1)).unwrap_or(at);
    let changed = rules.preceding(behind).next().map_or(0, |change| change.timestamp().as_second());
    start.max(minutes((changed + 59).div_euclid(60)))
}

fn monday_before(date: Date) -> Result<Date, jiff::Error> {
    date.checked_sub(jiff::Span::new().days(date.weekday().since(Weekday::Monday)))
}

fn time_of(minute: Minutes) -> Result<Timestamp, jiff::Error> {
    Timestamp::from_second(i64::from(minute) * 60)
}

fn minutes(minutes: i64) -> Minutes {
    Minutes::try_from(minutes.max(0)).unwrap_or(Minutes::MAX)
}

/// The minute that something happened in.
#[inline]
pub fn minute_of(time_ms: i64) -> Minutes {
    minutes(time_ms.div_euclid(MINUTE_MS))
}

/// When a bucket begins.
pub fn bucket_ms(bucket: Minutes) -> u64 {
    u64::from(bucket) * MINUTE_MS as u64
}

/// By whose clocks buckets begin.
#[derive(Clone)]
pub struct Zone {
    name: Box<str>,
    /// `None` for UTC, which is reckoned without any.
    rules: Option<TimeZone>,
}

impl Zone {
    pub const UTC: &str = "UTC";

    /// `None` if there is no such time zone. The rules are those that the program was built with, whatever the machine has.
    pub fn named(name: &str) -> Option<Zone> {
        if name == Zone::UTC {
            return Some(Zone::default());
        }
        let rules = TimeZoneDatabase::bundled().get(name).ok()?;
        Some(Zone { name: rules.iana_name().unwrap_or(name).into(), rules: Some(rules) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for Zone {
    fn default() -> Zone {
        Zone { name: Zone::UTC.into(), rules: None }
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Zone) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// One way to split a key's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollup {
    pub dimensions: Box<[Box<str>]>,
    pub unit: Option<Unit>,
}

impl Rollup {
    /// As it is declared: the bucket is the last word.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.dimensions.iter().map(|name| &**name).chain(self.unit.map(Unit::name))
    }
}

impl fmt::Display for Rollup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.words().collect::<Vec<_>>().join(", "))
    }
}

/// Everything that a counter says about its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollups {
    pub all: Box<[Rollup]>,
    pub zone: Zone,
    /// How many values of a dimension a key admits.
    pub limits: Box<[(Box<str>, u64)]>,
    pub retention: Retention,
}

impl Rollups {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn minute(text: &str) -> Minutes {
        minute_of(text.parse::<Timestamp>().unwrap().as_millisecond())
    }

    fn check(unit: Unit, zone: &str, at: &str, bucket: &str) {
        let zone = Zone::named(zone).unwrap();
        assert_eq!(unit.bucket(minute(at), &zone), minute(bucket), "{unit:?} of {at} in {zone:?}");
    }

    #[test]
    fn a_bucket_begins_where_the_clock_of_its_zone_says() {
        for (unit, zone, at, bucket) in [
            (Unit::Minute, "UTC", "2026-11-17T10:59:59Z", "2026-11-17T10:59:00Z"),
            (Unit::Hour, "UTC", "2026-11-17T10:59:59Z", "2026-11-17T10:00:00Z"),
            (Unit::Hour, "Asia/Kolkata", "2026-11-17T10:59:59Z", "2026-11-17T10:30:00Z"),
            // Clocks are put back from 2:00 to 1:30 at 15:00, and forward from 2:00 to 2:30 at 15:30.
            (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T14:59:59Z", "2026-04-04T14:00:00Z"),
            (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T15:29:59Z", "2026-04-04T15:00:00Z"),
            (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T15:30:00Z", "2026-04-04T15:30:00Z"),
            (Unit::Hour, "Australia/Lord_Howe", "2026-10-03T15:29:59Z", "2026-10-03T14:30:00Z"),
            (Unit::Hour, "Australia/Lord_Howe", "2026-10-03T15:59:59Z", "2026-10-03T15:30:00Z"),
            (Unit::Day, "UTC", "2026-11-17T10:59:59Z", "2026-11-17T00:00:00Z"),
            (Unit::Day, "Europe/Berlin", "2026-11-16T23:30:00Z", "2026-11-16T23:00:00Z"),
            (Unit::Day, "Europe/Berlin", "2026-07-16T22:30:00Z", "2026-07-16T22:00:00Z"),
            (Unit::Week, "UTC", "2026-11-17T10:59:59Z", "2026-11-16T00:00:00Z"),
            (Unit::Week, "Europe/Berlin", "2026-11-15T23:10:00Z", "2026-11-15T23:00:00Z"),
            (Unit::Month, "UTC", "2026-11-17T10:59:59Z", "2026-11-01T00:00:00Z"),
            (Unit::Month, "America/New_York", "2026-11-17T10:59:59Z", "2026-11-01T04:00:00Z"),
        ] {
            check(unit, zone, at, bucket);
        }
    }

    #[test]
    fn hours_that_a_change_of_clocks_cuts_follow_each_other() {
        for (at, zone) in [
            ("2026-04-04", "Australia/Lord_Howe"),
            ("2026-10-03", "Australia/Lord_Howe"),
            ("1972-01-07", "Africa/Monrovia"),
        ] {
            let (zone, day) = (Zone::named(zone).unwrap(), minute(&format!("{at}T00:00:00Z")));
            for minute in day..day + 2 * DAY {
                let bucket = Unit::Hour.bucket(minute, &zone);
                let next = Unit::Hour.next(bucket, &zone);
                assert!(bucket <= minute && minute < next && next - bucket <= HOUR, "{bucket} {minute} {next}");
                assert_eq!((Unit::Hour.bucket(bucket, &zone), Unit::Hour.bucket(next - 1, &zone)), (bucket, bucket));
            }
        }
    }

    #[test]
    fn what_lies_before_1970_is_in_the_first_bucket() {
        assert_eq!(minute_of(-1), 0);
        for unit in Unit::ALL {
            assert_eq!(unit.bucket(0, &Zone::default()), 0, "{unit:?}");
        }
    }

    #[test]
    fn an_unknown_zone_is_none() {
        assert!(Zone::named("Europe/Atlantis").is_none());
        assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
    }

    proptest! {
        #[test]
        fn buckets_follow_each_other_without_gaps(
            minute in 0u32..60_000_000,
            unit in prop::sample::select(&Unit::ALL[..]),
            zone in prop::sample::select(&["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"][..]),
        ) {
            let zone = Zone::named(zone).unwrap();
            let bucket = unit.bucket(minute, &zone);
            let next = unit.next(bucket, &zone);
            prop_assert!(bucket <= minute && minute < next, "{bucket} {minute} {next}");
            prop_assert_eq!(unit.bucket(bucket, &zone), bucket);
            prop_assert_eq!(unit.bucket(next - 1, &zone), bucket);
        }

        #[test]
        fn a_bucket_of_a_coarser_unit_is_that_of_the_finer_bucket(
            minute in 0u32..60_000_000,
            zone in prop::sample::select(&["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"][..]),
        ) {
            let zone = Zone::named(zone).unwrap();
            for fine in Unit::ALL {
                for coarse in Unit::ALL.into_iter().filter(|coarse| fine.fits_into(*coarse)) {
                    let of_fine = coarse.bucket(fine.bucket(minute, &zone), &zone);
                    prop_assert_eq!(of_fine, coarse.bucket(minute, &zone), "{:?} in {:?}", fine, coarse);
                }
            }
        }
    }
}
