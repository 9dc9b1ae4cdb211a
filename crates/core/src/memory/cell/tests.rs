//! The table against a naive model: random operations, cuts that succeed and fail, cells that leave and come back.

use super::*;
use crate::id::{CellHasher, CellKey};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Add(u8, i64),
    /// An entry, which does not wait for the store.
    Count(u8, i64),
    Settle(u8),
    Set(u8, i64),
    Delete(u8),
    Expire(u8, Option<u64>),
    Clear,
    BeginCut,
    Collect(u8),
    FinishCut,
    AbortCut,
    ThinOut(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (any::<u8>(), -5i64..5).prop_map(|(key, delta)| Step::Add(key, delta)),
        1 => (any::<u8>(), prop_oneof![Just(i64::MAX), Just(i64::MIN)]).prop_map(|(key, delta)| Step::Add(key, delta)),
        6 => (any::<u8>(), -5i64..5).prop_map(|(key, delta)| Step::Count(key, delta)),
        3 => any::<u8>().prop_map(Step::Settle),
        2 => (any::<u8>(), any::<i64>()).prop_map(|(key, value)| Step::Set(key, value)),
        3 => any::<u8>().prop_map(Step::Delete),
        2 => (any::<u8>(), proptest::option::of(any::<u64>())).prop_map(|(key, at_ms)| Step::Expire(key, at_ms)),
        1 => Just(Step::Clear),
        3 => Just(Step::BeginCut),
        6 => (1u8..40).prop_map(Step::Collect),
        3 => Just(Step::FinishCut),
        1 => Just(Step::AbortCut),
        3 => (1u16..2000).prop_map(Step::ThinOut),
    ];
    proptest::collection::vec(step, 1..400)
}

fn key(n: u8) -> CellKey {
    CellHasher::new(1).key(&[n])
}

fn expiry(n: u8, at_ms: u64) -> RowExpiry {
    RowExpiry { at_ms, id: Box::new([n]) }
}

/// A table with the store it overflows into, and what both together should say.
#[derive(Default)]
struct World {
    table: Table,
    store: BTreeMap<CellKey, CellRow>,
    model: BTreeMap<CellKey, CellRow>,
    /// The model as of the running cut, what was collected, and whether the store starts anew with it.
    cut: Option<(BTreeMap<CellKey, CellRow>, Vec<RowChange>, bool)>,
    store_is_void: bool,
}

impl World {
    fn load(&mut self, key: CellKey) {
        if !self.table.knows(key) {
            self.settle(key);
        }
    }

    /// Hands in what the store has.
    fn settle(&mut self, key: CellKey) {
        let row = self.store.get(&key).cloned();
        let is_new = self.table.cells().unsettled(key).is_some() && row.is_none();
        let counted = self.table.cells().unsettled(key).is_some();
        let settled = self.table.load(key, row);
        assert_eq!(
            settled.as_ref().is_some_and(|settled| settled.is_new),
            is_new,
            "only what the store did not have is new"
        );
        assert_eq!(settled.map(|settled| Some(settled.value)), counted.then(|| self.table.get(key)));
    }

    fn settle_all(&mut self) {
        for key in self.table.unsettled().collect::<Vec<_>>() {
            self.settle(key);
        }
    }

