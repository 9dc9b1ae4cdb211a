//! A recount by buckets of time: what each key should have come to in each of them. Where a bucket begins is reckoned in SQL, and not by
//! the functions that put entries into buckets.

use super::rules::OWN_TIME;
use super::zones::{bucket_in, hours_cut};
use super::{Recount, Start, WIDE_SUM, text};
use std::fmt::Write as _;
use std::ops::Range;
use tally_core::counter::rollup::{bucket_ms, minute_of};
use tally_core::counter::{Unit, Zone};

/// Where the first bucket begins, and the last year that nanoseconds since then can say.
const EPOCH: &str = "arrow_cast(0, 'Timestamp(Microsecond, Some(\"+00:00\"))')";
const LAST: &str = "arrow_cast(9214646400000000, 'Timestamp(Microsecond, Some(\"+00:00\"))')";

/// To which time something belongs, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// Exactly.
    Moment,
    /// The beginning of its bucket.
    Bucket(Unit, &'a Zone),
}

impl At<'_> {
    /// Of an expression that is a moment. What lies before 1970 is in the first bucket.
    pub fn of(self, moment: &str) -> String {
        // Before it is looked at: the engine reckons in nanoseconds, and what it cannot say in them ends the process or comes out in
        // another century.
        let moment = &format!("least(greatest({moment}, {EPOCH}), {LAST})");
        match self {
            At::Moment => format!("CAST({moment} AS BIGINT) / 1000"),
            At::Bucket(unit, zone) if zone.name() == Zone::UTC => {
                format!("greatest(CAST(date_trunc('{}', {moment}) AS BIGINT) / 1000, 0)", unit.name())
            }
            At::Bucket(unit, zone) => format!("greatest({} * 1000, 0)", bucket_in(unit, zone.name(), moment)),
        }
    }
}

/// Buckets of a roll-up that are compared.
#[derive(Clone, Debug)]
pub struct Slices {
    /// As the table `parts` calls it.
    pub rollup: String,
    pub unit: Unit,
    pub zone: Zone,
    /// Those that begin in it.
    pub ms: Range<u64>,
}

impl Slices {
    pub fn at(&self) -> At<'_> {
        At::Bucket(self.unit, &self.zone)
    }

    /// As which they are told: nobody wants to hear of every minute.
    pub fn told(&self) -> Unit {
        self.unit.max(Unit::Hour)
    }

    /// In which of those a bucket is.
    pub fn told_at(&self, at_ms: u64) -> u64 {
        match self.told() {
            unit if unit == self.unit => at_ms,
            unit => bucket_ms(unit.bucket(minute_of(at_ms as i64), &self.zone)),
        }
    }

    fn holds(&self) -> String {
        let cut = if self.unit == Unit::Hour { hours_cut(self.zone.name()) } else { Vec::new() };
        let cut = cut.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let cut = if cut.is_empty() { cut } else { format!(" AND bucket NOT IN ({cut})") };
        format!("bucket >= {} AND bucket < {}{cut}", self.ms.start, self.ms.end)
    }
}

