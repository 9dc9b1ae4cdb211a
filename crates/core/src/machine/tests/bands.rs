//! Old buckets are moved and nothing is lost, counted twice or told finer than it is kept: against a model that has every minute.

use super::contracts::{event, hasher};
use super::parts::World;
use super::*;
use crate::available::Unavailable;
use crate::counter::rollup::{Minutes, Unit, Zone, minute_of};
use crate::event::Event;
use crate::ledger::{Band, Fold, Grounds, LedgerKey, OldBuckets, Remedy};
use crate::op::Submission;
use crate::series::{Series, Step};
use crate::values::KeptRollup;
use proptest::prelude::*;
use std::collections::BTreeMap;

const IDS: [&str; 6] = ["plain:a", "plain:b", "plain", "views:a", "views:b", "views"];
const ROLLUPS: [&str; 3] = ["[hour]", "[country, hour]", "[day]"];

/// What may be declared, one after the other in any order.
const RETENTIONS: [&str; 6] = [
    "hour: 2d, day: 40d, month: forever",
    "hour: 10d, day: 11d, month: forever",
    "hour: 3d, day: 5d, week: forever",
    "hour: 20d, day: 30d",
    "hour: forever, day: forever",
    "hour: 200d, day: 300d, month: 400d",
];

fn config(retention: usize) -> String {
    let rest = format!(
        "dimensions: [video], rules: [{{on: viewed, op: increment}}], rollups: [[hour], [country, hour], [day]], retention: {{{}}}",
        RETENTIONS[retention]
    );
    format!(
        "counters:\n  - {{counterName: plain, mode: simple, timezone: Europe/Berlin, {rest}}}\n  \
         - {{counterName: views, mode: display, dedup: none, maxCardinality: {{country: 1}}, {rest}}}\n"
    )
}

/// What was counted, by id and minute.
type Model = BTreeMap<(&'static str, Minutes), i64>;

struct BandWorld {
    world: World,
    model: Model,
    sent: u64,
}

#[derive(Clone, Debug)]
enum Act {
    Event { key: usize, country: usize, hours_ago: u64 },
    Add { delta: i64 },
    Clear { key: usize },
    Cut { fails: bool },
    Fold { most: usize },
    Pause { hours: u64 },
    Configure { retention: usize },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0usize..2, 0usize..3, 0u64..2000).prop_map(|(key, country, hours_ago)| Act::Event { key, country, hours_ago }),
        1 => (-5i64..5).prop_map(|delta| Act::Add { delta }),
        1 => (0usize..2).prop_map(|key| Act::Clear { key }),
        4 => prop::bool::weighted(0.3).prop_map(|fails| Act::Cut { fails }),
        4 => prop_oneof![1usize..4, Just(usize::MAX)].prop_map(|most| Act::Fold { most }),
        2 => (0u64..700).prop_map(|hours| Act::Pause { hours }),
        1 => (0..RETENTIONS.len()).prop_map(|retention| Act::Configure { retention }),
    ]
}

impl BandWorld {
    fn new(retention: usize) -> BandWorld {
        BandWorld { world: World::with(&config(retention), 800), model: Model::new(), sent: 0 }
    }

    fn now_ms(&self) -> u64 {
        self.world.bench.log_time_ms
    }

    fn count(&mut self, id: &'static str, minute: Minutes, delta: i64) {
        let whole = if id.starts_with("plain") { "plain" } else { "views" };
        *self.model.entry((id, minute)).or_default() += delta;
        *self.model.entry((whole, minute)).or_default() += delta;
    }

    fn act(&mut self, act: &Act) {
        let now_ms = self.now_ms();
        let now = minute_of(now_ms as i64);
        match *act {
            Act::Event { key, country, hours_ago } => {
                let at_ms = (now_ms - hours_ago * 3_600_000) as i64;
                let dimensions = [("video", ["a", "b"][key]), ("country", ["DE", "US", "FR"][country])];
                let mut sent: Event<'_> = event("viewed", "s", at_ms, &dimensions);
                self.sent += 1;
                (sent.received_at_ms, sent.seq) = (now_ms, Some(self.sent));
                self.world.bench.send(&[sent]);
                for id in [["plain:a", "plain:b"][key], ["views:a", "views:b"][key]] {
                    self.count(id, minute_of(at_ms), 1);
                }
            }
            Act::Add { delta } => {
                let mut add = Submission::default();
                let target = self.world.bench.state.declarations().resolve(&hasher(), b"plain:a").unwrap().into_owned();
                add.add_to(&target, delta);
                self.world.bench.commit(&add);
                self.count("plain:a", now, delta);
            }
            Act::Clear { key } => {
                let id = ["views:a", "views:b"][key];
                let value: i64 = self.model.range((id, 0)..=(id, Minutes::MAX)).map(|(_, sum)| sum).sum();
                let (ids, grounds) = (vec![id.into()], Grounds::new("why", "who"));
                if self.world.bench.correct(Remedy::Clear { ids, grounds, if_generation: None }).is_ok() {
                    self.model.retain(|(known, _), _| *known != id);
                    *self.model.entry(("views", now)).or_default() -= value;
                }
            }
            Act::Cut { fails } => self.world.cut(fails),
            Act::Fold { most } => {
                let folds = self.folds(most);
                self.world.bench.state.values.facts.parts.fold(folds);
            }
            Act::Pause { hours } => {
                self.world.bench.log_time_ms += hours * 3_600_000;
                let mut tick = Submission::default();
                tick.record(&Record::Tick);
                self.world.bench.commit(&tick);
            }
            Act::Configure { retention } => self.world.bench.configure(&config(retention)),
        }
    }

