//! Tops of hours and by values: whatever is counted, taken back, cleared and cut, nobody who is not looked at came to more than is said.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::counter::rollup::{Minutes, minute_of};
use crate::event::Event;
use crate::ledger::boards::ALL_TIME;
use crate::ledger::{BoardLine, Boards, Change, LedgerKey};
use crate::values::{Candidates, Sample, choose_board};
use std::collections::BTreeMap;

const CONFIG: &str = "
counters:
  - {counterName: views, mode: simple, dimensions: [video], rules: [{on: viewed, op: increment}, {on: undone, op: decrement}],
     rollups: [[country], [country, hour], [device, minute]]}
";

const HOUR_MS: u64 = 3_600_000;

/// What was counted: video, country and hour.
type Model = BTreeMap<(u64, String, Minutes), i64>;

struct World {
    bench: Bench,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    model: Model,
}

impl World {
    fn new() -> World {
        let mut bench = Bench::with(CONFIG);
        bench.log_time_ms = 1000 * HOUR_MS;
        World { bench, store: BTreeMap::new(), model: Model::new() }
    }

    /// Views of a video, so many hours before.
    fn view(&mut self, video: u64, country: &str, delta: i64, hours_ago: u64) {
        let at_ms = self.bench.log_time_ms - hours_ago * HOUR_MS;
        let key = format!("v{video}");
        let (kind, dimensions) =
            (if delta < 0 { "undone" } else { "viewed" }, [("video", key.as_str()), ("country", country)]);
        let mut sent: Event<'_> = event(kind, "s", at_ms as i64, &dimensions);
        (sent.received_at_ms, sent.delta) = (self.bench.log_time_ms, delta.abs());
        assert_eq!(self.bench.send(&[sent]), [Answer::Counted]);
        let hour = (at_ms / HOUR_MS * 60) as Minutes;
        *self.model.entry((video, country.to_owned(), hour)).or_default() += delta;
    }

    fn clear(&mut self, video: u64) {
        let id = format!("views:v{video}");
        if self.bench.value(&id) != 0 {
            self.bench.clear(&id);
            self.model.retain(|(known, ..), _| *known != video);
        }
    }

    fn cut(&mut self, fails: bool) {
        let cut = self.bench.state.begin_facts_cut();
        if fails {
            return self.bench.state.abort_facts_cut();
        }
        for row in cut.rows().filter(|row| matches!(LedgerKey::decode(&row.key), Ok(LedgerKey::Board(..)))) {
            match row.change {
                Change::Put(value) => drop(self.store.insert(row.key, value)),
                Change::Delete => drop(self.store.remove(&row.key)),
                Change::Add(_) => unreachable!("boards are put"),
            }
        }
        self.bench.state.finish_facts_cut();
    }

    /// What a start finds in the store takes the place of what memory has.
    fn restart(&mut self) {
        self.cut(false);
        let mut boards = Boards::default();
        boards.pass_time(minute_of(self.bench.log_time_ms as i64));
        self.store.iter().for_each(|(key, row)| boards.resume(key, row).unwrap());
        self.bench.state.values.facts.boards = boards;
        self.bench.state.values.declare_rollups(&Declarations::parse(CONFIG).unwrap());
    }

    fn line(&self, by: Option<&str>, hourly: bool) -> BoardLine {
        let kept = self.bench.state.declarations().rollups_of("views").to_vec();
        let number = choose_board(&kept, by, hourly).unwrap().number;
        BoardLine::new(hasher().key(b"views"), number, by.is_none())
    }

    fn hours(&self, hours: u64) -> Vec<Minutes> {
        (0..hours).map(|ago| ((self.bench.log_time_ms / HOUR_MS - ago) * 60) as Minutes).collect()
    }

    fn candidates(&self, by: Option<&str>, hours: Option<u64>, sample: Sample) -> Candidates {
        let line = self.line(by, hours.is_some());
        let hours = hours.map_or_else(|| vec![ALL_TIME], |hours| self.hours(hours));
        self.bench.state.values.top_candidates(line, &hours, sample)
    }

    /// What videos came to, by value of the dimension.
    fn sums(&self, by_country: bool, hours: Option<u64>) -> BTreeMap<(String, u64), i64> {
        let hours = hours.map(|hours| self.hours(hours));
        let mut sums = BTreeMap::new();
        for ((video, country, hour), sum) in &self.model {
            if hours.as_ref().is_none_or(|hours| hours.contains(hour)) {
                let value = if by_country { country.clone() } else { String::new() };
                *sums.entry((value, *video)).or_default() += sum;
            }
        }
        sums
    }

