//! The parts of a key: as the store has them, and what memory has added since, seen at one moment.

mod coarse;
mod many;
mod top;

pub use many::{SeriesWanted, TooMuch};
pub use top::{TopFound, TopWanted};

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use tally_core::counter::rollup::{Minutes, Unit};
use tally_core::id::CellKey;
use tally_core::ledger::parts::Blocks;
use tally_core::ledger::{LedgerKey, PartsSince, StoredRows};
use tally_core::limits::PARTS_PER_ROW_MAX;
use tally_core::record::DecodeError;
use tally_core::series::Series;
use tally_core::values::KeptRollup;
use tally_storage::store::{self, Reads};

/// Whose parts are asked for.
#[derive(Clone, Debug)]
pub struct PartsOf {
    pub cell: CellKey,
    /// The roll-up, by its number.
    pub rollup: u16,
    /// Those that decide which values the key admits.
    pub deciding: Vec<u16>,
    /// The counter, if it is asked for as a whole.
    pub whole: Option<Box<str>>,
    /// Whose roll-up it is, and as which units it may have buckets beside its own.
    pub counter: Box<str>,
    pub coarser: Vec<Unit>,
}

/// A series, and what is to be said of it.
#[derive(Debug)]
pub struct SeriesFound {
    pub series: Series,
    /// How many keys were added up.
    pub keys: u64,
    /// Late entries that wait, and will change it.
    pub parked: u64,
    /// The newest generation.
    pub generation: u64,
    /// The log time it is as of.
    pub as_of_ms: u64,
    /// The roll-up as it was kept then; `None` if there was no such one any more.
    pub kept: Option<KeptRollup>,
}

/// Rows of parts, as of one checkpoint.
#[derive(Default)]
struct PartRows {
    rows: BTreeMap<Minutes, Vec<u8>>,
    /// Those of coarser buckets that old ones were rolled into.
    coarser: Vec<(Minutes, Vec<u8>)>,
    /// What decides which values a key admits, by the key of its row.
    deciding: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl PartRows {
    /// None without a store. Blocks on it.
    fn read(
        store: Option<&dyn Reads>,
        of: &PartsOf,
        since: &PartsSince,
        minutes: &Range<Minutes>,
    ) -> Result<PartRows, store::Error> {
        let Some(store) = store else { return Ok(PartRows::default()) };
        let mut found = PartRows { coarser: coarse::read(store, of, minutes)?, ..PartRows::default() };
        let range = LedgerKey::parts_within(of.cell, of.rollup, minutes);
        let mut read = Ok(());
        store.ledger_rows(&range.start, &range.end, &mut |key, row| match LedgerKey::decode(key) {
            Ok(LedgerKey::Part(_, _, bucket)) => {
                found.rows.insert(bucket, row.to_vec());
                ControlFlow::Continue(())
            }
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                read = Err(damaged(error));
                ControlFlow::Break(())
            }
        })?;
        read?;
        // Another one may have taken the place of one that has decided.
        for rollup in of.deciding.iter().copied().chain(since.deciding()) {
            let key = LedgerKey::Part(of.cell, rollup, 0).encode();
            let row = store.ledger_get(&key)?;
            found.deciding.extend(row.map(|row| (key, row)));
        }
        Ok(found)
    }

    /// Whether nothing that memory has added can be one value too many, so that the order in which it came does not matter.
    fn admits_all(&self, of: &PartsOf, since: &PartsSince) -> bool {
        // A part takes more than one byte.
        let most = self.rows.values().map(Vec::len).max().unwrap_or(0);
        of.deciding.is_empty() && since.deciding().next().is_none() && most + since.parts_of_a_row() < PARTS_PER_ROW_MAX
    }

    /// What all of it comes to, with what memory has added.
    fn added_up(self, of: &PartsOf, since: &PartsSince, series: Series) -> Result<Series, store::Error> {
        let rows = if since.cleared { PartRows::default() } else { self };
        rows.added_to(of, since, series).map_err(damaged)
    }

    fn added_to(self, of: &PartsOf, since: &PartsSince, mut series: Series) -> Result<Series, DecodeError> {
        // Nothing is added to these but by a cut, and no row is in two of them.
        self.coarser.iter().try_for_each(|(bucket, row)| series.feed_row(*bucket, row))?;
        if self.admits_all(of, since) {
            self.rows.iter().try_for_each(|(bucket, row)| series.feed_row(*bucket, row))?;
            since.of_rollup(of.rollup, &mut series, Series::known_as, Series::feed_known)?;
            return Ok(series);
        }
        let stored = Beside { of, rows: &self };
        let mut blocks = Blocks::new(of.cell, &stored, since.cleared).only(of.rollup);
        since.lay_over(&mut blocks)?;
        for (bucket, row) in self.rows.iter().filter(|(bucket, _)| blocks.get(of.rollup, **bucket).is_none()) {
            series.feed_row(*bucket, row)?;
        }
        blocks.of(of.rollup).for_each(|(bucket, block)| series.feed(bucket, block.parts()));
        Ok(series)
    }
}

/// What was read, as rows that others are laid over.
struct Beside<'a> {
    of: &'a PartsOf,
    rows: &'a PartRows,
}

impl StoredRows for Beside<'_> {
    fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        match LedgerKey::decode(key) {
            Ok(LedgerKey::Part(_, rollup, bucket)) if rollup == self.of.rollup => self.rows.rows.get(&bucket).cloned(),
            _ => self.rows.deciding.get(key).cloned(),
        }
    }

    fn keys(&self, _: &Range<Vec<u8>>) -> Vec<Vec<u8>> {
        unreachable!("only a cut asks for them")
    }

    fn damaged(&self, key: &[u8], error: DecodeError) {
        unreachable!("{}: {error} was answered", key.escape_ascii())
    }
}

fn damaged(error: DecodeError) -> store::Error {
    store::Error::Damaged(format!("a row of parts: {error}"))
}
