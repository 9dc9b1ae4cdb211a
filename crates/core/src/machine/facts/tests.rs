//! The whole ledger against a naive store: what cuts write, and what memory and store say together.

use super::*;
use crate::event::Event;
use crate::id::{CellHasher, CellKey};
use crate::ledger::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Store = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Act {
    Claim(u8),
    Turn(u8, bool),
    Answer(u8, i64),
    Forget(u8),
    Bump(u8, BoxKind, i64),
    Correct(u8, i64),
    Repeat(u8),
    Propose,
    Withdraw(u8),
    Begin,
    Finish,
    Abort,
    Clear,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let kind = (1..BoxKind::ALL.len()).prop_map(|at| BoxKind::ALL[at]);
    let act = prop_oneof![
        4 => any::<u8>().prop_map(Act::Claim),
        4 => (0u8..20, any::<bool>()).prop_map(|(key, on)| Act::Turn(key, on)),
        4 => (0u8..20, any::<i64>()).prop_map(|(key, value)| Act::Answer(key, value)),
        2 => (0u8..20).prop_map(Act::Forget),
        4 => (0u8..5, kind, -2i64..3).prop_map(|(key, kind, n)| Act::Bump(key, kind, n)),
        2 => (0u8..20, -5i64..5).prop_map(|(key, delta)| Act::Correct(key, delta)),
        4 => (0u8..20).prop_map(Act::Repeat),
        2 => Just(Act::Propose),
        1 => any::<u8>().prop_map(Act::Withdraw),
        2 => Just(Act::Begin),
        2 => Just(Act::Finish),
        1 => Just(Act::Abort),
        1 => Just(Act::Clear),
    ];
    proptest::collection::vec(act, 1..200)
}

fn key(n: u8) -> CellKey {
    CellHasher::new(1).key(&[n])
}

/// What a store does with a cut.
fn write(store: &mut Store, cut: &LedgerCut, replace: bool) {
    if replace {
        store.clear();
    }
    let mut last = Vec::new();
    for LedgerRow { key, change } in cut.rows() {
        assert!(key > last, "{key:?} comes behind {last:?}");
        let row = match change {
            Change::Put(row) => Some(row),
            Change::Delete => None,
            Change::Add(numbers) => add(store.get(&key).map(Vec::as_slice), &numbers).unwrap(),
        };
        match row {
            Some(row) => store.insert(key.clone(), row),
            None => store.remove(&key),
        };
        last = key;
    }
    assert_eq!(cut.is_empty(), last.is_empty());
}

/// A ledger and its store; the model is every row there should be, as bytes.
struct World {
    state: Machine,
    store: Store,
    store_is_void: bool,
    model: Store,
    boxes: BTreeMap<CellKey, Boxes>,
    /// Rows of the store have many of them each, so they are no part of the model.
    firsts: FirstContents,
    cut: Option<(Arc<LedgerCut>, Store, bool)>,
    clock: u64,
}

impl World {
    fn new() -> World {
        World {
            state: Machine::new(CellHasher::new(1)),
            store: Store::new(),
            store_is_void: false,
            model: Store::new(),
            boxes: BTreeMap::new(),
            firsts: FirstContents::new(),
            cut: None,
            clock: 0,
        }
    }

    fn act(&mut self, act: Act) {
        self.clock += 1;
        match act {
            Act::Claim(n) => {
                let claim = Claim { content: n.into(), at_ms: self.clock };
                self.state.fates.facts.claims.put(key(n), claim);
                self.expect(LedgerKey::Claim(key(n)), &claim);
                self.keep_first(n);
            }
            Act::Turn(n, on) => {
                let (offset, cell) = (self.clock, key(n));
                let counted_at = if on { offset } else { Entity::OFF };
                let entity = Entity { occurred_ms: -1, offset, counted_at, cell, generation: 2, counted_as: None };
                self.state.fates.facts.entities.put(key(n), entity.clone());
                self.expect(LedgerKey::Entity(key(n)), &entity);
            }
            Act::Answer(n, value) => {
                let answered = Answered { delta: 1, value, at_ms: self.clock };
                self.state.values.facts.answers.put(key(n), answered);
                self.expect(LedgerKey::Answer(key(n)), &answered);
            }
            Act::Forget(n) => {
                if !self.state.values.facts.answers.knows(key(n)) {
                    let row = self.store.get(&LedgerKey::Answer(key(n)).encode());
                    self.state.values.facts.answers.load(key(n), row.map(|row| Answered::decode(row).unwrap()));
                }
                self.state.values.facts.answers.remove(key(n));
                self.model.remove(&LedgerKey::Answer(key(n)).encode());
            }
            Act::Bump(n, kind, by) => self.bump(key(n), kind, by),
            Act::Correct(n, delta) => self.correct(key(n), delta),
            Act::Repeat(n) => self.repeat(n),
            Act::Propose => self.propose(),
            Act::Withdraw(n) => self.withdraw(n),
            Act::Begin => self.begin(),
            Act::Finish => self.finish(),
            Act::Abort => self.abort(),
            Act::Clear => {
                self.state.flush();
                // What is proposed has not happened yet.
                self.model.retain(|key, _| key[0] == LedgerKind::Proposal as u8);
                self.boxes.clear();
                self.firsts.clear();
                self.store_is_void = true;
            }
        }
    }

