//! The event parser against serde_json: the same events accepted, with the same values, and nothing else.

use super::*;
use crate::event::layout::Layout;
use crate::event::line::{Line, RecordHead};
use crate::event::shape::Values;
use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object as serde_json reads it, duplicates and all.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// The rules of an event restated on top of serde_json, without regard to cost.
fn oracle(text: &str) -> Option<Event<'static>> {
    let Members(members) = serde_json::from_str(text).ok()?;
    let mut event = Event::new("", 7);
    for (at, (name, raw)) in members.iter().enumerate() {
        if members[..at].iter().any(|(other, _)| other == name) {
            return None;
        }
        let raw = raw.get();
        let text = || serde_json::from_str::<String>(raw).ok().filter(|text| !text.is_empty()).map(Cow::from);
        match name.as_str() {
            "type" => event.event_type = text()?,
            "eventId" => event.event_id = Some(text()?),
            "session" => event.session = Some(text()?),
            "occurredAt" => event.occurred_at_ms = Some(parse_rfc3339(text()?.as_bytes())?),
            "seq" => event.seq = Some(serde_json::from_str(raw).ok()?),
            "delta" if raw == "-0" => event.delta = 0,
            "delta" => {
                event.delta = serde_json::from_str(raw).ok().filter(|delta: &i64| delta.abs_diff(0) <= 1 << 31)?
            }
            "dimensions" => event.dimensions = oracle_dimensions(raw)?,
            "payload" => event.payload = Some(oracle_payload(raw)?.leak()),
            _ => return None,
        }
    }
    members.iter().any(|(name, _)| name == "type").then_some(event)
}

fn oracle_dimensions(raw: &str) -> Option<Vec<(Cow<'static, str>, Cow<'static, str>)>> {
    let Members(members) = serde_json::from_str(raw).ok()?;
    let names: std::collections::HashSet<_> = members.iter().map(|(name, _)| name).collect();
    if names.len() != members.len() || names.len() > DIMENSIONS_PER_EVENT_MAX {
        return None;
    }
    let value = |raw: &str| match raw.as_bytes()[0] {
        b'"' => serde_json::from_str(raw).ok(),
        b'-' | b'0'..=b'9' => canonical(raw).map(Cow::into_owned),
        b't' | b'f' => Some(raw.to_owned()),
        _ => None,
    };
    members.into_iter().map(|(name, raw)| Some((name.into(), value(raw.get())?.into()))).collect()
}

fn oracle_payload(raw: &str) -> Option<String> {
    match serde_json::from_str::<Value>(raw) {
        Ok(value) => (depth(&value) <= JSON_DEPTH_MAX).then(|| raw.to_owned()),
        // A number is kept as it is written, however large.
        Err(error) => error.to_string().contains("number out of range").then(|| raw.to_owned()),
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[track_caller]
fn check(text: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(parse(text, 7).ok(), oracle(text), "{}", text);
    Ok(())
}

/// What is read of `text` by the layout of another event; `None` if it has another.
fn read_by_layout(layout_of: &str, text: &str) -> Option<Event<'static>> {
    let layout = Layout::learn(layout_of)?;
    let mut values = Values::default();
    values.make_room(layout.parts());
    let end = layout.read(Scanner::new(text), &mut values)?;
    let head = RecordHead::new("", &layout.shape, 7);
    let line = Line::new(text.as_bytes(), end, &layout.shape, &values, &head);
    let mut record = Vec::new();
    line.to_event().encode(&mut record);
    text[end..].trim().is_empty().then(|| Event::decode(&mut &*record.leak()).unwrap())
}

/// Text as a JSON string, with each character escaped or not as the bits say.
fn quoted(text: &str, mut bits: u64) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        bits = bits.rotate_right(1);
        if bits & 1 == 1 || c < ' ' || c == '"' || c == '\\' {
            let mut units = [0; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else {
            out.push(c);
        }
    }
    out + "\""
}

prop_compose! {
    fn string()(text in "[a-z:%\u{0}-\u{22}éß😀]{0,20}", bits: u64, plain: bool) -> String {
        quoted(&text, if plain { 0 } else { bits })
    }
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,21})",
        "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,4})?",
        "0[0-9]|\\+1|1\\.|NaN|-?Infinity"
    ]
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![6 => string(), 3 => number(), 1 => "true|false|null|nul"]
}

fn time() -> impl Strategy<Value = String> {
    "\"20[0-9]{2}-(0[1-9]|1[0-3])-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-][01][0-9]:[0-5][0-9])\""
}

fn space() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just(String::new()), 1 => "[ \t\r\n]{0,3}"]
}

