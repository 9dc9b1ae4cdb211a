//! Where a counter's number comes from: the last checkpoint and what memory has since, seen at one moment.
//!
//! The store goes over to a new checkpoint a little before the writer learns of it. What was read from both belongs together
//! if memory says that it continues exactly the checkpoint that was read.

use super::question::Question;
use super::shared::Shared;
use super::steps::Why;
use super::{Engine, Refusal, Wanted};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::counter::{Counter, Target};
use tally_core::fates::{Balance, ParkedEntry};
use tally_core::id::{CellKey, SEPARATOR};
use tally_core::ledger::{Boxes, LedgerKey, Row, Step};
use tally_core::limits::{KEYS_SUMMED_MAX, STEPS_SHOWN_MAX};
use tally_core::machine::{Machine, balance_at};
use tally_core::memory::cell::CellRow;
use tally_core::position::Position;
use tally_core::record::DecodeError;
use tally_core::values::Sums;
use tally_storage::store::{self, Reads};

/// How often the store is read again because a checkpoint ended meanwhile.
const TRIES_MAX: usize = 1000;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// New ids that are looked through for those of a counter while the writer waits, in bytes.
const NAMES_LOOKED_AT_BYTES_MAX: usize = 1 << 20;
/// Keys of a counter that are read from the store in one call.
const KEYS_PER_PAGE: usize = 1024;

/// Everything that is known about one counter.
#[derive(Clone, Debug)]
pub struct CounterFacts {
    /// The true sum; `None` if there is no such counter.
    pub sum: Option<i64>,
    /// The last correction that touched it, 0 if none did.
    pub generation: u64,
    /// What the last checkpoint says.
    pub base: Option<i64>,
    /// Where the last checkpoint stands; `None` if there is none.
    pub checkpoint: Option<Position>,
    pub applied: Position,
    /// Its boxes other than `counted`.
    pub boxes: Boxes,
    /// The boxes of the declared counter it belongs to.
    pub balance: Option<Balance>,
    /// The values of all keys of that counter; `None` if there are too many to add up, or a checkpoint is under way.
    pub total: Option<Total>,
    /// What waits for it, by bucket.
    pub parked: Vec<(u64, ParkedEntry)>,
    pub history: CounterHistory,
}

/// The values of a counter, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub keys: usize,
    pub value: i128,
}

/// The values of all keys of a counter and what was counted for them, as of one checkpoint.
#[derive(Clone, Debug)]
pub struct ValuesStanding {
    pub position: Position,
    /// `None` if it counted under a version that did not add up, or was not declared yet.
    pub sums: Option<Sums>,
    pub total: Total,
}

/// A counter, and where its number comes from.
#[derive(Clone, Debug)]
pub struct Explained {
    pub facts: CounterFacts,
    /// The values of all keys of its counter, if that was asked for and it is declared.
    pub standing: Option<ValuesStanding>,
    /// Why each of the newest steps was made.
    pub whys: Vec<Why>,
    /// The oldest record that is still there.
    pub log_start: Position,
}

/// The keys of a declared counter.
#[derive(Clone, Debug)]
struct KeysOf {
    name: String,
    /// Whether it has dimensions; if not, it is its only key itself.
    has_keys: bool,
}

impl KeysOf {
    fn of(counter: &Counter) -> KeysOf {
        KeysOf { name: counter.name.to_string(), has_keys: counter.has_keys() }
    }

    /// What the ids of its keys begin with.
    fn prefix(&self) -> Vec<u8> {
        let mut prefix = self.name.clone().into_bytes();
        if self.has_keys {
            prefix.push(SEPARATOR);
        }
        prefix
    }

    fn has(&self, id: &[u8]) -> bool {
        self.has_keys || id == self.name.as_bytes()
    }
}

/// What corrections have done to a counter.
#[derive(Clone, Debug, Default)]
pub struct CounterHistory {
    /// The newest steps with their generations, the newest first.
    pub newest: Vec<(u64, Step)>,
    /// How many steps there are.
    pub steps: u64,
    /// By how much all of them changed it.
    pub delta: i128,
    /// The part of it that corrections have restored.
    pub restored: i128,
    /// The counter was deleted: nothing up to this generation belongs to it.
    forgotten: Option<u64>,
}

