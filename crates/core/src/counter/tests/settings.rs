//! The settings of a counter: what is understood, what is filled in, and what is refused, where and why.

use super::super::*;
use super::{counter, refused};

/// The example of the persistent counters' own specification.
const PERSISTENT: &str = "\
counters:
  - counterName: active_connections
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: true
    rules:
      - on: account.connected
        op: increment
      - on: account.disconnected
        op: decrement
    idempotency:
      requireEventId: true
      scope: globalEventId

  - counterName: connects_total
    mode: persistent
    dimensions: [masterAccountId]
    floorAtZero: false
    rules:
      - on: account.connected
        op: increment
    idempotency:
      requireEventId: true
      scope: globalEventId
";

/// One counter of a mode that listens to one event, with a further line: line 5.
fn one(mode: &str, line: &str) -> String {
    counter(&format!("    mode: {mode}\n    rules: [{{on: t, op: increment}}]\n    {line}\n"))
}

#[track_caller]
fn parsed(yaml: &str) -> Counter {
    Declarations::parse(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}")).counter(0).clone()
}

fn dedup_of(counter: &Counter) -> Option<DedupSettings> {
    let Contract::Display(Display { dedup }) = &counter.contract else { panic!("{counter:?}") };
    dedup.clone()
}

fn entity_of(counter: &Counter) -> &[Field] {
    let Contract::Transition(Transition { entity }) = &counter.contract else { panic!("{counter:?}") };
    entity
}

#[test]
fn persistent_counters_are_declared_as_they_were_specified() {
    let declarations = Declarations::parse(PERSISTENT).unwrap();
    let active = Counter {
        name: "active_connections".into(),
        contract: Contract::Persistent(Persistent),
        measure: Measure::Sum,
        dimensions: ["masterAccountId".into()].into(),
        rules: vec![
            Rule { on: "account.connected".into(), op: Direction::Increment },
            Rule { on: "account.disconnected".into(), op: Direction::Decrement },
        ],
        description: None,
        floor_at_zero: true,
        lateness: None,
        durability: Some(Durability::Sync),
        is_archived: true,
        rollups: Rollups::default(),
    };
    let total = Counter {
        name: "connects_total".into(),
        rules: active.rules[..1].to_vec(),
        floor_at_zero: false,
        ..active.clone()
    };
    assert_eq!(declarations.counters(), [active, total]);
}

#[test]
fn the_example_of_the_guide_is_understood() {
    let guide = include_str!("../../../../../docs/guide/counters.md");
    let yaml = guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let declarations = Declarations::parse(yaml).unwrap();
    let modes: Vec<_> = declarations.counters().iter().map(|counter| counter.mode()).collect();
    assert_eq!(modes, [Mode::Display, Mode::Transition, Mode::Persistent]);
    assert_eq!(declarations.idempotency(), Idempotency::DEFAULT, "the example shows the defaults");
}

#[test]
fn every_setting_is_understood() {
    let views = parsed(&one(
        "display",
        "dedup: {by: [session, seq], window: 30s}\n    lateness: {allowed: 10s, corrected: 2h}",
    ));
    let dedup = DedupSettings { by: [Field::Session].into(), seq: true, window_ms: 30_000, required: true };
    assert_eq!((dedup_of(&views), views.lateness), (Some(dedup), Some(Lateness::DEFAULT)));

    let likes = parsed(&one("transition", "entity: [user, session, eventId, type]\n    floorAtZero: true"));
    let user = Field::Dimension("user".into());
    assert_eq!(*entity_of(&likes), [user.clone(), Field::Session, Field::EventId, Field::Type]);
    assert!(likes.floor_at_zero);

    let by = parsed(&one("display", "dedup: {by: [eventId, user]}\n    durability: none"));
    let dedup = DedupSettings { by: [Field::EventId, user].into(), seq: false, window_ms: 60_000, required: true };
    assert_eq!((dedup_of(&by), by.durability), (Some(dedup), Some(Durability::None)));

    let late = parsed(&one("simple", "lateness: {allowed: 0s, corrected: 500ms, every: 1s, restated: 7d}"));
    let lateness = Lateness { allowed_ms: 0, corrected_ms: 500, every_ms: 1_000, restated_ms: 604_800_000 };
    assert_eq!(late.lateness, Some(lateness));
}