    fn expect(&mut self, key: LedgerKey, row: &impl Row) {
        self.model.insert(key.encode(), row.to_bytes());
    }

    /// Several events of one moment, as in a batch.
    fn keep_first(&mut self, n: u8) {
        let (at_ms, event_id) = (self.clock / 8, CellHasher::new(2).key(&self.clock.to_le_bytes()));
        let event = Event { delta: n.into(), event_id: Some("e".into()), ..Event::new("t", at_ms) };
        let content = Event { event_id: None, ..event.clone() };
        let [event, content] = [event, content].map(|event| {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            bytes
        });
        self.state.fates.facts.firsts.push((at_ms, event_id), &event);
        self.firsts.insert((at_ms, event_id), content);
    }

    fn bump(&mut self, cell: CellKey, kind: BoxKind, by: i64) {
        self.state.fates.facts.boxes.add(cell, kind, by);
        let boxes = self.boxes.entry(cell).or_default();
        boxes.bump(kind, by);
        let (key, boxes) = (LedgerKey::Boxes(cell), *boxes);
        self.expect(key, &boxes);
        if boxes.is_zero() {
            self.model.remove(&key.encode());
        }
    }

    fn correct(&mut self, cell: CellKey, delta: i64) {
        let number = self.clock;
        let step = Step::new(7, delta, 1, number);
        let deltas = vec![Delta { id: b"a".to_vec(), bucket_ms: None, delta }];
        let (cause, reason, author) = (Cause::Proposal(number), "r".to_owned(), "a".to_owned());
        let correction = Correction {
            number,
            generation: number,
            cause,
            purpose: Purpose::Restore,
            reason,
            author,
            at_ms: 1,
            deltas,
            applied_by: String::new(),
            proposed_ms: None,
            reverted_generation: None,
        };
        self.expect(LedgerKey::Step(cell, number), &step);
        self.expect(LedgerKey::Correction(number), &correction);
        self.state.values.facts.steps.push(cell, number, step);
        self.state.values.facts.corrections.push(&correction);
    }

    fn repeat(&mut self, n: u8) {
        let (offset, index) = (self.clock / 4, (self.clock % 4) as u32);
        let duplicate = Duplicate {
            offset,
            index,
            event_id: n.to_string(),
            event_type: "t".into(),
            dimensions: vec![],
            delta: 1,
            counters: vec![],
            first_seen_ms: 1,
            seen_ms: 2,
            conflict: false,
        };
        self.expect(LedgerKey::Duplicate(offset, index), &duplicate);
        self.expect(LedgerKey::DuplicateOf(key(n), offset, index), &());
        self.state.fates.facts.duplicates.push(key(n), duplicate);
    }

    fn propose(&mut self) {
        let (reason, author) = ("r".to_owned(), "a".to_owned());
        let proposal = Proposal {
            number: self.clock,
            reason,
            author,
            at_ms: 1,
            deltas: Vec::new(),
            if_generation: None,
            purpose: Purpose::Restore,
        };
        self.expect(LedgerKey::Proposal(proposal.number), &proposal);
        self.state.values.facts.proposals.insert(&proposal);
    }

    fn withdraw(&mut self, n: u8) {
        let open: Vec<_> = self.state.values.facts.proposals.rows(..).map(|row| read_proposal(row).number).collect();
        let Some(number) = open.get(usize::from(n) % open.len().max(1)) else { return };
        assert!(self.state.values.facts.proposals.remove(*number));
        assert!(!self.state.values.facts.proposals.remove(*number));
        self.model.remove(&LedgerKey::Proposal(*number).encode());
    }

