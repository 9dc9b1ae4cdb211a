//! What a counter came to, from the archive: for steps, dimensions and times that no roll-up has.
//!
//! The same SQL that counters are reconciled with, without a look at them. It answers what the archive has, and says up to where that is.

use super::recount::{At, Era, Recount, Start, takes_back};
use super::scene::{
    ATTEMPTS, CLEARED, OLDEST_BASE, VERSIONS, ahead_ms, cannot_recount, eras_of, first_number, let_go, names, numbers,
    oldest_base, texts,
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
        let eras = eras_of(&versions).map_err(|error| SqlError::Wrong(error.to_string()))?;
        for _ in 0..ATTEMPTS {
            let begins = oldest_base(&ask(sql, OLDEST_BASE.to_owned()).await?);
            let found = self.ask_from(sql, begins, &eras).await;
            // Bases go before what is older than they are: nothing was missing if this one is still there.
            if oldest_base(&ask(sql, OLDEST_BASE.to_owned()).await?) == begins {
                return found;
            }
        }
        Err(let_go().into())
    }

    /// The same as of where counting begins.
    async fn ask_from(
        &self,
        sql: &Arc<dyn Sql>,
        (from, base_ms): (Start, Option<u64>),
        eras: &[Era],
    ) -> Result<Option<ArchivedParts>, SqlError> {
        if cannot_recount(self.counter, eras, from).is_some() {
            return Ok(None);
        }
        if base_ms
            .is_some_and(|base_ms| self.ms.start < base_ms + ahead_ms(eras) + AHEAD_MS || takes_back(self.counter))
        {
            return Ok(None);
        }
        let has_clears = names(&ask(sql, CLEARED.to_owned()).await?).any(|name| *name == *self.counter.name);
        let recount = Recount { counter: self.counter, eras, archived: eras, from, to: i64::MAX as u64, has_clears };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Form, Written};
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow_ipc::writer::StreamWriter;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use tally_core::counter::Declarations;

    const YAML: &str = "counters:\n  - {counterName: views, mode: display, rules: [{on: viewed, op: increment}]}\n";

    /// An archive that begins later each time it is asked for its oldest base, for as long as there are later ones.
    struct LettingGo(Mutex<VecDeque<i64>>);

    impl LettingGo {
        fn table(&self, statement: &str) -> RecordBatch {
            let number = |n: i64| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
            let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
            let columns = match statement {
                VERSIONS => vec![number(1), text(YAML), number(0)],
                OLDEST_BASE => {
                    let mut bases = self.0.lock().unwrap();
                    let oldest = if bases.len() > 1 { bases.pop_front() } else { bases.front().copied() };
                    vec![number(oldest.unwrap()), number(0)]
                }
                CLEARED => vec![text("others")],
                statement if statement.contains("max(generation)") => vec![number(3)],
                _ => vec![number(0), number(5)],
            };
            RecordBatch::try_from_iter(["a", "b", "c"].into_iter().zip(columns)).unwrap()
        }
    }

    impl Sql for LettingGo {
        fn write(&self, question: Question, _: Form) -> BoxFuture<'_, Result<Written, SqlError>> {
            let rows = self.table(&question.statement);
            let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema()).unwrap();
            writer.write(&rows).unwrap();
            let bytes = writer.into_inner().unwrap();
            let written =
                Written { columns: vec![], bytes, row_count: 1, is_truncated: false, archive: None, live: None };
            Box::pin(std::future::ready(Ok(written)))
        }
    }

    /// What is there of the time behind the first bases, if an archive begins at these offsets one after the other.
    fn found(bases: &[i64]) -> Result<Option<i64>, SqlError> {
        let declarations = Declarations::parse(YAML).unwrap();
        let (counter, zone) = (&declarations.counters()[0], &Zone::default());
        let wanted = ArchivedWanted { counter, id: None, by: &[], unit: None, zone, ms: u64::MAX / 2..u64::MAX };
        let sql: Arc<dyn Sql> = Arc::new(LettingGo(Mutex::new(bases.iter().copied().collect())));
        let found = wanted.ask(&sql).now_or_never().unwrap()?;
        Ok(found.map(|found| found.parts[0].2))
    }

    #[test]
    fn what_an_archive_lets_go_of_while_it_is_counted_is_counted_from_a_later_base_or_refused() {
        assert_eq!(found(&[0]).unwrap(), Some(5));
        assert_eq!(found(&[0, 70]).unwrap(), Some(5), "the second time nothing was let go of");
        let refused = found(&[0, 70, 80, 90]).unwrap_err();
        assert!(refused.to_string().contains("has let go of old events"), "{refused}");
    }
}
