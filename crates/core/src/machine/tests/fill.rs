//! Roll-ups that are added later are filled, against a twin that had them all the time.

use super::contracts::{event, hasher};
use super::parts::{Act, CONFIG, Parts, World, act, flat, texts, viewed};
use super::*;
use crate::event::Event;
use crate::ledger::{Fill, FillKey, FillPart, FillStep};
use crate::op::Submission;
use crate::record::put_bytes;
use crate::values::KeptRollup;
use std::collections::BTreeMap;

/// The same counters, with fewer roll-ups.
fn before() -> String {
    let all = [
        ("rollups: [[country], [country, hour], [day], [country, device]]", "rollups: [[day]]"),
        ("rollups: [[country], [country, day]]", "rollups: [[day]]"),
        ("rollups: [[country, hour]], maxCardinality: {country: 1}", "rollups: [[hour]]"),
        ("rollups: [[country, hour]]", "rollups: [[hour]]"),
    ];
    all.into_iter().fold(CONFIG.to_owned(), |yaml, (later, before)| yaml.replace(later, before))
}

impl World {
    fn step(&mut self, counter: &str, rollup: u16, step: FillStep) -> bool {
        let fill = Fill { counter: counter.to_owned(), rollup, step };
        let mut submission = Submission::default();
        let at = submission.record(&Record::Fill(&fill.encode()));
        fill.stage(&mut self.bench.state.stager, at, &mut submission);
        let mut replayed = Submission::default();
        self.bench.state.decode(&submission.records, &mut replayed).expect("it was encoded just now");
        assert_eq!((&replayed.ops, &replayed.stamps), (&submission.ops, &submission.stamps));
        self.bench.commit(&submission);
        self.bench.answers.last() == Some(&Answer::Yes)
    }

    fn begin(&mut self, counter: &str, rollup: u16) -> u16 {
        assert!(self.step(counter, rollup, FillStep::Begin));
        self.bench.state.values.stand_in(counter).expect("it has begun").number
    }

    /// Those that lack something, those that decide first.
    fn begun_later(&self, counter: &str) -> Vec<KeptRollup> {
        let kept = self.bench.state.declarations().rollups_of(counter);
        let mut later: Vec<_> = kept.iter().filter(|kept| kept.since_ms.is_some()).cloned().collect();
        later.sort_by_key(|kept| kept.rollup.dimensions.len() + usize::from(kept.rollup.unit.is_some()));
        later
    }

    /// What the twin has and a stand-in has not.
    fn lacking(&self, twin: &World, counter: &str, rollup: &str, stand_in: u16) -> FillStep {
        let of_counter = |id: &&&str| id.split(':').next() == Some(counter);
        let keys = super::parts::IDS.iter().filter(of_counter).map(|id| {
            let mut parts = twin.parts(id, rollup);
            for (part, sum) in self.parts_numbered(id, stand_in) {
                *parts.entry(part).or_default() -= sum;
            }
            let part = |((bucket, texts), delta): ((_, Vec<String>), _)| {
                let mut values = Vec::new();
                texts.iter().for_each(|text| put_bytes(&mut values, text.as_bytes()));
                FillPart { bucket, values, delta }
            };
            FillKey { id: id.as_bytes().to_vec(), parts: parts.into_iter().filter(|it| it.1 != 0).map(part).collect() }
        });
        FillStep::Add { generation: self.bench.state.values.generations.current, keys: keys.collect() }
    }
}

/// Two that see the same.
struct Twins {
    later: World,
    always: World,
}

impl Twins {
    fn new() -> Twins {
        Twins { later: World::with(&before(), 30), always: World::with(CONFIG, 30) }
    }

    fn act(&mut self, acts: &[Act]) {
        for act in acts {
            self.later.act(act, &mut Parts::new());
            self.always.act(act, &mut Parts::new());
        }
    }

    /// Fills a roll-up, with something going on at each moment of it.
    fn fill(&mut self, counter: &str, kept: &KeptRollup, meanwhile: [&[Act]; 3]) {
        let stand_in = self.later.begin(counter, kept.number);
        self.act(meanwhile[0]);
        let rollup = kept.rollup.to_string();
        let lacking = self.later.lacking(&self.always, counter, &rollup, stand_in);
        self.act(meanwhile[1]);
        if !self.later.step(counter, stand_in, lacking) {
            let lacking = self.later.lacking(&self.always, counter, &rollup, stand_in);
            assert!(self.later.step(counter, stand_in, lacking), "nobody has cleared anything since");
        }
        self.act(meanwhile[2]);
        assert!(self.later.step(counter, stand_in, FillStep::End { since_ms: None }));
    }
}

