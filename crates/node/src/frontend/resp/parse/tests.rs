use super::*;
use proptest::prelude::*;

type Words = Vec<Vec<u8>>;

/// Feeds `stream` in pieces that end at `cuts`, as a connection does, and collects the commands.
fn parse_in_pieces(stream: &[u8], cuts: &[usize], allowance: Allowance) -> (Vec<Words>, Option<ProtocolError>) {
    let mut parser = Parser::default();
    let (mut commands, mut start) = (Vec::new(), 0);
    for &end in cuts.iter().chain([&stream.len()]) {
        loop {
            let input = &stream[start..end];
            match parser.step(input, allowance) {
                Ok(ParseStep::Incomplete) => break,
                Ok(ParseStep::Nothing(len)) => start += len,
                Ok(ParseStep::Command(len)) => {
                    commands.push(parser.args(input).from(0).map(<[u8]>::to_vec).collect());
                    start += len;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn parse(stream: &[u8]) -> (Vec<Words>, Option<ProtocolError>) {
    parse_in_pieces(stream, &[], Allowance::new(true))
}

fn encode(command: &Words) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn words(text: &[&str]) -> Words {
    text.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn check_error(stream: &[u8], expected: ProtocolError) {
    assert_eq!(parse(stream).1, Some(expected), "{}", String::from_utf8_lossy(&stream[..stream.len().min(80)]));
}

#[test]
fn arrays_inline_commands_and_empty_ones_mix_freely() {
    let stream = b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\nGET a\r\n\r\n*0\r\n*-1\r\nset b '1'\n*1\r\n$0\r\n\r\n";
    let expected = vec![words(&["INCR", "a"]), words(&["GET", "a"]), words(&["set", "b", "1"]), words(&[""])];
    assert_eq!(parse(stream), (expected, None));
}

#[test]
fn every_cut_of_a_stream_gives_the_same_commands() {
    let stream = b"*2\r\n$4\r\nINCR\r\n$12\r\nviews:000001\r\nECHO \"a b\"\r\n*0\r\n*3\r\n$3\r\nSET\r\n$1\r\n\r\r\n$1\r\n5\r\nPING\n";
    let whole = parse(stream);
    assert_eq!(whole.0.len(), 4);
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            assert_eq!(parse_in_pieces(stream, &[first, second], Allowance::new(true)), whole, "{first} {second}");
        }
    }
    let every_byte: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(parse_in_pieces(stream, &every_byte, Allowance::new(true)), whole);
}

#[test]
fn a_glance_sees_what_a_step_sees_or_nothing() {
    for name in ["INCR", "incr", "iNcR", "DECR", "INC", "INCRBY", "\u{9}NCR"] {
        for id in ["", "a", "views:42", &"k".repeat(99), &"k".repeat(100), &"k".repeat(4096)] {
            let stream = [encode(&words(&[name, id])), b"*1".to_vec()].concat();
            let end = stream.len() - 2;
            for len in 0..=stream.len() {
                let seen = Parser::default().glance(&stream[..len]);
                let recognisable = name.eq_ignore_ascii_case("INCR") && id.len() < 100 && len >= end;
                assert_eq!(seen, recognisable.then_some((id.as_bytes(), end)), "{name} {id} {len}");
            }
        }
    }
    let mut parser = Parser::default();
    let stream = encode(&words(&["ECHO", "*2\r\n$4\r\nINCR\r\n$1\r\na\r\n"]));
    assert_eq!(parser.step(&stream[..20], Allowance::new(true)), Ok(ParseStep::Incomplete));
    assert_eq!(parser.glance(&encode(&words(&["INCR", "a"]))), None, "an unfinished command comes first");
}

#[test]
fn a_truncated_stream_is_waited_for() {
    let stream = encode(&words(&["INCRBY", "a", "5"]));
    for len in 0..stream.len() {
        assert_eq!(parse(&stream[..len]), (vec![], None), "{len}");
    }
}

#[test]
fn impossible_lengths_are_errors_in_redis_words() {
    use ProtocolError::*;
    for count in ["*1048577", "*9999999999", "*99999999999999999999", "*abc", "*", "*+1", "*01", "*1 "] {
        check_error(format!("{count}\r\n").as_bytes(), InvalidMultibulkLength);
    }
    for len in ["$-1", "$-2", "$abc", "$", "$1048577", "$99999999999999999999", "$+1", "$01"] {
        check_error(format!("*1\r\n{len}\r\n").as_bytes(), InvalidBulkLength);
    }
    check_error(b"*1\r\n:5\r\n", ExpectedBulk(b':'));
    check_error(b"*2\r\n$1\r\na\r\n*1\r\n", ExpectedBulk(b'*'));
    check_error(b"SET a \"b\r\n", UnbalancedQuotes);
    assert_eq!(ExpectedBulk(b':').to_string(), "expected '$', got ':'");
}

#[test]
fn endless_lines_are_errors_before_they_end() {
    use ProtocolError::*;
    let digits = "1".repeat(limits::RESP_INLINE_BYTES_MAX + 1);
    check_error(digits.as_bytes(), TooBigInline);
    check_error(format!("*{digits}").as_bytes(), TooBigCountLine);
    check_error(format!("*1\r\n${digits}").as_bytes(), TooBigLengthLine);
}

#[test]
fn strangers_may_send_little() {
    let stranger = |stream: &[u8]| parse_in_pieces(stream, &[], Allowance::new(false)).1;
    assert_eq!(stranger(b"*11\r\n"), Some(ProtocolError::StrangersMultibulkLength));
    assert_eq!(stranger(b"*10\r\n"), None);
    assert_eq!(stranger(b"*1\r\n$16385\r\n"), Some(ProtocolError::StrangersBulkLength));
    assert_eq!(stranger(b"*1\r\n$16384\r\n"), None);
    assert_eq!(stranger(b"*9999999999\r\n"), Some(ProtocolError::InvalidMultibulkLength));
}

#[test]
fn a_million_arguments_in_small_pieces_are_read_once() {
    let command: Words = std::iter::repeat_n(b"k".to_vec(), 1_000_000).collect();
    let stream = encode(&command);
    let cuts: Vec<usize> = (0..stream.len()).step_by(100).collect();
    let (commands, error) = parse_in_pieces(&stream, &cuts, Allowance::new(true));
    assert_eq!((commands.len(), error), (1, None));
    assert_eq!(commands[0].len(), 1_000_000);
}

proptest! {
    #[test]
    fn commands_survive_any_cutting(
        commands in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..6), 0..6),
        mut cuts in proptest::collection::vec(0usize..400, 0..8),
    ) {
        let stream: Vec<u8> = commands.iter().flat_map(encode).collect();
        cuts.retain(|cut| *cut <= stream.len());
        cuts.sort_unstable();
        prop_assert_eq!(parse_in_pieces(&stream, &cuts, Allowance::new(true)), (commands, None));
    }

    #[test]
    fn strange_bytes_never_panic_and_cutting_them_changes_nothing(
        stream in proptest::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), any::<u8>()], 0..80),
        cut in 0usize..80,
    ) {
        let cut = cut.min(stream.len());
        prop_assert_eq!(parse_in_pieces(&stream, &[cut], Allowance::new(true)), parse(&stream));
    }
}
