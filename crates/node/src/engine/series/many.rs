//! Series at one moment: of one key, of all keys that match a pattern, and several at once.
//!
//! One look at the store, one question to memory, and then the rows, all as of the checkpoint that memory continues. Which keys
//! match is as of the same moment: those that the store has by name, and those that came since.

use super::super::question::Question;
use super::super::shared::Shared;
use super::super::together::Matching;
use super::super::{Engine, Refusal, Wanted};
use super::{PartRows, PartsOf, SeriesFound};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::id::{CellKey, name_of};
use tally_core::ledger::PartsSince;
use tally_core::limits::{SERIES_KEYS_MAX, SERIES_NAMES_MAX, SERIES_SUMS_MAX};
use tally_core::machine::Machine;
use tally_core::series::Series;
use tally_storage::store::{self, Reads};

/// How often the store is read again because a checkpoint ended meanwhile.
pub(super) const TRIES_MAX: usize = 1000;
pub(super) const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Names that one step of a walk asks for.
const PAGE_NAMES: usize = 1024;
/// Beyond it a question would look through new ids for too long: they go to the store first.
const NEW_NAMES_BYTES_MAX: usize = 1 << 20;

/// One series, and whose parts it adds up.
#[derive(Clone, Debug)]
pub struct SeriesWanted {
    pub of: PartsOf,
    /// If it is of all keys that match, whose cells take the place of the one above.
    pub matching: Option<Matching>,
    /// What it is added up in.
    pub empty: Series,
}

/// Why a series is not added up: what there is too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// Ids to look through for those that match: [`SERIES_NAMES_MAX`].
    Names,
    /// Keys that match: [`SERIES_KEYS_MAX`].
    Keys,
    /// Numbers to add up: [`SERIES_SUMS_MAX`].
    Sums,
}

type Tried<T> = Result<T, TooMuch>;

impl Engine {
    /// Adds up several series, all as of one moment.
    pub async fn series(&self, wanted: Vec<SeriesWanted>) -> Result<Tried<Vec<SeriesFound>>, Refusal> {
        let wanted: Arc<[SeriesWanted]> = wanted.into();
        let matches = wanted.iter().any(|wanted| wanted.matching.is_some());
        for _ in 0..TRIES_MAX {
            if matches {
                // What came before this was asked for is found in the store, and little has come since.
                self.checkpoint(Wanted::NewNames).await?;
            }
            let stored = match self.keys_stored(&wanted).await? {
                Ok(stored) => stored,
                Err(too_much) => return Ok(Err(too_much)),
            };
            let question = AddedToMany {
                shared: self.shared.clone(),
                wanted: wanted.clone(),
                checkpoint: stored.checkpoint,
                keys: stored.keys,
            };
            let Some(added) = self.ask(question).await? else {
                // The store shows a checkpoint before it has been read back, and memory goes on from it only then.
                self.shared.clock.sleep(TRY_AGAIN_AFTER).await;
                continue;
            };
            return match added {
                Ok(added) => self.add_up(stored.snapshot, wanted, added).await,
                Err(too_much) => Ok(Err(too_much)),
            };
        }
        Err(Refusal::busy())
    }

    /// The store as it is now, and which keys it has.
    async fn keys_stored(&self, wanted: &Arc<[SeriesWanted]>) -> Result<Tried<KeysStored>, Refusal> {
        let (shared, wanted) = (self.shared.clone(), wanted.clone());
        let read = self.shared.blocking(move || KeysStored::read(&shared, &wanted)).await?;
        read.map_err(|error| Refusal::store(&error))
    }

    async fn add_up(
        &self,
        snapshot: Box<dyn Reads>,
        wanted: Arc<[SeriesWanted]>,
        added: Vec<AddedKeys>,
    ) -> Result<Tried<Vec<SeriesFound>>, Refusal> {
        let add_up = move || -> Result<Tried<Vec<SeriesFound>>, store::Error> {
            wanted.iter().zip(added).map(|(wanted, added)| added.added_up(&*snapshot, wanted)).collect()
        };
        self.shared.blocking(add_up).await?.map_err(|error| Refusal::store(&error))
    }
}

/// The cells of each series as of a checkpoint.
type Keys = Vec<BTreeSet<CellKey>>;

struct KeysStored {
    snapshot: Box<dyn Reads>,
    /// The offset where the snapshot stands.
    checkpoint: u64,
    keys: Keys,
}

impl KeysStored {
    /// Blocks on the store.
    fn read(shared: &Shared, wanted: &[SeriesWanted]) -> Result<Tried<KeysStored>, store::Error> {
        let snapshot = shared.store.snapshot()?;
        let checkpoint = snapshot.checkpoint()?.map_or(0, |checkpoint| checkpoint.position.offset);
        let mut keys = Keys::with_capacity(wanted.len());
        for SeriesWanted { of, matching, .. } in wanted {
            let found = match matching {
                None => Ok([of.cell].into()),
                Some(matching) => matching_cells(shared, &*snapshot, matching)?,
            };
            match found {
                Ok(cells) => keys.push(cells),
                Err(too_much) => return Ok(Err(too_much)),
            }
        }
        Ok(Ok(KeysStored { snapshot, checkpoint, keys }))
    }
}

