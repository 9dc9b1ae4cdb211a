//! What a configuration declares and what it may not; what ids and events mean under it.

mod settings;
mod wrong;

use super::*;
use crate::database::Space;
use crate::event::Event;
use crate::id::CellHasher;
use crate::limits::{COUNTERS_MAX, ENTRIES_PER_EVENT_MAX, ID_BYTES_MAX, KEY_DIMENSIONS_MAX, NAME_BYTES_MAX};
use crate::op::{Op, OpKind, Submission};
use proptest::collection::vec;
use proptest::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

const HASHER: CellHasher = CellHasher::new(1);

const YAML: &str = "\
counters:
  - counterName: views
    mode: display
    description: Views by video and country
    dimensions: [video, country]
    rules:
      - {on: video.viewed, op: increment}
  - counterName: watching
    mode: simple
    dimensions: [video]
    rules:
      - on: video.viewed
        op: increment
      - on: video.left
        op: decrement
  - counterName: total
    mode: simple
    rules: [{on: video.viewed, op: increment}]
  - counterName: stock
    mode: simple
    dimensions: [shop, item]
";

fn declarations() -> Declarations {
    Declarations::parse(YAML).unwrap()
}

#[test]
fn declarations_say_what_there_is_and_who_listens() {
    let declarations = declarations().with_version(3);
    assert_eq!((declarations.version(), declarations.yaml()), (3, YAML));
    let views = declarations.counter(0);
    assert_eq!((&*views.name, views.mode()), ("views", Mode::Display));
    assert_eq!(*views.dimensions, ["video".into(), "country".into()]);
    assert_eq!(views.description.as_deref(), Some("Views by video and country"));
    assert_eq!(declarations.find(b"stock"), Some(3));
    assert_eq!(declarations.find(b"stocks"), None);
    let listener = |counter, op| Listener { counter, op };
    use Direction::*;
    assert_eq!(
        declarations.listeners("video.viewed"),
        [listener(0, Increment), listener(1, Increment), listener(2, Increment)]
    );
    assert_eq!(declarations.listeners("video.left"), [listener(1, Decrement)]);
    assert_eq!(declarations.listeners("video"), []);
}

#[test]
fn a_configuration_without_counters_declares_nothing() {
    for yaml in ["", "# nothing yet\n", "counters:\n", "counters: []\n", "---\n"] {
        assert!(Declarations::parse(yaml).unwrap().is_empty(), "{yaml:?}");
    }
}

/// `counters:` with one counter whose further lines are given.
fn counter(lines: &str) -> String {
    format!("counters:\n  - counterName: c\n{lines}")
}

#[track_caller]
fn refused(yaml: &str, (line, column): (u64, u64), message: &str) {
    let errors = Declarations::parse(yaml).unwrap_err();
    let error = errors.shown.iter().find(|error| format!("{}; {}", error.message, error.fix).contains(message));
    let error = error.unwrap_or_else(|| panic!("{errors}\ndoes not say: {message}"));
    assert_eq!((error.line, error.column), (line, column), "{error}");
    let text: String = yaml.lines().nth(line as usize - 1).unwrap_or_default().chars().take(160).collect();
    assert_eq!(error.text, text);
}

/// The words that there are, as an error names them.
fn all_of<const N: usize>(words: [&str; N]) -> String {
    let quoted = words.map(|word| format!("{word:?}"));
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("use {} or {last}", rest.join(", ")),
        _ => format!("use {}", quoted.concat()),
    }
}

fn modes() -> String {
    all_of(Mode::ALL.map(Mode::name))
}

#[test]
fn what_is_not_built_yet_is_known_and_refused() {
    for mode in ["unique", "top", "frequency", "window"] {
        let message = format!("mode {mode:?} is not available in this version; {}", modes());
        refused(&counter(&format!("    mode: {mode}\n")), (3, 11), &message);
    }
    for measure in ["unique", "window", "top", "frequency", "limit"] {
        let message = format!(
            "measure {measure:?} is not available in this version; {}",
            all_of(Measure::ALL.map(Measure::name))
        );
        refused(&counter(&format!("    mode: simple\n    measure: {measure}\n")), (4, 14), &message);
    }
    let message = "field \"window\" is not available in this version; remove it";
    refused(&counter("    mode: simple\n    window: 5m\n"), (4, 5), message);
}

