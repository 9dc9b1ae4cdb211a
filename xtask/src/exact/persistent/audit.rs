//! The audit of repeated ids, as `GET /v1/duplicates` tells it.

use super::lane::Reached;
use crate::client::HttpClient;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Up to this many rows, all of them are read; beyond it, their number alone.
const ROWS_READ_MAX: u64 = 200_000;

#[derive(Deserialize)]
struct Page {
    total: u64,
    duplicates: Vec<Row>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Row {
    conflict: bool,
    position: Place,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd)]
struct Place {
    offset: u64,
    index: u32,
}

/// Compares the rows with what reached the log.
pub fn verify(server: &Server, reached: &Reached) -> Result<()> {
    let mut client = HttpClient::connect(server.http()?)?;
    let (mut seen, mut before) = (Seen::default(), String::new());
    loop {
        let text = client.get(&format!("/v1/duplicates?limit=1000{before}"))?;
        let page: Page = serde_json::from_str(&text).with_context(|| format!("the audit answered {text}"))?;
        let (total, expected) = (page.total, reached.repeats());
        ensure!(total == expected, "the audit has {total} rows and must have {expected}: {reached:?}");
        if total > ROWS_READ_MAX {
            return Ok(());
        }
        seen.take(&page.duplicates)?;
        match page.next {
            Some(next) => before = format!("&before={next}"),
            None => return seen.compare(reached),
        }
    }
}

/// What was read so far.
#[derive(Default)]
struct Seen {
    rows: u64,
    conflicts: u64,
    last: Option<Place>,
}

impl Seen {
    /// The next rows, which must be older than those before.
    fn take(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            let (before, place) = (self.last, row.position);
            ensure!(before.is_none_or(|before| place < before), "the audit has {place:?} behind {before:?}");
            self.last = Some(place);
            self.rows += 1;
            self.conflicts += u64::from(row.conflict);
        }
        Ok(())
    }

    fn compare(&self, reached: &Reached) -> Result<()> {
        ensure!(
            (self.rows, self.conflicts) == (reached.repeats(), reached.conflicts),
            "the audit lists {} rows with {} conflicts and must list {} with {}",
            self.rows,
            self.conflicts,
            reached.repeats(),
            reached.conflicts
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(offset: u64, index: u32, conflict: bool) -> Row {
        Row { conflict, position: Place { offset, index } }
    }

    #[test]
    fn rows_that_come_twice_or_are_missing_are_noticed() {
        let reached = Reached { events: 12, different_ids: 9, conflicts: 1, ..Reached::default() };
        let mut seen = Seen::default();
        seen.take(&[row(20, 3, false), row(20, 1, true)]).unwrap();
        assert!(seen.compare(&reached).is_err(), "one is missing");
        assert!(seen.take(&[row(20, 1, true)]).is_err(), "twice");
        seen.take(&[row(4, 7, false)]).unwrap();
        seen.compare(&reached).unwrap();
        assert!(seen.compare(&Reached { conflicts: 2, ..reached }).is_err());
    }
}