impl Recount<'_> {
    /// A row (`id`, `bucket`, `live`, `recount`) for each key and bucket that does not hold what it should, the worst first.
    pub fn differences_by(&self, slices: &Slices) -> String {
        format!(
            "SELECT id, bucket, live, recount FROM (
  SELECT id, bucket, sum(live) AS live, sum(recount) AS recount FROM (
    SELECT id, bucket, value AS live, 0 AS recount FROM ({live}) AS live
    UNION ALL
    SELECT id, bucket, 0 AS live, value AS recount FROM ({expected}) AS expected
  ) AS both_sides WHERE {holds} AND {not_cleared} GROUP BY id, bucket
) AS compared WHERE live <> recount ORDER BY abs(live - recount) DESC, id, bucket",
            live = self.live_by(slices, slices.at()),
            expected = self.expected_by(slices),
            holds = slices.holds(),
            not_cleared = self.not_cleared(),
        )
    }

    /// Rows (`bucket`, `keys`, `live`): what all keys hold, under -1, and hour by hour, the last one first.
    pub fn live_hours(&self, slices: &Slices) -> String {
        let told = At::Bucket(slices.told(), &slices.zone);
        format!(
            "SELECT bucket, count(DISTINCT id) AS keys, {WIDE_SUM} AS live FROM (
  SELECT * FROM ({live}) AS live WHERE {holds} AND {not_cleared}
) AS held GROUP BY bucket
UNION ALL
SELECT -1 AS bucket, count(DISTINCT id) AS keys, {WIDE_SUM} AS live FROM (
  SELECT * FROM ({live}) AS live WHERE {holds} AND {not_cleared}
) AS held
ORDER BY CASE WHEN bucket < 0 THEN 0 ELSE 1 END, bucket DESC",
            live = self.live_by(slices, told),
            holds = slices.holds(),
            not_cleared = self.not_cleared(),
        )
    }

    /// Rows (`id`, `bucket`, `value`): what keys hold, and what late entries that wait will add.
    pub fn live_by(&self, slices: &Slices, at: At<'_>) -> String {
        let (name, rollup, unit) = (text(&self.counter.name), text(&slices.rollup), slices.unit.name());
        let bucket = at.of("bucket");
        // Where clocks are put forward by half an hour, a bucket need not begin within itself as SQL reckons it.
        let own = match at {
            At::Bucket(unit, _) if unit == slices.unit => At::Moment.of("bucket"),
            _ => bucket.clone(),
        };
        format!(
            "SELECT id, {own} AS bucket, value FROM parts
    WHERE counter = {name} AND rollup = {rollup} AND unit = '{unit}'
    UNION ALL
    SELECT id, {bucket} AS bucket, delta AS value FROM parked_parts WHERE counter = {name}"
        )
    }

    fn expected_by(&self, slices: &Slices) -> String {
        let events = self.summed(&self.counted_in_the_end_at(slices.at()), ", bucket");
        let adjusted = self.adjusted_by(slices.at());
        format!("SELECT id, bucket, value FROM ({events}) AS counted\n  UNION ALL\n  {adjusted}")
    }

    /// Rows (`id`, `value`, `bucket`): what events come to, with the time that each belongs to.
    pub fn counted_in_the_end_at(&self, at: At<'_>) -> String {
        self.counted_in_the_end(&self.at_column(at))
    }

    /// The same by the rules alone.
    pub fn by_the_rules_at(&self, at: At<'_>) -> String {
        self.by_the_rules(&self.at_column(at))
    }

    /// The time that an event belongs to, as a column `bucket` beside others.
    pub fn at_column(&self, at: At<'_>) -> String {
        format!(", {} AS bucket", at.of(OWN_TIME))
    }

    /// What an event says of a dimension. It has a column from when on it was declared.
    pub fn dimension_or_none(&self, dimension: &str) -> String {
        format!("coalesce({}, dimensions[{}], '(none)')", self.dimension(dimension), text(dimension))
    }

    /// What people changed belongs to the bucket that they named, or else to that of the moment; what they took back without naming one to
    /// that of what was taken back. A clear has taken no more than what is gone.
    pub fn adjusted_by(&self, at: At<'_>) -> String {
        let own = self.own_ids("made.counter");
        let mut within = format!("made.\"offset\" <= {}", self.to);
        if let Start::Base(from) = self.from {
            let _ = write!(within, " AND made.\"offset\" > {from}");
        }
        let moment = format!(
            "CASE WHEN made.cause = 'revert' AND made.bucket IS NULL
      THEN coalesce(reverted.log_time, {EPOCH}) ELSE coalesce(made.bucket, made.log_time) END"
        );
        let undone = self.undone_after_clears().map_or(String::new(), |undone| {
            format!("\n  UNION ALL\n  SELECT id, {} AS bucket, value FROM ({undone}) AS undone", at.of("log_time"))
        });
        format!(
            "SELECT made.counter AS id, {} AS bucket, made.delta AS value
  FROM corrections AS made
  LEFT JOIN (SELECT number, min(log_time) AS log_time FROM corrections GROUP BY number) AS reverted
    ON made.\"of\" = reverted.number AND made.cause = 'revert'
  WHERE made.purpose = 'adjust' AND {own} AND {within}{undone}",
            at.of(&moment)
        )
    }

    /// The parts of a key that was cleared begin anew, and do not say what was counted.
    pub fn not_cleared(&self) -> String {
        if !self.has_clears {
            // All rows would be held in memory, to be looked up among none.
            return "TRUE".to_owned();
        }
        format!("id NOT IN (SELECT counter FROM corrections WHERE cause = 'clear' AND \"offset\" <= {})", self.to)
    }
}
