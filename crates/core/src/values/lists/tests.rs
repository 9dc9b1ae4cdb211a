//! Lists against what a look at all keys would tell, with bounds so small that everything happens all the time.

use super::*;
use crate::event::Event;
use crate::id::CellHasher;
use crate::machine::{Machine, Need, Slice, Stored};
use crate::memory::cell::CellRow;
use crate::op::{Answer, Submission};
use proptest::prelude::*;

const CONFIG: &str = "\
counters:
  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}]}
  - {counterName: other, mode: simple, dimensions: [page], rules: [{on: miss, op: increment}]}
";
/// An entity that may count for one page and then for another.
const MOVING: &str = "\
counters:
  - {counterName: likes, mode: transition, dimensions: [page], entity: [user], rules: [{on: like, op: increment}, {on: unlike, op: decrement}]}
";
const HASHER: CellHasher = CellHasher::new(7);
const ROOM: Room = Room { keys: 3, bytes: usize::MAX, per_batch: 2 };
const PAGES: u8 = 14;

#[derive(Clone, Debug)]
enum Step {
    /// A batch of events: pages, and by how much each counts.
    Hit(Vec<(u8, i64)>),
    /// Events that feed another counter.
    Miss(u8),
    Clear(u8),
    /// The row of a page is looked up.
    Settle(u8),
    /// A cut, behind which everything that may leaves memory.
    Cut,
    Restart,
    /// A walk begins, or goes on by so many pages.
    Walk(usize),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let page = 0..PAGES;
    prop_oneof![
        8 => proptest::collection::vec((page.clone(), -6i64..10), 1..5).prop_map(Step::Hit),
        1 => page.clone().prop_map(Step::Miss),
        2 => page.clone().prop_map(Step::Clear),
        2 => page.prop_map(Step::Settle),
        1 => Just(Step::Cut),
        1 => Just(Step::Restart),
        3 => (1usize..9).prop_map(Step::Walk),
        1 => Just(Step::Flush),
    ]
}

fn id(page: u8) -> Vec<u8> {
    format!("hits:p{page:02}").into_bytes()
}

/// A state, what it has let go, and what is true.
struct World {
    state: Machine,
    store: BTreeMap<CellKey, CellRow>,
    values: BTreeMap<Vec<u8>, i64>,
    /// Where each page changed last.
    changed: BTreeMap<Vec<u8>, u64>,
    offset: u64,
    generation: u64,
    /// The last page that a walk has been to.
    walked: Option<Option<Vec<u8>>>,
}

impl World {
    fn new() -> World {
        let mut state = Machine::new(HASHER);
        state.configure(Declarations::parse(CONFIG).unwrap(), 0);
        state.values.lists.room = ROOM;
        World {
            state,
            store: BTreeMap::new(),
            values: BTreeMap::new(),
            changed: BTreeMap::new(),
            offset: 0,
            generation: 0,
            walked: None,
        }
    }

    fn take(&mut self, step: &Step) {
        self.offset += 1;
        match step {
            Step::Hit(hits) => self.hit("hit", hits),
            Step::Miss(page) => self.hit("miss", &[(*page, 1)]),
            Step::Clear(page) => self.clear(*page),
            Step::Settle(page) => self.know(HASHER.key(&id(*page))),
            Step::Cut => self.cut(),
            Step::Restart => self.restart(),
            Step::Walk(pages) => self.walk(*pages),
            Step::Flush => self.flush(),
        }
    }

    fn hit(&mut self, event_type: &str, hits: &[(u8, i64)]) {
        let mut stager = crate::counter::Stager::new(self.state.declarations().clone(), HASHER);
        let mut submission = Submission::default();
        for (page, delta) in hits {
            let mut event = Event::new(event_type, 0);
            event.delta = *delta;
            event.dimensions.push(("page".into(), format!("p{page:02}").into()));
            let at = submission.event(&event);
            stager.stage(&event, at, &mut submission, &mut |_, _| {});
            if event_type == "hit" {
                *self.values.entry(id(*page)).or_default() += delta;
                self.changed.insert(id(*page), self.offset);
            }
        }
        self.apply(&submission);
    }

    fn apply(&mut self, submission: &Submission) {
        let Submission { records, ops, stamps, .. } = submission;
        let batch = Batch { head: None, first: 0, records, ops, stamps, log_time_ms: 5, offset: self.offset };
        let mut answers: Vec<Answer> = Vec::new();
        self.state.apply(&batch, &mut answers);
    }

    fn flush(&mut self) {
        let mut submission = Submission::default();
        submission.flush();
        self.apply(&submission);
        (self.store, self.values, self.changed) = Default::default();
    }

    fn know(&mut self, cell: CellKey) {
        if !self.state.values.table.knows(cell) {
            let row = self.store.get(&cell).cloned();
            self.state.load(Need::Cell(cell), Stored::Cell(row));
        }
    }

