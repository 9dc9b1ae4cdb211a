//! From what is on disk to a running engine: the store's last cut, then the log behind it.

use super::checkpoint::Checkpointer;
use super::commits::{self, Changed, CommitMaker, CommitStep, Commits, CommitsError, Maker, Recorder};
use super::endings;
use super::lookup::{self, Found, LOOKUP_THREADS, LOOKUPS_MAX};
use super::queue::queues;
use super::shared::{Shared, SharedParts};
use super::thread::EngineThread;
use super::turn::{self, Turn};
use super::writer::Writer;
use super::{EngineOptions, Trouble};
use crate::clock::ClockError;
use crate::metrics::Lag;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tally_core::counter::{ConfigErrors, Declarations, DeclaredChanges, Meaning, listed};
use tally_core::fates::Void;
use tally_core::head::Head;
use tally_core::id::{CellHasher, CellKey};
use tally_core::ledger::{LOOKED_UP, LedgerKey, LedgerKind};
use tally_core::limits::QUEUE_SUBMISSIONS_MAX;
use tally_core::machine::{Decoded, Machine, Need, ReplayError, Replayed};
use tally_core::memory::cell::{CellRow, SEGMENTS, segment_parts};
use tally_core::nearest::nearest;
use tally_core::op::Batch;
use tally_core::op::{Answer, Op, Stamp, Submission};
use tally_core::position::Position;
use tally_storage::log::{Log, LogError, LogHandle, LogReader};
use tally_storage::store::{self, Checkpoint, Store};
use tokio::sync::mpsc;

