//! Batches against JSON, and against damage.

use super::*;
use crate::counter::{Declarations, Plan, Stager};
use crate::event::body::{BodyReader, Form};
use crate::event::time::{EARLIEST_MS, LATEST_MS};
use crate::event::{EventError, Shape, json};
use crate::id::CellHasher;
use crate::op::Submission;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use std::sync::Arc;

pub(in crate::event) const ARRIVAL: Arrival = Arrival { log_ms: 1_800_000_000_000, wall_ms: 1_800_000_000_777 };

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: viewed, op: increment}]}
  - {counterName: plain, mode: simple, dimensions: [video, ad], rules: [{on: viewed, op: decrement}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video], rules: [{on: liked, op: increment}]}
  - counterName: bills
    mode: persistent
    dimensions: [ad]
    rules: [{on: shown, op: increment}, {on: viewed, op: increment}]
    idempotency: {requireEventId: true, scope: globalEventId}
";

/// What became of the events, as the frontend tells it and as the log has it.
pub(in crate::event) struct Staged {
    stager: Stager,
    submission: Submission,
    pub said: Vec<(usize, String)>,
}

impl Staged {
    pub fn new() -> Staged {
        let declarations = Arc::new(Declarations::parse(YAML).unwrap());
        let stager = Stager::new(declarations, CellHasher::new(7));
        Staged { stager, submission: Submission::default(), said: Vec::new() }
    }

    pub fn of_lines(text: &str) -> Staged {
        let mut staged = Staged::new();
        let mut reader = BodyReader::new(Some(Form::Lines), ARRIVAL);
        reader.feed(text.as_bytes(), &mut staged).unwrap();
        reader.finish(&mut staged).unwrap();
        staged
    }

    fn of_batch(batch: &[u8]) -> Result<Staged, BatchError> {
        let mut staged = Staged::new();
        read(batch, ARRIVAL, &mut staged)?;
        Ok(staged)
    }

    #[track_caller]
    pub fn assert_same(&self, other: &Staged) {
        assert_eq!(self.said, other.said);
        assert_eq!(self.submission.records, other.submission.records);
        assert_eq!(self.submission.ops, other.submission.ops);
        assert_eq!(self.submission.stamps, other.submission.stamps);
    }
}

impl Sink for Staged {
    type Plan = Plan;

    fn plan(&mut self, shape: &Shape, event_type: &str) -> Plan {
        self.stager.plan(shape, event_type)
    }

    fn line(&mut self, index: usize, line: &Line<'_>, plan: &Plan) {
        let Staged { stager, submission, said } = self;
        let at = submission.line(line);
        stager.stage_line(line, plan, at, submission, &mut |_, rejection| said.push((index, rejection.to_string())));
    }

