use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// What a sink was told, in words: the type of a good event, or the error.
type Told = Vec<(usize, Result<String, String>)>;

fn read_pieces<'p>(form: Option<Form>, pieces: impl IntoIterator<Item = &'p [u8]>) -> Result<Told, BodyError> {
    let mut told = Told::new();
    let mut sink = |index: usize, event: Result<&Event<'_>, EventError>| {
        told.push((index, event.map(|event| event.event_type.to_string()).map_err(|error| error.to_string())));
    };
    let mut reader = BodyReader::new(form, 7);
    for piece in pieces {
        reader.feed(piece, &mut sink)?;
    }
    let count = reader.finish(&mut sink)?;
    assert_eq!(count, told.len());
    assert!(told.iter().enumerate().all(|(at, (index, _))| at == *index));
    Ok(told)
}

#[track_caller]
fn check(body: impl AsRef<[u8]>, expected: &[Result<&str, &str>]) {
    let told = read_pieces(None, [body.as_ref()]).unwrap();
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for ((_, told), expected) in told.iter().zip(expected) {
        match (told, expected) {
            (Ok(told), Ok(expected)) => assert_eq!(told, expected),
            (Err(told), Err(expected)) => assert!(told.contains(expected), "{told}"),
            _ => panic!("{told:?} is not {expected:?}"),
        }
    }
    let bytewise = read_pieces(None, body.as_ref().chunks(1)).unwrap();
    assert_eq!(bytewise, read_pieces(None, [body.as_ref()]).unwrap());
}