    /// The bound for all who are not looked at holds. Answers by how many it is known.
    fn check(&self, by_country: bool, hours: Option<u64>, sample: Sample) {
        let candidates = self.candidates(by_country.then_some("country"), hours, sample);
        let rest = candidates.rest.expect("everything is known here");
        let looked_at = |video: u64| candidates.keys.iter().any(|key| *key.id == *format!("views:v{video}").as_bytes());
        for ((value, video), sum) in self.sums(by_country, hours).iter().filter(|((_, video), _)| !looked_at(*video)) {
            let bound = rest.of(value.as_bytes());
            assert!(*sum <= bound, "v{video} {value} came to {sum} in {hours:?} hours, and the bound is {bound}");
        }
        for key in &candidates.keys {
            assert_eq!(key.cell, hasher().key(&key.id));
        }
    }

    fn check_all(&self, sample: Sample) {
        for hours in [Some(1), Some(3), Some(24)] {
            self.check(false, hours, sample);
            self.check(true, hours, sample);
        }
        self.check(true, None, sample);
    }

    /// Whether a top of so many is known to be right, for each value that has any.
    fn are_exact(&self, by_country: bool, hours: Option<u64>, k: usize) -> bool {
        let candidates =
            self.candidates(by_country.then_some("country"), hours, Sample { per_value: 2 * k, all: 20 * k });
        let rest = candidates.rest.expect("everything is known here");
        let mut sums: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for ((value, video), sum) in self.sums(by_country, hours) {
            let id = format!("views:v{video}");
            if candidates.keys.iter().any(|key| *key.id == *id.as_bytes()) {
                sums.entry(value).or_default().push(sum);
            }
        }
        sums.iter_mut().all(|(value, sums)| {
            sums.sort_unstable_by_key(|sum| std::cmp::Reverse(*sum));
            sums.get(k - 1).copied().unwrap_or(0) >= rest.of(value.as_bytes())
        })
    }
}

const COUNTRIES: [&str; 3] = ["DE", "US", "FR"];