/// What the store has of a counter, at one checkpoint.
struct AtCheckpoint {
    position: Option<Position>,
    row: Option<CellRow>,
    boxes: Boxes,
    history: CounterHistory,
    /// The keys of the counter with their values; `None` if there are too many, or it belongs to none.
    keys: Option<HashMap<CellKey, i64>>,
}

impl Engine {
    /// Everything about one counter, and where it comes from. With `all_values` the keys of the declared counter it belongs to are
    /// added up however many they are, which takes its time.
    pub async fn explain(&self, target: &Target<'_>, all_values: bool) -> Result<Explained, Refusal> {
        let declarations = self.declarations();
        let of = target.declared.counter().map(|index| KeysOf::of(declarations.counter(index)));
        let facts = self.facts(target.cell, of.clone()).await?;
        let standing = match of.filter(|_| all_values) {
            Some(of) => Some(self.standing(of).await?),
            None => None,
        };
        let numbers: Vec<_> = facts.history.newest.iter().map(|(_, step)| step.number).collect();
        let whys = self.whys(&numbers, &target.id).await?;
        Ok(Explained { facts, standing, whys, log_start: self.shared.log.start() })
    }

    /// Everything about one counter at one moment, also about the declared counter it belongs to.
    async fn facts(&self, cell: CellKey, of: Option<KeysOf>) -> Result<CounterFacts, Refusal> {
        for _ in 0..TRIES_MAX {
            let keys_of = of.clone();
            let read =
                move |shared: &Shared, store: &dyn Reads| AtCheckpoint::read(shared, store, cell, keys_of.as_ref());
            let stored = self.shared.from_store(read).await?;
            let question = FactsOf { shared: self.shared.clone(), stored, cell, of: of.clone() };
            if let Some(facts) = self.ask(question).await? {
                return Ok(facts);
            }
            // The store shows a checkpoint before it has been read back, and memory goes on from it only then.
            self.shared.clock.sleep(TRY_AGAIN_AFTER).await;
        }
        Err(Refusal::busy())
    }

    /// Adds up the values of a counter, however many keys it has, as of a checkpoint that is not older than the call. It takes
    /// its time, beside everybody else, and ends when nobody waits for it.
    async fn standing(&self, of: KeysOf) -> Result<ValuesStanding, Refusal> {
        self.checkpoint(Wanted::Everything).await?;
        let wanted = Arc::new(());
        let asked = Arc::downgrade(&wanted);
        let read = move |shared: &Shared, store: &dyn Reads| {
            ValuesStanding::read(shared, store, &of, || asked.strong_count() > 0)
        };
        let standing = self.shared.from_store(read).await;
        drop(wanted);
        standing
    }
}

/// Everything about one counter, beside what a checkpoint has of it.
struct FactsOf {
    shared: Arc<Shared>,
    stored: AtCheckpoint,
    cell: CellKey,
    of: Option<KeysOf>,
}

impl Question for FactsOf {
    /// `None` if memory does not continue that checkpoint.
    type Answer = Option<CounterFacts>;

    fn answer(self, state: &Machine) -> Option<CounterFacts> {
        CounterFacts::look(&self.shared, state, self.stored, self.cell, self.of.as_ref())
    }
}

impl AtCheckpoint {
    /// Blocks on the store.
    fn read(
        shared: &Shared,
        store: &dyn Reads,
        cell: CellKey,
        of: Option<&KeysOf>,
    ) -> Result<AtCheckpoint, store::Error> {
        let boxes = store.ledger_get(&LedgerKey::Boxes(cell).encode())?;
        let boxes = boxes.map(|row| Boxes::decode(&row)).transpose().map_err(damaged)?;
        Ok(AtCheckpoint {
            position: store.checkpoint()?.map(|checkpoint| checkpoint.position),
            row: store.get(cell)?,
            boxes: boxes.unwrap_or_default(),
            history: CounterHistory::stored(store, cell)?,
            keys: of.map_or(Ok(None), |of| keys(shared, store, of))?,
        })
    }

