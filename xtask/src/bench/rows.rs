//! The rows: what each is called, and who measures it.

use super::load::{Figure, Generator};
use super::peer::{Peer, Peers};
use super::requirement::Requirement;
use super::{Row, beside, contracts, hourly, http, instructions, kept, memory, resp, rollups, sql};
use anyhow::Result;

/// Everything that was measured.
#[derive(Default)]
pub struct Results {
    pub lines: Vec<Line>,
    pub requirements: Vec<Requirement>,
    /// What does not fit into the lines.
    pub tables: Vec<Table>,
    /// Findings without a requirement of their own.
    pub notes: Vec<String>,
}

/// A table of its own.
pub struct Table {
    pub title: String,
    /// How it was measured.
    pub about: String,
    pub head: Vec<String>,
    /// Each begins with what it is about; the others are numbers.
    pub rows: Vec<Vec<String>>,
}

/// One server under the load of a row. Those of a row stand together, Tally first.
pub struct Line {
    pub row: Row,
    pub peer: Peer,
    pub figure: Figure,
}

impl Results {
    pub fn figure(&self, row: Row, peer: Peer) -> Option<Figure> {
        self.lines.iter().find(|line| line.row == row && line.peer == peer).map(|line| line.figure)
    }

    /// Shows a finding, and keeps it for the page.
    pub fn note(&mut self, text: String) {
        println!("  {text}");
        self.notes.push(text);
    }
}

impl Row {
    pub fn title(self) -> &'static str {
        match self {
            Row::P64 => "`INCR`, 1 M random keys, pipeline 64",
            Row::P16 => "`INCR`, 1 M random keys, pipeline 16",
            Row::P1 => "`INCR`, 1 M random keys, pipeline 1",
            Row::Hot => "`INCR`, one hot key, pipeline 64",
            Row::Mix => "`GET` beside `INCR`s at full rate (both counted; latency of the `GET`s)",
            Row::Grown => "`INCR`, 10 M random keys, pipeline 64",
            Row::Grown50 => "`INCR`, 50 M random keys, pipeline 64",
            Row::Pauses => "single `INCR`s, 2,000 a second, beside 1 M a second while cuts run",
            Row::Events => "`POST /v1/events`, NDJSON, 1,000 × 250 bytes",
            Row::Ten => "`POST /v1/events`, NDJSON, 10 × 250 bytes, 64 connections",
            Row::One => "`POST /v1/events`, one event of 250 bytes, 64 connections",
            Row::Compact => "compact batches of 1,000 events, 1 M keys",
            Row::CompactGrown => "compact batches of 1,000 events, 10 M keys",
            Row::Memory => "10 M counters in memory",
            Row::Resident => "resident memory under load",
            Row::Restart => "restart",
            Row::Huge => "100 M counters in 1 GiB",
            Row::Dedup => "`POST /v1/events`, views of 1 M sessions with consecutive seqs",
            Row::Persistent => "persistent counters, 1,000 events at a time, 100 k keys, 5 % duplicates",
            Row::Streams => "10 impressions (`persistent`) at a time",
            Row::Reads => "reads beside a flood of views",
            Row::Rollups => "`POST /v1/events`, 1 M keys, `rollups: [[country], [country, hour]]`",
            Row::Series => "`GET …/series` of one key of 100 k, 200 countries × 24 hours",
            Row::Hourly => "views by country and hour",
            Row::Instructions => "instructions of one operation",
            Row::Registry => "100 M event ids in 1 GiB",
            Row::Top => "10 M keys of a counter",
            Row::Parts => "50 M hourly parts in 512 MiB",
            Row::Archiving => "impressions with random ids, 1,000 × 250 bytes",
            Row::Backup => "a backup of 10 M counters",
            Row::Sql => "100 M archived impressions in SQL, 2 GiB",
        }
    }
}

pub fn measure(rows: &[Row], peers: &Peers, generator: &Generator, results: &mut Results) -> Result<()> {
    resp::measure(rows, peers, generator, results)?;
    for row in rows {
        match row {
            Row::P64 | Row::P16 | Row::P1 | Row::Hot | Row::Mix => {} // Measured together, above.
            Row::Grown => resp::measure_grown(*row, 10_000_000, 0.7, peers, generator, results)?,
            Row::Grown50 => resp::measure_grown(*row, 50_000_000, 0.45, peers, generator, results)?,
            Row::Pauses => beside::measure_pauses(peers, generator, results)?,
            Row::Events | Row::Ten | Row::One | Row::Compact | Row::CompactGrown => {
                http::measure(*row, peers, generator, results)?;
            }
            Row::Memory => memory::measure_counters(peers, generator, results)?,
            Row::Resident => memory::measure_resident(peers, generator, results)?,
            Row::Restart => memory::measure_restart(peers, generator, results)?,
            Row::Huge => memory::measure_huge(peers, generator, results)?,
            Row::Dedup => contracts::measure_dedup(peers, generator, results)?,
            Row::Persistent => contracts::measure_persistent(peers, generator, results)?,
            Row::Rollups => rollups::measure_rollups(peers, generator, results)?,
            Row::Series => rollups::measure_series(peers, generator, results)?,
            Row::Hourly => hourly::measure(peers, generator, results)?,
            Row::Top => rollups::measure_top(peers, generator, results)?,
            Row::Parts => rollups::measure_parts(peers, generator, results)?,
            Row::Streams => beside::measure_streams(peers, generator, results)?,
            Row::Reads => beside::measure_reads(peers, generator, results)?,
            Row::Instructions => instructions::measure(peers.tally(), results)?,
            Row::Registry => contracts::measure_registry(peers, generator, results)?,
            Row::Archiving => kept::measure_archiving(peers, generator, results)?,
            Row::Backup => kept::measure_backup(peers, generator, results)?,
            Row::Sql => sql::measure(peers, generator, results)?,
        }
    }
    Ok(())
}
