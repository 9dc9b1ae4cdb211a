//! Bad clients: whatever they do, they get a clear error or are shown the door, and everybody else is served on.

use crate::servers::{Settings, Tally};
use crate::wire::{Wire, encode};
use std::collections::BTreeSet;
use tally_core::limits;

/// Runs `misbehave` against a fresh server and checks that the server still counts, for old clients and new ones.
fn survives(misbehave: impl FnOnce(&mut Wire, &Tally)) {
    let tally = Tally::start(&Settings::default());
    let mut witness = Wire::connect(tally.address());
    assert_eq!(witness.command(&[b"INCR", b"witness"]), [b":1"]);
    let mut bad = Wire::connect(tally.address());
    misbehave(&mut bad, &tally);
    assert_eq!(witness.command(&[b"INCR", b"witness"]), [b":2"]);
    assert_eq!(Wire::connect(tally.address()).command(&[b"INCR", b"witness"]), [b":3"]);
    drop(bad);
    tally.stop();
}

fn is_error(reply: &[Vec<u8>]) -> bool {
    reply[0].starts_with(b"-ERR")
}

#[test]
fn a_frame_that_is_cut_off_anywhere_is_forgotten() {
    let frame = encode(&[b"INCRBY", b"cut", b"5"]);
    survives(|_, tally| {
        for len in 0..frame.len() {
            let mut wire = Wire::connect(tally.address());
            wire.send(&frame[..len]);
            wire.finish();
            assert_eq!(wire.reply(), None, "{len} bytes are no command");
        }
        assert_eq!(Wire::connect(tally.address()).command(&[b"EXISTS", b"cut"]), [b":0"]);
    });
}

#[test]
fn a_frame_byte_by_byte_is_a_frame() {
    survives(|wire, _| {
        for byte in [encode(&[b"INCRBY", b"slow", b"5"]), encode(&[b"GET", b"slow"])].concat() {
            wire.send(&[byte]);
        }
        assert_eq!(wire.reply().unwrap(), [b":5"]);
        assert_eq!(wire.reply().unwrap(), [&b"$1"[..], b"5"]);
    });
}

#[test]
fn huge_lengths_are_refused_before_anything_is_set_aside_for_them() {
    for frame in ["*2147483647\r\n", "*1\r\n$2147483647\r\n", "*1048577\r\n", "*1\r\n$1048577\r\n"] {
        survives(|wire, _| {
            wire.send(frame.as_bytes());
            assert!(wire.reply().unwrap()[0].starts_with(b"-ERR Protocol error: invalid"), "{frame:?}");
            assert_eq!(wire.reply(), None, "{frame:?} must close the connection");
        });
    }
}

#[test]
fn a_command_that_never_ends_is_ended() {
    survives(|wire, _| {
        let argument = vec![b'x'; 1 << 20];
        wire.send(b"*1000\r\n$4\r\nMGET\r\n");
        for _ in 0..limits::RESP_QUERY_BYTES_MAX / argument.len() + 2 {
            wire.send(&[format!("${}\r\n", argument.len()).as_bytes(), &argument, b"\r\n"].concat());
        }
        let reply = wire.reply();
        assert!(reply.is_none_or(|reply| reply[0].starts_with(b"-ERR Protocol error: too big request")));
        assert_eq!(wire.reply(), None);
    });
}

#[test]
fn a_line_that_never_ends_is_ended() {
    for start in ["", "*", "*1\r\n$"] {
        survives(|wire, _| {
            wire.send(start.as_bytes());
            wire.send(&vec![b'7'; limits::RESP_INLINE_BYTES_MAX + 1]);
            assert!(wire.reply().unwrap()[0].starts_with(b"-ERR Protocol error: too big"), "{start:?}");
            assert_eq!(wire.reply(), None);
        });
    }
}

