//! Series at one moment: of one key, of all keys that match a pattern, and several at once.
//!
//! One look at the store, one question to memory, and then the rows, all as of the checkpoint that memory continues. Which keys
//! match is as of the same moment: those that the store has by name, and those that came since.

use super::super::question::Question;
use super::super::shared::Shared;
use super::super::together::Matching;
use super::super::{Engine, Refusal, Wanted};
use super::{PartRows, PartsOf, SeriesFound, coarse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::id::{CellKey, name_of};
use tally_core::ledger::PartsSince;
use tally_core::limits::{SERIES_KEYS_MAX, SERIES_NAMES_MAX, SERIES_SUMS_MAX};
use tally_core::machine::Machine;
use tally_core::series::Series;
use tally_core::values::KeptRollup;
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
            let (snapshot, keys) = match matches {
                false => (None, wanted.iter().map(|wanted| [wanted.of.cell].into()).collect()),
                true => {
                    // What came before this was asked for is found in the store, and little has come since.
                    self.checkpoint(Wanted::NewNames).await?;
                    match self.keys_stored(&wanted).await? {
                        Ok(KeysStored { snapshot, keys }) => (Some(snapshot), keys),
                        Err(too_much) => return Ok(Err(too_much)),
                    }
                }
            };
            let checkpoint = snapshot.as_ref().map(|snapshot| snapshot.checkpoint);
            let question = AddedToMany { shared: self.shared.clone(), wanted: wanted.clone(), checkpoint, keys };
            let (shared, wanted) = (self.shared.clone(), wanted.clone());
            let add_up = move |added| added_up(&shared, snapshot, &wanted, added);
            let found = self.ask_and(question, takes_long, add_up).await?;
            if let Some(found) = found.map_err(|error| Refusal::store(&error))? {
                return Ok(found);
            }
            // The store shows a checkpoint before it has been read back, and memory goes on from it only then.
            self.shared.clock.sleep(TRY_AGAIN_AFTER).await;
        }
        Err(Refusal::busy())
    }

    /// The store as it is now, and which keys it has.
    async fn keys_stored(&self, wanted: &Arc<[SeriesWanted]>) -> Result<Tried<KeysStored>, Refusal> {
        let (shared, wanted) = (self.shared.clone(), wanted.clone());
        let read = self.shared.blocking(move || KeysStored::read(&shared, &wanted)).await?;
        read.map_err(|error| Refusal::store(&error))
    }
}

/// One key that memory has all of is added up in less time than it takes to wake somebody.
fn takes_long(added: &Option<Tried<AddedSince>>) -> bool {
    let Some(Ok(AddedSince { goes_on_from, series })) = added else { return false };
    goes_on_from.is_some() || series.iter().map(|added| added.keys.len()).sum::<usize>() > 1
}

/// `None` if memory could not tell, or the store does not stand where memory goes on from. Blocks on the store if it is needed.
fn added_up(
    shared: &Shared,
    snapshot: Option<StoreAt>,
    wanted: &[SeriesWanted],
    added: Option<Tried<AddedSince>>,
) -> Result<Option<Tried<Vec<SeriesFound>>>, store::Error> {
    let AddedSince { goes_on_from, series } = match added {
        None => return Ok(None),
        Some(Err(too_much)) => return Ok(Some(Err(too_much))),
        Some(Ok(added)) => added,
    };
    let Ok(store) = StoreAt::continued(shared, snapshot, goes_on_from)? else { return Ok(None) };
    let reads = store.as_ref().map(|at| &*at.store);
    let found = wanted.iter().zip(series).map(|(wanted, added)| added.added_up(reads, wanted));
    found.collect::<Result<_, _>>().map(Some)
}

/// The cells of each series as of a checkpoint.
type Keys = Vec<BTreeSet<CellKey>>;

/// The store at one moment.
pub(super) struct StoreAt {
    pub store: Box<dyn Reads>,
    /// The offset where it stands.
    checkpoint: u64,
}

impl StoreAt {
    /// Blocks on the store.
    pub fn now(shared: &Shared) -> Result<StoreAt, store::Error> {
        let store = shared.store.snapshot()?;
        let checkpoint = store.checkpoint()?.map_or(0, |checkpoint| checkpoint.position.offset);
        Ok(StoreAt { store, checkpoint })
    }