#[test]
fn what_is_not_said_is_filled_in() {
    let views = parsed(&one("display", ""));
    let dedup = DedupSettings { by: [Field::Session].into(), seq: true, window_ms: 60_000, required: false };
    assert_eq!(dedup_of(&views), Some(dedup.clone()));
    assert_eq!((views.lateness, views.durability, views.floor_at_zero), (None, None, false));
    assert_eq!(dedup_of(&parsed(&one("display", "dedup: none"))), None);
    let window = dedup_of(&parsed(&one("display", "dedup: {window: 1h}")));
    assert_eq!(window, Some(DedupSettings { window_ms: 3_600_000, required: true, ..dedup }));
    assert_eq!(parsed(&one("simple", "")).contract, Contract::Simple(Simple));
    assert_eq!(parsed(&one("simple", "measure: sum")), parsed(&one("simple", "")), "a sum is what is kept anyway");
    assert_eq!(parsed(&one("persistent", "durability: sync")).durability, Some(Durability::Sync));
    assert_eq!(parsed(&one("persistent", "")).durability, Some(Durability::Sync));
    assert_eq!(*entity_of(&parsed(&one("transition", ""))), []);
    assert!(Durability::ALL.is_sorted());
}

#[test]
fn the_keys_of_direct_writes_are_a_setting_of_the_node() {
    let keys = |yaml: &str| Declarations::parse(yaml).unwrap().idempotency();
    assert_eq!(keys(""), Idempotency { keep_ms: 86_400_000, keys_max: 10_000_000 });
    assert_eq!(keys("idempotency: {keep: 2h, maxKeys: 500}"), Idempotency { keep_ms: 7_200_000, keys_max: 500 });
    assert_eq!(keys("idempotency: {maxKeys: 1}\ncounters: []").keep_ms, 86_400_000);
    refused("idempotency: {keep: 31d}", (1, 21), "keep is 31d; it must be from 1s to 30d");
    for bad in ["0", "1000000001", "-5", "1.5", "many", "[1]"] {
        let message = "maxKeys must be a whole number from 1 to 1000000000, not ";
        refused(&format!("idempotency: {{maxKeys: {bad}}}"), (1, 24), message);
    }
    refused("idempotency: 24h", (1, 14), "idempotency must have named fields, not be text");
    refused("idempotency: {key: 24h}", (1, 15), "\"key\" is not a field of idempotency; did you mean \"keep\"?");
}

#[test]
fn how_long_events_are_archived_is_a_setting_of_the_node_and_whether_one_of_a_counter() {
    let counters = "counters: [{counterName: a, mode: simple, archive: none, rules: [{on: a, op: increment}, {on: both, op: increment}]},
        {counterName: b, mode: simple, rules: [{on: both, op: increment}]}]";
    let archived = |setting: &str| Declarations::parse(&format!("{counters}\n{setting}")).unwrap().archived();
    let days = |days: u64| Archived::For { keep_ms: Some(days * 86_400_000) };
    assert_eq!(archived(""), days(90));
    assert_eq!(archived("archive: {keep: 2y}"), days(730));
    assert_eq!(archived("archive: {}"), days(90));
    assert_eq!(archived("archive: {keep: forever}"), Archived::For { keep_ms: None });
    assert_eq!(archived("archive: none"), Archived::No);
    assert_eq!(Declarations::parse("archive: {keep: 1d}").unwrap().archived(), Archived::No, "there is no counter");
    refused("archive: {keep: 59m}", (1, 17), "keep is 59m; it must be from 1h to 100y");
    refused("archive: off", (1, 10), "archive must be none or {keep: 90d}, not \"off\"; write archive: none");
    refused("archive: 90d", (1, 10), "archive must be none or {keep: 90d}, not \"90d\"; write one of them");
    refused(&one("simple", "archive: 90d"), (5, 14), "\"90d\" is not an archive; use \"none\"");
    let declared = Declarations::parse(counters).unwrap();
    assert!(!declared.is_archived("a") && declared.is_archived("both") && declared.is_archived("nobody's"));
}