    fn clear(&mut self, page: u8) {
        self.know(HASHER.key(&id(page)));
        self.generation += 1;
        // The batch that it stands in.
        self.apply(&Submission::default());
        if self.state.correct_apart(Slice::Clear { ids: vec![id(page)] }, self.generation).is_ok() {
            self.values.insert(id(page), 0);
            self.changed.insert(id(page), self.offset);
        } else {
            self.generation = self.state.values.generations.current;
        }
    }

    fn cut(&mut self) {
        let unsettled: Vec<_> = self.state.values.table.unsettled().collect();
        unsettled.into_iter().for_each(|cell| self.know(cell));
        let table = &mut self.state.values.table;
        table.begin_cut();
        while let Some(collected) = table.collect() {
            self.store.extend(collected.sorted().filter_map(|change| Some((change.key, change.row?))));
        }
        table.finish_cut();
        self.state.forget_loaded();
        // The first time a cell that was used lately is spared.
        for _ in 0..3 {
            self.state.values.table.thin_out(usize::MAX, 0);
        }
    }

    fn restart(&mut self) {
        self.cut();
        let (bytes, _) = self.state.checkpoint(self.offset);
        let mut state = Machine::new(HASHER);
        state.resume(&bytes).unwrap();
        state.resumed().unwrap();
        state.values.lists.room = ROOM;
        state.values.table.set_cold(self.store.len() as u64);
        let missing: Vec<_> = state.values.leaders_missing().collect();
        self.state = state;
        missing.into_iter().for_each(|cell| self.know(cell));
        self.state.forget_loaded();
        self.walked = None;
    }

    /// Goes on with a walk by so many pages, or begins one.
    fn walk(&mut self, pages: usize) {
        let after = match self.walked.take() {
            Some(after) => after,
            None => {
                self.state.values.want_walk("hits");
                if self.state.values.begin_walk().is_none() {
                    return;
                }
                None
            }
        };
        let behind = self.values.keys().filter(|id| after.as_ref().is_none_or(|after| *id > after));
        let ids: Vec<_> = behind.take(pages).cloned().collect();
        ids.iter().for_each(|id| self.know(HASHER.key(id)));
        self.state.values.walk("hits", &ids);
        match ids.len() < pages {
            true => self.state.values.end_walk("hits"),
            false => self.walked = Some(ids.last().cloned()),
        }
    }

    fn check(&self) {
        (1..=ROOM.keys).for_each(|k| drop(self.check_greatest(k)));
        self.check_changed();
        let missing = self.state.values.leaders_missing().count();
        let deleted = self.state.values.lists.all().flat_map(|listed| listed.leaders.cells());
        assert_eq!(missing, 0, "of {}", deleted.count());
    }

    /// What is told is true, also what is told of those that are not; answers it.
    fn check_greatest(&self, k: usize) -> Greatest {
        let greatest = self.state.values.greatest("hits", None, k).unwrap();
        let told: BTreeMap<_, _> = greatest.keys.iter().map(|key| (key.id.to_vec(), key.value)).collect();
        for (id, value) in &told {
            assert_eq!(self.values.get(id), Some(value));
        }
        assert!(greatest.keys.is_sorted_by_key(|key| (std::cmp::Reverse(key.value), key.id.clone())));
        let mut truth: Vec<_> = self.values.values().copied().collect();
        truth.sort_unstable_by_key(|value| std::cmp::Reverse(*value));
        truth.truncate(k);
        if greatest.is_exact {
            let values: Vec<_> = greatest.keys.iter().map(|key| key.value).collect();
            assert_eq!(values, truth);
        }
        let others = self.values.iter().filter(|(id, _)| !told.contains_key(*id));
        if let Some(bound) = greatest.bound.filter(|_| !greatest.is_exact || greatest.keys.len() < k) {
            let candidates: Vec<_> = self.state.values.lists.of(b"hits").unwrap().leaders.ids().collect();
            let strangers = others.filter(|(id, _)| !candidates.contains(&id.as_slice()));
            strangers.for_each(|(id, value)| assert!(*value <= bound, "{} has {value}", id.escape_ascii()));
        }
        greatest
    }

