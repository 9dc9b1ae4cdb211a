//! A layer against a naive model: random changes, cuts that succeed and fail, rows that leave memory and come back, restarts,
//! and scans that fill the filter meanwhile.

use super::*;
use crate::id::CellHasher;
use crate::ledger::{Change, Claim, LedgerKey, LedgerRow};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Model = BTreeMap<CellKey, Claim>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u64),
    /// Puts it unless there is one.
    Claim(u8, u64),
    Remove(u8),
    /// A write that needs this row is staged.
    Stage(u8),
    /// All staged writes are committed.
    Commit,
    Begin,
    Finish,
    Abort {
        shared: bool,
    },
    Clear,
    Restart,
    BeginScan,
    EndScan,
    LimitFilter,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u8..24;
    let step = prop_oneof![
        12 => (key.clone(), any::<u64>()).prop_map(|(key, content)| Step::Put(key, content)),
        6 => (key.clone(), any::<u64>()).prop_map(|(key, content)| Step::Claim(key, content)),
        4 => key.clone().prop_map(Step::Remove),
        6 => key.prop_map(Step::Stage),
        5 => Just(Step::Commit),
        4 => Just(Step::Begin),
        5 => Just(Step::Finish),
        1 => any::<bool>().prop_map(|shared| Step::Abort { shared }),
        1 => Just(Step::Clear),
        1 => Just(Step::Restart),
        2 => Just(Step::BeginScan),
        3 => Just(Step::EndScan),
        1 => Just(Step::LimitFilter),
    ];
    proptest::collection::vec(step, 1..300)
}

fn key(n: u8) -> CellKey {
    CellHasher::new(1).key(&[n])
}

/// A layer with its store, and what both together should say.
struct World {
    layer: Layer<Claim>,
    store: Model,
    model: Model,
    store_is_void: bool,
    /// The running cut, the model as of then, and whether the store starts anew with it.
    cut: Option<(Arc<dyn super::Rows>, Model, bool)>,
    /// Keys that were known when a write was staged, and have to stay so.
    staged: BTreeSet<CellKey>,
    scan: Option<Vec<CellKey>>,
}

