//! Which keys of each declared counter are worth most, and which changed last: kept where values change, in bounded memory, so
//! that nobody has to go through all keys to tell.
//!
//! Both are candidates: [`leaders`] are as many as can be asked for and up to twice as many, [`recent`] likewise. The rest is bounded by
//! what one candidate that left had. Why an answer made from them is exact: ADR 23.

mod bytes;
mod leaders;
mod recent;
#[cfg(test)]
mod tests;

use super::Values;
use crate::counter::Declarations;
use crate::fates::Scene;
use crate::id::{CellKey, name_of};
use crate::ledger::Correction;
use crate::limits::{CHANGED_PER_BATCH_MAX, LISTED_KEYS_MAX, LISTS_BYTES_MAX};
use crate::memory::cell::{Added, Table};
use crate::op::{Batch, Op};
use hashbrown::HashMap;
use leaders::Leaders;
use recent::Recent;
use std::collections::BTreeMap;

pub use leaders::{Greatest, RankedKey};
pub use recent::ChangedKey;
pub(crate) use recent::Moment;

/// What a candidate takes beside its id, about.
const KEY_BYTES: usize = 96;

/// How much one list may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// So many can be asked for.
    pub keys: usize,
    pub bytes: usize,
    /// So many that changed become known by one batch.
    pub per_batch: usize,
}

/// The lists of all counters there ever were.
pub(crate) struct Lists {
    /// In the order of the declarations.
    active: Vec<Listed>,
    by_name: HashMap<Box<str>, usize>,
    retired: BTreeMap<Box<str>, Listed>,
    /// The batch that is being applied.
    now: Moment,
    /// What the lists of one counter may hold.
    room: Room,
}

/// Those of one counter.
struct Listed {
    name: Box<str>,
    leaders: Leaders,
    recent: Recent,
}

impl Default for Lists {
    fn default() -> Lists {
        Lists {
            active: Vec::new(),
            by_name: HashMap::new(),
            retired: BTreeMap::new(),
            now: Moment::default(),
            room: Room { keys: LISTED_KEYS_MAX, bytes: LISTS_BYTES_MAX, per_batch: CHANGED_PER_BATCH_MAX },
        }
    }
}

impl Lists {
    /// Goes over to new declarations. A counter keeps what it has by its name; of a new one nothing is known, unless there are no
    /// counters at all: some may have been counted under its name before it was declared.
    pub fn declare(&mut self, declarations: &Declarations, there_are_none: bool) {
        self.retired.extend(self.active.drain(..).map(|listed| (listed.name.clone(), listed)));
        for counter in declarations.all_counters() {
            let new = || Listed {
                name: counter.name.clone(),
                // Nobody counts under the name of what counts probes.
                leaders: if there_are_none || counter.is_probe() { Leaders::of_none() } else { Leaders::unknown() },
                recent: Recent::default(),
            };
            self.active.push(self.retired.remove(&counter.name).unwrap_or_else(new));
        }
        self.by_name = self.active.iter().enumerate().map(|(index, listed)| (listed.name.clone(), index)).collect();
        let lists = 2 * (self.active.len() + self.retired.len()).max(1);
        self.room = Room { bytes: LISTS_BYTES_MAX / lists, ..self.room };
    }

    /// Memory in use, about.
    pub fn bytes(&self) -> usize {
        self.all().map(|listed| listed.leaders.bytes() + listed.recent.bytes()).sum()
    }

    /// Every counter is gone.
    pub fn clear(&mut self) {
        for listed in self.active.iter_mut().chain(self.retired.values_mut()) {
            (listed.leaders, listed.recent) = (Leaders::of_none(), Recent::default());
        }
    }

    fn all(&self) -> impl Iterator<Item = &Listed> {
        self.active.iter().chain(self.retired.values())
    }

    fn of(&self, name: &[u8]) -> Option<&Listed> {
        let name = std::str::from_utf8(name).ok()?;
        self.by_name.get(name).map(|index| &self.active[*index]).or_else(|| self.retired.get(name))
    }

    fn of_mut(&mut self, name: &[u8]) -> Option<&mut Listed> {
        let name = std::str::from_utf8(name).ok()?;
        match self.by_name.get(name) {
            Some(index) => Some(&mut self.active[*index]),
            None => self.retired.get_mut(name),
        }
    }

    /// Whether a key that an addition has changed has to be looked at. It is asked for every entry that counts.
    #[inline]
    pub fn rises(&self, counter: u16, added: Added, delta: i64) -> bool {
        self.active[usize::from(counter)].leaders.rises(added, delta)
    }

    #[cold]
    fn lead(&mut self, table: &mut Table, counter: u16, cell: CellKey, id: &[u8]) {
        self.active[usize::from(counter)].leaders.admit(table, cell, id, self.room);
    }

    /// The same for a key whose counter only its id tells, declared or not any more.
    pub fn changed(&mut self, table: &mut Table, cell: CellKey, id: &[u8], added: Added, delta: i64) {
        let room = self.room;
        if let Some(listed) = self.of_mut(name_of(id)).filter(|listed| listed.leaders.rises(added, delta)) {
            listed.leaders.admit(table, cell, id, room);
        }
    }