#[test]
fn when_backups_are_taken_is_a_setting_of_the_node() {
    let backups = |yaml: &str| Declarations::parse(yaml).unwrap().backups();
    let day_ms = 86_400_000;
    assert_eq!(backups(""), None);
    assert_eq!(backups("backup: {}"), Some(BackupSchedule { every_ms: day_ms, keep: 7 }));
    assert_eq!(backups("backup: {every: 6h, keep: 30}"), Some(BackupSchedule { every_ms: day_ms / 4, keep: 30 }));
    refused("backup: {every: 59s}", (1, 17), "every is 59s; it must be from 1m to 90d");
    refused("backup: {keep: 0}", (1, 16), "keep must be a whole number from 1 to 10000, not 0");
    refused("backup: 1d", (1, 9), "backup must have named fields, not be text");
    refused("backup: {often: 1d}", (1, 10), "\"often\" is not a field of backup");
}

#[test]
fn what_is_an_anomaly_is_a_setting_of_the_node() {
    let told = |setting: &str| Declarations::parse(setting).unwrap().anomalies();
    let jumps = |factor, least| Anomalies::Told(Jumps { factor, least });
    assert_eq!(told(""), jumps(10, 1_000));
    assert_eq!(told("anomalies: {}"), jumps(10, 1_000));
    assert_eq!(told("anomalies: {factor: 3}"), jumps(3, 1_000));
    assert_eq!(told("anomalies: {factor: 100, least: 5}"), jumps(100, 5));
    assert_eq!(told("anomalies: none"), Anomalies::No);
    refused("anomalies: {factor: 1}", (1, 21), "factor must be a whole number from 2 to 1000000, not 1");
    refused("anomalies: {least: 0}", (1, 20), "least must be a whole number from 1 to 1000000000000, not 0");
    let message = "anomalies must be none or {factor: 10, least: 1000}, not \"off\"; write anomalies: none";
    refused("anomalies: off", (1, 12), message);
}

#[test]
fn a_duration_has_a_unit() {
    let window = |text: &str| one("display", &format!("dedup: {{window: {text}}}"));
    refused(&window("60"), (5, 21), "window must be a duration, not 60; write 60s");
    let shape = "write a whole number and a unit: 500ms, 60s, 10m, 2h or 1d";
    refused(&window("-60"), (5, 21), &format!("window must be a duration, not -60; {shape}"));
    refused(&window("1.5h"), (5, 21), &format!("window must be a duration, not \"1.5h\"; {shape}"));
    refused(&window("1.5"), (5, 21), &format!("window must be a duration, not 1.5; {shape}"));
    refused(&window("true"), (5, 21), &format!("window must be a duration, not true; {shape}"));
    refused(&window("[60s]"), (5, 21), &format!("window must be a duration, not a list; {shape}"));
    refused(&window("999ms"), (5, 21), "window is 999ms; it must be from 1s to 1h");
    refused(&window("61m"), (5, 21), "window is 61m; it must be from 1s to 1h");
    refused(&window("99999999999999999999d"), (5, 21), "window is 99999999999999999999d; it must be from 1s to 1h");
}

#[test]
fn dedup_names_what_makes_an_event_unique() {
    let by = |list: &str| one("display", &format!("dedup: {{by: {list}}}"));
    refused(&by("[]"), (5, 17), "\"by\" is empty; name a field or remove it");
    refused(
        &by("[seq]"),
        (5, 17),
        "a seq is a number within a session; name what it counts in as well: [session, seq]",
    );
    refused(&by("[session, session]"), (5, 27), "\"session\" is named twice in \"by\"; remove one");
    refused(&by("session"), (5, 17), "\"by\" must be a list, not text");
    refused(&by("[1]"), (5, 18), "a name in \"by\" must be text, not a number; put it in double quotes");
    let shape = "dedup must be none or {by: [session, seq], window: 60s}, not";
    refused(&one("display", "dedup: false"), (5, 12), &format!("{shape} false"));
    refused(&one("display", "dedup: off"), (5, 12), &format!("{shape} \"off\""));
    refused(
        &one("display", "dedup: {fields: [session]}"),
        (5, 13),
        "\"fields\" is not a field of dedup; there are: by, window",
    );
}