/// The cells of all keys that match and that the store has.
fn matching_cells(
    shared: &Shared,
    store: &dyn Reads,
    matching: &Matching,
) -> Result<Tried<BTreeSet<CellKey>>, store::Error> {
    let (mut cells, mut after) = (BTreeSet::new(), None::<Vec<u8>>);
    for _ in 0..SERIES_NAMES_MAX.div_ceil(PAGE_NAMES) {
        let ids = store.names(&matching.prefix, after.as_deref(), PAGE_NAMES)?;
        cells.extend(ids.iter().filter(|id| (matching.matches)(id)).map(|id| shared.hasher.key(id)));
        if cells.len() > SERIES_KEYS_MAX {
            return Ok(Err(TooMuch::Keys));
        }
        match ids.into_iter().nth(PAGE_NAMES - 1) {
            Some(last) => after = Some(last),
            None => return Ok(Ok(cells)),
        }
    }
    Ok(Err(TooMuch::Names))
}

/// What memory has added to the parts of keys beside a checkpoint.
struct AddedToMany {
    shared: Arc<Shared>,
    wanted: Arc<[SeriesWanted]>,
    checkpoint: u64,
    keys: Keys,
}

/// The same for one series.
struct AddedKeys {
    keys: BTreeMap<CellKey, PartsSince>,
    store_is_void: bool,
    parked: u64,
    generation: u64,
    as_of_ms: u64,
}

impl Question for AddedToMany {
    /// `None` if memory does not continue that checkpoint, or cannot tell which ids came since.
    type Answer = Option<Tried<Vec<AddedKeys>>>;

    fn answer(mut self, state: &Machine) -> Self::Answer {
        let store_is_void = state.values.has_everything();
        if !continues(state, &self.shared, self.checkpoint) {
            return None;
        }
        for (wanted, keys) in self.wanted.iter().zip(&mut self.keys) {
            let Some(matching) = &wanted.matching else { continue };
            if store_is_void {
                keys.clear();
            }
            keys.extend(new_cells(state, matching)?);
        }
        if self.keys.iter().map(BTreeSet::len).sum::<usize>() > SERIES_KEYS_MAX {
            return Some(Err(TooMuch::Keys));
        }
        let added = self.wanted.iter().zip(self.keys);
        Some(Ok(added.map(|(wanted, keys)| AddedKeys::of(state, wanted, keys)).collect()))
    }
}

/// Whether what memory has added belongs to the checkpoint that stands at this offset.
pub(super) fn continues(state: &Machine, shared: &Shared, checkpoint: u64) -> bool {
    state.values.has_everything() || checkpoint == shared.checkpointed.load(Ordering::Acquire)
}

/// The cells of keys that match and came since the last checkpoint. `None` while one is under way, which takes ids along that nobody
/// can tell meanwhile, and if there are too many.
fn new_cells(state: &Machine, matching: &Matching) -> Option<Vec<CellKey>> {
    if state.values.table.is_cutting() || state.values.names.bytes() > NEW_NAMES_BYTES_MAX {
        return None;
    }
    let matches = |id: &&[u8]| (matching.matches)(id);
    let named = state.values.names.existing(&matching.prefix).filter(matches).map(|id| state.hasher().key(id));
    let unsettled = state.values.table.unsettled_ids().filter(|(_, id)| (matching.matches)(id));
    Some(named.chain(unsettled.map(|(cell, _)| cell)).collect())
}

impl AddedKeys {
    fn of(state: &Machine, wanted: &SeriesWanted, keys: BTreeSet<CellKey>) -> AddedKeys {
        AddedKeys {
            keys: keys.into_iter().map(|cell| (cell, state.values.facts.parts.of(cell))).collect(),
            store_is_void: state.values.has_everything(),
            parked: parked(state, wanted),
            generation: state.values.generations.current,
            as_of_ms: state.log_time_ms(),
        }
    }

    /// What all of it comes to, with what the store has. Blocks on the store.
    fn added_up(self, store: &dyn Reads, wanted: &SeriesWanted) -> Result<Tried<SeriesFound>, store::Error> {
        let (mut series, keys) = (wanted.empty.clone(), self.keys.len() as u64);
        let minutes = series.minutes();
        for (cell, since) in self.keys {
            let of = PartsOf { cell, ..wanted.of.clone() };
            let mut rows = PartRows::read(store, &of, &minutes)?;
            if self.store_is_void {
                rows.forget();
            }
            series = rows.added_up(&of, &since, series)?;
            if keys > 1 && series.numbers() > SERIES_SUMS_MAX {
                return Ok(Err(TooMuch::Sums));
            }
        }
        let AddedKeys { parked, generation, as_of_ms, .. } = self;
        Ok(Ok(SeriesFound { series, keys, parked, generation, as_of_ms }))
    }
}

/// How many late entries wait for whoever a series is of.
fn parked(state: &Machine, wanted: &SeriesWanted) -> u64 {
    let parked = &state.fates.contracts.parked;
    let waiting = |is_of: &dyn Fn(&[u8]) -> bool| {
        parked.iter().filter(|(_, _, entry)| is_of(&entry.id)).map(|(_, _, entry)| entry.entries).sum()
    };
    match (&wanted.matching, &wanted.of.whole) {
        (Some(matching), _) => waiting(&|id| (matching.matches)(id)),
        (None, Some(name)) => waiting(&|id| name_of(id) == name.as_bytes()),
        (None, None) => parked.of(wanted.of.cell).map(|(_, entry)| entry.entries).sum(),
    }
}