    fn kept(&self, id: &str) -> Vec<KeptRollup> {
        let counter = id.split(':').next().unwrap_or_default();
        self.world.bench.state.declarations().rollups_of(counter).to_vec()
    }

    fn old(&self, id: &str) -> Vec<OldBuckets> {
        self.kept(id).iter().filter_map(|kept| kept.old_buckets(self.now_ms())).collect()
    }

    /// What a look through the store finds: at most so many rows.
    fn folds(&self, most: usize) -> Vec<Fold> {
        let (mut folds, mut left) = (Vec::new(), most);
        for id in IDS {
            for old in self.old(id) {
                for rows in old.rows_of(hasher().key(id.as_bytes())) {
                    for key in self.world.store.0.range(rows.keys.clone()).map(|(key, _)| key).take(left) {
                        left -= usize::from(old.note(&rows, key, &mut folds).unwrap());
                    }
                }
            }
        }
        folds
    }

    /// What a reader is told, step by step.
    fn ask(
        &self,
        id: &str,
        rollup: &str,
        step: Option<Step>,
        minutes: (Minutes, Minutes),
    ) -> Result<Asked, Unavailable> {
        let kept = self.kept(id).into_iter().find(|kept| kept.rollup.to_string() == rollup).expect("it is declared");
        let available = kept.available(self.now_ms()).expect("it has a bucket");
        let widened = match minutes {
            (0, Minutes::MAX) => 0..Minutes::MAX,
            (first, last) => available.start(first)..available.end(last),
        };
        let mut series = Series::new(&kept, &[], step, widened, usize::MAX).expect("there is no bound");
        available.check(step, &series.minutes())?;
        for ((bucket, _), sum) in self.world.parts(id, rollup) {
            series.feed(bucket, [(&b""[..], sum)].into_iter());
        }
        let cell = hasher().key(id.as_bytes());
        let is_void = self.world.bench.state.values.facts.parts.of(cell).cleared;
        for unit in kept.bands.coarser().filter(|_| !is_void) {
            let keys = LedgerKey::parts_within(cell, Band::new(kept.number, Some(unit)).number(), &series.minutes());
            for (key, row) in self.world.store.0.range(keys) {
                let Ok(LedgerKey::Part(_, _, bucket)) = LedgerKey::decode(key) else { panic!("it is a part") };
                series.feed_row(bucket, row).expect("it is a row");
            }
        }
        let points = series.steps().iter().copied().zip(series.totals()).filter(|(_, sum)| *sum != 0).collect();
        Ok(Asked { within: series.minutes(), points, zone: kept.zone })
    }

    /// The same from the model.
    fn expected(&self, id: &'static str, step: Option<Step>, asked: &Asked) -> Vec<(Minutes, i64)> {
        let mut points: BTreeMap<Minutes, i64> = BTreeMap::new();
        for ((_, minute), sum) in self.model.range((id, asked.within.start)..(id, asked.within.end)) {
            let start = step.map_or(asked.within.start, |step| step.start(*minute, &asked.zone));
            *points.entry(start).or_default() += sum;
        }
        points.into_iter().filter(|(_, sum)| *sum != 0).collect()
    }

    /// Answers how many questions were answered, and how many refused.
    fn check(&self) -> (usize, usize) {
        let (mut answered, mut refused) = (0, 0);
        let now = minute_of(self.now_ms() as i64);
        for id in IDS {
            for rollup in ROLLUPS {
                for step in [None, Some("1h"), Some("1d"), Some("1w"), Some("1mo")] {
                    let step = step.map(|step| Step::parse(step).unwrap());
                    if rollup == "[day]" && step.is_some_and(|step| step.unit < Unit::Day) {
                        continue;
                    }
                    for minutes in
                        [(now - 3 * 1440 - 7, now), (now - 60_000, now - 7), (now - 190_000, now), (0, Minutes::MAX)]
                    {
                        if step.is_some() && minutes.1 == Minutes::MAX {
                            continue;
                        }
                        match self.ask(id, rollup, step, minutes) {
                            Err(_) => refused += 1,
                            Ok(asked) => {
                                assert_eq!(
                                    asked.points,
                                    self.expected(id, step, &asked),
                                    "{id} by {rollup}, {step:?} {minutes:?}"
                                );
                                answered += 1;
                            }
                        }
                    }
                }
            }
        }
        (answered, refused)
    }