#[test]
fn a_number_of_a_million_digits_is_no_number() {
    survives(|wire, _| {
        let digits = vec![b'7'; 1_000_000];
        assert!(is_error(&wire.command(&[b"INCRBY", b"a", &digits])));
        assert!(is_error(&wire.command(&[b"SET", b"a", &digits])));
        assert!(is_error(&wire.command(&[b"EXPIRE", b"a", &digits])));
        assert!(is_error(&wire.command(&[b"SCAN", &digits])));
        assert_eq!(wire.command(&[b"EXISTS", b"a"]), [b":0"]);
    });
}

#[test]
fn what_is_not_a_number_is_refused_whatever_it_is() {
    survives(|wire, _| {
        for value in [&b"NaN"[..], b"inf", b"-inf", b"1e9", b"\xff\xfe", b"\x00", b"\r\n", "٣".as_bytes()] {
            assert!(is_error(&wire.command(&[b"INCRBY", b"a", value])));
            assert!(is_error(&wire.command(&[b"SET", b"a", value])));
        }
    });
}

#[test]
fn names_that_are_not_utf8_are_names() {
    survives(|wire, _| {
        assert_eq!(wire.command(&[b"INCR", b"\xff\x00\xfe"]), [b":1"]);
        assert_eq!(wire.command(&[b"KEYS", b"\xff*"]), [&b"*1"[..], b"$3", b"\xff\x00\xfe"]);
    });
}

const ALPHABET: &[u8] = b"*$:\r\n019 INCRGET\"'\\\x00\xff";

#[test]
fn random_bytes_are_answered_or_shown_the_door() {
    survives(|_, tally| {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..200 {
            let mut wire = Wire::connect(tally.address());
            let bytes: Vec<u8> = (0..500)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    ALPHABET[(state >> 33) as usize % ALPHABET.len()]
                })
                .collect();
            wire.send(&bytes);
            wire.finish();
            while wire.reply().is_some() {}
        }
    });
}

#[test]
fn a_pipeline_may_be_written_in_full_before_a_reply_is_read() {
    survives(|wire, _| {
        let commands = 400_000;
        wire.send(&encode(&[b"INCR", b"piped"]).repeat(commands));
        for n in 1..=commands {
            assert_eq!(wire.reply().unwrap(), [format!(":{n}").as_bytes()]);
        }
    });
}

#[test]
fn a_client_that_never_reads_is_shut_out() {
    survives(|wire, _| {
        // More than the server keeps for one client, and what the system buffers beside it.
        let text = vec![b'x'; 1 << 20];
        let echo = encode(&[b"ECHO", &text]);
        for _ in 0..limits::RESP_OUTPUT_BYTES_MAX / text.len() + 64 {
            wire.send(&echo);
        }
        let received = std::iter::from_fn(|| wire.reply()).count();
        assert!(received < limits::RESP_OUTPUT_BYTES_MAX / text.len() + 64, "it was served to the end");
    });
}

#[test]
fn a_command_of_many_arguments_is_one_command() {
    survives(|wire, _| {
        let names: Vec<Vec<u8>> = (0..100_000).map(|n| format!("many:{n}").into_bytes()).collect();
        let with = |command: &'static [u8]| -> Vec<u8> {
            let words: Vec<&[u8]> = std::iter::once(command).chain(names.iter().map(Vec::as_slice)).collect();
            encode(&words)
        };
        wire.send(&names.iter().flat_map(|name| encode(&[b"INCR", name])).collect::<Vec<_>>());
        (0..names.len()).for_each(|_| assert_eq!(wire.reply().unwrap(), [b":1"]));
        wire.send(&with(b"MGET"));
        let values = wire.reply().unwrap();
        assert_eq!(values[0], b"*100000");
        assert!(values[1..].chunks(2).all(|value| value == [&b"$1"[..], b"1"]));
        wire.send(&with(b"EXISTS"));
        assert_eq!(wire.reply().unwrap(), [b":100000"]);
        wire.send(&with(b"DEL"));
        assert_eq!(wire.reply().unwrap(), [b":100000"]);
        wire.send(&with(b"EXISTS"));
        assert_eq!(wire.reply().unwrap(), [b":0"]);
    });
}