    /// Everything was flushed since.
    fn void() -> AtCheckpoint {
        let (boxes, history) = (Boxes::default(), CounterHistory::default());
        AtCheckpoint { position: None, row: None, boxes, history, keys: Some(HashMap::new()) }
    }
}

/// The keys of a counter that the store has, with their values; `None` if there are too many.
fn keys(shared: &Shared, store: &dyn Reads, of: &KeysOf) -> Result<Option<HashMap<CellKey, i64>>, store::Error> {
    let ids = store.names(&of.prefix(), None, KEYS_SUMMED_MAX + 1)?;
    if ids.len() > KEYS_SUMMED_MAX {
        return Ok(None);
    }
    let mut keys = HashMap::with_capacity(ids.len());
    let cells: Vec<_> = ids.iter().filter(|id| of.has(id)).map(|id| shared.hasher.key(id)).collect();
    for (cell, row) in cells.iter().zip(store::cells(store, &cells)?) {
        if let Some(row) = row {
            keys.insert(*cell, row.value);
        }
    }
    Ok(Some(keys))
}

impl Total {
    /// What the store has, and what memory knows better. `None` while a checkpoint takes ids along that neither can tell.
    fn of(state: &Machine, mut keys: HashMap<CellKey, i64>, of: &KeysOf) -> Option<Total> {
        if state.values.table.is_cutting() || state.values.names.bytes() > NAMES_LOOKED_AT_BYTES_MAX {
            return None;
        }
        for id in state.values.names.existing(&of.prefix()).filter(|id| of.has(id)) {
            keys.entry(state.hasher().key(id)).or_insert(0);
        }
        for (cell, _) in state.values.table.unsettled_ids().filter(|(_, id)| of.has(id)) {
            keys.entry(cell).or_insert(0);
        }
        let value = |(cell, stored): (CellKey, i64)| match state.values.table.knows(cell) {
            true => state.values.table.get(cell),
            false => Some(stored.saturating_add(counted_since(state, cell))),
        };
        let values = keys.into_iter().filter_map(value);
        let mut total = Total::default();
        values.for_each(|value| total.add(value));
        Some(total)
    }

