//! Stand-ins: how a roll-up that was added to a running counter gets what was counted before it ([`Fill`], ADR 37).
//!
//! A stand-in is a roll-up of its own beside the one that it stands in for: everything that changes the counter changes it as well, and
//! nobody is answered from it. What it lacks comes bit by bit, reckoned by somebody else at some moment. What is added to parts since
//! stands beside that, in whatever order it comes, but for a clear: a key that was cleared lacks nothing any more. So what was reckoned
//! before the counter was cleared last is refused.

use super::rolling::{KeptRollup, KeptRollups, Rolling, limit_of};
use super::tops::{TopBoards, TopChange};
use super::{ValueFacts, Values};
use crate::counter::rollup::{Minutes, Rollups};
use crate::counter::{Declarations, Declared};
use crate::id::CellKey;
use crate::ledger::parts::block::values_of;
use crate::ledger::{Fill, FillKey, FillStep, ROLLUP_NUMBERS_MAX, Role, Split, SplitRollup};
use std::sync::Arc;

/// How what a stand-in lacks is added to it alone.
pub(super) struct Filling {
    of_keys: Arc<Split>,
    /// The counter as a whole stands apart from keys, in the order of the log.
    of_whole: Option<Arc<Split>>,
    tops: TopBoards,
}

impl KeptRollup {
    /// Whether it stands in for another one, and nobody sees it.
    pub fn is_stand_in(&self) -> bool {
        self.stands_in_for.is_some()
    }
}

impl KeptRollups {
    /// The roll-ups that answer.
    pub fn seen(&self) -> Vec<KeptRollup> {
        self.kept.iter().filter(|kept| !kept.is_stand_in()).cloned().collect()
    }

    /// There is one at a time.
    pub fn stand_in(&self) -> Option<&KeptRollup> {
        self.kept.iter().find(|kept| kept.is_stand_in())
    }

    /// The roll-ups that will answer when the stand-in has taken its place.
    fn filled(&self) -> Vec<KeptRollup> {
        let mut filled = KeptRollups { kept: self.kept.clone(), ..*self };
        if let Some(stand_in) = self.stand_in() {
            filled.end(stand_in.number, stand_in.since_ms);
        }
        filled.kept
    }

    fn begin(&mut self, rollup: u16, log_time_ms: u64) -> bool {
        let began_later = |kept: &&KeptRollup| kept.number == rollup && kept.since_ms.is_some();
        let Some(kept) = self.kept.iter().find(began_later).filter(|_| self.stand_in().is_none()) else { return false };
        // Whoever declares others has room in any case.
        if self.next >= ROLLUP_NUMBERS_MAX / 2 {
            return false;
        }
        let (stands_in_for, since_ms) = (Some(rollup), Some(log_time_ms));
        self.kept.push(KeptRollup {
            number: self.next,
            rollup: kept.rollup.clone(),
            zone: kept.zone.clone(),
            since_ms,
            // What was rolled up of the other one comes back as exactly as it is kept now.
            bands: Default::default(),
            stands_in_for,
        });
        self.next += 1;
        true
    }

    /// In the place of the other one: which of several roll-ups answers follows from their order as well.
    fn end(&mut self, stand_in: u16, since_ms: Option<u64>) -> bool {
        let Some(at) = self.kept.iter().position(|kept| kept.number == stand_in && kept.is_stand_in()) else {
            return false;
        };
        let stand_in = self.kept.remove(at);
        let replaced = self.kept.iter_mut().find(|kept| Some(kept.number) == stand_in.stands_in_for);
        *replaced.expect("a stand-in goes with what it stands in for") =
            KeptRollup { since_ms, stands_in_for: None, ..stand_in };
        true
    }

    /// Answers whether there were any.
    pub fn drop_stand_ins(&mut self) -> bool {
        let before = self.kept.len();
        self.kept.retain(|kept| !kept.is_stand_in());
        self.kept.len() < before
    }

    fn drop_stand_in(&mut self, number: u16) -> bool {
        self.stand_in().is_some_and(|kept| kept.number == number) && self.drop_stand_ins()
    }

