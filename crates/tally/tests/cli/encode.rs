//! `tally encode`, and that a server takes what it writes.

use crate::support::{stderr, tally};
use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};
use tally_core::event::batch::{header, read};
use tally_core::event::{Event, EventError};

fn encode(lines: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tally"))
        .arg("encode")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let written = child.stdin.take().unwrap().write_all(lines.as_bytes());
    // It does not read on behind a line that is no event.
    if let Err(error) = written {
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
    child.wait_with_output().unwrap()
}

/// The events of each batch, by their ids.
fn ids(mut bytes: &[u8]) -> Vec<Vec<String>> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let (batch, rest) = bytes.split_at(header(bytes).unwrap().batch_bytes());
        let mut ids = Vec::new();
        let mut take = |_: usize, event: Result<&Event<'_>, EventError>| {
            ids.push(event.unwrap().event_id.as_deref().unwrap().to_owned());
        };
        read(batch, 0.into(), &mut take).unwrap();
        batches.push(ids);
        bytes = rest;
    }
    batches
}

#[test]
fn lines_become_batches_of_so_many_events() {
    let line = |n: usize| format!(r#"{{"type":"viewed","eventId":"{n}","dimensions":{{"video":{n}.0}}}}"#);
    let lines: Vec<_> = (0..5).map(line).collect();
    let output = encode(&lines.join("\n\n"), &["--events-per-batch", "2"]);
    assert_eq!(ids(&output.stdout), [vec!["0", "1"], vec!["2", "3"], vec!["4"]]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.join("\r\n")).unwrap();
    let output = tally(&["encode", file.path().to_str().unwrap()]);
    assert_eq!(ids(&output.stdout), [["0", "1", "2", "3", "4"]]);
    assert!(encode("", &["-"]).stdout.is_empty());
}

#[test]
fn a_line_that_is_no_event_is_named_and_what_was_before_it_is_written() {
    let good = r#"{"type":"viewed","eventId":"1"}"#;
    for (bad, why) in [
        (r#"{"type":"viewed","sesion":"s"}"#.to_owned(), "\"sesion\": not a field of an event"),
        (format!(r#"{{"type":"viewed","payload":"{}"}}"#, "x".repeat(300_000)), "more than 262144 bytes"),
    ] {
        let output = encode(&format!("{good}\n\n{bad}\n{good}"), &["--events-per-batch", "1"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("line 3 is not an event") && stderr(&output).contains(why),
            "{}",
            stderr(&output)
        );
        assert_eq!(ids(&output.stdout), [["1"]]);
    }
    assert!(stderr(&tally(&["encode", "nowhere.ndjson"])).contains("nowhere.ndjson cannot be read"));
}