#[test]
fn unknown_fields_are_refused_with_the_nearest_known_one() {
    refused("counter: []", (1, 1), "\"counter\" is not a field of a configuration; did you mean \"counters\"?");
    refused(&counter("    modes: simple"), (3, 5), "did you mean \"mode\"?");
    refused(&counter("    Mode: simple"), (3, 5), "did you mean \"mode\"?");
    refused(&counter("    roll_ups: []"), (3, 5), "did you mean \"rollups\"?");
    refused("counters: [{name: a}]", (1, 13), "there are: counterName, mode, measure, dimensions, rules, description");
    refused(
        &counter("    mode: simple\n    rules: [{on: a, do: increment}]"),
        (4, 21),
        "\"do\" is not a field of a rule",
    );
    refused(&counter("    delta: 2"), (3, 5), "\"delta\" is a field of the event");
}

#[test]
fn impossible_declarations_are_refused() {
    refused(&counter("    mode: display\n"), (2, 5), "counter \"c\" would never count");
    refused(&counter("    mode: display\n    rules: []\n"), (4, 12), "counter \"c\" would never count");
    refused(&counter("    mode: money\n"), (3, 11), &format!("\"money\" is not a mode; {}", modes()));
    refused(&counter("    mode: sample\n"), (3, 11), "\"sample\" is not a mode; did you mean \"simple\"?");
    refused(&counter(""), (2, 5), "a counter needs the field \"mode\"");
    refused("counters: [{mode: simple}]", (1, 12), "a counter needs the field \"counterName\"");
    refused(
        &counter("    mode: simple\n    rules: [{on: a, op: increment}, {on: a, op: decrement}]"),
        (4, 42),
        "already has a rule on \"a\"",
    );
    refused(&counter("    mode: simple\n    rules: [{on: a, op: add}]"), (4, 25), "\"add\" is not an op");
    refused(&counter("    mode: simple\n    rules: [{on: a}]"), (4, 13), "a rule needs the field \"op\"");
    refused(
        &counter("    mode: simple\n    dimensions: [a, b, a]"),
        (4, 24),
        "\"a\" is named twice in \"dimensions\"; remove one",
    );
    refused(&counter("    mode: simple\n    dimensions: video"), (4, 17), "\"dimensions\" must be a list, not text");
    refused(
        &counter("    mode: simple\n    dimensions: [7]"),
        (4, 18),
        "must be text, not a number; put it in double quotes",
    );
    refused(
        &counter("    mode: simple\n  - counterName: c\n    mode: simple"),
        (4, 18),
        "counter \"c\" is already declared in line 2",
    );
    refused("counters: 5", (1, 11), "\"counters\" must be a list, not a number");
    refused("- counters", (1, 1), "must have named fields");
}

#[test]
fn a_name_that_could_not_stand_in_an_id_is_refused() {
    for (name, bad) in [("a:b", "':'"), ("a%b", "'%'"), ("views*", "'*'"), ("a b", "' '"), ("a\\tb", "'\\t'")] {
        let yaml = format!("counters: [{{counterName: \"{name}\", mode: simple}}]");
        refused(&yaml, (1, 26), &format!("because of {bad}: a name has no"));
    }
    refused("counters: [{counterName: \"\", mode: simple}]", (1, 26), "has 0 bytes; it needs 1 to 256");
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    refused(&format!("counters: [{{counterName: {long}, mode: simple}}]"), (1, 26), "has 257 bytes");
    assert!(Declarations::parse("counters: [{counterName: größe-1.x_y/z, mode: simple}]").is_ok());
}