    /// The row of a key has come for which entries were counted without it: what it was before is not looked at.
    pub fn settled(&mut self, table: &mut Table, cell: CellKey, id: &[u8], value: i64) {
        self.changed(table, cell, id, Added::Created(value), 0);
    }

    /// A batch is applied from here on.
    pub fn begin(&mut self, batch: &Batch<'_>) {
        self.now = Moment { offset: batch.offset, at_ms: batch.log_time_ms };
    }
}

impl Values {
    /// An entry has brought its key to where it has to be looked at.
    #[cold]
    pub(crate) fn lead_entry(&mut self, op: &Op, scene: &Scene<'_>) {
        scene.entry_id(op, &mut self.id);
        self.lists.lead(&mut self.table, op.counter, op.cell, &self.id);
    }

    /// The same for an addition by name.
    #[cold]
    pub(super) fn lead_named(&mut self, op: &Op, id: &[u8]) {
        self.lists.lead(&mut self.table, op.counter, op.cell, id);
    }

    /// Something was taken back from another key than the one that an entry names.
    pub(super) fn note_taken_back(&mut self, counter: u16, cell: CellKey, id: &[u8]) {
        let Lists { active, now, room, .. } = &mut self.lists;
        active[usize::from(counter)].recent.note(cell, *now, *room, || id.into());
    }

    /// A correction was made: its last keys are those that changed last.
    pub(crate) fn note_corrected(&mut self, correction: &Correction) {
        let (now, room) = (self.lists.now, self.lists.room);
        let mut left = room.per_batch;
        for delta in correction.deltas.iter().rev() {
            let cell = self.hasher.key(&delta.id);
            if let Some(listed) = self.lists.of_mut(name_of(&delta.id)) {
                listed.recent.note_within(&mut left, cell, now, room, || delta.id.as_slice().into());
            }
        }
    }

    /// Up to `limit` keys of a counter that are worth most, behind one that is worth so much; `None` if there never was such a counter.
    pub fn greatest(&self, counter: &str, behind: Option<(i64, &[u8])>, limit: usize) -> Option<Greatest> {
        Some(self.lists.of(counter.as_bytes())?.leaders.greatest(&self.table, behind, limit))
    }

    /// Up to `limit` keys of a counter that changed last, behind one that changed at an offset.
    pub fn changed_last(&self, counter: &str, behind: Option<(u64, &[u8])>, limit: usize) -> Option<Vec<ChangedKey>> {
        Some(self.lists.of(counter.as_bytes())?.recent.last(behind, limit))
    }

    /// The log time at which a key changed last, if it is among those that are remembered.
    pub fn changed_at_ms(&self, id: &[u8]) -> Option<u64> {
        self.lists.of(name_of(id))?.recent.at_ms(self.hasher.key(id))
    }

    /// Somebody has to go through the keys of a counter: too many of its leaders have fallen.
    pub fn want_walk(&mut self, counter: &str) {
        if let Some(listed) = self.lists.of_mut(counter.as_bytes()) {
            listed.leaders.want_walk();
        }
    }

    /// A counter whose keys somebody has to go through; the walk begins.
    pub fn begin_walk(&mut self) -> Option<Box<str>> {
        let Lists { active, retired, .. } = &mut self.lists;
        let mut all = active.iter_mut().chain(retired.values_mut());
        all.find_map(|listed| listed.leaders.begin_walk().then(|| listed.name.clone()))
    }

    /// Keys that are worth no more than this need not be shown to the walk any more.
    pub fn passed_by(&self, counter: &str) -> i64 {
        self.lists.of(counter.as_bytes()).map_or(i64::MAX, |listed| listed.leaders.passed())
    }

    /// The walk has come to some keys, which are known.
    pub fn walk(&mut self, counter: &str, ids: &[Vec<u8>]) {
        let room = self.lists.room;
        let Some(listed) = self.lists.of_mut(counter.as_bytes()) else { return };
        for id in ids {
            let cell = self.hasher.key(id);
            if let Some(value) = self.table.get(cell)
                && listed.leaders.rises(Added::Created(value), 0)
            {
                listed.leaders.admit(&mut self.table, cell, id, room);
            }
        }
    }

    /// The walk has been through all keys.
    pub fn end_walk(&mut self, counter: &str) {
        if let Some(listed) = self.lists.of_mut(counter.as_bytes()) {
            listed.leaders.end_walk();
        }
    }

    /// Cells that memory has to have, and does not.
    pub fn leaders_missing(&self) -> impl Iterator<Item = CellKey> {
        let cells = self.lists.all().flat_map(|listed| listed.leaders.cells());
        cells.filter(|cell| !self.table.knows(*cell))
    }

    /// How many keys of a counter can be asked for, if not [`LISTED_KEYS_MAX`].
    pub fn limit_lists(&mut self, keys: usize) {
        self.lists.room.keys = keys;
    }

    /// Memory of these lists, about.
    pub fn lists_bytes(&self) -> usize {
        self.lists.bytes()
    }
}