/// Rows handed from a loading thread to the table at a time.
/// Rows that are read one behind the other where not all fit: few, so that the cells stay near their homes, and enough that finding the
/// first is not most of the work.
const LOAD_RUN_ROWS: usize = 16;
const LOAD_CHUNK_ROWS: usize = 4096;
const LOAD_CHUNKS_MAX: usize = 16;
/// Threads that read the store at start, each its part of the keys.
const LOAD_THREADS: usize = 2;
/// One part in so many of the table's bytes is left free at start.
const LOAD_SPARED_PARTS: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("{0}")]
    Store(#[from] store::Error),
    #[error("record {offset} of the log: {error}")]
    Replay { offset: u64, error: ReplayError },
    #[error("the checkpoint cannot be read: {0}")]
    Checkpoint(ReplayError),
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("the configuration no longer declares {}, which this data directory counts", listed(.0))]
    Removed(Vec<String>),
    #[error("--remove names {name}, and {what}")]
    NotRemoved { name: String, what: String },
    #[error("{0}")]
    Clock(#[from] ClockError),
    #[error("a thread of the engine cannot be started: {0}")]
    Thread(#[from] std::io::Error),
    #[error("{0}")]
    Refused(#[from] super::Refusal),
    #[error("{0}")]
    Commits(#[from] CommitsError),
}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub counters: u64,
    pub in_memory: u64,
    pub replayed_records: u64,
    /// What the configuration has changed; `None` if it was in force already.
    pub changes: Option<DeclaredChanges>,
}

/// Takes the store's last cut into memory, as much of it as there is room for. What [`open`] starts from.
pub fn restore(store: &dyn Store, hasher: CellHasher, table_bytes: usize) -> Result<Restored, RecoveryError> {
    let mut state = Machine::new(hasher);
    // Filters are worth much, but cells need room as well.
    for looked_up in LOOKED_UP {
        state.looked_up_mut(looked_up.kind).limit_filter(table_bytes / looked_up.filter_part);
    }
    let Some(checkpoint) = store.checkpoint()? else { return Ok(Restored { state, position: None, read_from: 0 }) };
    let read_from = state.resume(&checkpoint.state).map_err(RecoveryError::Checkpoint)?;
    load_proposals(&mut state, store)?;
    load_boards(&mut state, store)?;
    endings::find_all(&mut state, store)?;
    load(&mut state, store, &checkpoint, table_bytes)?;
    load_leaders(&mut state, store)?;
    Ok(Restored { state, position: Some(checkpoint.position), read_from })
}

/// A state as of the store's last cut.
pub struct Restored {
    state: Machine,
    position: Option<Position>,
    /// Where the log has to be read from: some of what is remembered stands before the cut.
    read_from: u64,
}

/// Opens an engine on a restored state: replays the log behind it and puts `declarations` in force if they are new.
/// `open_log` gets the offset from which the log will be read, `open_commits` whether a new log is to be begun in place of
/// the one there is.
pub fn open<L: Log + 'static, C: Log + 'static>(
    restored: Restored,
    store: Arc<dyn Store>,
    open_log: impl FnOnce(u64) -> Result<L, LogError>,
    mut open_commits: impl FnMut(bool) -> Result<C, LogError>,
    declarations: Option<Declarations>,
    options: EngineOptions,
) -> Result<(EngineThread<L>, Recovered), RecoveryError> {
    let Restored { mut state, position, read_from } = restored;
    state.values.limit_lists(options.listed_keys);
    let log = open_log(read_from)?;
    let stored = position.map_or(0, |position| position.offset);
    let cut = position.unwrap_or(Position { epoch: log.end().epoch, log: log.end().log, offset: 0 });
    let mut chain = Chain::resume(&mut open_commits, state.hasher(), cut, log.end().offset)?;
    state.values.table.follow(chain.followed);
    let replayed_records = replay(&mut state, &*store, &log, read_from, stored, &mut chain)?;
    chain.finish(log.end().offset)?;
    options.clock.go_on_from(state.log_time_ms().max(log.log_time_ms()), options.accept_clock)?;
    let cells = state.values.table.cells();
    let mut recovered =
        Recovered { counters: cells.len(), in_memory: cells.len() - cells.cold(), replayed_records, changes: None };
    let clock = options.clock.clone();
    let remove = options.remove.clone();
    let mut thread = start(store, log, chain, state, position, read_from, options)?;
    if let Some(declarations) = declarations {
        recovered.changes = declare(&mut thread.writer, declarations, &remove, clock.now_ms())?;
    }
    Ok((thread, recovered))
}

fn load_proposals(state: &mut Machine, store: &dyn Store) -> Result<(), store::Error> {
    let range = LedgerKey::range(LedgerKind::Proposal);
    let mut read = Ok(());
    store.ledger_rows(&range.start, &range.end, &mut |_, row| {
        read = state.values.facts.proposals.resume(row);
        if read.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    read.map_err(|error| store::Error::Damaged(format!("an open proposal: {error}")))
}

fn load_boards(state: &mut Machine, store: &dyn Store) -> Result<(), store::Error> {
    let range = LedgerKey::range(LedgerKind::Board);
    let mut read = Ok(());
    store.ledger_rows(&range.start, &range.end, &mut |key, row| {
        read = state.values.facts.boards.resume(key, row);
        if read.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    read.map_err(|error| store::Error::Damaged(format!("a board: {error}")))
}

/// Those keys that are worth most are in memory in any case.
fn load_leaders(state: &mut Machine, store: &dyn Store) -> Result<(), store::Error> {
    let missing = state.values.leaders_missing().map(Need::Cell).collect();
    load_found(state, Found::in_store(store, 0, missing)?);
    state.forget_loaded();
    Ok(())
}

/// Fills the table as far as its bytes go. If not everything fits, each segment gets its share, so that none is crowded while
/// others are empty.
fn load(
    state: &mut Machine,
    store: &dyn Store,
    checkpoint: &Checkpoint,
    table_bytes: usize,
) -> Result<(), RecoveryError> {
    state.values.table.set_cold(checkpoint.counters);
    // Leave some room for what comes next, or the first new cell would drive out old ones.
    let table_bytes = table_bytes - table_bytes / LOAD_SPARED_PARTS;
    let share = state.values.table.reserve(usize::try_from(checkpoint.counters).unwrap_or(usize::MAX), table_bytes);
    std::thread::scope(|scope| {
        let (mut loaded, readers): (Vec<_>, Vec<_>) = (0..LOAD_THREADS)
            .map(|part| {
                let (chunks, loaded) = flume::bounded::<Vec<(CellKey, CellRow)>>(LOAD_CHUNKS_MAX);
                (loaded, scope.spawn(move || read_part(store, part, share, &chunks)))
            })
            .unzip();
        // In turns: what is in memory in the end does not depend on who is faster.
        while !loaded.is_empty() && state.values.table.bytes() <= table_bytes {
            loaded.retain(|chunks| {
                let chunk = chunks.recv();
                chunk.map(|rows| rows.into_iter().for_each(|(key, row)| state.values.load(key, Some(row)))).is_ok()
            });
        }
        // Nobody listens any more: the readers end.
        drop(loaded);
        let read = readers.into_iter().map(|reader| reader.join().expect("a reader does not panic"));
        read.collect::<Result<(), store::Error>>().map_err(RecoveryError::from)
    })
}

/// Reads every so-many-th segment. If not all of its rows fit, those that do are taken from all over it, some at a time: homes
/// follow the keys, so where only the first ones were taken they would crowd together, and every walk would be long.
fn read_part(
    store: &dyn Store,
    part: usize,
    share: usize,
    chunks: &flume::Sender<Vec<(CellKey, CellRow)>>,
) -> Result<(), store::Error> {
    let runs = if share == usize::MAX { 1 } else { share.div_ceil(LOAD_RUN_ROWS) };
    let mut chunk = Vec::with_capacity(LOAD_CHUNK_ROWS);
    let mut is_heard = true;
    for segment in (part..SEGMENTS).step_by(LOAD_THREADS) {
        let mut taken = 0;
        for (run, keys) in (1..).zip(segment_parts(segment, runs)) {
            // What one range does not have, the next may.
            let due = if run == runs { share } else { share * run / runs };
            store.rows(*keys.start(), &mut |key, row| {
                if taken == due || !keys.contains(&key) {
                    return ControlFlow::Break(());
                }
                taken += 1;
                chunk.push((key, row));
                if chunk.len() == LOAD_CHUNK_ROWS {
                    let full = std::mem::replace(&mut chunk, Vec::with_capacity(LOAD_CHUNK_ROWS));
                    is_heard = chunks.send(full).is_ok();
                }
                if is_heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if !is_heard {
                return Ok(());
            }
        }
    }
    let _ = chunks.send(chunk);
    Ok(())
}

/// Reads the log from `read_from` on: up to the cut it is only remembered, behind it it is applied. Answers how many records
/// were applied.
fn replay<L: Log, C: Log>(
    state: &mut Machine,
    store: &dyn Store,
    log: &L,
    read_from: u64,
    stored: u64,
    chain: &mut Chain<C>,
) -> Result<u64, RecoveryError> {
    let handle = log.handle();
    let mut reader = handle.reader(Position { offset: read_from, ..log.end() })?;
    let mut ops = Submission::default();
    let mut replayed = 0;
    let mut resuming = true;
    while let Some(batch) = reader.next()? {
        let offset = batch.position.offset;
        let in_batch = |error| RecoveryError::Replay { offset, error };
        if resuming && offset >= stored {
            resuming = false;
            state.resumed().map_err(in_batch)?;
        }
        let (count, to) = (batch.count, Position { offset: batch.end_offset(), ..batch.position });
        let Decoded { head, first, what } = state.decode(batch.records, &mut ops).map_err(in_batch)?;
        let Submission { ops, stamps, .. } = &ops;
        let (records, log_time_ms) = (batch.records, batch.log_time_ms);
        let batch = Batch { head, records, first, ops, stamps, log_time_ms, offset };
        if let Some(head) = head.filter(|_| !resuming) {
            state.check_head(&head, log_time_ms).map_err(|improper| in_batch(improper.into()))?;
        }
        let declarations = match what {
            Replayed::Ops => None,
            Replayed::Config { version, yaml } => {
                let declarations = Declarations::parse(&yaml).map_err(|error| in_batch(error.into()))?;
                Some(declarations.with_version(version))
            }
        };
        match declarations {
            Some(_) if resuming && state.was_void(offset) => {}
            Some(declarations) if resuming => state.redeclare(declarations),
            None if resuming => state.remember(&batch),
            declarations => {
                endings::know(state, store, log_time_ms)?;
                load_missing(state, store, batch.ops, batch.stamps)?;
                chain.turn(state, Turn { batch, count, to, declarations })?;
            }
        }
        state.forget_loaded();
        replayed += if resuming { 0 } else { u64::from(count) };
    }
    if resuming {
        state.resumed().map_err(RecoveryError::Checkpoint)?;
    }
    let unsettled = state.unsettled().collect();
    load_found(state, Found::in_store(store, 0, unsettled)?);
    Ok(replayed)
}

/// The commits of what is replayed: those that were published are compared, those that were not are written.
struct Chain<L: Log> {
    maker: Maker<L>,
    recorder: Recorder,
    followed: bool,
    /// The last batch that was void and may not have counted.
    alarm: Option<String>,
    answers: Vec<Answer>,
}

impl<L: Log> Chain<L> {
    fn resume(
        open_commits: &mut impl FnMut(bool) -> Result<L, LogError>,
        hasher: CellHasher,
        cut: Position,
        log_end: u64,
    ) -> Result<Chain<L>, RecoveryError> {
        let resumed = match Maker::resume(open_commits(false)?, hasher, cut, log_end)? {
            Some(resumed) => Some(resumed),
            None => {
                tracing::warn!("the commits know of more than the log has: they are set aside, and begin anew");
                Maker::resume(open_commits(true)?, hasher, cut, log_end)?
            }
        };
        let (maker, resumed) = resumed.expect("a log without commits is behind any other");
        Ok(Chain {
            maker,
            recorder: Recorder::new(resumed.end),
            followed: resumed.followed,
            alarm: None,
            answers: Vec::new(),
        })
    }

    /// A turn of the loop with a batch that stands in the log, and its commit.
    fn turn(&mut self, state: &mut Machine, turn: Turn<'_>) -> Result<(), CommitsError> {
        let Batch { records, ops, head, offset, .. } = turn.batch;
        let effects = turn::turn(state, &mut self.recorder, turn, &mut self.answers);
        if let (Some(void), Some(head)) = (effects.void.filter(|void| void.is_alarm()), head) {
            self.alarm = Some(alarm(void, &head, offset));
        }
        if let Some(closed) = effects.closed {
            self.maker.take(closed)?;
        }
        if let Some(changes) = effects.changes {
            let declarations = state.declarations().clone();
            let batch = Submission { records: records.to_vec(), ops: ops.to_vec(), ..Submission::default() };
            let spare = self.maker.take(CommitStep::Changed { changed: Changed { changes, batch }, declarations })?;
            state.values.table.reuse(spare.unwrap_or_default().changes);
        }
        self.maker.write_if_there_is_room(u64::MAX)
    }

    /// The log is at its end. What comes next is of another epoch, so the last commit is over.
    fn finish(&mut self, log_end: u64) -> Result<(), CommitsError> {
        if let Some(closed) = self.recorder.close() {
            self.maker.take(closed)?;
        }
        self.maker.write_if_there_is_room(log_end)?;
        Ok(self.maker.sync()?)
    }
}

/// What is told of a batch that was void and may not have counted.
fn alarm(void: Void, head: &Head, offset: u64) -> String {
    let Head { sender, incarnation, seq, .. } = head;
    let why = match void {
        Void::OtherBytes => "another one stood before under its number, so two senders take themselves for the same",
        Void::Forgotten => "that life of the sender is forgotten, so nobody knows whether it stood before",
        Void::Repeated => unreachable!("a batch that stood before has counted"),
    };
    format!(
        "batch {seq} of life {incarnation} of sender {sender}, at record {offset}, is void: {why}. See what it holds with tally inspect"
    )
}

/// Looks up what a batch needs, as the running node does. There are no cuts meanwhile.
fn load_missing(state: &mut Machine, store: &dyn Store, ops: &[Op], stamps: &[Stamp]) -> Result<(), RecoveryError> {
    let missing = async |found: &Found| Ok(state.needs(ops, stamps, |need| found.get(need)));
    let ask = async |needs| Found::in_store(store, 0, needs);
    let found = pollster::block_on(lookup::find(missing, ask))?;
    load_found(state, found);
    Ok(())
}

fn load_found(state: &mut Machine, found: Found) {
    for (need, stored) in found.into_rows() {
        state.load(need, stored);
    }
}

/// Starts the threads beside the writer's own.
fn start<L: Log + 'static, C: Log + 'static>(
    store: Arc<dyn Store>,
    log: L,
    chain: Chain<C>,
    state: Machine,
    stored: Option<Position>,
    read_from: u64,
    options: EngineOptions,
) -> Result<EngineThread<L>, RecoveryError> {
    let (send_message, messages) = mpsc::channel(QUEUE_SUBMISSIONS_MAX);
    let (send_lookup, lookups) = flume::bounded(LOOKUPS_MAX);
    let (jobs, jobs_received) = flume::bounded(1);
    let (queues, waiting) = queues(Arc::new(Lag::new(options.clock.clone())));
    let Chain { maker, recorder, followed, alarm, .. } = chain;
    let (steps, orders, spares) = commits::queue(options.spawner);
    let now_ms = options.clock.now_ms();
    let shared = Arc::new(Shared::new(SharedParts {
        log_id: options.log_id,
        commits: Commits::new(maker.handle(), options.commits, maker.written(), followed, now_ms),
        cells: state.values.table.cells().clone(),
        hasher: state.hasher(),
        declarations: state.declarations().clone(),
        store: store.clone(),
        log: Box::new(log.handle()),
        queues,
        messages: send_message,
        lookups: send_lookup,
        applied: log.end(),
        durability: options.durability.level(),
        clock: options.clock.clone(),
        spawner: options.spawner,
    }));
    if let Some(alarm) = alarm {
        shared.troubles.raise(Trouble::Voided, &alarm);
    }
    shared.checkpointed.store(stored.map_or(0, |position| position.offset), Ordering::Release);
    shared.log_needed_from.store(read_from, Ordering::Release);
    for number in 0..LOOKUP_THREADS {
        let reader = lookup::RowReader::new(Arc::downgrade(&shared), lookups.clone());
        shared.workers.apart(lookup::RowReader::spec(number), reader)?;
    }
    shared.workers.apart(CommitMaker::<C>::spec(), CommitMaker::new(maker, shared.clone(), orders, spares))?;
    shared.workers.apart(Checkpointer::spec(), Checkpointer::new(store, steps.clone(), jobs_received))?;
    let writer = Writer::new(log, state, stored, recorder, steps, shared.clone(), options.clone());
    Ok(EngineThread { writer, shared, waiting, messages, jobs, options })
}

/// Puts declarations in force unless they are already. Answers what they change.
fn declare<L: Log>(
    writer: &mut Writer<L>,
    declarations: Declarations,
    remove: &[String],
    now_ms: u64,
) -> Result<Option<DeclaredChanges>, RecoveryError> {
    let known = writer.state().fates.contracts.meanings();
    check_removals(remove, &declarations, &known)?;
    let current = writer.state().declarations();
    if current.yaml() == declarations.yaml() {
        return Ok(None);
    }
    declarations.check_change(&known)?;
    let changes = declarations.changes_since(current);
    let unnamed: Vec<String> = changes.removed.iter().filter(|name| !remove.contains(name)).cloned().collect();
    if !unnamed.is_empty() {
        return Err(RecoveryError::Removed(unnamed));
    }
    let version = current.version() + 1;
    writer.configure(declarations.with_version(version), now_ms)?;
    tracing::info!(version, "a new configuration is in force: {changes}");
    Ok(Some(changes))
}

/// Refuses to remove what the configuration declares, and what never was there. What is gone already may stay named.
fn check_removals(
    remove: &[String],
    declarations: &Declarations,
    known: &BTreeMap<Box<str>, Meaning>,
) -> Result<(), RecoveryError> {
    let wrong = |name: &&String| declarations.find(name.as_bytes()).is_some() || !known.contains_key(name.as_str());
    let Some(name) = remove.iter().find(wrong) else { return Ok(()) };
    let what = match declarations.find(name.as_bytes()) {
        Some(_) => "the configuration declares it".to_owned(),
        None => match nearest(name, known.keys().map(|name| &**name)) {
            Some(meant) => format!("there is no such counter; did you mean {meant}?"),
            None => "there is no such counter".to_owned(),
        },
    };
    Err(RecoveryError::NotRemoved { name: name.clone(), what })
}