#[test]
fn words_that_yaml_once_took_for_booleans_are_words() {
    let yaml = "counters: [{counterName: no, mode: simple, dimensions: [on, y], rules: [{on: off, op: increment}]}]";
    let declarations = Declarations::parse(yaml).unwrap();
    assert_eq!(*declarations.counter(0).dimensions, ["on".into(), "y".into()]);
    assert_eq!(declarations.listeners("off").len(), 1);
}

#[test]
fn bounds_are_kept() {
    let many = |n: usize| {
        let counters = (0..n).map(|n| format!("  - {{counterName: c{n}, mode: simple}}\n"));
        counters.fold("counters:\n".to_owned(), |yaml, counter| yaml + &counter)
    };
    assert_eq!(Declarations::parse(&many(COUNTERS_MAX)).unwrap().counters().len(), COUNTERS_MAX);
    refused(&many(COUNTERS_MAX + 1), (COUNTERS_MAX as u64 + 2, 5), "more than 4096 counters");

    let listening = many(ENTRIES_PER_EVENT_MAX + 1).replace("simple}", "simple, rules: [{on: a, op: increment}]}");
    let error = Declarations::parse(&listening).unwrap_err();
    assert!(error.to_string().contains("more than 256 counters listen to \"a\""), "{error}");

    let dimensions: Vec<String> = (0..=KEY_DIMENSIONS_MAX).map(|n| format!("d{n:02}")).collect();
    let yaml = counter(&format!("    mode: simple\n    dimensions: [{}]", dimensions.join(", ")));
    refused(&yaml, (4, 18 + 5 * KEY_DIMENSIONS_MAX as u64), "\"dimensions\" has at most 16 names; this is one more");
    assert!(Declarations::parse(&" ".repeat(5 * 1024 * 1024)).unwrap_err().to_string().contains("4194304 is the most"));
}

#[test]
fn broken_yaml_is_shown_where_it_breaks() {
    let error = Declarations::parse("counters:\n  - counterName: [a\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2, column 18: this '[' is never closed\n  2 |   - counterName: [a\n    |                  ^\n  fix: write a ']' where it ends"
    );
    refused(&counter("    counterName: b\n"), (3, 5), "\"counterName\" stands here for the second time");
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
    assert!(Declarations::parse(bomb).is_err());
    assert!(Declarations::parse(&"[".repeat(100_000)).is_err());
}

#[test]
fn an_id_is_declared_if_its_name_is() {
    let declarations = declarations();
    let resolved = |id: &'static str| {
        let target = declarations.resolve(&HASHER, id.as_bytes()).unwrap();
        assert_eq!(target.cell, HASHER.key(&target.id));
        (target.declared, target.text().into_owned())
    };
    let declared = |counter, id: &str| (Declared::Now(counter), id.to_owned());
    assert_eq!(resolved("views:v42:DE"), declared(0, "views:v42:DE"));
    assert_eq!(resolved("total"), declared(2, "total"));
    assert_eq!(resolved("watching:"), declared(1, "watching:"));
    assert_eq!(resolved("views:%3a%25%41%2f:%C3%A9"), declared(0, "views:%3A%25A/:é"));
    assert!(matches!(declarations.resolve(&HASHER, b"views:v42:DE").unwrap().id, Cow::Borrowed(_)));
    for id in [&b""[..], b"viewsv42", b"view:v42", b"VIEWS:v42:DE", b":views", b"\xff\x01", b"a%zz"] {
        let ad_hoc = Target::ad_hoc(HASHER.key(id), id);
        assert_eq!(declarations.resolve(&HASHER, id).as_ref(), Ok(&ad_hoc));
        assert_eq!(Declarations::default().resolve(&HASHER, id), Ok(ad_hoc));
    }
    // What looks like the id of another database is a key like any other.
    let marked = declarations.resolve(&HASHER, b"\xff\x00").unwrap();
    assert!(marked.is_ad_hoc() && *marked.id == *Space::MAIN.id(b"\xff\x00"));
}

