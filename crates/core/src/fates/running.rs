//! What is kept of each declared counter: its boxes, its watermark, its memory of repeats.

use super::memory::{Memories, Memory};
use super::parked::Parked;
use crate::counter::{Counter, Declarations, Declared, Field, Lateness, Meaning, Mode};
use crate::id::CellKey;
use crate::ledger::{BoxKind, Boxes};
use crate::memory::dedup::needed_from_ms;
use crate::op::{Op, OpKind, Stamp, Stream};
use crate::values::Sums;
use std::collections::BTreeMap;

/// The running part of all declared counters, in the order of the declarations.
#[derive(Default)]
pub struct Contracts {
    active: Vec<RunningContract>,
    /// What is left of counters that are not declared any more.
    retired: BTreeMap<Box<str>, Kept>,
    /// Memories of repeats that no declared counter has any more, and that may come back.
    resting: Memories,
    pub parked: Parked,
    /// What follows in this batch is rejected if it needs more memory of repeats.
    pub(crate) repeats_are_full: bool,
    /// How many rows the audit of duplicates ever got.
    pub audited: u64,
}

/// A contract as it runs.
struct RunningContract {
    name: Box<str>,
    mode: Mode,
    lateness: Option<Lateness>,
    memory: Option<Memory>,
    /// One entity may count for one key and then for another.
    moves: bool,
    kept: Kept,
}

/// What a checkpoint keeps of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub meaning: Meaning,
    /// Entries that came, counted before anybody looks at them: the boxes have to add up to it.
    pub received: u64,
    pub boxes: Boxes,
    /// The latest time that an entry showed: its own, or that of its arrival if that is earlier.
    pub watermark_ms: i64,
}

/// A counter's boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    pub name: Box<str>,
    pub stream: Stream,
    /// Counted apart from the boxes, which add up to it.
    pub received: u64,
    pub boxes: Boxes,
    pub watermark_ms: Option<i64>,
    /// What its values have to add up to; `None` if it counted under a version that did not add up.
    pub sums: Option<Sums>,
}

impl Balance {
    pub(crate) fn of(name: &str, kept: &Kept, sums: Option<Sums>) -> Balance {
        Balance {
            name: name.into(),
            stream: kept.meaning.contract.stream(),
            received: kept.received,
            boxes: kept.boxes,
            watermark_ms: (kept.watermark_ms != i64::MIN).then_some(kept.watermark_ms),
            sums,
        }
    }
}

impl Contracts {
    /// Goes over to new declarations. A counter keeps what it has by its name.
    pub(crate) fn declare(&mut self, declarations: &Declarations) {
        for contract in self.active.drain(..) {
            self.resting.rest(contract.memory);
            self.retired.insert(contract.name, contract.kept);
        }
        for counter in declarations.all_counters() {
            let mut kept = self.retired.remove(&counter.name).unwrap_or_else(|| Kept {
                meaning: counter.meaning(),
                received: 0,
                boxes: Boxes::default(),
                watermark_ms: i64::MIN,
            });
            kept.meaning.learn(counter);
            let memory = counter.contract.repeats().map(|dedup| self.resting.wake(&counter.name, dedup));
            let (name, mode, lateness, moves) =
                (counter.name.clone(), counter.mode(), counter.lateness, moves(counter));
            self.active.push(RunningContract { name, mode, lateness, memory, moves, kept });
        }
    }

    /// The same counters at the same watermarks, that remember no repeats and have nothing parked.
    pub(crate) fn without_memories(&self) -> Contracts {
        let like = |contract: &RunningContract| RunningContract {
            name: contract.name.clone(),
            memory: contract.memory.as_ref().map(Memory::without_groups),
            kept: contract.kept.clone(),
            ..*contract
        };
        Contracts { active: self.active.iter().map(like).collect(), ..Contracts::default() }
    }