    fn begin(&mut self) {
        if self.cut.is_none() {
            let changed = self.state.facts_changed();
            let cut = self.state.begin_facts_cut();
            // Boxes that came to nothing are counted, and not written; first contents are not counted.
            let is_first = |row: &LedgerRow| row.key[0] == LedgerKind::First as u8;
            assert!(cut.rows().filter(|row| !is_first(row)).count() <= changed);
            assert_eq!(self.state.facts_changed(), 0);
            self.cut = Some((cut, self.model.clone(), std::mem::take(&mut self.store_is_void)));
        }
    }

    fn finish(&mut self) {
        let Some((cut, model, replace)) = self.cut.take() else { return };
        write(&mut self.store, &cut, replace);
        let others = self.store.iter().filter(|(key, _)| key[0] != LedgerKind::First as u8);
        assert!(others.eq(&model));
        self.state.finish_facts_cut();
        self.state.forget_loaded();
    }

    fn abort(&mut self) {
        let Some((_, _, replace)) = self.cut.take() else { return };
        self.state.abort_facts_cut();
        self.store_is_void |= replace;
    }

    /// Whether store and memory together say what the model says.
    fn check(&self) {
        let void = Store::new();
        // A store that is to start anew counts for nothing.
        let replaces = self.store_is_void || self.cut.as_ref().is_some_and(|(_, _, replace)| *replace);
        let store = if replaces { &void } else { &self.store };
        for cell in (0..5).map(key) {
            let stored = store.get(&LedgerKey::Boxes(cell).encode());
            let mut boxes = stored.map(|row| Boxes::decode(row).unwrap()).unwrap_or_default();
            boxes.add(&self.state.fates.facts.boxes.get(cell));
            assert_eq!(boxes, self.boxes.get(&cell).copied().unwrap_or_default());
        }
        for n in 0..20 {
            let of = |rows: &Store| rows.range(span(LedgerKey::duplicates_of(key(n)))).count();
            assert_eq!(of(store) + self.state.fates.facts.duplicates.of(key(n)).count(), of(&self.model));
            let of = |rows: &Store| rows.range(span(LedgerKey::steps_of(key(n)))).count();
            assert_eq!(of(store) + self.state.values.facts.steps.of(key(n)).count(), of(&self.model));
        }
        let open: Vec<_> = self.state.values.facts.proposals.rows(..).map(|row| row.to_vec()).collect();
        let expected = self.model.range(span(LedgerKey::range(LedgerKind::Proposal))).map(|(_, row)| row.clone());
        assert_eq!(open, expected.collect::<Vec<_>>());
        assert_eq!(self.state.values.facts.proposals.bytes(), open.iter().map(Vec::len).sum::<usize>());
        self.check_firsts(store);
        let corrections: Vec<_> = self.state.values.facts.corrections.iter().map(|(number, _)| number).collect();
        assert!(corrections.is_sorted());
        let of = |rows: &Store| rows.range(span(LedgerKey::range(LedgerKind::Correction))).count();
        assert_eq!(of(store) + corrections.len(), of(&self.model));
    }

    /// Some of those there are and one that is not, each moment of them by itself.
    fn check_firsts(&self, store: &Store) {
        let nobody = (self.clock / 16, key(0));
        let some = self.firsts.keys().filter(|(_, event_id)| event_id.as_u128() % 3 == 0);
        let wanted: BTreeSet<_> = some.copied().chain([nobody]).collect();
        let found = self.state.fates.facts.firsts.chunks(&wanted).find(&wanted);
        let mut search = StoredFirsts::new(wanted.clone(), found);
        while let Some(keys) = search.seek() {
            let _ = store.range(span(keys)).try_for_each(|(key, row)| search.visit(key, row).unwrap());
        }
        let expected = self.firsts.iter().filter(|(key, _)| wanted.contains(*key));
        assert!(search.found().iter().eq(expected));
    }
}

fn span(range: std::ops::Range<Vec<u8>>) -> impl std::ops::RangeBounds<Vec<u8>> {
    range
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn cuts_bring_the_store_to_what_a_naive_model_says(acts in acts()) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
            world.check();
        }
    }
}

#[test]
fn an_empty_ledger_makes_an_empty_cut_and_takes_little_memory() {
    let mut state = Machine::new(CellHasher::new(1));
    assert!(state.facts_bytes() < 64 * 1024, "{} bytes", state.facts_bytes());
    assert_eq!(state.facts_changed(), 0);
    assert!(state.begin_facts_cut().is_empty());
}

#[test]
#[should_panic(expected = "one cut at a time")]
fn there_is_one_cut_at_a_time() {
    let mut state = Machine::new(CellHasher::new(1));
    state.begin_facts_cut();
    state.begin_facts_cut();
}