#[test]
fn an_entity_has_fields_that_stay() {
    refused(
        &one("transition", "entity: [session, seq]"),
        (5, 23),
        "\"seq\" is new with every event, so its state would never change; remove it from \"entity\"",
    );
    refused(&one("transition", "entity: []"), (5, 13), "\"entity\" is empty; name a field or remove it");
    let many: Vec<String> = (10..=26).map(|n| format!("d{n}")).collect();
    refused(
        &one("transition", &format!("entity: [{}]", many.join(", "))),
        (5, 94),
        "\"entity\" has at most 16 names; this is one more",
    );
}

#[test]
fn a_setting_that_does_not_go_with_the_mode_is_refused_with_the_reason() {
    let refused = |mode: &str, line: &str, why: &str| {
        let field = line.split(':').next().unwrap();
        refused(&one(mode, line), (5, 5), &format!("\"{field}\" does not go with mode \"{mode}\": {why}"));
    };
    let entity = "only a transition counter keeps a state per entity; remove it, or use mode \"transition\"";
    for mode in ["simple", "display", "persistent"] {
        refused(mode, "entity: [user]", entity);
    }
    refused("simple", "dedup: none", "it adds whatever it is told; use mode \"display\"");
    refused("transition", "dedup: none", "the state of its entity makes a repeat change nothing; remove it");
    refused("persistent", "dedup: {by: [eventId]}", "each eventId counts once, forever; remove it");
    refused("simple", "idempotency: {keep: 1h}", "the keys of its direct writes are a setting of the node");
    refused("display", "idempotency: {requireEventId: true}", "it recognises repeats by \"dedup\"");
    refused("transition", "idempotency: {requireEventId: true}", "the state of its entity makes a repeat");
    refused("transition", "lateness: {allowed: 10s}", "it is ordered by its own time, and the newest state wins");
}

#[test]
fn lateness_is_a_matter_of_events_and_of_order() {
    let late = |parts: &str| one("display", &format!("lateness: {{{parts}}}"));
    refused(
        &counter("    mode: simple\n    lateness: {allowed: 5s}\n"),
        (4, 15),
        "only events have a time of their own to be late by, and this counter has no rules; remove it",
    );
    refused(&late("allowed: 3h"), (5, 25), "allowed is 3h and corrected only 2h");
    refused(&late("allowed: 3h, corrected: 1h"), (5, 40), "allowed is 3h and corrected only 1h");
    refused(&late("corrected: 9s"), (5, 27), "allowed is 10s and corrected only 9s");
    refused(&late("corrected: 31d"), (5, 27), "corrected is 31d; it must be from 0s to 30d");
    refused(&late("every: 999ms"), (5, 23), "every is 999ms; it must be from 1s to 7d");
    refused(&late("restated: 8d"), (5, 26), "restated is 8d; it must be from 1s to 7d");
    refused(&late("permitted: 1s"), (5, 16), "\"permitted\" is not a field of lateness");
    assert_eq!(parsed(&late("allowed: 2h")).lateness.unwrap().allowed_ms, 7_200_000);
}

#[test]
fn money_is_on_disk_and_has_ids() {
    let money = |line: &str| one("persistent", line);
    for weaker in ["none", "interval"] {
        let message = format!(
            "durability \"{weaker}\" does not go with mode \"persistent\": it counts money, so an answer means that it is \
             on disk; write sync or remove the field"
        );
        refused(&money(&format!("durability: {weaker}")), (5, 17), &message);
    }
    refused(
        &one("simple", "durability: always"),
        (5, 17),
        "\"always\" is not a durability; use \"none\", \"interval\" or \"sync\"",
    );
    refused(&money("idempotency: {requireEventId: false}"), (5, 35), "requireEventId must be true: without an eventId");
    refused(&money("idempotency: {requireEventId: yes}"), (5, 35), "requireEventId must be true or false, not \"yes\"");
    refused(
        &money("idempotency: {scope: counter}"),
        (5, 26),
        "scope must be globalEventId, not \"counter\": an eventId is claimed once for all counters that it feeds; \
         write globalEventId or remove the field",
    );
    refused(&money("floorAtZero: \"true\""), (5, 18), "floorAtZero must be true or false, not \"true\"");
}

