//! One state per entity, such as a user's like of a video.

use super::{Counts, Fates, Scene};
use crate::ledger::{BoxKind, Entity};
use crate::op::{Answer, Op, Stamp};

impl Fates {
    /// Per entity the greatest (time, position) wins, and decides the state as well as the key. Undoing undoes what was counted,
    /// wherever that was.
    pub(super) fn transition(&mut self, op: &Op, stamp: &Stamp, scene: &Scene<'_>, values: &mut impl Counts) -> Answer {
        let now = (stamp.time_ms, scene.batch.offset);
        let known = self.facts.entities.get(stamp.key).cloned();
        if known.as_ref().is_some_and(|known| now < (known.occurred_ms, known.offset)) {
            return self.ignore(op);
        }
        let counted = known.filter(|known| known.on);
        let turns_on = op.arg > 0;
        let (cell, generation, id) = match &counted {
            Some(counted) if counted.cell == op.cell || !turns_on => {
                (counted.cell, counted.generation, counted.id.clone())
            }
            _ => (op.cell, scene.generation, self.id_that_may_move(op, scene)),
        };
        let entity = Entity { on: turns_on, occurred_ms: now.0, offset: now.1, cell, generation, id };
        self.facts.entities.put(stamp.key, entity);
        match counted {
            Some(counted) if turns_on && counted.cell == op.cell => self.ignore(op),
            Some(counted) => {
                // It counts for another key from now on, or for none.
                values.take_back(op, scene, &counted);
                if turns_on {
                    values.count(op, scene);
                }
                self.contracts.bump(op.counter, BoxKind::Counted, 1);
                Answer::Counted
            }
            None if turns_on => self.count(op, scene, values),
            None => self.ignore(op),
        }
    }

    /// The id of an entry, if later ones of its entity may have another.
    fn id_that_may_move(&mut self, op: &Op, scene: &Scene<'_>) -> Option<Box<[u8]>> {
        if !self.contracts.moves(op.counter) {
            return None;
        }
        scene.entry_id(op, &mut self.id);
        Some(self.id.as_slice().into())
    }
}