    fn event(&mut self, index: usize, event: Result<&Event<'_>, EventError>) {
        let Staged { stager, submission, said } = self;
        match event {
            Ok(event) => {
                let at = submission.event(event);
                stager.stage(event, at, submission, &mut |_, rejection| said.push((index, rejection.to_string())));
            }
            Err(error) => said.push((index, error.to_string())),
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-c]{1,2}", 1 => ".{1,300}"]
}

prop_compose! {
    pub(in crate::event) fn any_event()(
        event_type in prop_oneof![4 => "viewed|liked|shown", 1 => text()],
        event_id in of(text()),
        occurred_at_ms in of(prop_oneof![Just(1_799_999_999_123_i64), 1_799_999_990_000_i64..1_800_000_000_900, EARLIEST_MS..LATEST_MS]),
        session in of(text()),
        seq in of(prop_oneof![0..300_u64, any::<u64>()]),
        delta in of(prop_oneof![Just(1), -3..3_i64, -(1_i64 << 31)..=(1 << 31)]),
        names in proptest::collection::btree_set(prop_oneof![6 => "video|user|ad|", 1 => ".{0,50}"], 0..5),
        values in vec(prop_oneof![8 => "[a-d]{0,2}", 1 => ".{0,70}"], 5),
        payload in of(prop_oneof![Just("{}".to_owned()), Just(r#"{"a":[1,2.5,"x\n"],"b":null}"#.to_owned()), "1[0-9]{1,3}"]),
    ) -> String {
        let mut event = serde_json::Map::new();
        event.insert("type".into(), event_type.into());
        event_id.map(|id| event.insert("eventId".into(), id.into()));
        let at = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string();
        occurred_at_ms.map(|ms| event.insert("occurredAt".into(), at(ms).into()));
        session.map(|session| event.insert("session".into(), session.into()));
        seq.map(|seq| event.insert("seq".into(), seq.into()));
        delta.map(|delta| event.insert("delta".into(), delta.into()));
        if !names.is_empty() {
            let dimensions: serde_json::Map<_, _> = names.into_iter().zip(values.into_iter().map(Into::into)).collect();
            event.insert("dimensions".into(), dimensions.into());
        }
        payload.map(|payload| event.insert("payload".into(), serde_json::from_str(&payload).expect("JSON")));
        serde_json::Value::Object(event).to_string()
    }
}

fn batch_of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut encoder = Encoder::new();
    for line in lines {
        push(&json::parse(line, 0).unwrap(), &mut encoder).unwrap();
    }
    encoder.finish().unwrap()
}

/// The header of a batch whose content was changed.
fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let content_bytes = (batch.len() - HEADER_BYTES) as u32;
    batch[8..12].copy_from_slice(&content_bytes.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&batch[..12]);
    hasher.update(&batch[HEADER_BYTES..]);
    batch[12..16].copy_from_slice(&hasher.finalize().to_le_bytes());
    batch
}

proptest! {
    #[test]
    fn an_event_ends_in_the_same_bytes_and_entries_however_it_came(events in vec(any_event(), 1..40)) {
        let lines = events.join("\n");
        let batch = batch_of(events.iter().map(String::as_str));
        Staged::of_batch(&batch).unwrap().assert_same(&Staged::of_lines(&lines));
    }

    #[test]
    fn whatever_is_damaged_is_noticed(events in vec(any_event(), 1..10), at in any::<prop::sample::Index>(), bits in 1..=255_u8, cut in any::<prop::sample::Index>()) {
        let batch = batch_of(events.iter().map(String::as_str));
        let mut damaged = batch.clone();
        damaged[at.index(batch.len())] ^= bits;
        prop_assert!(Staged::of_batch(&damaged).is_err());
        prop_assert!(Staged::of_batch(&batch[..cut.index(batch.len())]).is_err());
        prop_assert!(Staged::of_batch(&[batch.as_slice(), b"x"].concat()).is_err());
    }

    #[test]
    fn what_a_wrong_encoder_seals_is_refused_or_read_whole(
        events in vec(any_event(), 1..10), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut batch = batch_of(events.iter().map(String::as_str));
        for (at, byte) in changes {
            let at = HEADER_BYTES + at.index(batch.len() - HEADER_BYTES);
            batch[at] = byte;
        }
        let mut told = Vec::new();
        let mut count = |index: usize, _: Result<&Event<'_>, EventError>| told.push(index);
        if let Ok(events) = read(&sealed(batch), ARRIVAL, &mut count) {
            prop_assert!(told.into_iter().eq(0..events));
        }
    }

    #[test]
    fn strange_bytes_are_an_error_not_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Staged::of_batch(&made(&bytes));
        prop_assert!(Staged::of_batch(&bytes).is_err());
    }
}

/// A batch with these contents.
fn made(content: &[u8]) -> Vec<u8> {
    sealed([b"TLYB\x01\0\0\0\0\0\0\0\0\0\0\0".as_slice(), content].concat())
}

/// One text, one shape with these fields, one event with this record.
fn one(fields: u8, record: &[u8]) -> Vec<u8> {
    made(&[b"\x00\x01\x06viewed\x01\x00".as_slice(), &[fields, 1], record].concat())
}

#[track_caller]
fn refused(batch: &[u8]) -> String {
    match Staged::of_batch(batch) {
        Ok(staged) => panic!("{:?}", staged.said),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_bytes_of_a_batch_are_pinned() {
    let batch = batch_of([
        r#"{"type":"viewed","eventId":"e1","occurredAt":"1970-01-01T00:00:01Z","session":"s1","seq":300,"delta":-2,"dimensions":{"video":"v42"},"payload":{}}"#,
        r#"{"type":"viewed","eventId":"e2","occurredAt":"1970-01-01T00:00:01.001Z","session":"s1","seq":301,"delta":-2,"dimensions":{"video":"v7"},"payload":{}}"#,
        r#"{"type":"t"}"#,
    ]);
    let expected = [
        b"TLYB\x01\0\0\0\x3f\0\0\0".as_slice(),
        b"\xed\x05\xd5\x1d",
        b"\xd0\x0f",
        b"\x04\x06viewed\x05video\x02s1\x01t",
        b"\x02\x00\x7f\x01\x01\x03\x00",
        b"\x03",
        b"\x00\x04e1\x00\x04s1\xac\x02\x03\x06v42\x04{}",
        b"\x00\x04e2\x02\x05\xad\x02\x03\x04v7\x04{}",
        b"\x01",
    ];
    assert_eq!(batch, expected.concat());
}

#[test]
fn what_is_wrong_with_a_batch_is_named() {
    let good = batch_of([r#"{"type":"viewed","session":"s"}"#]);
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        refused(&bad)
    };
    for (said, named) in [
        (refused(b""), "should have 16 bytes"),
        (refused(b"{\"type\":\"viewed\"}"), "no batch"),
        (with(0, b'x'), "no batch"),
        (with(4, 2), "version is 2"),
        (with(6, 1), "have to be 0"),
        (with(8, 1), "should have 17 bytes"),
        (with(11, 255), "are allowed"),
        (with(12, 0), "checksum"),
        (with(20, 0), "checksum"),
        (refused(&one(0, b"")), "the events, at byte 29 of the batch: the batch ends too early"),
        (
            refused(&one(4, b"\x00")),
            "event 0, which begins at byte 29, at byte 30 of the batch: the batch ends too early",
        ),
        (refused(&one(0, b"\x01")), "no shape"),
        (refused(&one(0, b"\x00\x00")), "1 bytes follow"),
        (refused(&one(4, b"\x00\x03")), "no text"),
        (refused(&one(4, b"\x00\xfe")), "ends too early"),
        (refused(&one(4, b"\x00\x08abc")), "ends too early"),
        (refused(&one(8, &[[0].as_slice(), &[0xff; 11]].concat())), "more than 64 bits"),
        (refused(&one(128, b"\x00")), "shape 0, at byte 26 of the batch: the fields have a bit that is reserved"),
        (refused(&made(b"\x00\x02\x01a\x01\xff")), "text 1, at byte 20 of the batch: the text is not UTF-8"),
        (refused(&made(b"\x00\x01\x01a\x01\x05\x00\x00")), "no text"),
        (refused(&made(b"\x00\x01\x01a\x01\x00\x20\x02\x00\x00\x00")), "given twice"),
        (refused(&made(b"\x00\x01\x01a\x01\x00\x20\x00\x00")), "or none"),
        (refused(&made(b"\x00\x01\x01a\x01\x00\x20\x41\x00")), "more than 64 dimensions"),
        (refused(&made(b"\x00\x81\x80\x04")), "more than 65536 texts"),
        (refused(&made(b"\x00\x00\x81\x02")), "more than 256 shapes"),
        (refused(&made(b"\x00\x00\x00\xa1\x8d\x06")), "100001 events"),
    ] {
        assert!(said.contains(named), "{said:?} does not say {named:?}");
    }
    assert!(Staged::of_batch(&good).is_ok());
}

#[test]
fn a_value_that_an_event_cannot_have_is_its_own_fault_alone() {
    let content = [
        b"\x00\x02\x06viewed\x00\x02".as_slice(),
        // All fields but dimensions; and no type at all.
        b"\x00\x5f\x01\x00\x08",
        b"\x04e1\x00\x04s1\x00\x02\x04{}",
        b"\x00\x00\x04s1\x00\x02\x04{}",
        b"\x04e1\x00\x04\xffs\x00\x02\x04{}",
        b"\x04e1\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x04s1\x00\x02\x04{}",
        b"\x04e1\x00\x04s1\x00\x82\x80\x80\x80\x10\x04{}",
        b"\x04e1\x00\x04s1\x00\x02\x06{}}",
        b"\x04e1\x00\x04s1\x00\x02\x08 {} ",
    ];
    let mut records: Vec<u8> = content[..2].concat();
    for record in &content[2..] {
        records.push(0);
        records.extend_from_slice(record);
    }
    records.push(1);
    let staged = Staged::of_batch(&made(&records)).unwrap();
    let errors: Vec<_> = staged.said.iter().filter(|(_, said)| said.starts_with("field")).collect();
    let expected = [
        (1, r#"field "eventId": "" is empty"#),
        (2, r#"field "session": not UTF-8 at byte 0"#),
        (3, r#"field "occurredAt": -9223372036854775808 is not a time"#),
        (4, r#"field "delta": 2147483649 is not a whole number from -2147483648 to 2147483648"#),
        (5, r#"field "payload": not readable at byte 2: expected nothing behind"#),
        (7, r#"field "type": "" is empty"#),
    ];
    assert_eq!(errors.len(), expected.len(), "{errors:?}");
    for ((index, said), (expected_index, beginning)) in errors.iter().zip(expected) {
        assert!(*index == expected_index && said.starts_with(beginning), "{index}: {said}");
    }
    let line =
        r#"{"type":"viewed","eventId":"e1","occurredAt":"1970-01-01T00:00:00Z","session":"s1","seq":0,"payload":{}}"#;
    let twice = Staged::of_lines(&format!("{line}\n{line}"));
    assert_eq!(
        staged.submission.records, twice.submission.records,
        "the first and the one with blanks around its payload"
    );
}