proptest! {
    #[test]
    fn what_is_filled_adds_up_as_if_it_had_always_been_there(
        acts in prop::collection::vec(prop::collection::vec(act(), 0..12), 5),
    ) {
        let mut twins = Twins::new();
        twins.act(&acts[0]);
        twins.later.bench.configure(CONFIG);
        twins.act(&acts[1]);
        for counter in ["views", "timely", "fans", "shown"] {
            for kept in twins.later.begun_later(counter) {
                twins.fill(counter, &kept, [&acts[2], &acts[3], &acts[4]]);
            }
            prop_assert!(twins.later.begun_later(counter).is_empty());
        }
        twins.later.check();
        for id in ["views:a", "views:b", "views"] {
            for rollup in ["[country]", "[country, hour]", "[country, device]"] {
                prop_assert_eq!(twins.later.parts(id, rollup), twins.always.parts(id, rollup), "{} {}", id, rollup);
            }
        }
    }
}

fn number(world: &World, counter: &str, rollup: &str) -> u16 {
    let kept = world.bench.state.declarations().rollups_of(counter).iter();
    kept.clone().find(|kept| kept.rollup.to_string() == rollup).expect("it is declared").number
}

/// A view of a before there was a roll-up by country, and one behind.
fn viewed_before_and_behind() -> World {
    let mut world = World::with(&before(), 30);
    let sent = viewed(&world, &[("video", "a"), ("country", "DE")], 0, 1);
    world.bench.send(&[sent]);
    world.bench.configure(CONFIG);
    let sent = viewed(&world, &[("video", "a"), ("country", "US")], 0, 2);
    world.bench.send(&[sent]);
    world
}

fn of_a(country: &str, delta: i64) -> FillKey {
    let mut values = Vec::new();
    put_bytes(&mut values, country.as_bytes());
    FillKey { id: b"views:a".to_vec(), parts: vec![FillPart { bucket: 0, values, delta }] }
}

#[test]
fn a_stand_in_is_seen_when_it_has_everything_and_not_before() {
    let mut world = viewed_before_and_behind();
    let rollup = number(&world, "views", "[country]");
    let place = |world: &World, number: u16| {
        world.bench.state.declarations().rollups_of("views").iter().position(|kept| kept.number == number)
    };
    let before = place(&world, rollup);
    let stand_in = world.begin("views", rollup);
    assert!(world.step("views", stand_in, FillStep::Add { generation: 0, keys: vec![of_a("DE", 1), of_a("US", 1)] }));
    for is_cut in [false, true] {
        assert_eq!(number(&world, "views", "[country]"), rollup);
        assert_eq!(flat(world.parts("views:a", "[country]")), texts(&[("US", 1)]), "cut: {is_cut}");
        world.cut(false);
    }
    assert!(world.step("views", stand_in, FillStep::End { since_ms: None }));
    assert_eq!(number(&world, "views", "[country]"), stand_in);
    assert_eq!(flat(world.parts("views:a", "[country]")), texts(&[("DE", 1), ("US", 1)]));
    assert_eq!(place(&world, stand_in), before, "which of several answers is the same");
}

#[test]
fn what_was_reckoned_before_a_clear_is_refused() {
    let mut world = viewed_before_and_behind();
    let rollup = number(&world, "views", "[country]");
    let stand_in = world.begin("views", rollup);
    world.bench.clear("views:a");
    assert!(!world.step("views", stand_in, FillStep::Add { generation: 0, keys: vec![of_a("DE", 1)] }));
    let generation = world.bench.state.values.generations.current;
    assert!(world.step("views", stand_in, FillStep::Add { generation, keys: vec![] }));
    assert!(world.step("views", stand_in, FillStep::End { since_ms: None }));
    assert_eq!(world.parts("views:a", "[country]"), Parts::new());
}