impl World {
    fn new() -> World {
        let layer = Layer { settled_max: 3, ..Layer::default() };
        let (store, model) = (Model::new(), Model::new());
        World { layer, store, model, store_is_void: false, cut: None, staged: BTreeSet::new(), scan: None }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(n, content) => {
                self.stage(key(n));
                let claim = Claim { content, at_ms: 1 };
                self.layer.put(key(n), claim);
                self.model.insert(key(n), claim);
            }
            Step::Claim(n, content) => {
                self.stage(key(n));
                let claim = Claim { content, at_ms: 1 };
                assert_eq!(self.layer.get_or_put(key(n), claim), self.model.get(&key(n)).copied());
                self.model.entry(key(n)).or_insert(claim);
            }
            Step::Remove(n) => {
                self.stage(key(n));
                self.layer.remove(key(n));
                self.model.remove(&key(n));
            }
            Step::Stage(n) => self.stage(key(n)),
            Step::Commit => {
                self.staged.clear();
                self.layer.forget_loaded();
                assert!(self.layer.settled.len() <= 1 && self.layer.settled.iter().all(|cut| cut.len() <= 3));
            }
            Step::Begin => self.begin(),
            Step::Finish => self.finish(),
            Step::Abort { shared } => self.abort(shared),
            Step::Clear => {
                self.layer.clear();
                self.model.clear();
                self.store_is_void = true;
            }
            Step::Restart => self.restart(),
            Step::BeginScan => self.scan = Some(self.store.keys().copied().collect()),
            Step::EndScan => {
                if let Some(keys) = self.scan.take() {
                    self.layer.filter_add(&keys);
                    self.layer.filter_done();
                }
            }
            Step::LimitFilter => self.layer.limit_filter(0),
        }
    }

    /// Looks into the store if need be, as of now.
    fn stage(&mut self, key: CellKey) {
        if !self.layer.knows(key) {
            assert!(!self.store_is_void, "what was flushed is asked for");
            self.layer.load(key, self.store.get(&key).copied());
        }
        self.staged.insert(key);
    }

    fn begin(&mut self) {
        if self.cut.is_none() {
            let cut = self.layer.begin_cut();
            assert_eq!(self.layer.changed(), 0);
            self.cut = Some((cut, self.model.clone(), std::mem::take(&mut self.store_is_void)));
        }
    }

    fn finish(&mut self) {
        let Some((cut, model, replace)) = self.cut.take() else { return };
        if replace {
            self.store.clear();
        }
        let changes: Vec<_> = cut.rows().collect();
        assert!(changes.is_sorted_by(|a, b| a.key < b.key));
        for LedgerRow { key, change } in changes {
            let Ok(LedgerKey::Claim(key)) = LedgerKey::decode(&key) else { panic!("{key:?} is no claim's") };
            match change {
                Change::Put(row) => self.store.insert(key, Claim::decode(&row).unwrap()),
                Change::Delete => self.store.remove(&key),
                Change::Add(_) => unreachable!("a claim is put"),
            };
        }
        assert_eq!(self.store, model);
        self.layer.finish_cut();
    }

    fn abort(&mut self, shared: bool) {
        let Some((cut, _, replace)) = self.cut.take() else { return };
        let held = shared.then_some(cut);
        self.layer.abort_cut();
        self.store_is_void |= replace;
        drop(held);
    }

    /// Memory is lost. (What a log would bring back is not part of this.)
    fn restart(&mut self) {
        let layer = Layer { settled_max: 3, ..Layer::default() };
        *self = World { layer, store: std::mem::take(&mut self.store), ..World::new() };
        self.model = self.store.clone();
        self.layer.resume(self.store.len() as u64);
    }

    fn check(&self) {
        assert_eq!(self.layer.len(), self.model.len() as u64);
        for key in &self.staged {
            assert_eq!(self.layer.get(*key), self.model.get(key), "what was known stays known");
        }
        for key in (0..32).map(key).filter(|key| self.layer.knows(*key)) {
            assert_eq!(self.layer.get(key), self.model.get(&key));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn a_layer_and_its_store_agree_with_a_naive_model(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}

fn claim(content: u64) -> Claim {
    Claim { content, at_ms: 0 }
}

/// A layer that goes on from a store with one row, and has not scanned it.
fn resumed() -> Layer<Claim> {
    let mut layer = Layer::default();
    layer.resume(1);
    layer
}

#[test]
fn a_key_is_unknown_until_the_store_or_a_complete_filter_has_spoken() {
    let mut layer = resumed();
    assert!(!layer.knows(key(1)) && !layer.knows(key(2)) && layer.filter_is_learning());
    layer.load(key(1), None);
    assert!(layer.knows(key(1)));
    layer.filter_add(&[key(3)]);
    assert!(!layer.knows(key(2)));
    layer.filter_done();
    assert!(layer.knows(key(2)) && !layer.knows(key(3)) && !layer.filter_is_learning());
}

#[test]
fn a_scan_that_a_flush_has_overtaken_makes_nothing_unknown() {
    let mut layer = resumed();
    layer.clear();
    layer.put(key(2), claim(2));
    layer.begin_cut();
    layer.finish_cut();
    layer.put(key(2), claim(3));
    layer.begin_cut();
    layer.finish_cut();
    layer.forget_loaded();
    assert!(layer.knows(key(1)), "it was flushed");
    layer.filter_add(&[key(1)]);
    layer.filter_done();
    assert!(layer.knows(key(1)));
}

#[test]
fn what_was_loaded_never_overrides_memory() {
    let mut layer = resumed();
    layer.load(key(1), Some(claim(1)));
    layer.put(key(1), claim(2));
    layer.load(key(1), Some(claim(1)));
    assert_eq!((layer.get(key(1)), layer.len()), (Some(&claim(2)), 1));
    layer.remove(key(1));
    layer.load(key(1), Some(claim(1)));
    assert_eq!((layer.get(key(1)), layer.len()), (None, 0));
}

#[test]
fn the_store_is_not_asked_for_what_was_flushed_before_a_cut_has_told_it() {
    let mut layer = resumed();
    layer.limit_filter(0);
    layer.begin_cut();
    layer.clear();
    // The cut from before the flush ends well; what it wrote is void.
    layer.finish_cut();
    layer.put(key(2), claim(2));
    assert!(layer.knows(key(1)));
    layer.begin_cut();
    assert!(layer.knows(key(1)));
    layer.finish_cut();
    assert!(layer.knows(key(1)), "memory has all that the store has");
    layer.put(key(3), claim(3));
    layer.begin_cut();
    layer.finish_cut();
    layer.forget_loaded();
    assert!(!layer.knows(key(1)) && !layer.knows(key(2)) && layer.knows(key(3)));
}

#[test]
fn a_worn_filter_can_be_learned_anew() {
    let mut layer = Layer::default();
    let keys = 5 * WORN_KEYS_MIN;
    let id = |n: u64| CellHasher::new(1).key(&n.to_le_bytes());
    for n in 0..keys {
        layer.put(id(n), claim(n));
        if n > 0 {
            layer.remove(id(n));
        }
    }
    assert!(layer.filter_is_worn());
    let bytes = layer.filter.bytes();
    layer.relearn();
    assert!(layer.filter.bytes() <= bytes / 3 && !layer.filter_is_worn() && layer.filter_is_learning());
    layer.filter_done();
    assert!(layer.get(id(0)).is_some() && layer.knows(id(keys)));
}

#[test]
fn the_bytes_of_a_layer_are_those_of_its_tables_and_its_filter() {
    let mut layer = Layer::default();
    let empty = layer.bytes();
    let rows = 100_000;
    (0..rows).for_each(|n: u64| layer.put(CellHasher::new(1).key(&n.to_le_bytes()), claim(n)));
    let per_row = (layer.bytes() - empty - layer.filter.bytes()) as f64 / rows as f64;
    // 32 bytes and a control byte, in tables that are between seven sixteenths and seven eighths full.
    assert!((37.0..77.0).contains(&per_row), "{per_row} bytes");
    layer.begin_cut();
    assert!(layer.bytes() as f64 > rows as f64 * per_row);
}

#[test]
fn a_new_key_stays_known_whatever_keys_come_before_its_turn() {
    let key = |n: u64| CellHasher::new(1).key(&n.to_le_bytes());
    let claim = |n: u64| Claim { content: n, at_ms: n };
    let mut layer = Layer::<Claim> { settled_max: 0, ..Layer::default() };
    let (stored, staged) = (330_000, 400_000);
    (0..stored).for_each(|n| layer.put(key(n), claim(n)));
    layer.begin_cut();
    layer.finish_cut();
    layer.forget_loaded();
    // Staged together, and each is told that there is none of its key.
    let staged: Vec<_> = (stored..stored + staged).filter(|n| layer.knows(key(*n))).collect();
    for n in staged {
        assert_eq!(layer.get_or_put(key(n), claim(n)), None, "the {n}th is new");
    }
}