    /// The store that memory goes on from, as it was looked at or as it is now; none if memory has everything.
    pub fn continued(
        shared: &Shared,
        looked_at: Option<StoreAt>,
        goes_on_from: Option<u64>,
    ) -> Result<Result<Option<StoreAt>, Elsewhere>, store::Error> {
        let Some(checkpoint) = goes_on_from else { return Ok(Ok(None)) };
        let at = looked_at.map_or_else(|| StoreAt::now(shared), Ok)?;
        Ok(if at.checkpoint == checkpoint { Ok(Some(at)) } else { Err(Elsewhere) })
    }
}

/// The store does not stand where memory goes on from.
pub(super) struct Elsewhere;

/// Where memory goes on from; `None` if nothing of what the store has counts, or it has nothing.
pub(super) fn goes_on_from(state: &Machine, shared: &Shared) -> Option<u64> {
    let checkpoint = shared.checkpointed.load(Ordering::Acquire);
    (!state.values.has_everything() && checkpoint > 0).then_some(checkpoint)
}

struct KeysStored {
    snapshot: StoreAt,
    keys: Keys,
}

impl KeysStored {
    /// Blocks on the store.
    fn read(shared: &Shared, wanted: &[SeriesWanted]) -> Result<Tried<KeysStored>, store::Error> {
        let snapshot = StoreAt::now(shared)?;
        let mut keys = Keys::with_capacity(wanted.len());
        for SeriesWanted { of, matching, .. } in wanted {
            let found = match matching {
                None => Ok([of.cell].into()),
                Some(matching) => matching_cells(shared, &*snapshot.store, matching)?,
            };
            match found {
                Ok(cells) => keys.push(cells),
                Err(too_much) => return Ok(Err(too_much)),
            }
        }
        Ok(Ok(KeysStored { snapshot, keys }))
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
    /// Where the store stood that told the keys.
    checkpoint: Option<u64>,
    keys: Keys,
}

/// What memory has added since a checkpoint.
struct AddedSince {
    goes_on_from: Option<u64>,
    series: Vec<AddedKeys>,
}

/// The same for one series.
struct AddedKeys {
    keys: BTreeMap<CellKey, PartsSince>,
    parked: u64,
    generation: u64,
    as_of_ms: u64,
    kept: Option<KeptRollup>,
}

impl Question for AddedToMany {
    /// `None` if memory does not continue that checkpoint, or cannot tell which ids came since.
    type Answer = Option<Tried<AddedSince>>;

    fn answer(mut self, state: &Machine) -> Self::Answer {
        let goes_on_from = goes_on_from(state, &self.shared);
        if self.checkpoint.is_some() && goes_on_from.is_some() && self.checkpoint != goes_on_from {
            return None;
        }
        for (wanted, keys) in self.wanted.iter().zip(&mut self.keys) {
            let Some(matching) = &wanted.matching else { continue };
            if goes_on_from.is_none() {
                keys.clear();
            }
            keys.extend(new_cells(state, matching)?);
        }
        if self.keys.iter().map(BTreeSet::len).sum::<usize>() > SERIES_KEYS_MAX {
            return Some(Err(TooMuch::Keys));
        }
        let series = self.wanted.iter().zip(self.keys);
        let series = series.map(|(wanted, keys)| AddedKeys::of(state, wanted, keys)).collect();
        Some(Ok(AddedSince { goes_on_from, series }))
    }
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
            parked: parked(state, wanted),
            generation: state.values.generations.current,
            as_of_ms: state.log_time_ms(),
            kept: coarse::in_force(state, &wanted.of),
        }
    }

    /// What all of it comes to, with what the store has. Blocks on the store.
    fn added_up(self, store: Option<&dyn Reads>, wanted: &SeriesWanted) -> Result<Tried<SeriesFound>, store::Error> {
        let (mut series, keys) = (wanted.empty.clone(), self.keys.len() as u64);
        let minutes = series.minutes();
        for (cell, since) in self.keys {
            let of = PartsOf { cell, ..wanted.of.clone() };
            let rows = PartRows::read(store, &of, &since, &minutes)?;
            series = rows.added_up(&of, &since, series)?;
            if keys > 1 && series.numbers() > SERIES_SUMS_MAX {
                return Ok(Err(TooMuch::Sums));
            }
        }
        let AddedKeys { parked, generation, as_of_ms, kept, .. } = self;
        Ok(Ok(SeriesFound { series, keys, parked, generation, as_of_ms, kept }))
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
