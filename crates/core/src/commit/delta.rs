//! What a commit did to each counter, gathered from the changes of its batches.
//!
//! Made off the writer's thread, and only if somebody follows. Cells are hashes; their ids are found in the records, once for
//! each counter of a commit.

use super::codec::Deltas;
use crate::cell::ValueChanges;
use crate::counter::Declarations;
use crate::database::Space;
use crate::id::{CellHasher, CellKey};
use crate::ledger::{Correction, Row};
use crate::op::{Op, OpKind};
use crate::record::Record;
use hashbrown::HashMap;

/// What happened to one counter of database 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterDelta {
    pub id: Box<[u8]>,
    /// A `SET` can change a value by more than fits into 64 bits.
    pub delta: i128,
    /// `None` if it is gone.
    pub value: Option<i64>,
}

/// The changes of a commit that is not over.
pub struct Gathering {
    hasher: CellHasher,
    flushed: bool,
    cells: HashMap<CellKey, Net>,
    nameless: usize,
    id: Vec<u8>,
}

/// A cell before and after.
struct Net {
    before: Option<i64>,
    after: Option<i64>,
    id: Option<Box<[u8]>>,
}

impl Gathering {
    pub fn new(hasher: CellHasher) -> Gathering {
        Gathering { hasher, flushed: false, cells: HashMap::new(), nameless: 0, id: Vec::new() }
    }

    /// Adds what the operations of a batch have changed.
    pub fn add(&mut self, changes: ValueChanges, records: &[u8], ops: &[Op], declarations: &Declarations) {
        if changes.flushed {
            *self = Gathering { flushed: true, ..Gathering::new(self.hasher) };
        }
        for change in &changes.changes {
            let net = self.cells.entry(change.cell).or_insert_with(|| {
                self.nameless += 1;
                Net { before: change.before, after: None, id: None }
            });
            net.after = change.after;
        }
        for (cell, id) in changes.named {
            self.name(cell, &id);
        }
        for op in ops {
            if self.nameless == 0 {
                break;
            }
            self.name_by(op, records, declarations);
        }
    }

    /// Looks whose cells an operation may have changed.
    fn name_by(&mut self, op: &Op, records: &[u8], declarations: &Declarations) {
        let may_be_other_cells = matches!(op.kind, OpKind::Copy | OpKind::SetNew | OpKind::Correct);
        if op.is_read() || !may_be_other_cells && !self.is_nameless(op.cell) {
            return;
        }
        let record = Record::decode(&mut &records[op.record as usize..]).expect("an operation points to its record");
        match &record {
            Record::Event(event) => {
                let mut id = std::mem::take(&mut self.id);
                if declarations.entry_id(op.counter, event, &mut id).is_ok() {
                    self.name(op.cell, &id);
                }
                self.id = id;
            }
            Record::Correct(bytes) => {
                for delta in Correction::decode(bytes).expect("it was applied").deltas {
                    self.name(self.hasher.key(&delta.id), &delta.id);
                }
            }
            record => record.names().into_iter().for_each(|name| self.name(self.hasher.key(name), name)),
        }
    }

    fn is_nameless(&self, cell: CellKey) -> bool {
        self.cells.get(&cell).is_some_and(|net| net.id.is_none())
    }

    fn name(&mut self, cell: CellKey, id: &[u8]) {
        if let Some(net) = self.cells.get_mut(&cell).filter(|net| net.id.is_none()) {
            net.id = Some(id.into());
            self.nameless -= 1;
        }
    }

    /// The commit is over. What it did, in the order of ids; the next one begins.
    pub fn finish(&mut self) -> Deltas {
        let cells = std::mem::take(&mut self.cells).into_values().filter(|net| net.before != net.after);
        self.nameless = 0;
        let mut deltas = Deltas { flushed: std::mem::take(&mut self.flushed), unnamed: 0, counters: Vec::new() };
        for Net { before, after, id } in cells {
            let Some(id) = id else {
                deltas.unnamed += 1;
                continue;
            };
            let (space, key) = Space::split(&id);
            if space == Space::MAIN {
                let delta = i128::from(after.unwrap_or(0)) - i128::from(before.unwrap_or(0));
                let id = if key.len() == id.len() { id } else { key.into() };
                deltas.counters.push(CounterDelta { id, delta, value: after });
            }
        }
        deltas.counters.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        deltas
    }
}
