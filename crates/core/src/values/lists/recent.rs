//! The keys of a counter that changed last.
//!
//! Behind each batch its operations are gone through from the last to the first, and the keys that they have changed are noted.
//! Few that were not known are noted for one batch: so a batch costs no more for it the larger it is, but for a look at each operation.
//! Of a counter that has more, all that changed before this batch is forgotten: what is told is always right, and there may be less to tell.

use super::{KEY_BYTES, Lists, Room};
use crate::fates::Scene;
use crate::id::{CellKey, KeyHash};
use crate::op::{Answer, Op, OpKind};
use crate::values::Values;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::cmp::Reverse;

/// Cells of a batch that are known to have been noted, by the ends of their hashes.
const NOTED_LATELY: usize = 64;

/// When something changed: the first record of its batch, and the log time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    pub offset: u64,
    pub at_ms: u64,
}

/// A key, and when it changed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    pub id: Box<[u8]>,
    /// The first record of the batch.
    pub offset: u64,
    /// Its log time.
    pub at_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Recent {
    keys: HashMap<CellKey, (Moment, Box<[u8]>), KeyHash>,
    bytes: usize,
    /// All that changed from here on is among them.
    since: u64,
    /// The batch that had more than are noted of one.
    full_at: Option<u64>,
}

impl Recent {
    pub fn resume(since: u64, keys: impl Iterator<Item = (CellKey, Moment, Box<[u8]>)>) -> Recent {
        let keys: HashMap<_, _, _> = keys.map(|(cell, moment, id)| (cell, (moment, id))).collect();
        let bytes = keys.values().map(|(_, id)| KEY_BYTES + id.len()).sum();
        Recent { keys, bytes, since, full_at: None }
    }

    pub fn since(&self) -> u64 {
        self.since
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn at_ms(&self, cell: CellKey) -> Option<u64> {
        self.keys.get(&cell).map(|(moment, _)| moment.at_ms)
    }

    /// All of them, in an order that does not depend on how they came here.
    pub fn sorted(&self) -> impl ExactSizeIterator<Item = (Moment, &[u8])> {
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(cell, _)| **cell);
        keys.into_iter().map(|(_, (moment, id))| (*moment, &**id))
    }

    /// Whether a batch had more keys than are noted of one.
    #[inline]
    fn is_full(&self, now: Moment) -> bool {
        self.full_at == Some(now.offset)
    }

    /// Notes a change of a key.
    pub fn note(&mut self, cell: CellKey, now: Moment, room: Room, id: impl FnOnce() -> Box<[u8]>) {
        self.note_within(&mut 1, cell, now, room, id);
    }

    /// The same if it is known, or so many more may become so.
    pub fn note_within(
        &mut self,
        left: &mut usize,
        cell: CellKey,
        now: Moment,
        room: Room,
        id: impl FnOnce() -> Box<[u8]>,
    ) {
        match self.keys.entry(cell) {
            Entry::Occupied(mut known) => known.get_mut().0 = now,
            Entry::Vacant(place) if *left > 0 => {
                *left -= 1;
                let id = id();
                self.bytes += KEY_BYTES + id.len();
                place.insert((now, id));
                if self.keys.len() > 2 * room.keys || self.bytes > room.bytes {
                    self.thin_out(room);
                }
            }
            // Nobody will know of this one, so nothing before it may be told.
            Entry::Vacant(_) => (self.since, self.full_at) = (now.offset, Some(now.offset)),
        }
    }

    /// The older half leaves: nobody who stays changed before one that left.
    fn thin_out(&mut self, room: Room) {
        let mut keys: Vec<_> = self.keys.iter().map(|(cell, (moment, _))| (Reverse(moment.offset), *cell)).collect();
        let stay = room.keys.min(keys.len() / 2);
        keys.select_nth_unstable(stay);
        for (_, cell) in &keys[stay..] {
            self.bytes -= self.keys.remove(cell).map_or(0, |(_, id)| KEY_BYTES + id.len());
        }
    }

    /// Up to `limit` of them behind one, those that changed last first, those of one batch by their ids.
    pub fn last(&self, behind: Option<(u64, &[u8])>, limit: usize) -> Vec<ChangedKey> {
        let known = self.keys.values().filter(|(moment, _)| moment.offset >= self.since);
        let behind = behind.map(|(offset, id)| (Reverse(offset), id));
        let mut keys: Vec<_> = known
            .map(|(moment, id)| (Reverse(moment.offset), &**id, moment.at_ms))
            .filter(|(offset, id, _)| behind.is_none_or(|behind| (*offset, *id) > behind))
            .collect();
        keys.sort_unstable();
        let changed = |(Reverse(offset), id, at_ms): (_, &[u8], _)| ChangedKey { id: id.into(), offset, at_ms };
        keys.into_iter().take(limit).map(changed).collect()
    }
}

impl Values {
    /// Notes the keys that a batch has changed, until a counter has more of them than are noted for one batch. `moves` says of which counters an entry may take back what counted for another key.
    #[inline(never)]
    pub(crate) fn note_changed(&mut self, scene: &Scene<'_>, answers: &[Answer], moves: impl Fn(u16) -> bool) {
        let Lists { active, now, room, .. } = &mut self.lists;
        let (mut left, mut lately) = (room.per_batch, [CellKey::NONE; NOTED_LATELY]);
        for (op, answer) in scene.batch.ops.iter().zip(answers).rev() {
            // The counter of a claim is none.
            if op.counter == Op::AD_HOC
                || !has_changed(op, answer)
                || active[usize::from(op.counter)].recent.is_full(*now)
            {
                continue;
            }
            let place = &mut lately[op.cell.spread() as usize % NOTED_LATELY];
            if std::mem::replace(place, op.cell) == op.cell {
                continue;
            }
            // What took something back has noted for which key.
            if op.arg < 0 && op.kind == OpKind::Entry && moves(op.counter) {
                continue;
            }
            let recent = &mut active[usize::from(op.counter)].recent;
            recent.note_within(&mut left, op.cell, *now, *room, || match op.is_entry() {
                true => {
                    scene.entry_id(op, &mut self.id);
                    self.id.as_slice().into()
                }
                false => scene.batch.named(op).into(),
            });
        }
    }
}

/// Whether an operation has changed its cell, by its answer.
fn has_changed(op: &Op, answer: &Answer) -> bool {
    match (op.kind, answer) {
        (OpKind::Count | OpKind::Entry, Answer::Counted) | (OpKind::Add | OpKind::AddOnce, Answer::Value(_)) => true,
        (OpKind::AddMany, Answer::Many { counted, .. }) => *counted > 0,
        _ => false,
    }
}
