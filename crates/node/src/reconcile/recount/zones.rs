//! Where a bucket begins by the clocks of a time zone, in SQL. Statements stay flat: the planner goes as deep as an expression is nested.

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;
use tally_core::counter::Unit;

const DAY: i64 = 86_400;
/// Put in front of what is divided, so that what lies before 1970 is rounded down as well. A multiple of everything that is divided by.
const AHEAD: i64 = 7 * DAY;
/// Up to here clocks are asked when they are put back: the engine's table of time zones ends there as well.
const LAST_SECOND: i64 = 4_102_444_800;

/// Seconds since 1970 of the bucket in which a moment lies.
pub fn bucket_in(unit: Unit, zone: &str, moment: &str) -> String {
    let minute = format!("date_trunc('minute', {moment})");
    let local = format!("arrow_cast({minute}, 'Timestamp(Microsecond, Some(\"{zone}\"))')");
    let seconds = |moment: &str| format!("CAST({moment} AS BIGINT) / 1000000");
    match unit {
        Unit::Minute => format!("({})", seconds(&minute)),
        Unit::Hour => {
            // The hour that a clock on the wall shows began when its minutes were 0, or would have been.
            let shown = seconds(&format!("to_local_time({local})"));
            format!("({} - ({shown} + {AHEAD}) / 60 * 60 % 3600)", seconds(&minute))
        }
        Unit::Day | Unit::Week | Unit::Month => {
            let begins = seconds(&format!("date_trunc('{}', {local})", unit.name()));
            format!("(({} + {AHEAD}) / 60 * 60 - {AHEAD})", the_first(&begins, &midnights_twice(zone)))
        }
    }
}

/// A day begins with the first of two midnights. The engine takes that which has the offset of the moment.
fn the_first(begins: &str, midnights: &[(i64, i64)]) -> String {
    if midnights.is_empty() {
        return format!("({begins})");
    }
    let cases: String = midnights.iter().map(|(first, second)| format!(" WHEN {second} THEN {first}")).collect();
    format!("(CASE {begins}{cases} ELSE {begins} END)")
}

/// Midnights that clocks show twice since they are put back, as seconds since 1970: the first and the second.
fn midnights_twice(zone: &str) -> Vec<(i64, i64)> {
    let twice = |change: &Change| {
        let Change { at, before, after } = *change;
        let midnight = (at + after + DAY - 1).div_euclid(DAY) * DAY;
        (midnight < at + before).then_some((midnight - before, midnight - after))
    };
    changes(zone).iter().filter_map(twice).collect()
}

/// Hours in which clocks change by a part of an hour, as milliseconds since 1970 where they begin: those that a clock on the wall shows,
/// of which the second may seem to begin before the change, and the change.
pub fn hours_cut(zone: &str) -> Vec<i64> {
    let begins = |second: i64, offset: i64| second - (second + offset.div_euclid(60) * 60).rem_euclid(3600);
    let cut = changes(zone).into_iter().filter(|change| (change.after - change.before) % 3600 != 0);
    cut.flat_map(|Change { at, before, after }| [begins(at - 60, before), begins(at, after), at + 59])
        .map(|second| second.div_euclid(60) * 60_000)
        .collect()
}

/// Clocks are put forward or back, by offsets in seconds.
struct Change {
    at: i64,
    before: i64,
    after: i64,
}

fn changes(zone: &str) -> Vec<Change> {
    let Ok(rules) = TimeZoneDatabase::bundled().get(zone) else { return Vec::new() };
    let mut before = i64::from(rules.to_offset(Timestamp::UNIX_EPOCH).seconds());
    let all = rules.following(Timestamp::UNIX_EPOCH).take_while(|change| change.timestamp().as_second() <= LAST_SECOND);
    all.map(|change| {
        let after = i64::from(change.offset().seconds());
        Change { at: change.timestamp().as_second(), before: std::mem::replace(&mut before, after), after }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn midnights_that_a_clock_shows_twice_are_known() {
        let second = |text: &str| text.parse::<Timestamp>().expect("it is a time").as_second();
        let azores = midnights_twice("Atlantic/Azores");
        assert!(azores.contains(&(second("2026-10-25T00:00:00Z"), second("2026-10-25T01:00:00Z"))));
        assert!(
            midnights_twice("America/Havana")
                .contains(&(second("2026-11-01T04:00:00Z"), second("2026-11-01T05:00:00Z")))
        );
        assert_eq!((midnights_twice("Europe/Berlin"), midnights_twice("Asia/Kolkata")), (vec![], vec![]));
    }
}