#[test]
fn an_id_that_cannot_be_meant_is_refused_with_the_fix() {
    let refused = |id: &[u8], expected: &str| {
        let error = declarations().resolve(&HASHER, id).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.len() < 400, "{error}");
    };
    refused(
        b"views:v42",
        "counter \"views\" is counted by video, country, so its ids look like \"views:<video>:<country>\"",
    );
    refused(b"views", "its ids look like \"views:<video>:<country>\"");
    refused(b"views:a:b:c", "its ids look like \"views:<video>:<country>\"");
    refused(b"total:", "counted by nothing, so its ids look like \"total\"");
    refused(b"watching:50%", "the % at byte 11 has no two hexadecimal digits behind it");
    refused(b"views:a:%4", "the % at byte 8");
    refused(b"watching:\xff", "is UTF-8 text");
    refused(b"watching:%ff", "is UTF-8 text");
    refused(&vec![b'a'; ID_BYTES_MAX + 1], "at most 4096 bytes; this one has 4097");
    refused(&[b"watching:%zz".as_slice(), &[b'a'; 4000]].concat(), "…");
    assert!(declarations().resolve(&HASHER, &vec![b'a'; ID_BYTES_MAX]).is_ok());
}

fn event<'a>(event_type: &'a str, dimensions: &[(&'a str, &'a str)]) -> Event<'a> {
    Event {
        dimensions: dimensions.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect(),
        ..Event::new(event_type, 7)
    }
}

/// Stages one event at record 5 and answers its operations and rejections.
fn stage(event: &Event<'_>) -> (Vec<Op>, Vec<(u16, String)>) {
    let mut stager = Stager::new(Arc::new(declarations()), CellHasher::new(1));
    let (mut out, mut rejections) = (Submission::default(), Vec::new());
    let staged =
        stager.stage(event, 5, &mut out, &mut |counter, rejection| rejections.push((counter, rejection.to_string())));
    let rejected = out.ops.extract_if(.., |op| op.kind == OpKind::Reject).map(|op| op.counter).collect::<Vec<_>>();
    assert_eq!(rejected, rejections.iter().map(|(counter, _)| *counter).collect::<Vec<_>>());
    assert_eq!((staged.entries as usize, staged.rejected as usize), (out.ops.len(), rejections.len()));
    (out.ops, rejections)
}

fn count(id: &str, counter: u16, arg: i64) -> Op {
    Op { cell: CellHasher::new(1).key(id.as_bytes()), arg, record: 5, counter, kind: OpKind::Count }
}

#[test]
fn an_event_counts_for_every_counter_that_listens() {
    let mut viewed = event("video.viewed", &[("country", "DE"), ("x", "y"), ("video", "a:b%")]);
    let expected = |n| vec![count("views:a%3Ab%25:DE", 0, n), count("watching:a%3Ab%25", 1, n), count("total", 2, n)];
    assert_eq!(stage(&viewed), (expected(1), vec![]));
    viewed.delta = i64::MIN;
    assert_eq!(stage(&viewed), (expected(i64::MIN), vec![]));
    assert_eq!(stage(&Event { delta: 3, ..event("video.left", &[("video", "v")]) }).0, [count("watching:v", 1, -3)]);
    assert_eq!(stage(&event("video.paused", &[("video", "v")])), (vec![], vec![]));
}

