//! Parts add up: whatever becomes of entries and wherever cuts fall, against a naive model that shares no code with them.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::counter::rollup::Minutes;
use crate::event::Event;
use crate::ledger::parts::Blocks;
use crate::ledger::parts::block::{Block, values_of};
use crate::ledger::{Change, Delta, Grounds, LateRun, LedgerKey, Remedy, StoredRows};
use crate::record::DecodeError;
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const CONFIG: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: {by: [session, seq], window: 1s}, rules: [{on: viewed, op: increment}],
     rollups: [[country], [country, hour], [day], [country, device]]}
  - {counterName: plain, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}], rollups: [[hour]]}
  - {counterName: timely, mode: display, dimensions: [video], dedup: none, lateness: {allowed: 1s, corrected: 5s, every: 10s, restated: 1m},
     rules: [{on: viewed, op: increment}], rollups: [[country, hour]]}
  - {counterName: fans, mode: transition, dimensions: [creator], entity: [user], rules: [{on: liked, op: increment}, {on: unliked, op: decrement}],
     rollups: [[country], [country, day]]}
  - {counterName: shown, mode: persistent, dimensions: [video], rules: [{on: ad, op: increment}, {on: undone, op: decrement}],
     rollups: [[country, hour]], maxCardinality: {country: 1}}
";

/// Ids of counters, and of counters as a whole.
pub(super) const IDS: [&str; 15] = [
    "views:a", "views:b", "views", "plain:a", "plain:b", "plain", "timely:a", "timely:b", "timely", "fans:x", "fans:y",
    "fans", "shown:a", "shown:b", "shown",
];

#[derive(Default)]
pub(super) struct Store(pub BTreeMap<Vec<u8>, Vec<u8>>);

impl StoredRows for Store {
    fn row(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).cloned()
    }

    fn keys(&self, range: &Range<Vec<u8>>) -> Vec<Vec<u8>> {
        self.0.range(range.clone()).map(|(key, _)| key.clone()).collect()
    }

    fn damaged(&self, key: &[u8], error: DecodeError) {
        panic!("{}: {error}", key.escape_ascii())
    }
}

pub(super) struct World {
    pub bench: Bench,
    pub store: Store,
}

/// The parts of a roll-up: by bucket and values.
pub(super) type Parts = BTreeMap<(Minutes, Vec<String>), i64>;

impl World {
    fn new() -> World {
        World::with(CONFIG, 30)
    }

    /// Under a configuration, so many days after 1970.
    pub fn with(config: &str, days: u64) -> World {
        let mut bench = Bench::with(config);
        bench.log_time_ms = days * 24 * 3_600_000;
        World { bench, store: Store::default() }
    }

    pub fn cut(&mut self, fails: bool) {
        let cut = self.bench.state.begin_facts_cut();
        if fails {
            return self.bench.state.abort_facts_cut();
        }
        let rows: Vec<_> = cut.rows_over(&self.store).collect();
        assert!(rows.is_sorted_by(|a, b| a.key < b.key));
        for row in rows.into_iter().filter(|row| matches!(LedgerKey::decode(&row.key), Ok(LedgerKey::Part(..)))) {
            match row.change {
                Change::Put(value) => drop(self.store.0.insert(row.key, value)),
                Change::Delete => drop(self.store.0.remove(&row.key)),
                Change::Add(_) => unreachable!("parts are put"),
            }
        }
        self.bench.state.finish_facts_cut();
    }

    /// What memory and store say together.
    pub fn parts(&self, id: &str, rollup: &str) -> Parts {
        let declarations = self.bench.state.declarations();
        let counter = id.split(':').next().unwrap_or_default();
        let kept = declarations.rollups_of(counter).iter().find(|kept| kept.rollup.to_string() == rollup);
        self.parts_numbered(id, kept.expect("it is declared").number)
    }

