//! What the stand-in of a roll-up lacks of what its counter was ever worth: what events came to by its dimensions and buckets, less what it
//! has (ADR 37).
//!
//! Whatever a counter is worth, its parts add up to it: what no event and no correction explains, such as what was counted by name, is in
//! the part `(none)` of the bucket in which the roll-up was added.

use super::{At, Recount, Start, text};
use std::fmt::Write as _;
use tally_core::counter::rollup::{bucket_ms, minute_of};
use tally_core::ledger::{CORRECTION, NONE, OTHER};
use tally_core::limits::PARTS_PER_ROW_MAX;
use tally_core::values::KeptRollup;

/// Of a stand-in, behind a key or one of its buckets.
pub struct Lacking<'a> {
    pub stand_in: &'a KeptRollup,
    /// When what it stands in for was added.
    pub since_ms: u64,
    /// It says which values of its only dimension a key admits.
    pub decides: bool,
    pub behind: Option<(&'a str, Option<u64>)>,
}

/// Behind everything that came as an event.
const LAST: &str = "9223372036854775807";

impl Lacking<'_> {
    fn at(&self) -> Option<At<'_>> {
        self.stand_in.rollup.unit.map(|unit| At::Bucket(unit, &self.stand_in.zone))
    }

    /// The bucket of an expression that is a moment.
    fn bucket_of(&self, moment: &str) -> String {
        self.at().map_or("CAST(0 AS BIGINT)".to_owned(), |at| at.of(moment))
    }

    /// The bucket in which the roll-up was added.
    fn own_bucket(&self) -> u64 {
        let KeptRollup { rollup, zone, .. } = self.stand_in;
        rollup.unit.map_or(0, |unit| bucket_ms(unit.bucket(minute_of(self.since_ms as i64), zone)))
    }

    /// The columns of its dimensions, each behind a comma.
    fn by(&self, column: impl Fn(usize, &str) -> String) -> String {
        let dimensions = self.stand_in.rollup.dimensions.iter().enumerate();
        dimensions.map(|(n, name)| format!(", {} AS by_{n}", column(n, name))).collect()
    }

    fn by_names(&self) -> String {
        (0..self.stand_in.rollup.dimensions.len()).map(|n| format!(", by_{n}")).collect()
    }

    fn behind(&self) -> String {
        match self.behind {
            None => String::new(),
            Some((id, None)) => format!(" AND id > {}", text(id)),
            Some((id, Some(bucket))) => {
                let id = text(id);
                format!(" AND (id > {id} OR (id = {id} AND bucket > {bucket}))")
            }
        }
    }
}

