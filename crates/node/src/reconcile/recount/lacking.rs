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

/// What a stand-in lacks, of some keys.
pub struct Lacking<'a> {
    pub stand_in: &'a KeptRollup,
    /// When what it stands in for was added.
    pub since_ms: u64,
    /// It says which values of its only dimension a key admits.
    pub decides: bool,
    pub of: Of<'a>,
    /// Only buckets behind this one, of the first key.
    pub behind: Option<u64>,
}

/// Of whom.
#[derive(Clone, Copy)]
pub enum Of<'a> {
    /// The counter as a whole, which is a key by its name.
    Whole,
    /// Keys in the order of their ids. Each question is about so few that what they come to fits into memory.
    Keys { from: &'a str, to: &'a str },
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

    /// Rows that matter, by their ids.
    fn range(&self) -> String {
        match self.of {
            Of::Whole => "TRUE".to_owned(),
            Of::Keys { from, to } => format!("id >= {} AND id <= {}", text(from), text(to)),
        }
    }

    fn told(&self) -> String {
        // A value that has come to nothing has its place all the same.
        let is_told = match self.decides {
            true => format!("(value <> 0 OR by_0 NOT IN ({}))", words()),
            false => "value <> 0".to_owned(),
        };
        match (self.behind, self.of) {
            (None, _) => is_told,
            (Some(behind), Of::Whole) => format!("{is_told} AND bucket > {behind}"),
            (Some(behind), Of::Keys { from, .. }) => {
                format!("{is_told} AND (id > {} OR bucket > {behind})", text(from))
            }
        }
    }
}

impl Recount<'_> {
    /// Rows (`id`, `bucket`, `by_0` and so on, `value`) in the order of keys and buckets, and within those in the order of the log.
    pub fn lacking(&self, lacking: &Lacking<'_>) -> String {
        let (by, all) = (lacking.by_names(), self.explained_and_less(lacking));
        let parts = format!(
            "SELECT id, bucket{by}, sum(value) AS value, min(first) AS first FROM (\n  {all}\n) AS all_of_it GROUP BY id, bucket{by}"
        );
        format!(
            "SELECT id, bucket{by}, value FROM ({parts}) AS parts WHERE {told} ORDER BY id, bucket, first{by}",
            parts = if by.is_empty() { parts } else { admitted(lacking, &parts) },
            told = lacking.told(),
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

    /// What is explained, what is not, and less what the stand-in has.
    fn explained_and_less(&self, lacking: &Lacking<'_>) -> String {
        let (name, by, own) = (text(&self.counter.name), lacking.by_names(), lacking.own_bucket());
        // Each part that is explained is taken from what is not. What is few stands on the left: that side is held in memory.
        let explained_by = lacking.by(|n, _| format!("CASE WHEN side > 0 THEN by_{n} ELSE '{NONE}' END"));
        let unexplained_by = lacking.by(|_, _| format!("'{NONE}'"));
        let has_by = lacking.by(|_, name| format!("dimensions[{}]", text(name)));
        format!(
            "SELECT id, CASE WHEN side > 0 THEN bucket ELSE {own} END AS bucket{explained_by},
    value * side AS value, CASE WHEN side > 0 THEN first ELSE {LAST} END AS first
  FROM (VALUES (1), (-1)) AS sides(side) CROSS JOIN ({explained}) AS explained
  UNION ALL
  SELECT id, {own} AS bucket{unexplained_by}, value, {LAST} AS first FROM ({worth}) AS worth
  UNION ALL
  SELECT id, {bucket} AS bucket{has_by}, -value AS value, {LAST} AS first FROM filling
  WHERE counter = {name} AND {is_it}",
            explained = self.explained(lacking, &by),
            worth = self.worth(lacking),
            bucket = match lacking.at() {
                // As the roll-up itself has put it.
                Some(_) => At::Moment.of("bucket"),
                None => lacking.bucket_of("bucket"),
            },
            is_it = match lacking.of {
                Of::Whole => format!("id = {name}"),
                Of::Keys { .. } => lacking.range(),
            },
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
        let (name, range) = (text(&self.counter.name), lacking.range());
        let by_bucket = format!(", bucket{by}");
        let (id, events) = match lacking.of {
            Of::Whole => (
                format!("{name} AS id"),
                format!("SELECT {name} AS id{by_bucket}, value, first FROM ({counted}) AS counted"),
            ),
            Of::Keys { .. } => {
                let counted = format!("SELECT * FROM ({counted}) AS each_one WHERE {range}");
                ("id".to_owned(), self.summed_in_order(&counted, &by_bucket))
            }
        };
        format!(
            "SELECT id, bucket{by}, sum(value) AS value, min(first) AS first FROM (
    {events}
    UNION ALL
    SELECT {id}, {corrected_bucket}{corrected_by}, value, {LAST} AS first FROM ({adjusted}) AS adjusted WHERE {range}
    UNION ALL
    SELECT {id}, {parked_bucket} AS bucket{parked_by}, -delta AS value, {LAST} AS first
    FROM parked_parts WHERE counter = {name} AND {range}
  ) AS explanations GROUP BY id, bucket{by}",
            parked_bucket = lacking.bucket_of("bucket"),
        )
    }

    /// Rows (`id`, `value`): what each key is worth, behind a base what it has changed since.
    fn worth(&self, lacking: &Lacking<'_>) -> String {
        let (name, range) = (text(&self.counter.name), lacking.range());
        let id = if matches!(lacking.of, Of::Whole) { format!("{name} AS id") } else { "id".to_owned() };
        // Who counted by the bare name before it was declared has counted for no key.
        let is_key = if self.counter.has_keys() { format!("id <> {name}") } else { "TRUE".to_owned() };
        let mut worth = format!("SELECT id, \"sum\" AS value FROM counters WHERE counter = {name}");
        if let Start::Base(from) = self.from {
            let own = self.own_ids("counter");
            let _ = write!(
                worth,
                " UNION ALL SELECT counter AS id, -value AS value FROM base WHERE {own} AND \"offset\" = {from}"
            );
        }
        format!("SELECT {id}, value FROM ({worth}) AS worth_of_each WHERE {is_key} AND {range}")
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