    /// All keys that a snapshot has, as long as somebody wants to know.
    fn stored(
        snapshot: &dyn Reads,
        shared: &Shared,
        of: &KeysOf,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Total, store::Error> {
        let (prefix, mut after, mut total) = (of.prefix(), None::<Vec<u8>>, Total::default());
        while is_wanted() {
            let ids = snapshot.names(&prefix, after.as_deref(), KEYS_PER_PAGE)?;
            let cells: Vec<_> = ids.iter().filter(|id| of.has(id)).map(|id| shared.hasher.key(id)).collect();
            store::cells(snapshot, &cells)?.into_iter().flatten().for_each(|row| total.add(row.value));
            match ids.into_iter().nth(KEYS_PER_PAGE - 1) {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        Ok(total)
    }

    fn add(&mut self, value: i64) {
        self.keys += 1;
        self.value += i128::from(value);
    }
}

impl ValuesStanding {
    /// Blocks on the store.
    fn read(
        shared: &Shared,
        store: &dyn Reads,
        of: &KeysOf,
        is_wanted: impl Fn() -> bool,
    ) -> Result<ValuesStanding, store::Error> {
        let checkpoint = store.checkpoint()?.unwrap_or_default();
        let total = Total::stored(store, shared, of, is_wanted)?;
        let balance = match checkpoint.state.is_empty() {
            true => None,
            false => balance_at(&checkpoint.state, &of.name).map_err(damaged)?,
        };
        Ok(ValuesStanding { position: checkpoint.position, sums: balance.and_then(|balance| balance.sums), total })
    }
}

impl CounterHistory {
    fn stored(store: &dyn Reads, cell: CellKey) -> Result<CounterHistory, store::Error> {
        let (mut history, mut read) = (CounterHistory::default(), Ok(()));
        let range = LedgerKey::steps_of(cell);
        store.ledger_rows_back(&range.start, &range.end, &mut |key, row| {
            match LedgerKey::decode(key).and_then(|key| Ok((key, Step::decode(row)?))) {
                // The newest row of all, as keys go.
                Ok((_, step)) if step.forgotten => history.forgotten = Some(step.number),
                Ok((LedgerKey::Step(_, generation), _)) if history.has_forgotten(generation) => {
                    return ControlFlow::Break(());
                }
                Ok((LedgerKey::Step(_, generation), step)) => history.add_older(generation, step),
                Ok(_) => {}
                Err(error) => read = Err(error),
            }
            if read.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        read.map(|()| history).map_err(damaged)
    }

    fn has_forgotten(&self, generation: u64) -> bool {
        self.forgotten.is_some_and(|up_to| generation <= up_to)
    }

    /// Takes the next step back.
    fn add_older(&mut self, generation: u64, step: Step) {
        self.steps += 1;
        self.delta += i128::from(step.delta);
        self.restored += if step.restored { i128::from(step.delta) } else { 0 };
        if self.newest.len() < STEPS_SHOWN_MAX {
            self.newest.push((generation, step));
        }
    }

    /// Goes on with what is older than all of this.
    fn followed_by(mut self, older: CounterHistory) -> CounterHistory {
        if self.forgotten.is_some() {
            return self;
        }
        self.steps += older.steps;
        self.delta += older.delta;
        self.restored += older.restored;
        let room = STEPS_SHOWN_MAX - self.newest.len();
        self.newest.extend(older.newest.into_iter().take(room));
        self
    }
}

impl CounterFacts {
    /// Runs on the writer's thread. `None` if memory does not continue what was read.
    fn look(
        shared: &Shared,
        state: &Machine,
        stored: AtCheckpoint,
        cell: CellKey,
        of: Option<&KeysOf>,
    ) -> Option<CounterFacts> {
        let mut stored = if state.values.has_everything() { AtCheckpoint::void() } else { stored };
        let continued = shared.checkpointed.load(Ordering::Acquire);
        if !state.values.has_everything() && stored.position.map_or(0, |position| position.offset) != continued {
            return None;
        }
        let mut history =
            CounterHistory { forgotten: state.values.facts.steps.forgotten(cell), ..CounterHistory::default() };
        state.values.facts.steps.of(cell).rev().for_each(|(generation, step)| history.add_older(generation, step));
        let mut boxes = state.fates.facts.boxes.get(cell);
        boxes.add(&stored.boxes);
        let parked = state.fates.contracts.parked.of(cell).map(|(bucket_ms, entry)| (bucket_ms, entry.clone()));
        let (sum, generation) = current(state, &stored, cell, shared.clock.now_ms());
        Some(CounterFacts {
            sum,
            generation,
            base: stored.row.map(|row| row.value),
            checkpoint: stored.position,
            applied: *shared.applied.borrow(),
            boxes,
            balance: of.and_then(|of| state.balance(&of.name)),
            total: stored.keys.take().zip(of).and_then(|(keys, of)| Total::of(state, keys, of)),
            parked: parked.collect(),
            history: history.followed_by(stored.history),
        })
    }
}

/// The sum and the generation of a counter; if memory does not have it, it is as the checkpoint has it.
fn current(state: &Machine, stored: &AtCheckpoint, cell: CellKey, now_ms: u64) -> (Option<i64>, u64) {
    let (value, deadline, mark) = match state.values.table.knows(cell) {
        true => (state.values.table.get(cell), state.values.table.deadline(cell), state.values.table.mark(cell)),
        false => {
            let row = stored.row.as_ref();
            let deadline = row.and_then(|row| Some(row.expiry.as_ref()?.at_ms));
            let counted = state.values.table.cells().unsettled(cell);
            let value = row.map(|row| row.value).or(counted.map(|_| 0));
            let value = value.map(|value| value.saturating_add(counted.unwrap_or(0)));
            (value, deadline, row.map(|row| row.mark.clone()).unwrap_or_default())
        }
    };
    let is_due = deadline.is_some_and(|at_ms| at_ms <= now_ms);
    if is_due { (None, 0) } else { (value, mark.generation) }
}

/// What was counted for a cell that only the store knows.
fn counted_since(state: &Machine, cell: CellKey) -> i64 {
    state.values.table.cells().unsettled(cell).unwrap_or(0)
}

fn damaged(error: DecodeError) -> store::Error {
    store::Error::Damaged(format!("a row of the ledger: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::{EngineOptions, recovery};
    use super::*;
    use tally_core::counter::Declarations;
    use tally_core::id::CellHasher;
    use tally_core::op::Submission;
    use tally_storage::log::local::{LocalLog, LogOptions};
    use tally_storage::log::memory::{MemoryDisk, MemoryLog};
    use tally_storage::store::memory::MemoryStore;
    use tally_wal::testing::FaultDisk;

    /// Runs `test` beside an engine that keeps no clean cell in memory.
    fn beside(test: impl AsyncFnOnce(Engine)) {
        let store = Arc::new(MemoryStore::default());
        let options = EngineOptions { table_bytes: 120_000, ..EngineOptions::default() };
        let restored = recovery::restore(&*store, CellHasher::new(1), options.table_bytes).unwrap();
        let open_log = |from_offset| {
            let log = LogOptions { segment_bytes: 8 << 10, log_id: 9, from_offset, ..LogOptions::default() };
            Ok(LocalLog::open_on(FaultDisk::new(1), log)?.0)
        };
        let open_commits = |_| Ok(MemoryLog::open(&MemoryDisk::default()));
        let declarations = Some(Declarations::default());
        let (thread, _) = recovery::open(restored, store, open_log, open_commits, declarations, options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = thread.engine();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            crate::worker::Spawner::task(thread.run(async |_| ()));
            test(engine).await;
        });
    }

    async fn add(engine: &Engine, id: &str, delta: i64) {
        let mut submission = Submission::default();
        submission.add(engine.hasher().key(id.as_bytes()), id.as_bytes(), delta);
        engine.submit(submission).await.unwrap();
    }

    #[test]
    fn a_counter_that_has_left_memory_is_as_the_checkpoint_has_it() {
        beside(async |engine| {
            let cell = engine.hasher().key(b"a");
            add(&engine, "a", 5).await;
            assert_eq!(engine.facts(cell, None).await.unwrap().sum, Some(5));
            engine.checkpoint(Wanted::Everything).await.unwrap();
            while engine.cold() == 0 {
                add(&engine, "b", 1).await;
            }
            let cold = engine.facts(cell, None).await.unwrap();
            assert_eq!((cold.sum, cold.base), (Some(5), Some(5)));
            assert!(cold.checkpoint.unwrap().offset <= cold.applied.offset);
            add(&engine, "a", 2).await;
            assert_eq!(engine.facts(cell, None).await.unwrap().sum, Some(7));
        });
    }

    #[test]
    fn history_keeps_the_newest_steps_and_the_sum_of_all() {
        let step = |delta| Step::new(0, delta, 0, 1);
        let (mut newer, mut older) = (CounterHistory::default(), CounterHistory::default());
        (0..3).for_each(|n| newer.add_older(1000 - n, step(i64::MAX)));
        (0..STEPS_SHOWN_MAX as u64).for_each(|n| older.add_older(500 - n, step(1)));
        let all = newer.followed_by(older);
        assert_eq!((all.steps, all.newest.len()), (STEPS_SHOWN_MAX as u64 + 3, STEPS_SHOWN_MAX));
        assert_eq!(all.delta, 3 * i128::from(i64::MAX) + STEPS_SHOWN_MAX as i128);
        let generations: Vec<_> = all.newest.iter().map(|(generation, _)| *generation).collect();
        assert!(generations.is_sorted_by(|a, b| a > b), "{generations:?}");
    }
}