    /// Takes over what is known of an entry: whether it stood before.
    pub(crate) fn copy_known(&mut self, from: &Contracts, op: &Op, stamp: &Stamp) {
        let counter = usize::from(op.counter);
        if let (Some(from), Some(to)) = (&from.active[counter].memory, &mut self.active[counter].memory)
            && stamp.key != CellKey::NONE
        {
            to.dedup.copy_beside(&from.dedup, stamp.key, stamp.number);
        }
    }

    /// What every counter ever declared meant, so that none comes to mean something else.
    pub fn meanings(&self) -> BTreeMap<Box<str>, Meaning> {
        self.kept().map(|(name, kept)| (name.into(), kept.meaning.clone())).collect()
    }

    /// How many sessions (or other groups) are remembered against repeats, and the memory for it.
    pub fn dedup_usage(&self) -> (usize, usize) {
        let dedups = self.memories().map(|memory| &memory.dedup);
        dedups.fold((0, 0), |(groups, bytes), dedup| (groups + dedup.groups(), bytes + dedup.bytes()))
    }

    /// Everything that is remembered against repeats.
    pub(crate) fn memories(&self) -> impl Iterator<Item = &Memory> {
        self.active.iter().filter_map(|contract| contract.memory.as_ref()).chain(self.resting.iter())
    }

    fn memories_mut(&mut self) -> impl Iterator<Item = &mut Memory> {
        self.active.iter_mut().filter_map(|contract| contract.memory.as_mut()).chain(self.resting.iter_mut())
    }