    pub fn parts_numbered(&self, id: &str, number: u16) -> Parts {
        let cell = hasher().key(id.as_bytes());
        let since = self.bench.state.values.facts.parts.of(cell);
        let mut blocks = Blocks::new(cell, &self.store, since.cleared);
        since.lay_over(&mut blocks).expect("they were written by us");
        let mut parts = Parts::new();
        let mut tell = |bucket, block: &Block| {
            for (values, sum) in block.parts() {
                let text = |text: &[u8]| String::from_utf8(text.to_vec()).expect("they are texts");
                let texts: Vec<String> = values_of(values).map(text).collect();
                *parts.entry((bucket, texts)).or_default() += sum;
            }
        };
        blocks.of(number).for_each(|(bucket, block)| tell(bucket, block));
        let range = LedgerKey::parts_within(cell, number, &(0..Minutes::MAX));
        for (key, row) in self.store.0.range(range).filter(|_| !since.cleared) {
            let LedgerKey::Part(_, _, bucket) = LedgerKey::decode(key).expect("it is a key") else { continue };
            if blocks.get(number, bucket).is_none() {
                tell(bucket, &Block::decode(row).expect("it is a row"));
            }
        }
        parts.retain(|_, sum| *sum != 0);
        parts
    }

    /// What the keys of a counter, or one of them, are worth.
    fn value(&mut self, id: &str) -> i64 {
        match id.contains(':') {
            true => self.bench.value(id),
            false => {
                let keys: Vec<_> = IDS.iter().filter(|key| key.starts_with(&format!("{id}:"))).collect();
                keys.into_iter().map(|key| self.bench.value(key)).sum()
            }
        }
    }

