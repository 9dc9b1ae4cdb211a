//! Who wants to know whether a counter has changed before a transaction of his own (`WATCH` of the Redis protocol).
//!
//! Operations on a watched counter are noted as they are applied, so that a change and its opposite are two changes.
//! What changes a counter in another way (expiry, a correction, an undone transition, a flush) shows when the counter
//! is compared with what it was. Nobody pays for this while nobody watches.

use super::Refusal;
use std::collections::HashMap;
use tally_core::database::Space;
use tally_core::id::{CellHasher, CellKey};
use tally_core::limits::WATCHED_BYTES_MAX;
use tally_core::machine::Machine;
use tally_core::op::{Answer, Op, OpKind};
use tally_core::record::Record;

/// What one watched counter takes beside its key, in bytes.
const ENTRY_BYTES: usize = 192;

/// A counter that is being watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch(u64);

/// Which counter to watch: a key of a database, and the cell that it stands for at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    pub database: u8,
    pub key: &'a [u8],
    pub cell: CellKey,
}

/// What must hold where a transaction stands in the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// None of these has changed.
    pub watches: &'a [Watch],
    /// Only database 0 has counters.
    pub only_main: bool,
    /// No counter has come or gone since [`tally_core::database::Databases::changes`] was this.
    pub changes: Option<u64>,
}

/// Whether it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchVerdict {
    Holds,
    /// A watched counter has changed.
    Changed,
    /// What the transaction was made from is not true any more: it has to be made again.
    Outdated,
}

impl Terms<'_> {
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty() && !self.only_main && self.changes.is_none()
    }
}

#[derive(Default)]
pub(super) struct Watches {
    entries: HashMap<u64, WatchEntry>,
    by_cell: HashMap<CellKey, Vec<u64>>,
    last: u64,
    bytes: usize,
}

struct WatchEntry {
    database: u8,
    key: Box<[u8]>,
    cell: CellKey,
    seen: SeenCell,
    changed: bool,
}

/// What is known of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenCell {
    value: Option<i64>,
    deadline: Option<u64>,
    generation: u64,
}

impl SeenCell {
    fn of(state: &Machine, cell: CellKey, now_ms: u64) -> SeenCell {
        let deadline = state.values.table.deadline(cell);
        match state.values.table.get(cell).filter(|_| deadline.is_none_or(|at_ms| at_ms > now_ms)) {
            None => SeenCell { value: None, deadline: None, generation: 0 },
            value => SeenCell { value, deadline, generation: state.values.table.mark(cell).generation },
        }
    }
}

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Watches a counter that memory knows, if there is one.
    pub fn add(&mut self, watched: Watched<'_>, state: &Machine, now_ms: u64) -> Result<Watch, Refusal> {
        let Watched { database, key, cell } = watched;
        let bytes = ENTRY_BYTES + key.len();
        if self.bytes + bytes > WATCHED_BYTES_MAX {
            return Err(Refusal::TooLarge(too_many().into()));
        }
        self.bytes += bytes;
        self.last += 1;
        let seen = SeenCell::of(state, cell, now_ms);
        self.entries.insert(self.last, WatchEntry { database, key: key.into(), cell, seen, changed: false });
        self.by_cell.entry(cell).or_default().push(self.last);
        Ok(Watch(self.last))
    }

    pub fn remove(&mut self, watch: &Watch) {
        let Some(entry) = self.entries.remove(&watch.0) else { return };
        self.bytes -= ENTRY_BYTES + entry.key.len();
        self.unlink(entry.cell, watch.0);
    }

    fn unlink(&mut self, cell: CellKey, number: u64) {
        if let Some(numbers) = self.by_cell.get_mut(&cell) {
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                self.by_cell.remove(&cell);
            }
        }
    }

    pub fn cell(&self, watch: &Watch) -> Option<CellKey> {
        self.entries.get(&watch.0).map(|entry| entry.cell)
    }

    /// Notes what a batch that was just applied has changed.
    pub fn note(&mut self, ops: &[Op], answers: &[Answer], records: &[u8], state: &Machine) {
        for (op, answer) in ops.iter().zip(answers) {
            if op.kind == OpKind::FlushDatabase {
                self.follow(records, op, state);
            } else if is_change(op, answer)
                && let Some(numbers) = self.by_cell.get(&op.cell)
            {
                for number in numbers {
                    self.entries.get_mut(number).expect("a watched cell has its entry").changed = true;
                }
            }
        }
    }

    /// A database was flushed: a counter that was there has changed, and its key is that of another cell now.
    fn follow(&mut self, records: &[u8], op: &Op, state: &Machine) {
        let Ok(Record::FlushDatabase { database, space }) = Record::decode(&mut &records[op.record as usize..]) else {
            unreachable!("the log has checked the record of a flush")
        };
        let space = Space::from_number(space).expect("decoding has checked it");
        let moved: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| entry.database == database).map(|(number, _)| *number).collect();
        for number in moved {
            let entry = self.entries.get_mut(&number).expect("it was there a moment ago");
            let before = entry.cell;
            entry.changed |= SeenCell::of(state, before, state.log_time_ms()).value.is_some();
            entry.cell = cell_in(space, &entry.key, state.hasher());
            let cell = entry.cell;
            self.unlink(before, number);
            self.by_cell.entry(cell).or_default().push(number);
        }
    }

    pub fn judge(&self, terms: &Terms<'_>, state: &Machine, now_ms: u64) -> WatchVerdict {
        let databases = &state.values.databases;
        let unchanged = |watch: &Watch| {
            let entry = self.entries.get(&watch.0);
            entry.is_some_and(|entry| !entry.changed && SeenCell::of(state, entry.cell, now_ms) == entry.seen)
        };
        if !terms.watches.iter().all(unchanged) {
            WatchVerdict::Changed
        } else if terms.only_main && !databases.only_main()
            || terms.changes.is_some_and(|changes| changes != databases.changes())
        {
            WatchVerdict::Outdated
        } else {
            WatchVerdict::Holds
        }
    }
}

fn cell_in(space: Space, key: &[u8], hasher: CellHasher) -> CellKey {
    hasher.key(&space.id(key))
}

/// Whether an operation has changed its counter, be it to what it was.
fn is_change(op: &Op, answer: &Answer) -> bool {
    !op.is_read()
        && matches!(
            answer,
            Answer::Counted
                | Answer::Value(_)
                | Answer::Many { counted: 1.., .. }
                | Answer::Yes
                | Answer::Set { applied: true, .. }
        )
}

fn too_many() -> String {
    format!("the keys that all clients watch have {WATCHED_BYTES_MAX} bytes together, which is the most: watch fewer")
}