    fn count(&mut self, n: u8, delta: i64) {
        let before = self.model.get(&key(n)).map(|row| row.value);
        if before.is_some_and(|value| value.unsigned_abs() > 1 << 62) {
            // No counter that entries count for gets there, so where such a sum stops is nobody's business.
            return;
        }
        let value = before.unwrap_or(0) + delta;
        let expected = match (self.table.knows(key(n)), before) {
            (false, _) => Added::Unknown,
            (true, Some(_)) => Added::Value(value),
            (true, None) => Added::Created(value),
        };
        assert_eq!(self.table.count(key(n), delta), expected);
        if expected == Added::Unknown {
            self.table.count_blindly(key(n), delta, || Box::new([n]));
        }
        self.model.entry(key(n)).or_insert(CellRow::plain(value)).value = value;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Add(n, delta) => self.add(key(n), delta),
            Step::Count(n, delta) => self.count(n, delta),
            Step::Settle(n) => self.load(key(n)),
            Step::Set(n, value) => {
                self.load(key(n));
                let previous = self.table.set(key(n), value);
                assert_eq!(previous, self.model.get(&key(n)).map(|row| row.value));
                self.model.entry(key(n)).or_insert(CellRow::plain(value)).value = value;
            }
            Step::Delete(n) => {
                self.load(key(n));
                assert_eq!(self.table.delete(key(n)), self.model.remove(&key(n)).map(|row| row.value));
            }
            Step::Expire(n, at_ms) => {
                self.load(key(n));
                if let Some(row) = self.model.get_mut(&key(n)) {
                    row.expiry = at_ms.map(|at_ms| expiry(n, at_ms));
                    self.table.set_expiry(key(n), row.expiry.clone());
                }
            }
            Step::Clear => {
                if self.table.is_collecting() {
                    let (_, _, void) = self.cut.take().unwrap();
                    self.store_is_void |= void;
                }
                self.table.clear();
                self.model.clear();
                self.store_is_void = true;
            }
            Step::BeginCut if self.cut.is_none() => {
                self.settle_all();
                self.table.begin_cut();
                self.cut = Some((self.model.clone(), Vec::new(), std::mem::take(&mut self.store_is_void)));
            }
            Step::Collect(times) => {
                for _ in 0..times {
                    self.collect();
                }
            }
            Step::FinishCut if self.cut.is_some() => {
                while self.table.is_collecting() {
                    self.collect();
                }
                self.finish();
            }
            Step::AbortCut if self.cut.is_some() => {
                let (_, _, void) = self.cut.take().unwrap();
                self.store_is_void |= void;
                self.table.abort_cut();
            }
            Step::ThinOut(times) => {
                self.table.forget_absent();
                // What left memory is read from the store: that must not be void.
                for _ in 0..times {
                    self.table.thin_out(1, 0);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, key: CellKey, delta: i64) {
        self.load(key);
        let before = self.model.get(&key).map(|row| row.value);
        let expected = match before.map(|value| value.checked_add(delta)) {
            None => Added::Created(delta),
            Some(Some(sum)) => Added::Value(sum),
            Some(None) => Added::Overflow,
        };
        assert_eq!(self.table.add(key, delta), expected);
        if let Added::Created(value) | Added::Value(value) = expected {
            self.model.entry(key).or_insert(CellRow::plain(value)).value = value;
        }
    }

    /// What the store has, and what was counted since.
    fn cold(&self, key: CellKey) -> Option<CellRow> {
        let row = self.store.get(&key).cloned();
        let Some(counted) = self.table.cells().unsettled(key) else { return row };
        let row = row.unwrap_or(CellRow::plain(0));
        Some(CellRow { value: row.value.saturating_add(counted), ..row })
    }

    fn collect(&mut self) {
        if let Some(rows) = self.table.collect() {
            let (_, collected, _) = self.cut.as_mut().unwrap();
            collected.extend(rows.sorted());
            assert!(collected.is_sorted_by(|a, b| a.key < b.key), "segments come in order, and each is put in order");
        }
    }

    fn finish(&mut self) {
        let (model, collected, replace) = self.cut.take().unwrap();
        if replace {
            self.store.clear();
        }
        for change in collected {
            match change.row {
                Some(row) => self.store.insert(change.key, row),
                None => self.store.remove(&change.key),
            };
        }
        self.table.finish_cut();
        assert_eq!(self.store, model, "the store is the state as of the cut");
    }

    fn check(&self) {
        if !self.table.has_unsettled() {
            assert_eq!(self.table.cells().len(), self.model.len() as u64);
        }
        for n in 0..=255 {
            let expected = self.model.get(&key(n));
            let row = match self.table.cells().read(key(n), || 0) {
                Hot::Value(value) => {
                    let expiry = self.table.deadline(key(n)).map(|at_ms| expiry(n, at_ms));
                    Some(CellRow { expiry, ..CellRow::plain(value) })
                }
                Hot::Absent => None,
                Hot::Cold => self.cold(key(n)),
            };
            // Deadline 0 has passed at time 0.
            let due = expected.and_then(|row| row.expiry.as_ref()).is_some_and(|expiry| expiry.at_ms == 0);
            if !due {
                assert_eq!(row.as_ref(), expected, "counter {n}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_table_and_its_store_are_one_map(steps in steps()) {
        let mut world = World::default();
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}

#[test]
fn cells_cost_at_most_forty_bytes_each() {
    let mut table = Table::new();
    let hasher = CellHasher::new(9);
    for n in 0..1_000_000u32 {
        table.add(hasher.key(&n.to_le_bytes()), 1);
    }
    assert!(table.bytes() <= 40_000_000, "{} bytes", table.bytes());
}

#[test]
fn readers_on_other_threads_never_see_a_counter_go_back_or_vanish() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut table = Table::new();
    let cells = table.cells().clone();
    let hasher = CellHasher::new(3);
    let watched = hasher.key(b"watched");
    table.add(watched, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 1;
            while !stop.load(Ordering::Relaxed) {
                let Hot::Value(value) = cells.read(watched, || 0) else {
                    panic!("the counter vanished");
                };
                assert!(value >= last, "{value} after {last}");
                last = value;
            }
        });
        for n in 0..300_000u32 {
            table.add(hasher.key(&n.to_le_bytes()), 1);
            table.add(watched, 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// How far the keys of a table are from their homes, in slots, on average.
fn average_walk(table: &Table) -> f64 {
    let walks: Vec<usize> = table.walks().collect();
    walks.iter().sum::<usize>() as f64 / walks.len() as f64
}

#[test]
fn cells_stay_near_their_homes_however_often_a_table_is_thinned_out() {
    let mut table = Table::new();
    let hasher = CellHasher::new(9);
    for round in 0..40u64 {
        for n in 0..20_000u64 {
            let key = hasher.key(&(round << 32 | n).to_le_bytes());
            table.load(key, None);
            table.add(key, 1);
        }
        table.forget_absent();
        table.begin_cut();
        while table.collect().is_some() {}
        table.finish_cut();
        while table.cells().len() - table.cells().cold() > 100_000 {
            table.thin_out(1, 0);
        }
    }
    assert!(average_walk(&table) < 10.0, "{} slots", average_walk(&table));
}
