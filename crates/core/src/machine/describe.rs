//! What entities were counted for is told again: when it was counted nobody had asked for some of the dimensions, so they were not remembered,
//! and what is taken back has to be taken from where it counts.
//!
//! It is told by the events themselves, and read from those as it is when they come. So staging says what has to be looked up, and what an
//! entity remembers is what it would have remembered then.

use super::Machine;
use crate::counter::{Declared, Stager};
use crate::event::Event;
use crate::id::CellKey;
use crate::ledger::{CountedAs, Entity, Fill, FillStep};
use crate::op::{OpKind, Stamp, Submission};

/// An entity that is counted.
struct Described {
    key: CellKey,
    cell: CellKey,
    counted_as: CountedAs,
}

impl Fill {
    /// Adds to a submission what the record at `record_at` does, behind what has to be known for it.
    pub fn stage(&self, stager: &mut Stager, record_at: u32, out: &mut Submission) {
        for entity in self.described(stager) {
            out.op(OpKind::Know, CellKey::NONE, 0, record_at);
            out.stamps.push(Stamp::of_key(entity.key));
        }
        out.op(OpKind::Fill, CellKey::NONE, 0, record_at);
    }

    fn described(&self, stager: &mut Stager) -> Vec<Described> {
        let FillStep::Describe { events, .. } = &self.step else { return Vec::new() };
        let declarations = stager.declarations().clone();
        let Declared::Now(index) = declarations.declared(self.counter.as_bytes()) else { return Vec::new() };
        let (mut staged, mut id) = (Submission::default(), Vec::new());
        let describe = |bytes: &Vec<u8>| {
            let event = Event::decode(&mut &bytes[..]).ok()?;
            staged.clear();
            stager.stage(&event, 0, &mut staged, &mut |_, _| {});
            let mut stamps = staged.stamps.iter();
            let stamped = staged.ops.iter().filter(|op| op.has_stamp()).map(|op| (op, stamps.next()));
            let mut own = stamped.filter(|(op, _)| op.kind == OpKind::Entry && op.counter == index);
            let (cell, key) = own.next().and_then(|(op, stamp)| Some((op.cell, stamp?.key)))?;
            declarations.staged_entry_id(index, bytes, &mut id);
            let counted_as = CountedAs::new(&id, &declarations.counter(index).parts_of(bytes));
            Some(Described { key, cell, counted_as })
        };
        events.iter().filter_map(describe).collect()
    }
}

impl Machine {
    /// Those that are counted still, and were so before an offset. What came behind it knows of itself.
    pub(super) fn describe(&mut self, fill: &Fill, before: u64) {
        for Described { key, cell, counted_as } in fill.described(&mut self.stager) {
            let entities = &mut self.fates.facts.entities;
            let Some(entity) = entities.get(key).filter(|entity| entity.is_on()) else { continue };
            if entity.cell == cell && entity.counted_at < before {
                let entity = Entity { counted_as: Some(counted_as), ..entity.clone() };
                entities.put(key, entity);
            }
        }
    }
}