    fn check_changed(&self) {
        let told = self.state.values.changed_last("hits", None, ROOM.keys).unwrap();
        assert!(told.is_sorted_by_key(|key| (std::cmp::Reverse(key.offset), key.id.clone())));
        for key in &told {
            assert_eq!(self.changed.get(&*key.id), Some(&key.offset));
        }
        let last = self.changed.values().max();
        assert_eq!(told.first().map(|key| &key.offset), last, "the last one is told in any case");
        let oldest = told.last().map_or(u64::MAX, |key| key.offset);
        let untold = self.changed.iter().filter(|(id, _)| !told.iter().any(|key| *key.id == ***id));
        untold.for_each(|(id, offset)| assert!(*offset <= oldest, "{} changed at {offset}", id.escape_ascii()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn lists_tell_what_a_look_at_all_keys_would_tell(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.check();
        }
        // Behind a walk that nothing disturbs everything is certain again.
        world.cut();
        (0..3).for_each(|_| world.walk(usize::from(PAGES) + 1));
        for k in 1..=ROOM.keys {
            prop_assert!(world.check_greatest(k).is_exact);
        }
    }
}

#[test]
fn pages_of_the_greatest_go_on_where_the_last_one_ended() {
    let mut world = World::new();
    world.hit("hit", &[(1, 5), (2, 5), (3, 9), (4, 1)]);
    let all = world.check_greatest(4);
    assert!(all.is_exact);
    let last = &all.keys[1];
    let behind = world.state.values.greatest("hits", Some((last.value, &last.id)), 2).unwrap();
    assert_eq!(behind.keys, all.keys[2..]);
    assert_eq!(world.state.values.greatest("nothing", None, 2), None);
}

#[test]
fn too_many_that_have_fallen_make_an_estimate_and_a_walk_makes_it_exact() {
    let mut world = World::new();
    let hits: Vec<_> = (0..PAGES).map(|page| (page, 10 + i64::from(page))).collect();
    hits.iter().for_each(|hit| world.take(&Step::Hit(vec![*hit])));
    assert!(world.check_greatest(3).is_exact);
    for page in PAGES - 6..PAGES {
        world.take(&Step::Hit(vec![(page, -100)]));
    }
    let greatest = world.check_greatest(3);
    assert!(!greatest.is_exact && greatest.needs_walk && greatest.bound.is_some(), "{greatest:?}");
    world.walk(100);
    let greatest = world.check_greatest(3);
    assert!(greatest.is_exact && !greatest.needs_walk, "{greatest:?}");
}

#[test]
fn what_was_counted_under_a_name_before_it_was_declared_is_found_by_a_walk() {
    let mut state = Machine::new(HASHER);
    state.values.table.add(HASHER.key(b"hits:p1"), 50);
    state.configure(Declarations::parse(CONFIG).unwrap(), 0);
    let greatest = state.values.greatest("hits", None, 1).unwrap();
    assert!(!greatest.is_exact && greatest.bound.is_none(), "{greatest:?}");
    assert_eq!(state.values.begin_walk().as_deref(), Some("hits"));
    state.values.walk("hits", &[b"hits:p1".to_vec()]);
    state.values.end_walk("hits");
    let greatest = state.values.greatest("hits", None, 1).unwrap();
    assert!(greatest.is_exact && greatest.keys[0].value == 50, "{greatest:?}");
}

#[test]
fn what_is_taken_back_has_changed_the_key_that_it_counted_for_and_no_other() {
    let mut world = World::new();
    world.state.configure(Declarations::parse(MOVING).unwrap(), 0);
    world.state.values.lists.room = ROOM;
    let like = |world: &mut World, event_type: &str, page: &str| {
        world.offset += 1;
        let mut event = Event::new(event_type, 0);
        event.occurred_at_ms = Some(world.offset as i64);
        event.dimensions.push(("user".into(), "u".into()));
        event.dimensions.push(("page".into(), page.to_owned().into()));
        let mut stager = crate::counter::Stager::new(world.state.declarations().clone(), HASHER);
        let mut submission = Submission::default();
        let at = submission.event(&event);
        stager.stage(&event, at, &mut submission, &mut |_, _| {});
        world.apply(&submission);
        let changed = world.state.values.changed_last("likes", None, 9).unwrap();
        changed.iter().map(|key| (String::from_utf8_lossy(&key.id).into_owned(), key.offset)).collect::<Vec<_>>()
    };
    let at = |id: &str, offset| (format!("likes:{id}"), offset);
    assert_eq!(like(&mut world, "like", "p1"), [at("p1", 1)]);
    assert_eq!(like(&mut world, "like", "p2"), [at("p1", 2), at("p2", 2)], "it moved from one to the other");
    assert_eq!(like(&mut world, "unlike", "p3"), [at("p2", 3), at("p1", 2)], "it counted for another");
}

#[test]
fn the_bytes_of_lists_are_pinned() {
    let mut world = World::new();
    world.take(&Step::Hit(vec![(1, 5)]));
    let mut bytes = Vec::new();
    world.state.values.lists.encode(&mut bytes);
    let none = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00";
    let hits = [b"\x02\x04hits", &none[..], b"\x01\x08hits:p01\x00\x01\x01\x05\x08hits:p01"].concat();
    assert_eq!(bytes, [&hits[..], b"\x05other", none, b"\x00\x00\x00"].concat());
}