#[test]
fn an_entry_that_cannot_count_is_rejected_by_name_and_the_others_count() {
    let (ops, rejections) = stage(&event("video.viewed", &[("video", "v")]));
    assert_eq!(ops, [count("watching:v", 1, 1), count("total", 2, 1)]);
    let text = "counter \"views\" is counted by dimension \"country\", which the event does not have; add it to \"dimensions\"";
    assert_eq!(rejections, [(0, text.to_owned())]);

    let (ops, rejections) = stage(&Event { delta: i64::MIN, ..event("video.left", &[("video", "v")]) });
    assert_eq!(ops, []);
    assert!(rejections[0].1.contains("-9223372036854775808 cannot be negated"), "{rejections:?}");

    // Too long as it is, and too long only once it is encoded.
    for long in ["v".repeat(ID_BYTES_MAX), ":".repeat(ID_BYTES_MAX / 2)] {
        let (ops, rejections) = stage(&event("video.left", &[("video", &long)]));
        assert_eq!(ops, []);
        assert!(rejections[0].1.contains("longer than 4096 bytes"), "{rejections:?}");
    }
    let longest = "v".repeat(ID_BYTES_MAX - "watching:".len());
    assert_eq!(stage(&event("video.left", &[("video", &longest)])).0.len(), 1);
}

#[test]
fn the_names_of_counters_and_of_removed_ones_are_not_plainly_ad_hoc() {
    let meaning = declarations().counter(0).meaning();
    let declarations =
        Declarations::parse("counters: [{counterName: n, mode: simple}, {counterName: stock, mode: simple}]");
    let declarations = declarations.unwrap().with_removed([("views", &meaning)].into_iter());
    for id in [&b"n"[..], b"n:", b"stock", b"stock:1", b"views:1", b"", b"x", b"\xff\x00", &[b'a'; ID_BYTES_MAX + 1]] {
        assert!(!declarations.is_plainly_ad_hoc(id), "{:?}", id.escape_ascii().to_string());
    }
    for id in [&b"v:00000042"[..], b"bench:00000042", b"\xff\x01", &[b'a'; ID_BYTES_MAX]] {
        assert!(declarations.is_plainly_ad_hoc(id), "{:?}", id.escape_ascii().to_string());
    }
}

proptest! {
    #[test]
    fn what_is_plainly_ad_hoc_resolves_to_itself(id in vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..6), name in "[a-z:]{0,7}") {
        let declarations = declarations();
        for id in [&id[..], name.as_bytes()] {
            if declarations.is_plainly_ad_hoc(id) {
                prop_assert_eq!(declarations.resolve(&HASHER, id), Ok(Target::ad_hoc(HASHER.key(id), id)));
                prop_assert!(matches!(Space::MAIN.id(id), Cow::Borrowed(own) if own == id));
            }
        }
    }

    #[test]
    fn the_id_of_an_entry_resolves_to_itself(shop in "[:%a-c25ABé😀\u{0}]{0,8}", item in any::<String>()) {
        let declarations = declarations();
        let mut id = Vec::new();
        declarations.entry_id(3, &event("t", &[("shop", &shop), ("item", &item)]), &mut id).unwrap();
        let target = declarations.resolve(&HASHER, &id).unwrap();
        prop_assert_eq!((target.declared, target.cell), (Declared::Now(3), HASHER.key(&id)));
        prop_assert_eq!(&*target.id, &*id);
    }

    #[test]
    fn resolving_an_id_is_final_and_loses_nothing(parts in vec("([:a-c]|%[0-7][0-9a-fA-F]|%25|%3A){0,6}", 2..3)) {
        let declarations = declarations();
        let id = format!("stock:{}:{}", parts[0].replace(':', ""), parts[1].replace(':', ""));
        let Target { id: canonical, declared, .. } = declarations.resolve(&HASHER, id.as_bytes()).unwrap();
        prop_assert_eq!(declared, Declared::Now(3));
        prop_assert!(canonical.len() <= id.len());
        let again = declarations.resolve(&HASHER, &canonical).unwrap();
        prop_assert_eq!(&again.id, &canonical);
        let values = |id: &[u8]| id.split(|b| *b == b':').map(|part| crate::id::decode_part(part).unwrap().into_owned()).collect::<Vec<_>>();
        prop_assert_eq!(values(&canonical), values(id.as_bytes()));
    }

    #[test]
    fn strange_yaml_is_an_error_not_a_panic(yaml in "[\\[\\]{}:,\\-&*!|>#'\"% a-z0-9\n\t]{0,80}") {
        if let Err(error) = Declarations::parse(&yaml) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