    /// How what the stand-in lacks is split. What a key admits of other roll-ups is asked of those.
    pub(super) fn filling(&self, rollups: &Rollups, whole: Option<CellKey>) -> Option<Filling> {
        let KeptRollup { number, rollup, zone, stands_in_for, .. } = self.stand_in()?;
        let own = SplitRollup {
            number: *number,
            dimensions: (0..rollup.dimensions.len() as u8).collect(),
            unit: rollup.unit,
            admits: limit_of(rollups, rollup),
            role: Role::Counts,
        };
        let asked = self.kept.iter().filter(|kept| !kept.is_stand_in() && Some(kept.number) != *stands_in_for);
        let asked = asked.filter_map(|kept| {
            let admits = Some(limit_of(rollups, &kept.rollup)?);
            let at = rollup.dimensions.iter().position(|name| *name == kept.rollup.dimensions[0])?;
            let dimensions = [at as u8].into();
            Some(SplitRollup { number: kept.number, dimensions, unit: None, admits, role: Role::Asked })
        });
        let split = Split {
            dimensions: rollup.dimensions.clone(),
            unit: rollup.unit,
            zone: zone.clone(),
            // What it lacks is told as well, for itself.
            whole: None,
            rollups: asked.chain([own]).collect(),
        };
        let tops = whole.map_or_else(TopBoards::default, |cell| self.tops_of_stand_in(cell, &split));
        let of_whole = whole.map(|_| Arc::new(Split { whole, ..split.clone() }));
        Some(Filling { of_keys: Arc::new(split), of_whole, tops })
    }

    /// The boards that the stand-in will answer from.
    pub(super) fn tops_of_stand_in(&self, whole: CellKey, split: &Split) -> TopBoards {
        let number = self.stand_in().map(|kept| kept.number);
        TopBoards::new(whole, &self.filled(), split, |of| Some(of) == number)
    }
}

impl Rolling {
    fn step(&mut self, fill: &Fill, log_time_ms: u64) -> bool {
        let Some(kept) = self.kept.get_mut(&*fill.counter) else { return false };
        match fill.step {
            FillStep::Begin => kept.begin(fill.rollup, log_time_ms),
            FillStep::End { since_ms } => kept.end(fill.rollup, since_ms),
            FillStep::Drop => kept.drop_stand_in(fill.rollup),
            FillStep::Add { .. } | FillStep::Describe { .. } => false,
        }
    }

    /// What is declared anew may mean something else.
    pub fn drop_stand_ins(&mut self) {
        self.kept.values_mut().for_each(|kept| _ = kept.drop_stand_ins());
    }

    /// A key of a counter was cleared.
    pub(super) fn note_cleared(&mut self, counter: &str, generation: u64) {
        if let Some(kept) = self.kept.get_mut(counter) {
            kept.cleared = generation;
        }
    }

    /// Whether a stand-in is there, and what it lacks was reckoned behind the last clear.
    fn may_add(&self, counter: &str, stand_in: u16, generation: u64) -> bool {
        let Some(kept) = self.kept.get(counter) else { return false };
        kept.stand_in().is_some_and(|kept| kept.number == stand_in) && kept.cleared <= generation
    }
}

impl Values {
    /// The stand-in of a counter, if one of its roll-ups is being filled.
    pub fn stand_in(&self, counter: &str) -> Option<&KeptRollup> {
        self.rolling.all().get(counter)?.stand_in()
    }

    /// Does a step of a fill; answers whether it could be done, and whether the counter has other roll-ups since.
    pub(crate) fn fill(&mut self, fill: &Fill, declarations: &Declarations) -> (bool, bool) {
        let FillStep::Add { generation, keys } = &fill.step else {
            let is_done = self.rolling.step(fill, self.log_time_ms);
            return (is_done, is_done);
        };
        let Declared::Now(counter) = declarations.declared(fill.counter.as_bytes()) else { return (false, false) };
        let may_add = self.rolling.may_add(&fill.counter, fill.rollup, *generation);
        (may_add && self.add_lacking(counter, keys), false)
    }

    fn add_lacking(&mut self, counter: u16, keys: &[FillKey]) -> bool {
        let Values { rolling, facts, hasher, .. } = self;
        let ValueFacts { parts, boards, .. } = facts;
        let Some(Filling { of_keys: split, of_whole, tops }) = rolling.filling(counter) else { return false };
        let mut lacking = keys.iter().flat_map(|key| &key.parts);
        if lacking.any(|part| values_of(&part.values).count() != split.dimensions.len()) {
            return false;
        }
        for FillKey { id, parts: lacking } in keys {
            let cell = hasher.key(id);
            for part in lacking {
                // Where a bucket begins others may have reckoned by other tables of time zones.
                let bucket: Minutes = split.unit.map_or(0, |unit| unit.bucket(part.bucket, &split.zone));
                if let Some(of_whole) = of_whole.as_ref().filter(|split| split.whole == Some(cell)) {
                    parts.add(None, of_whole, &part.values, bucket, part.delta);
                    continue;
                }
                parts.add(Some(cell), split, &part.values, bucket, part.delta);
                let change = TopChange { cell, values: &part.values, bucket, delta: part.delta };
                tops.prefetch(boards, hasher, split, &change);
                if tops.add(boards, split, &change) {
                    tops.name(boards, hasher, split, &change, id);
                }
            }
        }
        true
    }
}