#[derive(Clone, Debug)]
enum Act {
    /// So many videos, each once.
    Flood {
        from: u64,
        videos: u64,
        country: usize,
        hours_ago: u64,
    },
    View {
        video: u64,
        country: usize,
        delta: i64,
        hours_ago: u64,
    },
    Clear(u64),
    Cut {
        fails: bool,
    },
    Restart,
    Flush,
    Pause(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let view = (0u64..40, 0usize..3, -9i64..30, 0u64..27);
    let flood = (0u64..3, 1u64..400, 0usize..3, 0u64..3);
    prop_oneof![
        12 => view.prop_map(|(video, country, delta, hours_ago)| Act::View { video, country, delta, hours_ago }),
        3 => flood.prop_map(|(n, videos, country, hours_ago)| Act::Flood { from: 200 * n, videos, country, hours_ago }),
        1 => (0u64..40).prop_map(Act::Clear),
        2 => any::<bool>().prop_map(|fails| Act::Cut { fails }),
        1 => Just(Act::Restart),
        1 => (0u64..5 * HOUR_MS).prop_map(Act::Pause),
    ]
    .prop_flat_map(|act| prop_oneof![60 => Just(act), 1 => Just(Act::Flush)])
}

impl World {
    fn act(&mut self, act: &Act) {
        match *act {
            Act::View { delta: 0, .. } => {}
            Act::View { video, country, delta, hours_ago } => self.view(video, COUNTRIES[country], delta, hours_ago),
            Act::Flood { from, videos, country, hours_ago } => {
                (from..from + videos).for_each(|video| self.view(video, COUNTRIES[country], 1, hours_ago));
            }
            Act::Clear(video) => self.clear(video),
            Act::Cut { fails } => self.cut(fails),
            Act::Restart => self.restart(),
            Act::Flush => {
                let mut flush = Submission::default();
                flush.flush();
                self.bench.commit(&flush);
                self.store.clear();
                self.model.clear();
            }
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
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_who_is_not_looked_at_came_to_more_than_is_said(acts in proptest::collection::vec(act(), 1..60)) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
        }
        for sample in [Sample { per_value: 1, all: 2 }, Sample { per_value: 5, all: 12 }, Sample { per_value: 400, all: 400 }] {
            world.check_all(sample);
        }
    }
}

/// The hundredth of them is viewed a hundredth as often as the first.
fn skewed(world: &mut World, videos: u64, views: u64) {
    for video in 1..=videos {
        world.view(video, COUNTRIES[video as usize % 3], (views / video) as i64, 0);
    }
    // In another order, one by one.
    for n in 0..views {
        let video = 1 + (n.wrapping_mul(2_654_435_761) >> 3) % videos;
        world.view(video, "DE", 1, n % 2);
    }
}

#[test]
fn skewed_views_of_many_keys_have_an_exact_top_also_behind_a_restart() {
    let mut world = World::new();
    skewed(&mut world, 5_000, 20_000);
    for _ in 0..2 {
        world.check_all(Sample { per_value: 20, all: 100 });
        for hours in [Some(1), Some(24)] {
            assert!(world.are_exact(false, hours, 10) && world.are_exact(true, hours, 10), "{hours:?}");
        }
        assert!(world.are_exact(true, None, 10));
        world.restart();
    }
    let bytes = world.bench.state.values.facts.boards.bytes();
    assert!(bytes < 7 * (256 << 10), "{bytes} for seven boards of 5,000 keys");
}

#[test]
fn views_that_are_all_alike_have_no_exact_top_but_a_true_bound() {
    let mut world = World::new();
    (0..6_000).for_each(|video| world.view(video, "DE", 1, 0));
    (0..6_000).for_each(|video| world.view(video, "DE", 1, 0));
    world.check_all(Sample { per_value: 10, all: 10 });
    assert!(!world.are_exact(false, Some(1), 10));
}

#[test]
fn what_a_store_of_an_earlier_version_counted_is_not_known() {
    let mut world = World::new();
    world.view(1, "DE", 5, 0);
    // As if no board had ever been kept.
    world.bench.state.values.facts.boards = Boards::default();
    world.bench.state.values.declare_rollups(&Declarations::parse(CONFIG).unwrap());
    let sample = Sample { per_value: 5, all: 5 };
    assert!(world.candidates(None, Some(1), sample).rest.is_none());
    assert!(world.candidates(Some("country"), None, sample).rest.is_none());
    world.act(&Act::Pause(4 * 24 * HOUR_MS));
    assert!(world.candidates(None, Some(24), sample).rest.is_some(), "everything since is");
    assert!(world.candidates(Some("country"), None, sample).rest.is_none());
    world.act(&Act::Flush);
    assert!(world.candidates(Some("country"), None, sample).rest.is_some(), "nothing was ever counted");
}

#[test]
fn a_roll_up_that_is_added_later_begins_its_boards_there() {
    let mut world = World::new();
    world.view(1, "DE", 5, 0);
    world.bench.configure(&CONFIG.replace("[country], ", "[country], [device], "));
    world.view(2, "DE", 3, 0);
    let sample = Sample { per_value: 5, all: 5 };
    let by_device = world.candidates(Some("device"), None, sample);
    assert_eq!(by_device.rest.unwrap().of(b"(none)"), 0, "all of it is known");
    assert_eq!(by_device.keys.iter().map(|key| &*key.id).collect::<Vec<_>>(), [b"views:v2"]);
    world.check_all(sample);
    world.bench.configure(CONFIG);
    world.bench.configure(&CONFIG.replace("[country], ", "[country], [device], "));
    assert_eq!(world.candidates(Some("device"), None, sample).keys, [], "declared again it begins again");
}

#[test]
fn hours_that_are_long_over_are_forgotten_and_those_of_the_far_future_bound() {
    let mut world = World::new();
    for _ in 0..40 {
        world.view(1, "DE", 1, 0);
        world.cut(false);
        world.act(&Act::Pause(HOUR_MS));
    }
    world.view(1, "DE", 1, 26);
    world.cut(false);
    let hourly = world.store.keys().filter(|key| matches!(LedgerKey::decode(key), Ok(LedgerKey::Board(_, _, hour)) if hour != ALL_TIME && hour != Minutes::MAX));
    assert!(hourly.count() <= 3 * 25);
    let deltas: Vec<_> =
        (0..70).map(|n| Delta { id: b"views:v1".to_vec(), bucket_ms: Some((3000 + n) * HOUR_MS), delta: 1 }).collect();
    world.bench.adjust(&deltas).unwrap();
    let sample = Sample { per_value: 5, all: 5 };
    assert!(world.candidates(None, Some(1), sample).rest.is_none(), "somebody has named hours of the far future");
}