impl Recount<'_> {
    /// Rows (`id`, `bucket`, `by_0` and so on, `value`) in the order of keys and buckets, and within those in the order of the log. The counter
    /// as a whole is a key by its name.
    pub fn lacking(&self, lacking: &Lacking<'_>) -> String {
        let (by, all) = (lacking.by_names(), self.explained_and_less(lacking));
        let parts = format!(
            "SELECT id, bucket{by}, sum(value) AS value, min(first) AS first FROM (\n  {all}\n) AS all_of_it GROUP BY id, bucket{by}"
        );
        format!(
            "SELECT id, bucket{by}, value FROM ({parts}) AS parts WHERE {told}{behind} ORDER BY id, bucket, first{by}",
            parts = if by.is_empty() { parts } else { admitted(lacking, &parts) },
            // A value that has come to nothing has its place all the same.
            told = if lacking.decides {
                format!("(value <> 0 OR by_0 NOT IN ({}))", words())
            } else {
                "value <> 0".to_owned()
            },
            behind = lacking.behind(),
        )
    }

    /// What is explained, what is not, and less what the stand-in has.
    fn explained_and_less(&self, lacking: &Lacking<'_>) -> String {
        let (name, by, own) = (text(&self.counter.name), lacking.by_names(), lacking.own_bucket());
        let id = if self.counter.has_keys() {
            format!("CASE WHEN who = 0 THEN id ELSE {name} END AS id")
        } else {
            "id".to_owned()
        };
        let whos: &[u8] = if self.counter.has_keys() { &[0, 1] } else { &[0] };
        let sides = whos.iter().flat_map(|who| [format!("({who}, 1)"), format!("({who}, -1)")]).collect::<Vec<_>>();
        let whos = whos.iter().map(|who| format!("({who})")).collect::<Vec<_>>();
        // Each part that is explained is taken from what is not. What is few stands on the left: that side is held in memory.
        let explained_by = lacking.by(|n, _| format!("CASE WHEN side > 0 THEN by_{n} ELSE '{NONE}' END"));
        let unexplained_by = lacking.by(|_, _| format!("'{NONE}'"));
        let has_by = lacking.by(|_, name| format!("dimensions[{}]", text(name)));
        format!(
            "SELECT {id}, CASE WHEN side > 0 THEN bucket ELSE {own} END AS bucket{explained_by},
    value * side AS value, CASE WHEN side > 0 THEN first ELSE {LAST} END AS first
  FROM (VALUES {sides}) AS sides(who, side) CROSS JOIN ({explained}) AS explained
  UNION ALL
  SELECT {id}, {own} AS bucket{unexplained_by}, value, {LAST} AS first
  FROM (VALUES {whos}) AS whos(who) CROSS JOIN ({worth}) AS worth
  UNION ALL
  SELECT id, {bucket} AS bucket{has_by}, -value AS value, {LAST} AS first FROM filling WHERE counter = {name}",
            explained = self.explained(lacking, &by),
            worth = self.worth(),
            bucket = match lacking.at() {
                // As the roll-up itself has put it.
                Some(_) => At::Moment.of("bucket"),
                None => lacking.bucket_of("bucket"),
            },
            sides = sides.join(", "),
            whos = whos.join(", "),
        )
    }

    /// Rows (`id`, `bucket`, `by_0` and so on, `value`, `first`): what events and corrections come to, but for late entries that wait. Those
    /// will come by themselves, in the parts that are remembered of them.
    fn explained(&self, lacking: &Lacking<'_>, by: &str) -> String {
        let of_event = lacking.by(|_, name| self.dimension_or_none(name));
        let bucket = match lacking.at() {
            Some(at) => self.at_column(at),
            None => ", CAST(0 AS BIGINT) AS bucket".to_owned(),
        };
        let counted = self.counted_in_the_end(&format!("{bucket}{of_event}, \"offset\" AS first"));
        let corrected_by = lacking.by(|_, _| format!("'{CORRECTION}'"));
        let adjusted = self.adjusted_by(lacking.at().unwrap_or(At::Moment));
        let corrected_bucket = if lacking.at().is_some() { "bucket" } else { "CAST(0 AS BIGINT) AS bucket" };
        let parked_by = lacking.by(|_, name| format!("coalesce(dimensions[{}], '{NONE}')", text(name)));
        format!(
            "SELECT id, bucket{by}, sum(value) AS value, min(first) AS first FROM (
    {events}
    UNION ALL
    SELECT id, {corrected_bucket}{corrected_by}, value, {LAST} AS first FROM ({adjusted}) AS adjusted
    UNION ALL
    SELECT id, {parked_bucket} AS bucket{parked_by}, -delta AS value, {LAST} AS first FROM parked_parts WHERE counter = {name}
  ) AS explanations GROUP BY id, bucket{by}",
            events = self.summed_in_order(&counted, &format!(", bucket{by}")),
            parked_bucket = lacking.bucket_of("bucket"),
            name = text(&self.counter.name),
        )
    }

    /// A row: the offset of the last correction that has voided what keys had, or brought them to what was counted.
    pub fn last_disturbed(&self) -> String {
        let own = self.own_ids("counter");
        format!(
            "SELECT coalesce(max(\"offset\"), 0) FROM corrections WHERE (cause = 'clear' OR purpose = 'restore') AND {own} AND \"offset\" <= {}",
            self.to
        )
    }

    /// Rows (`id`, `value`): what each key is worth, behind a base what it has changed since.
    fn worth(&self) -> String {
        let name = text(&self.counter.name);
        let mut worth = format!("SELECT id, \"sum\" AS value FROM counters WHERE counter = {name}");
        if self.counter.has_keys() {
            // Who counted by the bare name before it was declared has counted for no key.
            let _ = write!(worth, " AND id <> {name}");
        }
        if let Start::Base(from) = self.from {
            let own = self.own_ids("counter");
            let _ = write!(
                worth,
                " UNION ALL SELECT counter AS id, -value AS value FROM base WHERE {own} AND \"offset\" = {from}"
            );
            if self.counter.has_keys() {
                let _ = write!(worth, " AND counter <> {name}");
            }
        }
        worth
    }
}

/// Values that have room in any case.
fn words() -> String {
    [NONE, CORRECTION, OTHER].map(text).join(", ")
}

/// Of a key and bucket only as many values as a row has place for, those that came first; the rest together.
fn admitted(lacking: &Lacking<'_>, parts: &str) -> String {
    let by = lacking.by_names();
    let words = words();
    let is_words = (0..lacking.stand_in.rollup.dimensions.len()).map(|n| format!("by_{n} IN ({words})"));
    let is_words = is_words.collect::<Vec<_>>().join(" AND ");
    let admitted = lacking
        .by(|n, _| format!("CASE WHEN nth <= {PARTS_PER_ROW_MAX} OR ({is_words}) THEN by_{n} ELSE '{OTHER}' END"));
    format!(
        "SELECT id, bucket{by}, sum(value) AS value, min(first) AS first FROM (
    SELECT id, bucket{admitted}, value, first FROM (
      SELECT *, row_number() OVER (PARTITION BY id, bucket ORDER BY first{by}) AS nth FROM ({parts}) AS each_part
    ) AS ranked
  ) AS admitted GROUP BY id, bucket{by}"
    )
}