#[test]
fn a_body_is_an_object_an_array_or_lines() {
    check("", &[]);
    check(" \n\r\n ", &[]);
    check(r#"{"type":"a"}"#, &[Ok("a")]);
    check("\n {\n  \"type\": \"a\",\n  \"seq\": 1\n}\n", &[Ok("a")]);
    check("[]", &[]);
    check("[{\"type\":\"a\"},\n\n {\"type\":\"b\"}\n]\n", &[Ok("a"), Ok("b")]);
    check("{\"type\":\"a\"}\n{\"type\":\"b\"}", &[Ok("a"), Ok("b")]);
    check("{\"type\":\"a\"}\r\n\r\n \t\n{\"type\":\"b\"}\r\n", &[Ok("a"), Ok("b")]);
}

#[test]
fn a_bad_event_does_not_stop_the_following_ones() {
    check(
        "{\"type\":\"a\"}\n{\"type\":}\nnonsense\n{\"typ\":1}\n{\"type\":\"b\"}\n",
        &[Ok("a"), Err("expected"), Err("expected an object"), Err("field \"typ\""), Ok("b")],
    );
    check(
        r#"[{"type":"a"},{"type":1},5,null,{"type":"b","x":[{}]},{"type":"c"}]"#,
        &[
            Ok("a"),
            Err("field \"type\": 1"),
            Err("5 is not an event"),
            Err("null is not an event"),
            Err("field \"x\""),
            Ok("c"),
        ],
    );
}

#[test]
fn behind_broken_json_in_an_array_nothing_is_read_and_that_is_said() {
    for (body, reason) in [
        (r#"[{"type":"a"},{"type":oops},{"type":"b"}]"#, "expected"),
        (r#"[{"type":"a"} {"type":"b"}]"#, "expected ',' or ']'"),
        (r#"[{"type":"a"},]"#, "expected a JSON value"),
        (r#"[{"type":"a"}"#, "expected ',' or ']', found the end"),
        (r#"[{"type":"a"}]]"#, "expected the end of the body"),
        ("[{\"type\":\"a\"},{\"type\":\"\u{1}\"}]", "control character"),
    ] {
        check(body, &[Ok("a"), Err(reason)]);
        check(body, &[Ok("a"), Err("; what follows in the body cannot be read")]);
    }
    let deep = format!(r#"[{{"type":"a"}},{}"#, "[".repeat(100_000));
    check(deep, &[Ok("a"), Err("nested deeper than 64 levels")]);
    check("{\n\"type\":\"a\"}{", &[Ok("a"), Err("expected the end of the body")]);
}

#[test]
fn what_is_not_utf8_spoils_its_own_event_only() {
    check(b"{\"type\":\"a\"}\n{\"type\":\"\xff\"}\n{\"type\":\"b\"}", &[Ok("a"), Err("not UTF-8 at byte 9"), Ok("b")]);
    check(b"[{\"type\":\"a\"},{\"type\":\"\xff\"},{\"type\":\"b\"}]", &[Ok("a"), Err("not UTF-8 at byte 23")]);
    check(b"[\xff", &[Err("not UTF-8 at byte 1")]);
    check(b"{\n\xc3", &[Err("not UTF-8 at byte 2")]);
    check(b"\xff", &[Err("not UTF-8 at byte 0")]);
}

#[test]
fn a_line_that_is_too_long_is_refused_without_being_kept() {
    let long = format!("{{\"type\":\"{}\"}}", "x".repeat(3 * EVENT_BYTES_MAX));
    let body = format!("{{\"type\":\"a\"}}\n{long}\n{{\"type\":\"b\"}}\n{long}");
    let told = read_pieces(None, [body.as_bytes()]).unwrap();
    let expected = [Ok("a"), Err("more than 262144 bytes"), Ok("b"), Err("more than 262144 bytes")];
    assert_eq!(told.len(), expected.len());
    for ((_, told), expected) in told.iter().zip(expected) {
        match expected {
            Ok(event_type) => assert_eq!(told.as_deref(), Ok(event_type)),
            Err(reason) => assert!(told.as_ref().unwrap_err().contains(reason)),
        }
    }
    assert_eq!(read_pieces(None, body.as_bytes().chunks(1000)).unwrap(), told);

    let mut reader = BodyReader::new(Some(Form::Lines), 7);
    for piece in long.repeat(20).as_bytes().chunks(4096) {
        reader.feed(piece, &mut |_: usize, _: Result<&Event<'_>, EventError>| {}).unwrap();
        assert!(reader.held.capacity() <= 2 * EVENT_BYTES_MAX);
    }
}

#[test]
fn a_body_of_too_many_bytes_or_events_is_refused_as_a_whole() {
    let piece = vec![b' '; 1024 * 1024];
    let pieces = std::iter::repeat_n(piece.as_slice(), BODY_BYTES_MAX / piece.len() + 1);
    assert_eq!(read_pieces(None, pieces), Err(BodyError::TooLarge));
    for form in ["{}\n".repeat(EVENTS_PER_REQUEST_MAX + 1), format!("[{}0]", "0,".repeat(EVENTS_PER_REQUEST_MAX))] {
        assert_eq!(read_pieces(None, [form.as_bytes()]), Err(BodyError::TooManyEvents));
    }
    assert_eq!(
        read_pieces(None, ["{}\n".repeat(EVENTS_PER_REQUEST_MAX).as_bytes()]).unwrap().len(),
        EVENTS_PER_REQUEST_MAX
    );
}

#[test]
fn a_content_type_may_say_what_the_first_line_does_not() {
    let body: &[u8] = b"{\"type\":\"a\"\n{\"type\":\"b\"}\n";
    let told = read_pieces(Some(Form::Lines), [body]).unwrap();
    assert!(told[0].1.is_err());
    assert_eq!(told[1].1.as_deref(), Ok("b"));
    assert_eq!(read_pieces(None, [body]).unwrap().len(), 1);
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        4 => "\\{\"type\":\"[a-zé😀]{1,20}\"\\}",
        1 => "\\{\"type\":\"[a-z]{0,5}",
        1 => "[ \t\r]{0,3}",
        1 => "\\{\"type\":\"t\",\"x\":1\\}\r",
        1 => "[\\[\\]{}\",:a-z0-9 ]{1,20}",
    ];
    prop_oneof![9 => text.prop_map(String::into_bytes), 1 => vec(any::<u8>(), 0..10)]
}

proptest! {
    #[test]
    fn a_body_means_the_same_however_it_is_cut(
        lines in vec(line(), 0..8), array: bool, cuts in vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let body = if array { [&b"["[..], &lines.join(&b","[..]), b"]"].concat() } else { lines.join(&b'\n') };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &body[cut[0]..cut[1]]);
        prop_assert_eq!(read_pieces(None, pieces), read_pieces(None, [body.as_slice()]));
    }

    #[test]
    fn each_line_is_judged_by_itself(lines in vec(line(), 0..8)) {
        let lines: Vec<Vec<u8>> = lines.into_iter().flat_map(|line| line.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>()).collect();
        let told = read_pieces(Some(Form::Lines), [lines.join(&b'\n').as_slice()]).unwrap();
        let good = lines.iter().filter(|line| std::str::from_utf8(line).is_ok_and(|line| super::super::json::parse(line, 7).is_ok())).count();
        let blank = lines.iter().filter(|line| line.trim_ascii().is_empty()).count();
        prop_assert_eq!(told.iter().filter(|(_, event)| event.is_ok()).count(), good);
        prop_assert_eq!(told.len(), lines.len() - blank);
    }
}