#[test]
fn one_stand_in_is_there_at_a_time_and_goes_with_another_configuration_or_a_flush() {
    let drops: [fn(&mut World, u16); 3] = [
        |world, stand_in| assert!(world.step("views", stand_in, FillStep::Drop)),
        |world, _| world.bench.configure(&CONFIG.replace("window: 1s", "window: 2s")),
        |world, _| {
            let mut flush = Submission::default();
            flush.record_op(OpKind::Flush, CellKey::NONE, 0, &Record::Flush);
            world.bench.commit(&flush);
        },
    ];
    for drop in drops {
        let mut world = viewed_before_and_behind();
        let rollup = number(&world, "views", "[country]");
        let stand_in = world.begin("views", rollup);
        let other = number(&world, "views", "[country, device]");
        assert!(!world.step("views", other, FillStep::Begin), "one at a time");
        assert!(!world.step("views", rollup, FillStep::End { since_ms: None }), "it stands in for nothing");
        drop(&mut world, stand_in);
        assert_eq!(world.bench.state.values.stand_in("views"), None);
        assert!(!world.step("views", stand_in, FillStep::Add { generation: 9, keys: vec![of_a("DE", 1)] }));
        assert!(!world.step("views", stand_in, FillStep::End { since_ms: None }));
        let sent = viewed(&world, &[("video", "a"), ("country", "US")], 0, 3);
        world.bench.send(&[sent]);
        let all: BTreeMap<_, _> = flat(world.parts("views:a", "[country]")).into_iter().collect();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["US"]);
    }
}

#[test]
fn a_roll_up_that_lacks_nothing_or_is_unknown_is_not_filled() {
    let mut world = viewed_before_and_behind();
    let day = number(&world, "views", "[day]");
    assert!(!world.step("views", day, FillStep::Begin), "it was there all the time");
    assert!(!world.step("views", 999, FillStep::Begin));
    assert!(!world.step("nobody", 0, FillStep::Begin));
}

#[test]
fn a_stand_in_survives_a_restart() {
    let mut world = viewed_before_and_behind();
    let rollup = number(&world, "views", "[country]");
    let stand_in = world.begin("views", rollup);
    world.bench.clear("views:a");
    let checkpoint = world.bench.state.checkpoint(world.bench.offset).0;
    let mut resumed = Machine::new(hasher());
    resumed.resume(&checkpoint).unwrap();
    resumed.resumed().unwrap();
    assert_eq!(resumed.values.stand_in("views").map(|kept| kept.number), Some(stand_in));
    assert_eq!(resumed.values.stand_in("views"), world.bench.state.values.stand_in("views"));
    assert_eq!(resumed.declarations().rollups_of("views"), world.bench.state.declarations().rollups_of("views"));
    world.bench.state = resumed;
    assert!(!world.step("views", stand_in, FillStep::Add { generation: 0, keys: vec![] }), "it knows of the clear");
    let generation = world.bench.state.values.generations.current;
    assert!(world.step("views", stand_in, FillStep::Add { generation, keys: vec![] }));
}

#[test]
fn values_that_a_key_does_not_admit_are_other_in_what_is_filled() {
    let mut world = World::with(&before(), 30);
    let mut sent = event("ad", "s", 0, &[("video", "b")]);
    sent.event_id = Some("e".into());
    world.bench.send(&[sent]);
    world.bench.configure(CONFIG);
    let mut values = Vec::new();
    let mut part = |country: &str| {
        values.clear();
        put_bytes(&mut values, country.as_bytes());
        FillPart { bucket: 30 * 24 * 60, values: values.clone(), delta: 1 }
    };
    let parts = vec![part("DE"), part("US"), part("(none)")];
    for rollup in ["[country]", "[country, hour]"] {
        // The first is not declared, and decides.
        let kept = world.begun_later("shown");
        let kept = kept.iter().find(|kept| kept.rollup.to_string() == rollup).expect("it lacks something");
        let stand_in = world.begin("shown", kept.number);
        let keys = vec![FillKey { id: b"shown:a".to_vec(), parts: parts.clone() }];
        assert!(world.step("shown", stand_in, FillStep::Add { generation: 0, keys }));
        assert!(world.step("shown", stand_in, FillStep::End { since_ms: Some(7) }));
        world.cut(false);
        assert_eq!(flat(world.parts("shown:a", rollup)), texts(&[("(none)", 1), ("DE", 1), ("other", 1)]), "{rollup}");
    }
    let countries = flat(world.parts("shown:a", "[country]"));
    assert_eq!(countries, texts(&[("(none)", 1), ("DE", 1), ("other", 1)]), "it was only asked");
    let all = world.bench.state.declarations().rollups_of("shown");
    assert_eq!(all.iter().filter(|kept| kept.since_ms == Some(7)).count(), 2);
}