#[test]
fn scan_finds_every_name_once_in_steps_of_any_size() {
    survives(|wire, _| {
        let names: BTreeSet<Vec<u8>> = (0..1000).map(|n| format!("scan:{n}").into_bytes()).collect();
        wire.send(&names.iter().flat_map(|name| encode(&[b"INCR", name])).collect::<Vec<_>>());
        (0..names.len()).for_each(|_| drop(wire.reply().unwrap()));
        for count in [&b"1"[..], b"7", b"100", b"100000"] {
            let (mut found, mut cursor) = (Vec::new(), b"0".to_vec());
            loop {
                let reply = wire.command(&[b"SCAN", &cursor, b"MATCH", b"scan:*", b"COUNT", count]);
                found.extend(reply[4..].chunks(2).map(|name| name[1].clone()));
                cursor = reply[2].clone();
                if cursor == b"0" {
                    break;
                }
            }
            assert_eq!(found.len(), names.len());
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
        }
    });
}

#[test]
fn scan_finds_what_stays_while_other_names_are_deleted() {
    survives(|wire, _| {
        let names = |kind: &str, count: usize| -> Vec<Vec<u8>> {
            (0..count).map(|n| format!("{n}:{kind}").into_bytes()).collect()
        };
        let (stay, go) = (names("stay", 100), names("go", 900));
        for deleted_at in [0, 1, 5, 20] {
            for name in stay.iter().chain(&go) {
                wire.send(&encode(&[b"SET", name, b"1"]));
            }
            (0..stay.len() + go.len()).for_each(|_| assert_eq!(wire.reply().unwrap(), [b"+OK"]));
            let (mut found, mut cursor, mut steps) = (BTreeSet::new(), b"0".to_vec(), 0);
            while steps == 0 || cursor != b"0" {
                if steps == deleted_at {
                    let words: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(go.iter().map(Vec::as_slice)).collect();
                    assert_eq!(wire.command(&words), [b":900"]);
                }
                let reply = wire.command(&[b"SCAN", &cursor, b"COUNT", b"10"]);
                found.extend(reply[4..].chunks(2).map(|name| name[1].clone()));
                cursor = reply[2].clone();
                steps += 1;
            }
            assert!(stay.iter().all(|name| found.contains(name)), "deleted at step {deleted_at}");
        }
    });
}

#[test]
fn a_pattern_full_of_stars_does_not_hold_up_the_others() {
    survives(|wire, tally| {
        let name = vec![b'a'; limits::ID_BYTES_MAX];
        (0..50u8).for_each(|n| {
            let name = [&name[1..], &[n]].concat();
            assert_eq!(wire.command(&[b"INCR", &name]), [b":1"]);
        });
        let pattern = [b"a*".repeat(500), b"b".to_vec()].concat();
        wire.send(&encode(&[b"KEYS", &pattern]));
        let mut other = Wire::connect(tally.address());
        (1..=10).for_each(|n| assert_eq!(other.command(&[b"INCR", b"other"]), [format!(":{n}").as_bytes()]));
        assert_eq!(wire.reply().unwrap(), [b"*0"]);
    });
}

#[test]
fn a_stop_answers_what_it_has_counted_and_closes_the_rest() {
    let tally = Tally::start(&Settings::default());
    let mut idle = Wire::connect(tally.address());
    assert_eq!(idle.command(&[b"PING"]), [b"+PONG"]);
    let mut wire = Wire::connect(tally.address());
    wire.send(&encode(&[b"INCR", b"a"]).repeat(100_000));
    assert_eq!(wire.reply().unwrap(), [b":1"]);
    let tally = tally.restart();
    assert_eq!(idle.reply(), None);
    let replies: Vec<_> = std::iter::from_fn(|| wire.reply()).collect();
    let (counted, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply[0].starts_with(b":"));
    assert!(refused.iter().all(|reply| reply[0].starts_with(b"-SHUTDOWN")), "{refused:?}");
    let value = Wire::connect(tally.address()).command(&[b"GET", b"a"]);
    assert_eq!(value[1], (1 + counted.len()).to_string().as_bytes());
    tally.stop();
}