    /// What every counter meant that was declared once and is not any more.
    pub(crate) fn removed(&self) -> impl Iterator<Item = (&str, &Meaning)> {
        self.retired.iter().map(|(name, kept)| (&**name, &kept.meaning))
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = (&str, &Kept)> {
        let active = self.active.iter().map(|contract| (&*contract.name, &contract.kept));
        active.chain(self.retired.iter().map(|(name, kept)| (&**name, kept)))
    }

    pub(crate) fn resume(&mut self, name: Box<str>, kept: Kept) {
        self.retired.insert(name, kept);
    }

    /// The first log time whose batches a rebuild of the repeats needs; `None` if nothing can be.
    pub(crate) fn needed_from_ms(&self, log_time_ms: u64) -> Option<u64> {
        let needed = self.memories().map(|memory| match memory.dedup.forgets_at_ms() {
            Some(_) => needed_from_ms(memory.dedup.window_ms(), log_time_ms),
            // What will be remembered is still to come.
            None => log_time_ms,
        });
        needed.min()
    }

    /// Lets log time pass for the memories of repeats, whether anybody feeds them or not.
    pub(crate) fn advance(&mut self, log_time_ms: u64) {
        self.memories_mut().for_each(|memory| memory.dedup.advance(log_time_ms));
        self.resting.let_go();
    }

    /// The log time at which some of what is remembered of repeats no longer counts.
    pub(crate) fn forgets_at_ms(&self) -> Option<u64> {
        self.memories().filter_map(|memory| memory.dedup.forgets_at_ms()).min()
    }

    /// Gives some of the memory back that repeats no longer need. It changes nothing that anybody can see.
    pub fn sweep(&mut self, segments: usize) {
        self.memories_mut().for_each(|memory| memory.dedup.sweep(segments));
        self.resting.let_go();
    }

    #[inline]
    pub(crate) fn prefetch(&self, op: &Op, stamp: &Stamp) {
        if op.kind == OpKind::Entry
            && let Some(memory) = &self.active[usize::from(op.counter)].memory
        {
            memory.dedup.prefetch(stamp.key);
        }
    }

    pub(crate) fn mode(&self, counter: u16) -> Mode {
        self.active[usize::from(counter)].mode
    }

    /// Whether one entity may count for one key and then for another.
    pub(crate) fn moves(&self, counter: u16) -> bool {
        self.active[usize::from(counter)].moves
    }

    /// Whether there is memory to note a display entry.
    #[inline]
    pub(crate) fn has_room(&self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        !self.repeats_are_full || self.has_place(counter, stamp, log_time_ms)
    }

    #[cold]
    fn has_place(&self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        match &self.active[usize::from(counter)].memory {
            Some(memory) if stamp.key != CellKey::NONE => memory.dedup.has_place(stamp.key, stamp.number, log_time_ms),
            _ => true,
        }
    }

    /// Whether any of these operations may need memory of repeats.
    pub fn may_need_room(&self, ops: &[Op]) -> bool {
        let remembers = |op: &Op| self.active[usize::from(op.counter)].memory.is_some();
        ops.iter().any(|op| op.kind == OpKind::Entry && remembers(op))
    }

    /// Whether a display entry stood before; notes it.
    #[inline]
    pub(crate) fn is_repeat(&mut self, counter: u16, stamp: &Stamp, log_time_ms: u64) -> bool {
        match &mut self.active[usize::from(counter)].memory {
            Some(memory) if stamp.key != CellKey::NONE => memory.dedup.is_repeat(stamp.key, stamp.number, log_time_ms),
            _ => false,
        }
    }

    /// Notes a display entry that stands in the log before a checkpoint.
    pub(crate) fn note(&mut self, counter: u16, stamp: &Stamp, log_time_ms: u64) {
        if let Some(memory) = &mut self.active[usize::from(counter)].memory
            && stamp.key != CellKey::NONE
        {
            memory.dedup.is_repeat(stamp.key, stamp.number, log_time_ms);
        }
    }

    /// An entry came; whatever becomes of it, it ends in one box.
    #[inline]
    pub(crate) fn receive(&mut self, counter: u16) {
        self.active[usize::from(counter)].kept.received += 1;
    }

    #[inline]
    pub(crate) fn bump(&mut self, counter: u16, kind: BoxKind, n: i64) {
        self.active[usize::from(counter)].kept.boxes.bump(kind, n);
    }

    /// What is kept of the counter that a cell belongs to, declared or not any more.
    pub(crate) fn kept_of(&mut self, declarations: &Declarations, id: &[u8]) -> Option<&mut Kept> {
        if let Declared::Now(index) = declarations.declared(id) {
            return Some(&mut self.active[usize::from(index)].kept);
        }
        self.retired.get_mut(std::str::from_utf8(crate::id::name_of(id)).ok()?)
    }
}

/// Whether the key of an entry is more than its entity says.
fn moves(counter: &Counter) -> bool {
    let entity = counter.contract.meant();
    let says =
        |dimension: &str| entity.iter().any(|field| matches!(field, Field::Dimension(name) if **name == *dimension));
    counter.mode().terms().takes_back && !counter.dimensions.iter().all(|dimension| says(dimension))
}

/// Whether an entry came in time.
pub(super) enum Timely {
    InTime,
    /// It waits for a run; these come so often.
    Late {
        every_ms: u64,
    },
}

impl Contracts {
    /// Whether an entry counts at once; moves the watermark. A time ahead of its arrival moves it no further than to the
    /// arrival, and an entry that we kept waiting is not late for that.
    #[inline]
    pub(super) fn lateness(&mut self, counter: u16, stamp: &Stamp) -> Timely {
        let RunningContract { lateness: Some(lateness), kept, .. } = &mut self.active[usize::from(counter)] else {
            return Timely::InTime;
        };
        let received_ms = i64::try_from(stamp.received_ms).unwrap_or(i64::MAX);
        kept.watermark_ms = kept.watermark_ms.max(stamp.time_ms.min(received_ms));
        let now_ms = kept.watermark_ms.min(received_ms);
        let behind_ms = if stamp.time_ms < now_ms { now_ms.abs_diff(stamp.time_ms) } else { 0 };
        if behind_ms <= lateness.allowed_ms {
            return Timely::InTime;
        }
        let soon = behind_ms <= lateness.corrected_ms;
        Timely::Late { every_ms: if soon { lateness.every_ms } else { lateness.restated_ms } }
    }
}
