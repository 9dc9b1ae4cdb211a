//! The parts of a key: as the store has them, and what memory has added since, seen at one moment.

mod coarse;

use super::question::Question;
use super::shared::Shared;
use super::{Engine, Refusal};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::counter::rollup::{Minutes, Unit};
use tally_core::id::{CellKey, name_of};
use tally_core::ledger::parts::Blocks;
use tally_core::ledger::{LedgerKey, PartsSince, StoredRows};
use tally_core::limits::PARTS_PER_ROW_MAX;
use tally_core::machine::Machine;
use tally_core::record::DecodeError;
use tally_core::series::Series;
use tally_core::values::KeptRollup;
use tally_storage::store::{self, Reads};

/// How often the store is read again because a checkpoint ended meanwhile.
const TRIES_MAX: usize = 1000;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);

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
    /// Late entries that wait, and will change it.
    pub parked: u64,
    /// The newest generation.
    pub generation: u64,
    /// The log time it is as of.
    pub as_of_ms: u64,
    /// The roll-up as it was kept then; `None` if there was no such one any more.
    pub kept: Option<KeptRollup>,
}

impl Engine {
    /// Adds up the parts of a key, or of a counter as a whole.
    pub async fn series(&self, of: PartsOf, empty: Series) -> Result<SeriesFound, Refusal> {
        for _ in 0..TRIES_MAX {
            let (wanted, minutes) = (of.clone(), empty.minutes());
            let read = move |_: &Shared, store: &dyn Reads| PartRows::read(store, &wanted, &minutes);
            let mut rows = self.shared.from_store(read).await?;
            let question = AddedSince { shared: self.shared.clone(), of: of.clone(), checkpoint: rows.checkpoint };
            let Some(added) = self.ask(question).await? else {
                // The store shows a checkpoint before it has been read back, and memory goes on from it only then.
                self.shared.clock.sleep(TRY_AGAIN_AFTER).await;
                continue;
            };
            if added.store_is_void || added.since.cleared {
                rows = PartRows { checkpoint: rows.checkpoint, ..PartRows::default() };
            }
            let series = rows.added_up(&of, &added.since, empty.clone());
            let series = series.map_err(|error| Refusal::store(&damaged(error)))?;
            let AddedParts { parked, generation, as_of_ms, kept, .. } = added;
            return Ok(SeriesFound { series, parked, generation, as_of_ms, kept });
        }
        Err(Refusal::busy())
    }
}

/// Rows of parts, as of one checkpoint.
#[derive(Default)]
struct PartRows {
    /// The offset where it stands.
    checkpoint: u64,
    rows: BTreeMap<Minutes, Vec<u8>>,
    /// Those of coarser buckets that old ones were rolled into.
    coarser: Vec<(Minutes, Vec<u8>)>,
    /// What decides which values a key admits, by the key of its row.
    deciding: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl PartRows {
    /// Blocks on the store.
    fn read(store: &dyn Reads, of: &PartsOf, minutes: &Range<Minutes>) -> Result<PartRows, store::Error> {
        let checkpoint = store.checkpoint()?.map_or(0, |checkpoint| checkpoint.position.offset);
        let mut found = PartRows { checkpoint, coarser: coarse::read(store, of, minutes)?, ..PartRows::default() };
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
        for rollup in &of.deciding {
            let key = LedgerKey::Part(of.cell, *rollup, 0).encode();
            let row = store.ledger_get(&key)?;
            found.deciding.extend(row.map(|row| (key, row)));
        }
        Ok(found)
    }

    /// Whether nothing that memory has added can be one value too many, so that the order in which it came does not matter.
    fn admits_all(&self, of: &PartsOf, since: &PartsSince) -> bool {
        // A part takes more than one byte.
        let most = self.rows.values().map(Vec::len).max().unwrap_or(0);
        of.deciding.is_empty() && most + since.len() < PARTS_PER_ROW_MAX
    }

    /// What all of it comes to, with what memory has added.
    fn added_up(self, of: &PartsOf, since: &PartsSince, mut series: Series) -> Result<Series, DecodeError> {
        // Nothing is added to these but by a cut, and no row is in two of them.
        self.coarser.iter().try_for_each(|(bucket, row)| series.feed_row(*bucket, row))?;
        if self.admits_all(of, since) {
            self.rows.iter().try_for_each(|(bucket, row)| series.feed_row(*bucket, row))?;
            since.of_rollup(of.rollup, |bucket, values, sum| series.feed_one(bucket, values, sum))?;
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

/// What memory has added to the parts of a key beside a checkpoint.
struct AddedSince {
    shared: Arc<Shared>,
    of: PartsOf,
    checkpoint: u64,
}

struct AddedParts {
    since: PartsSince,
    store_is_void: bool,
    parked: u64,
    generation: u64,
    as_of_ms: u64,
    kept: Option<KeptRollup>,
}

impl Question for AddedSince {
    /// `None` if memory does not continue that checkpoint.
    type Answer = Option<AddedParts>;

    fn answer(self, state: &Machine) -> Option<AddedParts> {
        let store_is_void = state.values.store_is_void;
        if !store_is_void && self.checkpoint != self.shared.checkpointed.load(Ordering::Acquire) {
            return None;
        }
        let parked = &state.fates.contracts.parked;
        let parked: u64 = match &self.of.whole {
            None => parked.of(self.of.cell).map(|(_, entry)| entry.entries).sum(),
            Some(name) => {
                let mine = parked.iter().filter(|(_, _, entry)| name_of(&entry.id) == name.as_bytes());
                mine.map(|(_, _, entry)| entry.entries).sum()
            }
        };
        Some(AddedParts {
            since: state.values.facts.parts.of(self.of.cell),
            store_is_void,
            parked,
            generation: state.values.generations.current,
            as_of_ms: state.log_time_ms(),
            kept: coarse::in_force(state, &self.of),
        })
    }
}

fn damaged(error: DecodeError) -> store::Error {
    store::Error::Damaged(format!("a row of parts: {error}"))
}