    pub fn check(&mut self) {
        for id in IDS {
            let counter = id.split(':').next().unwrap_or_default();
            let rollups: Vec<_> = self
                .bench
                .state
                .declarations()
                .rollups_of(counter)
                .iter()
                .map(|kept| kept.rollup.to_string())
                .collect();
            let value = self.value(id);
            for rollup in rollups {
                let parts = self.parts(id, &rollup);
                assert_eq!(parts.values().sum::<i64>(), value, "{id} by {rollup}: {parts:?}");
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Event { kind: usize, country: Option<usize>, place: usize, number: u64, hours_ago: i64 },
    Add(i64),
    Run,
    Clear(usize),
    Adjust(usize, i64),
    Revert,
    Cut { fails: bool },
    Pause(u64),
}

const COUNTRIES: [&str; 3] = ["DE", "US", "FR"];

pub(super) fn act() -> impl Strategy<Value = Act> {
    let event = (0usize..5, proptest::option::of(0usize..3), 0usize..2, 0u64..9, 0i64..30);
    prop_oneof![
        12 => event.prop_map(|(kind, country, place, number, hours_ago)| Act::Event { kind, country, place, number, hours_ago }),
        1 => (-5i64..5).prop_map(Act::Add),
        1 => Just(Act::Run),
        1 => (0..IDS.len()).prop_map(Act::Clear),
        1 => (0..IDS.len(), 1i64..9).prop_map(|(n, delta)| Act::Adjust(n, delta)),
        1 => Just(Act::Revert),
        2 => any::<bool>().prop_map(|fails| Act::Cut { fails }),
        1 => (0u64..40_000).prop_map(Act::Pause),
    ]
}

impl World {
    pub fn act(&mut self, act: &Act, model: &mut Parts) {
        let now_ms = self.bench.log_time_ms;
        match *act {
            Act::Event { kind, country, place, number, hours_ago } => {
                let kind = ["viewed", "liked", "unliked", "ad", "undone"][kind];
                let (video, creator) = (["a", "b"][place], ["x", "y"][place]);
                let (user, event_id) = (format!("u{}", number % 3), format!("{kind}{number}"));
                let at_ms = now_ms as i64 - hours_ago * 3_600_000;
                let mut dimensions = vec![("video", video), ("creator", creator), ("user", user.as_str())];
                dimensions.extend(country.map(|n| ("country", COUNTRIES[n])));
                let mut sent: Event<'_> = event(kind, "s", at_ms, &dimensions);
                (sent.received_at_ms, sent.event_id) = (now_ms, Some(event_id.into()));
                (sent.session, sent.seq) = (Some("s".into()), Some(number));
                let answers = self.bench.send(&[sent]);
                // The simple counter counts every event, in its hour.
                if kind == "viewed" {
                    assert_eq!(answers[1], Answer::Counted);
                    let hour = (at_ms / 3_600_000 * 60) as Minutes;
                    *model.entry((hour, vec![])).or_default() += 1;
                }
            }
            Act::Add(delta) => {
                let mut add = Submission::default();
                let target = self.bench.state.declarations().resolve(&hasher(), b"plain:a").unwrap().into_owned();
                add.add_to(&target, delta);
                add.add_many(&target, &[delta, 1]);
                self.bench.commit(&add);
                let hour = (now_ms / 3_600_000 * 60) as Minutes;
                *model.entry((hour, vec![])).or_default() += 2 * delta + 1;
            }
            Act::Run => drop(self.bench.correct(Remedy::Late(LateRun::due_by(now_ms)))),
            Act::Clear(n) if IDS[n].contains(':') && !IDS[n].starts_with("plain") => {
                let remedy = Remedy::Clear {
                    ids: vec![IDS[n].into()],
                    grounds: Grounds::new("why", "who"),
                    if_generation: None,
                };
                let _ = self.bench.correct(remedy);
            }
            Act::Adjust(n, delta) if IDS[n].contains(':') && !IDS[n].starts_with("plain") => {
                let _ = self.bench.adjust(&[Delta { id: IDS[n].into(), bucket_ms: None, delta }]);
            }
            Act::Clear(_) | Act::Adjust(..) => {}
            Act::Revert => {
                let number = self.bench.state.values.generations.number;
                let remedy = Remedy::Revert { number, grounds: Grounds::new("why", "who"), if_generation: None };
                if self.bench.state.values.knows_made(number) {
                    let _ = self.bench.correct(remedy);
                }
            }
            Act::Cut { fails } => self.cut(fails),
            Act::Pause(ms) => {
                self.bench.log_time_ms += ms;
                let mut tick = Submission::default();
                tick.record(&Record::Tick);
                self.bench.commit(&tick);
            }
        }
    }
}

proptest! {
    #[test]
    fn the_parts_of_every_key_add_up_to_it_whatever_happens(acts in proptest::collection::vec(act(), 1..60)) {
        let (mut world, mut model) = (World::new(), Parts::new());
        for act in &acts {
            world.act(act, &mut model);
            world.check();
        }
        model.retain(|_, sum| *sum != 0);
        prop_assert_eq!(world.parts("plain", "[hour]"), model, "the whole of a counter, hour by hour");
    }
}

pub(super) fn viewed<'a>(world: &World, dimensions: &[(&'a str, &'a str)], hours_ago: i64, seq: u64) -> Event<'a> {
    let now_ms = world.bench.log_time_ms;
    let mut sent = event("viewed", "s", now_ms as i64 - hours_ago * 3_600_000, dimensions);
    (sent.received_at_ms, sent.session, sent.seq) = (now_ms, Some("s".into()), Some(seq));
    sent
}

pub(super) fn flat(parts: Parts) -> Vec<(String, i64)> {
    parts.into_iter().map(|((_, values), sum)| (values.join("|"), sum)).collect()
}

pub(super) fn texts(parts: &[(&str, i64)]) -> Vec<(String, i64)> {
    parts.iter().map(|(text, sum)| ((*text).to_owned(), *sum)).collect()
}

#[test]
fn a_part_is_what_its_events_say_and_none_where_they_say_nothing() {
    let mut world = World::new();
    let all = [
        &[("video", "a"), ("country", "DE"), ("device", "tv")][..],
        &[("video", "a"), ("country", "DE")],
        &[("video", "a")],
    ];
    for (seq, dimensions) in all.iter().enumerate() {
        let sent = viewed(&world, dimensions, 0, seq as u64);
        world.bench.send(&[sent]);
        world.cut(false);
    }
    assert_eq!(flat(world.parts("views:a", "[country]")), texts(&[("(none)", 1), ("DE", 2)]));
    let expected = texts(&[("(none)|(none)", 1), ("DE|(none)", 1), ("DE|tv", 1)]);
    assert_eq!(flat(world.parts("views:a", "[country, device]")), expected);
    assert_eq!(flat(world.parts("views", "[country]")), texts(&[("(none)", 1), ("DE", 2)]), "the counter as a whole");
}

#[test]
fn a_like_is_taken_back_where_it_was_counted() {
    let mut world = World::new();
    let now_ms = world.bench.log_time_ms;
    let send = |world: &mut World, kind, creator, country, at_ms: u64| {
        let mut sent = event(kind, "s", at_ms as i64, &[("creator", creator), ("country", country), ("user", "u")]);
        sent.received_at_ms = at_ms;
        world.bench.send(&[sent]);
        world.cut(false);
    };
    send(&mut world, "liked", "x", "DE", now_ms);
    send(&mut world, "unliked", "y", "FR", now_ms + 48 * 3_600_000);
    assert_eq!(world.parts("fans:x", "[country, day]"), Parts::new());
    assert_eq!(world.parts("fans:y", "[country, day]"), Parts::new());
    world.check();
}

#[test]
fn what_people_correct_is_a_part_of_its_own_and_a_clear_begins_anew() {
    let mut world = World::new();
    let sent = viewed(&world, &[("video", "a"), ("country", "DE")], 0, 1);
    world.bench.send(&[sent]);
    world.cut(false);
    world.bench.adjust(&[Delta { id: b"views:a".to_vec(), bucket_ms: None, delta: 5 }]).unwrap();
    assert_eq!(flat(world.parts("views:a", "[country]")), texts(&[("(correction)", 5), ("DE", 1)]));
    let remedy = Remedy::Clear { ids: vec![b"views:a".to_vec()], grounds: Grounds::new("w", "w"), if_generation: None };
    world.bench.correct(remedy).unwrap();
    assert_eq!(world.parts("views:a", "[country]"), Parts::new());
    world.cut(false);
    assert_eq!(world.parts("views:a", "[country]"), Parts::new());
    world.check();
}

#[test]
fn the_first_values_of_a_key_are_admitted_in_the_order_of_the_log_wherever_cuts_fall() {
    for cut_behind in 0..4 {
        let mut world = World::new();
        for (n, country) in ["DE", "US", "DE", "FR"].into_iter().enumerate() {
            let mut sent = event("ad", "s", world.bench.log_time_ms as i64, &[("video", "a"), ("country", country)]);
            (sent.received_at_ms, sent.event_id) = (world.bench.log_time_ms, Some(format!("e{n}").into()));
            world.bench.send(&[sent]);
            if n == cut_behind {
                world.cut(false);
            }
        }
        assert_eq!(flat(world.parts("shown:a", "[country, hour]")), texts(&[("DE", 2), ("other", 2)]), "{cut_behind}");
    }
}

#[test]
fn a_roll_up_that_is_added_later_says_since_when_and_others_go_on() {
    let mut world = World::new();
    let sent = viewed(&world, &[("video", "a"), ("country", "DE")], 0, 1);
    world.bench.send(&[sent]);
    world.bench.configure(&CONFIG.replace("[[hour]]", "[[hour], [country]]").replace("[country, device]", "[device]"));
    let sent = viewed(&world, &[("video", "a"), ("country", "DE")], 0, 2);
    world.bench.send(&[sent]);
    let since = |counter: &str| -> Vec<(String, bool)> {
        let kept = world.bench.state.declarations().rollups_of(counter).iter();
        kept.map(|kept| (kept.rollup.to_string(), kept.since_ms.is_some())).collect()
    };
    assert_eq!(since("plain"), [("[hour]".to_owned(), false), ("[country]".to_owned(), true)]);
    assert_eq!(flat(world.parts("plain:a", "[hour]")), texts(&[("", 2)]));
    assert_eq!(flat(world.parts("plain:a", "[country]")), texts(&[("DE", 1)]));
    assert_eq!(flat(world.parts("views:a", "[country]")), texts(&[("DE", 2)]), "it was there all the time");
    // A restart finds the same numbers again.
    let checkpoint = world.bench.state.checkpoint(world.bench.offset).0;
    let mut resumed = Machine::new(hasher());
    resumed.resume(&checkpoint).unwrap();
    resumed.resumed().unwrap();
    for counter in ["plain", "views", "fans"] {
        assert_eq!(resumed.declarations().rollups_of(counter), world.bench.state.declarations().rollups_of(counter));
    }
}

#[test]
fn a_roll_up_that_is_added_to_a_counter_that_has_come_to_nothing_does_not_say_that_it_knows_everything() {
    let mut world = World::with(&CONFIG.replace("rollups: [[hour]]", "rollups: []"), 30);
    let mut add = |id: &[u8], delta| {
        let mut add = Submission::default();
        let target = world.bench.state.declarations().resolve(&hasher(), id).unwrap().into_owned();
        add.add_to(&target, delta);
        world.bench.commit(&add);
    };
    add(b"plain:a", 1);
    add(b"plain:b", -1);
    world.bench.configure(CONFIG);
    let declarations = world.bench.state.declarations();
    assert!(declarations.rollups_of("plain")[0].since_ms.is_some());
    assert_eq!(declarations.rollups_of("views")[0].since_ms, None, "nobody has seen anything");
}