/// A like by somebody in a country.
fn liked<'a>(world: &World, kind: &'a str, user: &'a str, country: &'a str, hours_ago: i64) -> Event<'a> {
    let now_ms = world.bench.log_time_ms;
    let dimensions = [("creator", "x"), ("user", user), ("country", country)];
    Event { received_at_ms: now_ms, ..event(kind, "s", now_ms as i64 - hours_ago * 3_600_000, &dimensions) }
}

fn bytes(event: &Event<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    event.encode(&mut bytes);
    bytes
}

#[test]
fn a_like_that_is_told_what_it_was_counted_for_is_taken_back_from_there() {
    let mut world = World::with(&before(), 30);
    let likes = [("u1", "DE", 50), ("u2", "DE", 49), ("u3", "FR", 48)];
    let likes = likes.map(|(user, country, ago)| liked(&world, "liked", user, country, ago));
    likes.iter().for_each(|like| drop(world.bench.send(std::slice::from_ref(like))));
    world.bench.configure(CONFIG);
    let rollup = number(&world, "fans", "[country, day]");
    let before = world.bench.offset;
    // Meanwhile one goes off, and another one goes on again elsewhere: those know better.
    let since = [("unliked", "u2", "US"), ("unliked", "u3", "US"), ("liked", "u3", "US")];
    let since = since.map(|(kind, user, country)| liked(&world, kind, user, country, 0));
    since.iter().for_each(|event| drop(world.bench.send(std::slice::from_ref(event))));
    world.cut(false);
    let events = likes.iter().map(bytes).chain([b"no event".to_vec()]).collect();
    assert!(world.step("fans", rollup, FillStep::Describe { before, events }));
    let parts = |world: &World| flat(world.parts("fans:x", "[country]"));
    let behind = parts(&world);
    assert_eq!(behind, texts(&[("(none)", -2), ("US", 1)]), "what was taken back before it was told");
    let off = ["u1", "u3"].map(|user| liked(&world, "unliked", user, "FR", 0));
    off.iter().for_each(|event| drop(world.bench.send(std::slice::from_ref(event))));
    assert_eq!(parts(&world), texts(&[("(none)", -2), ("DE", -1)]), "the like from DE, on the day of it");
    let days = world.parts("fans:x", "[country, day]");
    assert_eq!(
        days.keys().filter(|(_, values)| *values == ["DE"]).map(|(day, _)| *day).collect::<Vec<_>>(),
        [27 * 24 * 60]
    );
}

#[test]
fn what_a_counter_as_a_whole_admits_is_the_same_wherever_cuts_fall() {
    let countries = |is_cut: bool| {
        let mut world = World::with(&before(), 30);
        let shown = |world: &mut World, id: &str, country: &str| {
            let mut sent = event("ad", "s", world.bench.log_time_ms as i64, &[("video", "b"), ("country", country)]);
            (sent.received_at_ms, sent.event_id) = (world.bench.log_time_ms, Some(id.to_owned().into()));
            world.bench.send(&[sent]);
        };
        shown(&mut world, "e1", "DE");
        world.bench.configure(CONFIG);
        let decides = world.begun_later("shown").remove(0);
        let stand_in = world.begin("shown", decides.number);
        world.cut(false);
        shown(&mut world, "e2", "NL");
        if is_cut {
            world.cut(false);
        }
        let mut values = Vec::new();
        put_bytes(&mut values, b"DE");
        let parts = vec![FillPart { bucket: 0, values, delta: 100 }];
        let keys = [&b"shown"[..], b"shown:b"].map(|id| FillKey { id: id.to_vec(), parts: parts.clone() }).to_vec();
        assert!(world.step("shown", stand_in, FillStep::Add { generation: 0, keys }));
        assert!(world.step("shown", stand_in, FillStep::End { since_ms: None }));
        ["shown", "shown:b"].map(|id| flat(world.parts(id, "[country]")))
    };
    let expected = texts(&[("NL", 1), ("other", 100)]);
    assert_eq!(countries(false), [expected.clone(), expected.clone()]);
    assert_eq!(countries(true), [expected.clone(), expected]);
}