#[test]
fn a_counter_that_only_events_feed_needs_rules() {
    for mode in ["display", "transition", "persistent"] {
        let message = format!("counter \"c\" would never count: a {mode} counter is fed by events only; add rules");
        refused(&counter(&format!("    mode: {mode}\n")), (2, 5), &message);
        refused(&counter(&format!("    mode: {mode}\n    rules: []\n")), (4, 12), &message);
    }
}

#[test]
fn roll_ups_are_lists_of_dimensions_and_at_most_one_bucket() {
    let yaml = counter(
        "    mode: simple\n    rollups: [[country], [hour, country], [day]]\n    timezone: Europe/Berlin\n    maxCardinality: {country: 250}\n",
    );
    let declarations = Declarations::parse(&yaml).unwrap();
    let rollups = &declarations.counters()[0].rollups;
    let written: Vec<_> = rollups.all.iter().map(Rollup::to_string).collect();
    assert_eq!(written, ["[country]", "[country, hour]", "[day]"]);
    assert_eq!((rollups.zone.name(), &*rollups.limits), ("Europe/Berlin", &[("country".into(), 250)][..]));
}

#[test]
fn retention_is_a_way_from_each_bucket_to_coarser_ones() {
    let retention = |rollups: &str, retention: &str| {
        let yaml = counter(&format!("    mode: simple\n    rollups: {rollups}\n    retention: {retention}\n"));
        Declarations::parse(&yaml).unwrap().counters()[0].rollups.retention.clone()
    };
    let all = retention("[[minute], [country, hour]]", "{month: forever, minute: 2d, hour: 90d, day: 2y}");
    assert_eq!(all.to_string(), "minute 2d, hour 90d, day 2y, month forever");
    let way = |unit| all.way(unit).iter().map(|keep| keep.unit).collect::<Vec<_>>();
    assert_eq!(way(Unit::Minute), [Unit::Minute, Unit::Hour, Unit::Day, Unit::Month]);
    assert_eq!(way(Unit::Hour), [Unit::Hour, Unit::Day, Unit::Month]);
    let apart = retention("[[week], [month]]", "{week: forever, month: forever}");
    assert_eq!(apart.way(Unit::Week).len(), 1, "what is kept forever is rolled into nothing");
    retention("[[day]]", "{day: 30d}");
}

#[test]
fn roll_ups_that_cannot_be_meant_are_refused_by_name() {
    for (fields, message) in [
        ("rollups: [[page]], dimensions: [page]", "\"page\" is in the counter's key already"),
        ("rollups: [[a, hour, day]]", "a roll-up has one bucket of time, and this one has hour and day"),
        ("rollups: [[a, b, c, d, e]]", "a roll-up has at most 4 dimensions, and this one 5"),
        ("rollups: [[a, hour], [hour, a]]", "the roll-up [a, hour] is there twice"),
        ("rollups: [[a, a]]", "\"a\" is named twice in \"rollups\""),
        ("rollups: [[]]", "\"rollups\" is empty"),
        ("rollups: [a]", "\"rollups\" has lists of names, and \"a\" is none"),
        ("timezone: Mars/Base", "\"Mars/Base\" is not a time zone"),
        ("rollups: [[a]], maxCardinality: {b: 5}", "\"b\" is in no roll-up of this counter"),
        (
            "rollups: [[a]], maxCardinality: {a: 0}",
            "a in \"maxCardinality\" must be a whole number from 1 to 10000, not 0",
        ),
    ] {
        let yaml = format!(
            "counters:\n  - counterName: c\n    mode: simple\n    {}\n",
            fields.replace(", dim", "\n    dim").replace(", max", "\n    max")
        );
        let errors = Declarations::parse(&yaml).unwrap_err().to_string();
        assert!(errors.contains(message), "{fields}: {errors}");
    }
}
