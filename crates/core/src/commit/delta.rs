//! What a commit did to each counter, gathered from the changes of its batches.
//!
//! Made off the writer's thread, and only if somebody follows. Cells are hashes; their ids are found in the records, once for
//! each counter of a commit.

use super::codec::{CounterDeltas, Deltas};
use crate::counter::Declarations;
use crate::database::Space;
use crate::id::{CellHasher, CellKey};
use crate::ledger::{Correction, Row};
use crate::memory::cell::{ValueChange, ValueChanges};
use crate::op::{Op, OpKind};
use crate::record::{Record, event_at};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// What happened to one counter of database 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterDelta<'a> {
    pub id: &'a [u8],
    /// A `SET` can change a value by more than fits into 64 bits.
    pub delta: i128,
    /// `None` if it is gone.
    pub value: Option<i64>,
}

/// The changes of a commit that is not over.
pub struct Gathering {
    hasher: CellHasher,
    flushed: bool,
    /// Where a cell is among `nets`.
    places: HashTable<u32>,
    /// In the order in which they changed first.
    nets: Vec<Net>,
    /// The ids of cells, one behind the other.
    ids: Vec<u8>,
    nameless: usize,
    id: Vec<u8>,
}

/// A cell before and after.
struct Net {
    cell: CellKey,
    before: Option<i64>,
    after: Option<i64>,
    /// Where its id stands, once it is known.
    id: Option<(u32, u16)>,
}

impl Gathering {
    pub fn new(hasher: CellHasher) -> Gathering {
        Gathering {
            hasher,
            flushed: false,
            places: HashTable::new(),
            nets: Vec::new(),
            ids: Vec::new(),
            nameless: 0,
            id: Vec::new(),
        }
    }

    /// Adds what the operations of a batch have changed.
    pub fn add(&mut self, changes: &ValueChanges, records: &[u8], ops: &[Op], declarations: &Declarations) {
        if changes.flushed {
            self.begin();
            self.flushed = true;
        }
        let first_new = self.nets.len();
        for change in &changes.changes {
            self.net(change);
        }
        for (cell, id) in &changes.named {
            self.name(*cell, id);
        }
        self.name_in_step(first_new, records, ops, declarations);
        for op in ops {
            if self.nameless == 0 {
                break;
            }
            self.name_by(op, records, declarations);
        }
    }

    fn net(&mut self, change: &ValueChange) {
        let ValueChange { cell, before, after } = *change;
        let nets = &self.nets;
        let is_it = |place: &u32| nets[*place as usize].cell == cell;
        match self.places.entry(cell.spread(), is_it, |place| nets[*place as usize].cell.spread()) {
            Entry::Occupied(place) => self.nets[*place.get() as usize].after = after,
            Entry::Vacant(place) => {
                place.insert(u32::try_from(nets.len()).expect("a commit is bounded far below 2³² changes"));
                self.nets.push(Net { cell, before, after, id: None });
                self.nameless += 1;
            }
        }
    }

    /// Names the cells that changed first in this batch, from `first_new` on. They stand in the order of the operations that
    /// changed them, so that nothing has to be looked up; if one does not, it and those behind it are left to
    /// [`Self::name_by`].
    fn name_in_step(&mut self, first_new: usize, records: &[u8], ops: &[Op], declarations: &Declarations) {
        let mut next = first_new;
        let mut id = std::mem::take(&mut self.id);
        for op in ops {
            while self.nets.get(next).is_some_and(|net| net.id.is_some()) {
                next += 1;
            }
            let Some(net) = self.nets.get(next) else { break };
            if net.cell != op.cell {
                continue;
            }
            match op.kind {
                OpKind::Count | OpKind::Entry => {
                    declarations.staged_entry_id(op.counter, event_at(records, op.record), &mut id);
                    self.name_place(next, &id);
                }
                OpKind::Add => self.name_place(next, added_name(records, op)),
                _ => break,
            }
        }
        self.id = id;
    }

    /// Forgets everything, and keeps the memory for it.
    fn begin(&mut self) {
        self.places.clear();
        self.nets.clear();
        self.ids.clear();
        (self.nameless, self.flushed) = (0, false);
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

    fn place_of(&self, cell: CellKey) -> Option<usize> {
        let place = self.places.find(cell.spread(), |place| self.nets[*place as usize].cell == cell);
        place.map(|place| *place as usize)
    }

    fn is_nameless(&self, cell: CellKey) -> bool {
        self.place_of(cell).is_some_and(|place| self.nets[place].id.is_none())
    }

    fn name(&mut self, cell: CellKey, id: &[u8]) {
        if let Some(place) = self.place_of(cell).filter(|place| self.nets[*place].id.is_none()) {
            self.name_place(place, id);
        }
    }

    fn name_place(&mut self, place: usize, id: &[u8]) {
        let at = u32::try_from(self.ids.len()).expect("a commit is bounded far below 4 GiB");
        self.nets[place].id = Some((at, u16::try_from(id.len()).expect("ids are at most ID_BYTES_MAX long")));
        self.ids.extend_from_slice(id);
        self.nameless -= 1;
    }

    /// The commit is over. What it did, in the order in which counters changed first; the next one begins.
    pub fn finish(&mut self) -> Deltas {
        // A delta and a value seldom need more than some bytes beside the id.
        let counters = CounterDeltas::with_capacity(self.ids.len() + 8 * self.nets.len());
        let mut deltas = Deltas { flushed: self.flushed, unnamed: 0, counters };
        for Net { before, after, id, .. } in self.nets.iter().filter(|net| net.before != net.after) {
            let Some((at, bytes)) = *id else {
                deltas.unnamed += 1;
                continue;
            };
            let (space, id) = Space::split(&self.ids[at as usize..][..usize::from(bytes)]);
            if space == Space::MAIN {
                let delta = i128::from(after.unwrap_or(0)) - i128::from(before.unwrap_or(0));
                deltas.counters.push(&CounterDelta { id, delta, value: *after });
            }
        }
        self.begin();
        deltas
    }
}

/// What a client named to add to it.
fn added_name<'r>(records: &'r [u8], op: &Op) -> &'r [u8] {
    match Record::decode(&mut &records[op.record as usize..]) {
        Ok(Record::Add { name, .. }) => name,
        other => unreachable!("{other:?} is not the record of {op:?}"),
    }
}