fn any_json() -> impl Strategy<Value = String> {
    scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec((space(), inner.clone(), space()), 0..4)
                .prop_map(|items| format!("[{}]", join(items.into_iter().map(|(a, v, b)| a + &v + &b)))),
            vec((string(), space(), inner), 0..4)
                .prop_map(|items| format!("{{{}}}", join(items.into_iter().map(|(k, s, v)| k + ":" + &s + &v)))),
        ]
    })
}

fn join(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

fn dimensions() -> impl Strategy<Value = String> {
    vec((string(), scalar()), 0..6)
        .prop_map(|items| format!("{{{}}}", join(items.into_iter().map(|(k, v)| k + ":" + &v))))
}

fn member() -> impl Strategy<Value = (&'static str, String)> {
    let of = |name: &'static str, value: BoxedStrategy<String>| value.prop_map(move |value| (name, value)).boxed();
    prop_oneof![
        4 => of("type", string().boxed()),
        2 => of("eventId", string().boxed()),
        2 => of("session", string().boxed()),
        2 => of("occurredAt", time().boxed()),
        2 => of("seq", "[0-9]{1,20}".boxed()),
        2 => of("delta", "-?[0-9]{1,19}".boxed()),
        3 => of("dimensions", dimensions().boxed()),
        3 => of("payload", any_json().boxed()),
        1 => (prop::sample::select(&["type", "seq", "delta", "session", "dimensions", "occurredAt", "Type", ""][..]), any_json()),
    ]
}

prop_compose! {
    fn object()(members in vec((member(), any::<u64>(), [space(), space(), space(), space()]), 0..9)) -> String {
        let member = |((name, value), bits, [a, b, c, d]): ((&str, String), u64, [String; 4])| {
            // Most names are written plainly, as clients do.
            let name = if bits % 8 == 0 { quoted(name, bits) } else { format!("\"{name}\"") };
            a + &name + &b + ":" + &c + &value + &d
        };
        format!("{{{}}}", join(members.into_iter().map(member)))
    }
}

prop_compose! {
    /// An object whose fields are all of the right kind and occur once: nearly always a good event.
    fn good_object()(
        mut members in vec(member(), 0..9), event_type in "[a-z.]{1,9}", spaces in vec(space(), 12),
    ) -> String {
        members.retain(|(name, value)| oracle(&format!("{{\"type\":\"t\",\"{name}\":{value}}}")).is_some());
        members.push(("type", format!("\"{event_type}\"")));
        members.sort_by_key(|(name, _)| *name);
        members.dedup_by_key(|(name, _)| *name);
        let spaced = members.iter().zip(&spaces).map(|((name, value), space)| format!("{space}\"{name}\"{space}:{value}{space}"));
        format!("{{{}}}", join(spaced))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_event_is_accepted_iff_serde_json_and_the_rules_accept_it(text in object()) {
        check(&text)?;
    }

    #[test]
    fn a_good_event_is_accepted_with_its_values(text in good_object()) {
        prop_assert!(parse(&text, 7).is_ok(), "{}: {:?}", text, parse(&text, 7));
        check(&text)?;
        if let Some(read) = read_by_layout(&text, &text) {
            prop_assert_eq!(Some(read), oracle(&text), "{}", text);
        }
    }

    #[test]
    fn a_changed_byte_changes_the_verdict_as_it_does_in_serde_json(
        text in good_object(), changes in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut bytes = text.clone().into_bytes();
        for (index, byte, how) in changes {
            let at = index.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, b"{}[]\",:\\ 0-."[byte as usize % 12]),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        if let Ok(changed) = std::str::from_utf8(&bytes) {
            check(changed)?;
            if let Some(read) = read_by_layout(&text, changed) {
                prop_assert_eq!(Some(read), oracle(changed), "{} by the layout of {}", changed, text);
            }
        }
    }

    #[test]
    fn any_text_at_all_is_an_event_or_an_error(text in ".{0,200}") {
        check(&text)?;
    }
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = parse(text, 7).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.len() < 500, "{error}");
}

#[test]
fn every_field_is_read() {
    let text = r#"{"eventId":"e1","type":"video.viewed","occurredAt":"2026-11-15T18:00:00Z","session":"s1","seq":7,"delta":-3,
        "dimensions":{"video":"v42","n":1.0,"live":true},"payload":{"a":[1, 2]}}"#;
    let event = parse(text, 99).unwrap();
    let expected = Event {
        event_id: Some("e1".into()),
        occurred_at_ms: Some(1_794_765_600_000),
        session: Some("s1".into()),
        seq: Some(7),
        delta: -3,
        dimensions: vec![("video".into(), "v42".into()), ("n".into(), "1".into()), ("live".into(), "true".into())],
        payload: Some(r#"{"a":[1, 2]}"#),
        ..Event::new("video.viewed", 99)
    };
    assert_eq!(event, expected);
    assert_eq!(event.dimension("live"), Some("true"));
    assert!(matches!(event.session, Some(Cow::Borrowed(_))), "nothing is copied without need");
}

#[test]
fn errors_name_the_field_the_value_and_the_fix() {
    refused(
        r#"{"type":"t","seq":"abc"}"#,
        r#"field "seq": "abc" is not a whole number from 0 to 18446744073709551615"#,
    );
    refused(r#"{"type":"t","seq":-1}"#, r#"field "seq": -1 is not a whole number"#);
    refused(r#"{"type":"t","seq":18446744073709551616}"#, r#"field "seq": 18446744073709551616 is not a whole number"#);
    refused(
        r#"{"type":"t","delta":1.5}"#,
        r#"field "delta": 1.5 is not a whole number from -2147483648 to 2147483648"#,
    );
    refused(r#"{"type":"t","delta":null}"#, r#"field "delta": null is not a whole number"#);
    refused(r#"{"type":7}"#, r#"field "type": 7 is not text"#);
    refused(r#"{"type":""}"#, r#"field "type": "" is empty"#);
    refused(r#"{"seq":1}"#, r#"field "type": missing"#);
    refused("{}", r#"field "type": missing"#);
    refused(r#"{"type":"t","occurredAt":"yesterday"}"#, r#"field "occurredAt": "yesterday" is not an RFC 3339 time"#);
    refused(r#"{"type":"t","occurredAt":1794765600}"#, r#"field "occurredAt": 1794765600 is not an RFC 3339 time"#);
    refused(r#"{"type":"t","dimensions":[]}"#, r#"field "dimensions": [] is not an object"#);
    refused(
        r#"{"type":"t","dimensions":{"video":null}}"#,
        r#"field "dimensions.video": null is not text, a number, true or false"#,
    );
    refused(r#"{"type":"t","dimensions":{"video":["v"]}}"#, r#"field "dimensions.video": ["v"] is not text"#);
    refused(r#"{"type":"t","dimensions":{"a":"1","a":"2"}}"#, r#"field "dimensions.a": given twice"#);
    refused(r#"{"type":"t","type":"t"}"#, r#"field "type": given twice"#);
    refused(r#"{"type":"t","sesion":"s"}"#, r#"field "sesion": not a field of an event"#);
    refused(r#"{"type":"t","user":{"id":1}}"#, r#"put your own data under "payload""#);
    refused("42", "expected an object, {…}, found \"42\"");
    refused(r#"{"type":"t"} {}"#, "expected nothing behind the event");
    refused("{\"type\":\"a\nb\"}", "expected no control character in a string");
    refused(r#"{"type":"\ud800"}"#, "expected a pair of surrogates");
    refused(r#"{"type":"t""#, "expected ',' or '}', found the end");
}

#[test]
fn what_is_not_json_is_refused_even_where_it_looks_like_a_number() {
    for value in
        ["NaN", "Infinity", "-Infinity", "01", "+1", "1.", ".5", "1e", "0x10", "1_000", "'a'", "undefined", "True"]
    {
        for field in ["seq", "delta", "payload", "type"] {
            refused(
                &format!("{{\"type\":\"t\",\"{field}\":{value}}}"),
                if field == "type" { "" } else { "not readable at byte" },
            );
        }
        refused(&format!("{{\"type\":\"t\",\"dimensions\":{{\"d\":{value}}}}}"), "not readable at byte");
    }
}

#[test]
fn sizes_and_depths_are_bounded() {
    let digits = "9".repeat(100_000);
    refused(&format!("{{\"type\":\"t\",\"seq\":{digits}}}"), "…");
    refused(&format!("{{\"type\":\"t\",\"dimensions\":{{\"d\":{digits}}}}}"), "field \"dimensions.d\": 9999");
    refused(&format!("{{\"type\":\"t\",\"payload\":{}", "9".repeat(1_000_000)), "more than 262144 bytes");
    refused(&format!("{{\"type\":\"t\",\"{}\":1}}", "x".repeat(1000)), "…");
    let nested = |depth: usize| format!("{{\"type\":\"t\",\"payload\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&nested(JSON_DEPTH_MAX), 7).is_ok());
    refused(&nested(JSON_DEPTH_MAX + 1), "nested deeper than 64 levels");
    refused(&format!("{{\"type\":\"t\",\"seq\":{}", "[".repeat(100_000)), "nested deeper than 64 levels");
    let many = join((0..=DIMENSIONS_PER_EVENT_MAX).map(|n| format!("\"d{n}\":1")));
    refused(&format!("{{\"type\":\"t\",\"dimensions\":{{{many}}}}}"), "more than 64 of them");
}