    /// Everything that is old is moved, and stays so.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.world.cut(false);
            let folds = self.folds(usize::MAX);
            self.world.bench.state.values.facts.parts.fold(folds);
        }
        self.world.cut(false);
        assert!(self.folds(usize::MAX).is_empty(), "what was moved is not old");
    }
}

struct Asked {
    within: std::ops::Range<Minutes>,
    points: Vec<(Minutes, i64)>,
    zone: Zone,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_is_moved_when_every_bucket_is_seen_once(retention in 0..RETENTIONS.len(), acts in proptest::collection::vec(act(), 1..50)) {
        let mut world = BandWorld::new(retention);
        for act in &acts {
            world.act(act);
            world.check();
        }
        world.settle();
        let (answered, _) = world.check();
        prop_assert!(answered > 0);
    }
}

#[test]
fn old_buckets_take_few_rows_and_a_late_entry_finds_its_way_there() {
    let mut world = BandWorld::new(0);
    for hours_ago in 0..200 * 24 {
        world.act(&Act::Event { key: 0, country: 0, hours_ago });
    }
    world.settle();
    // Of 40,000: up to 3 days of hours, 72 days and 6 months of each roll-up, for a key and the counter as a whole, of two counters.
    let hours = world.world.store.0.len();
    assert!(hours < 4 * 3 * (72 + 72 + 6), "{hours} rows");
    let before = world.check();
    assert!(before.0 > 0 && before.1 > 0);
    world.act(&Act::Event { key: 0, country: 1, hours_ago: 150 * 24 });
    world.check();
    world.world.cut(false);
    world.check();
    assert!(world.world.store.0.len() > hours, "it has a row of its own");
    world.settle();
    world.check();
    assert_eq!(world.world.store.0.len(), hours);
}

#[test]
fn a_longer_retention_brings_nothing_back_and_says_so() {
    let mut world = BandWorld::new(0);
    world.act(&Act::Event { key: 0, country: 0, hours_ago: 100 });
    world.act(&Act::Configure { retention: 4 });
    let now = minute_of(world.now_ms() as i64);
    let hour = Step::parse("1h");
    let refused =
        world.ask("plain:a", "[hour]", hour, (now - 101 * 60, now)).err().expect("hours were kept for 2 days");
    assert_eq!((refused.kept, refused.step), (Some(Unit::Day), Step::parse("1d")));
    assert!(world.ask("plain:a", "[hour]", hour, (refused.from, now)).is_ok());
    // Nothing more becomes old, and a restart knows as much.
    world.act(&Act::Pause { hours: 5000 });
    assert!(world.ask("plain:a", "[hour]", hour, (refused.from, now)).is_ok());
    let checkpoint = world.world.bench.state.checkpoint(world.world.bench.offset).0;
    let mut resumed = Machine::new(hasher());
    resumed.resume(&checkpoint).unwrap();
    resumed.resumed().unwrap();
    assert_eq!(resumed.declarations().rollups_of("plain"), world.kept("plain"));
    assert_eq!(resumed.checkpoint(world.world.bench.offset).0, checkpoint, "a restart is no change");
}

#[test]
fn what_is_kept_no_longer_is_deleted_and_refused() {
    let mut world = BandWorld::new(3);
    for days_ago in 0..60 {
        world.act(&Act::Event { key: 0, country: 0, hours_ago: 24 * days_ago });
    }
    world.settle();
    let now = minute_of(world.now_ms() as i64);
    let refused = world.ask("views:a", "[hour]", None, (0, Minutes::MAX)).err().expect("not everything is there");
    assert_eq!((refused.kept, refused.before, refused.step), (None, now / 1440 * 1440 - 30 * 1440, None));
    let days = world.ask("views:a", "[hour]", Step::parse("1d"), (refused.from, now)).unwrap();
    assert_eq!(days.points.len(), 31);
    let bucket = |key: &Vec<u8>| match LedgerKey::decode(key) {
        Ok(LedgerKey::Part(_, _, bucket)) => Some(bucket).filter(|bucket| *bucket > 0),
        _ => None,
    };
    // In Berlin a day begins an hour earlier.
    assert_eq!(world.world.store.0.keys().filter_map(bucket).min(), Some(refused.before - 60));
}
