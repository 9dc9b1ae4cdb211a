//! What a counter came to, from the archive: for steps, dimensions and times that no roll-up has.
//!
//! The same SQL that counters are reconciled with, without a look at them. It answers what the archive has, and says up to where that is.

use super::recount::{At, Recount, takes_back};
use super::scene::{
    CLEARED, OLDEST_BASE, VERSIONS, ahead_ms, cannot_recount, eras_of, first_number, names, numbers, oldest_base, texts,
};
use crate::sql::{Answer, Asker, Question, Sql, SqlError};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tally_core::counter::{Counter, Unit, Zone};
use tally_core::limits::{SERIES_NUMBERS_MAX, SQL_TIME_MS};
use tally_core::position::Position;

/// By how much an event may be ahead of the log, beyond what the node is told to allow.
const AHEAD_MS: u64 = 5 * 60_000;

/// What is asked for.
pub struct ArchivedWanted<'a> {
    pub counter: &'a Counter,
    /// One key; all of them if it is left out.
    pub id: Option<&'a str>,
    pub by: &'a [String],
    /// Buckets of which unit, by whose clocks; all of it is one bucket without any.
    pub unit: Option<Unit>,
    pub zone: &'a Zone,
    pub ms: Range<u64>,
}

/// Sums by bucket and values of the dimensions.
pub struct ArchivedParts {
    pub parts: Vec<(u64, Vec<String>, i64)>,
    /// There are more of them.
    pub is_truncated: bool,
    /// Every event before it was counted.
    pub position: Position,
    /// The newest generation there.
    pub generation: u64,
}

impl ArchivedWanted<'_> {
    /// `None` if the archive does not have it: it is refused as if there were none.
    pub async fn ask(&self, sql: &Arc<dyn Sql>) -> Result<Option<ArchivedParts>, SqlError> {
        // Nothing is declared while a node runs, so these are those of all events.
        let versions = match ask(sql, VERSIONS.to_owned()).await {
            // An archive that has not begun has no tables.
            Err(SqlError::Wrong(_)) => return Ok(None),
            versions => versions?,
        };
        let (from, base_ms) = oldest_base(&ask(sql, OLDEST_BASE.to_owned()).await?);
        let eras = eras_of(&versions).map_err(|error| SqlError::Wrong(error.to_string()))?;
        if cannot_recount(self.counter, &eras, from).is_some() {
            return Ok(None);
        }
        if base_ms
            .is_some_and(|base_ms| self.ms.start < base_ms + ahead_ms(&eras) + AHEAD_MS || takes_back(self.counter))
        {
            return Ok(None);
        }
        let has_clears = names(&ask(sql, CLEARED.to_owned()).await?).any(|name| *name == *self.counter.name);
        let recount = Recount { counter: self.counter, eras: &eras, from, to: i64::MAX as u64, has_clears };
        let answer = ask(sql, self.statement(&recount)).await?;
        let position = answer.archive.unwrap_or_default();
        let newest = ask(sql, "SELECT coalesce(max(generation), 0) FROM corrections".to_owned()).await?;
        let generation = first_number(&newest) as u64;
        let (parts, is_truncated) = (self.read(&answer), answer.is_truncated);
        Ok(Some(ArchivedParts { parts, is_truncated, position, generation }))
    }

    /// Rows of the bucket, each dimension, and what that comes to.
    fn statement(&self, recount: &Recount<'_>) -> String {
        let at = self.unit.map_or(At::Moment, |unit| At::Bucket(unit, self.zone));
        let bucket = if self.unit.is_some() { "bucket".to_owned() } else { self.ms.start.to_string() };
        let names: Vec<String> = (0..self.by.len()).map(|index| format!("by_{index}")).collect();
        let of_event = self
            .by
            .iter()
            .zip(&names)
            .map(|(dimension, name)| format!(", {} AS {name}", recount.dimension_or_none(dimension)));
        let more = format!("{}{}", recount.at_column(at), of_event.collect::<String>());
        let corrected: String = names.iter().map(|name| format!(", '(correction)' AS {name}")).collect();
        let by: String = names.iter().map(|name| format!(", {name}")).collect();
        let id = self.id.map_or(String::new(), |id| format!(" AND id = '{}'", id.replace('\'', "''")));
        format!(
            "SELECT {bucket} AS begins{by}, sum(value) AS value FROM (
  SELECT id, bucket{by}, value FROM ({events}) AS counted
  UNION ALL
  SELECT id, bucket{corrected}, value FROM ({adjusted}) AS adjusted
) AS all_of_it WHERE bucket >= {from} AND bucket < {to}{id} GROUP BY 1{by}",
            events = recount.counted_in_the_end(&more),
            adjusted = recount.adjusted_by(at),
            from = self.ms.start,
            to = self.ms.end,
        )
    }

    fn read(&self, answer: &Answer) -> Vec<(u64, Vec<String>, i64)> {
        let mut parts = Vec::new();
        for batch in &answer.rows {
            let values: Vec<Vec<String>> = (1..=self.by.len()).map(|column| texts(batch, column)).collect();
            let sums = numbers(batch, 0).into_iter().zip(numbers(batch, 1 + self.by.len()));
            parts.extend(
                sums.enumerate().map(|(row, (at, sum))| {
                    (at as u64, values.iter().map(|column| column[row].clone()).collect(), sum)
                }),
            );
        }
        parts
    }
}

async fn ask(sql: &Arc<dyn Sql>, statement: String) -> Result<Answer, SqlError> {
    let (rows_max, time) = (SERIES_NUMBERS_MAX, Duration::from_millis(SQL_TIME_MS));
    sql.ask(Question { statement, rows_max, time, snapshot: None, asker: Asker::Client }).await
}
