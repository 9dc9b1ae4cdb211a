//! Records survive their bytes, which are pinned.

use super::*;
use proptest::prelude::*;

fn check(record: Record<'_>) {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    let mut rest = bytes.as_slice();
    assert_eq!(Record::decode(&mut rest).unwrap(), record);
    assert!(rest.is_empty(), "{record:?} left {rest:?}");
    for cut in 0..bytes.len() {
        assert!(Record::decode(&mut &bytes[..cut]).is_err(), "{record:?} cut at {cut}");
    }
}

proptest! {
    #[test]
    fn a_record_survives_its_bytes(name in proptest::collection::vec(any::<u8>(), 0..40), n: i64, at_ms: u64, version: u64) {
        let name = name.as_slice();
        check(Record::Add { name, delta: n });
        check(Record::Add { name, delta: 1 });
        check(Record::Delete { name });
        check(Record::Persist { name });
        check(Record::Config { version, yaml: name });
        check(Record::AddOnce { name, id: b"once", delta: n });
        check(Record::AddMany { name, deltas: Additions::Same { delta: n, times: 1 + (version % 1_000) as u32 } });
        check(Record::AddMany { name, deltas: Additions::Each(&crate::combined::encode_each(&[n, 1, -n.max(-7)])) });
        check(Record::Propose(name));
        check(Record::Withdraw { number: version });
        check(Record::Correct(name));
        check(Record::Once { id: name, content: at_ms, number: version });
        check(Record::Remedy(name));
        check(Record::Part(name));
        check(Record::RepeatsFull);
        check(Record::FlushDatabase { database: 1 + (version % 15) as u8, space: (version >> 16).max(1) });
        for manner in
            [CopyManner::IfAbsent, CopyManner::Replace, CopyManner::MoveIfAbsent, CopyManner::MoveReplace]
        {
            check(Record::Copy { from: name, to: b"other", manner });
        }
        let mut bytes = Vec::new();
        encode_pair(name, n, &mut bytes);
        encode_pair(b"other", 1, &mut bytes);
        check(Record::SetNew(&bytes));
        prop_assert_eq!(pairs(&bytes).collect::<Vec<_>>(), vec![(name, n), (&b"other"[..], 1)]);
        for expiry in [Expiry::Clear, Expiry::Keep, Expiry::At(at_ms)] {
            for condition in [SetCondition::Always, SetCondition::IfAbsent, SetCondition::IfPresent] {
                check(Record::Set { name, value: n, condition, expiry });
            }
        }
        use ExpireCondition::*;
        for condition in [Always, IfNone, IfSome, IfGreater, IfLess, IfSomeAndGreater, IfSomeAndLess] {
            check(Record::Expire { name, at_ms, condition });
        }
    }

    #[test]
    fn strange_bytes_are_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Record::decode(&mut bytes.as_slice());
    }
}

#[test]
fn the_bytes_of_what_earlier_versions_said_about_the_past_are_pinned() {
    let mut bytes = Vec::new();
    Record::Propose(b"p").encode(&mut bytes);
    Record::Withdraw { number: 300 }.encode(&mut bytes);
    Record::Correct(b"c").encode(&mut bytes);
    assert_eq!(bytes, b"\x0c\x01p\x0d\xac\x02\x0e\x01c");
}

#[test]
fn the_bytes_of_an_increment_are_pinned() {
    let mut bytes = Vec::new();
    Record::Add { name: b"v:1", delta: 1 }.encode(&mut bytes);
    Record::Add { name: b"v:1", delta: -2 }.encode(&mut bytes);
    Record::Flush.encode(&mut bytes);
    Record::Tick.encode(&mut bytes);
    Record::AddOnce { name: b"v:1", id: b"k", delta: 2 }.encode(&mut bytes);
    Record::Once { id: b"k", content: 300, number: 7 }.encode(&mut bytes);
    Record::FlushDatabase { database: 3, space: 300 }.encode(&mut bytes);
    Record::Copy { from: b"a", to: b"b", manner: CopyManner::MoveReplace }.encode(&mut bytes);
    Record::SetNew(b"\x01a\x02").encode(&mut bytes);
    Record::AddMany { name: b"a", deltas: Additions::Same { delta: -2, times: 300 } }.encode(&mut bytes);
    Record::AddMany { name: b"a", deltas: Additions::Each(b"\x02\x03") }.encode(&mut bytes);
    Record::Part(b"\x07").encode(&mut bytes);
    Record::Remedy(b"\x00").encode(&mut bytes);
    assert_eq!(
        bytes,
        b"\x02\x03v:1\x01\x03v:1\x03\x07\x08\x0b\x03v:1\x01k\x04\x0f\x01k\xac\x02\x07\x10\x03\xac\x02\x12\x01a\x01b\x03\x13\x03\x01a\x02\x15\x01a\xac\x02\x03\x16\x01a\x02\x02\x03\x21\x01\x07\x20\x01\x00"
    );
}

#[test]
fn nothing_combined_and_too_much_combined_are_refused() {
    for bytes in [&b"\x15\x01a\x00\x02"[..], b"\x15\x01a\x81\x80\x40\x02", b"\x16\x01a\x00"] {
        assert!(matches!(Record::decode(&mut &bytes[..]), Err(DecodeError::BadValue { .. })), "{bytes:x?}");
    }
}
