//! The demo: its story is what the server says, its traffic is bounded, and it ends when it is asked to.

use crate::support::{Served, exchange, stdout, tally, terminal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const PORTS: [&str; 4] = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"];

/// A demo whose temporary directory is in one of ours.
fn in_directory(dir: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally"));
    command.arg("demo").args(PORTS).env("TMPDIR", dir.path()).env("TERM", "xterm").env_remove("TALLY_LOG");
    command
}

/// A demo that has told its story, with so many events of traffic. It is killed when it is dropped, and then cannot tidy up: its
/// directory goes with ours.
fn told(dir: &tempfile::TempDir, events: &str) -> Served {
    Served::run(in_directory(dir).args(["--events", events]), Stdio::null())
}

/// The address of the page.
fn http(banner: &str) -> &str {
    let page = banner.lines().find_map(|line| line.strip_prefix("The page, live: http://"));
    page.and_then(|address| address.strip_suffix('/')).unwrap_or_else(|| panic!("no address of the page in\n{banner}"))
}

fn get(banner: &str, path: &str) -> Value {
    let address = http(banner);
    let answer = exchange(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"));
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

/// The steps of the story, each with its title.
fn steps(banner: &str) -> Vec<&str> {
    let story = banner.split("\nThe page, live:").next().unwrap();
    story.split("\n\n").filter(|part| part.starts_with(|first: char| first.is_ascii_digit())).collect()
}

/// What a step shows of the answers to one request, the last time it was made.
fn answers<'s>(step: &'s str, request: &str) -> Vec<&'s str> {
    let lines: Vec<&str> = step.lines().map(str::trim).collect();
    let asked = lines.iter().rposition(|line| *line == format!("→ {request}"));
    let asked = asked.unwrap_or_else(|| panic!("{request:?} was not asked in\n{step}"));
    lines[asked + 1..]
        .iter()
        .take_while(|line| !line.starts_with('→'))
        .map(|line| line.trim_start_matches("← "))
        .collect()
}

#[test]
fn every_step_of_the_story_is_told_with_what_was_sent_and_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = told(&dir, "0");
    let steps = steps(&server.banner);
    let told = [
        ("1  Views", &["counted 1000", "counted 0, duplicate 1000", "value 1000, exact"][..]),
        ("2  Likes", &["counted 3, ignored 1", "value 3, exact", "counted 1", "value 2, exact"]),
        ("3  Impressions", &["counted 100", "counted 0, duplicate 1", "counted 0, conflict 1", "value 100, exact"]),
        ("4  A late event", &["counted 0, late 1", "generation 1: 1000 → 1001, \"late entries\", by tally"]),
        ("5  A correction", &["number 2, proposed", "views:trailer would change: 1001 → 901", "applied, generation 2"]),
        ("6  Roll-ups", &["901 in the last 30 minutes, by minute and as a whole:"]),
    ];
    assert_eq!(steps.len(), told.len(), "{}", server.banner);
    for (step, (title, answers)) in steps.iter().zip(told) {
        assert!(step.starts_with(title), "{step}");
        assert!(step.contains("   → "), "{step}");
        let mut lines = step.lines();
        for answer in answers {
            let is_told = lines.any(|line| line == format!("   ← {answer}"));
            assert!(is_told, "{answer:?} is not in its place in\n{step}");
        }
    }
    let named = answers(steps[2], "GET /v1/duplicates?eventId=imp-1");
    assert!(named[0].contains("conflict: of the ad sale, but launch at"), "{named:?}");
    assert!(named[1].contains("duplicate: first seen at"), "{named:?}");
    assert_eq!(named.len(), 2, "{named:?}");
}

#[test]
fn the_story_ends_where_the_server_stands() {
    let dir = tempfile::tempdir().unwrap();
    let server = told(&dir, "0");
    let (banner, steps) = (&server.banner, steps(&server.banner));
    let value = |id: &str| get(banner, &format!("/v1/counters/{id}"))["value"].clone();
    assert_eq!(value("views:trailer"), 901);
    assert_eq!(value("likes:trailer"), 2);
    assert_eq!(value("impressions:launch"), 100);
    assert_eq!(value("impressions:sale"), 0, "a conflict does not count");
    for (step, id) in [(1, "likes:trailer"), (2, "impressions:launch")] {
        let read = get(banner, &format!("/v1/counters/{id}"));
        let said = format!("value {}, {}", read["value"], read["kind"].as_str().unwrap());
        assert_eq!(answers(steps[step], &format!("GET /v1/counters/{id}")), [said]);
    }

    let explained = get(banner, "/v1/counters/views:trailer/explain");
    let [sum, checks] = answers(steps[4], "GET /v1/counters/views:trailer/explain")[..] else { panic!("{}", steps[4]) };
    let (counted, corrected) = (&explained["counted"], &explained["corrected"]);
    assert_eq!(sum, format!("value 901 = counted {counted} + corrected {corrected}; not counted: duplicate 1000"));
    let known = explained["checks"].as_array().unwrap().len();
    assert!(checks.starts_with(&format!("{known} of {known} checks hold")), "{checks}");

    let generations = get(banner, "/v1/counters/views:trailer/history")["generations"].clone();
    let said = answers(steps[4], "GET /v1/counters/views:trailer/history");
    assert_eq!(said.len(), generations.as_array().unwrap().len(), "{said:?}");
    assert_eq!(said[0], "generation 2: 1001 → 901, \"a crawler watched it\", by ann, applied by bob");
    assert_eq!(generations[0]["reason"], "a crawler watched it");

    let balance = get(banner, "/v1/balance");
    assert_eq!((&balance["holds"], &balance["total"]["late"]), (&true.into(), &0.into()), "{balance}");
}

#[test]
fn the_bars_of_the_story_are_the_parts_of_the_roll_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = told(&dir, "0");
    let step = *steps(&server.banner).last().unwrap();
    let series = get(&server.banner, "/v1/counters/views:trailer/series?by=country");
    let parts = series["points"][0]["parts"].as_object().unwrap();
    let request = "GET /v1/counters/views:trailer/series?by=country&step=1m&from=-30m&fill=zero";
    let columns = &answers(step, request)[1..];
    assert_eq!(columns.len(), parts.len(), "{step}");
    let mut bars = Vec::new();
    for column in columns {
        let fields: Vec<&str> = column.split_whitespace().collect();
        assert_eq!(parts[fields[0]].to_string(), fields[2], "{column}");
        assert!((30..=32).contains(&fields[1].chars().count()), "a spark for each minute: {column}");
        bars.push(fields.get(3).map_or(0, |bar| bar.chars().count()));
    }
    assert!(bars.is_sorted_by(|a, b| a >= b) && bars[0] == 20, "{step}");
    assert_eq!(parts.values().map(|part| part.as_i64().unwrap()).sum::<i64>(), 901);
}

#[test]
fn the_late_event_of_the_story_is_in_a_minute_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let server = told(&dir, "0");
    let path = "/v1/counters/views:trailer/series?step=1m&from=-30m&to=-20m";
    let points = get(&server.banner, path)["points"].clone();
    let minute = &points[0]["at"].as_str().unwrap()[11..16];
    assert_eq!(answers(steps(&server.banner)[3], &format!("GET {path}")), [format!("1 at {minute}")]);
}

#[test]
fn what_the_demo_says_to_try_can_be_tried() {
    let dir = tempfile::tempdir().unwrap();
    let server = told(&dir, "0");
    let tried: Vec<&str> = server.banner.lines().filter_map(|line| line.strip_prefix("  curl ")).collect();
    assert_eq!(tried.len(), 4, "{}", server.banner);
    let prefix = format!("http://{}", http(&server.banner));
    for line in &tried[..3] {
        let path = line.trim_matches('\'').strip_prefix(&prefix).unwrap_or_else(|| panic!("{line}"));
        let answer = get(&server.banner, path);
        assert!(answer["status"].is_null() && answer["id"].is_string(), "{line}: {answer}");
    }
    assert!(tried[3].starts_with(&format!("{prefix}/v1/counters/hello/increment ")), "{}", tried[3]);
    let series = server.banner.lines().find_map(|line| line.strip_prefix("  tally ")).unwrap();
    let series = tally(&series.split(' ').collect::<Vec<_>>());
    assert!(series.status.success() && stdout(&series).contains("views"), "{}", stdout(&series));
    let redis = server.banner.lines().find_map(|line| line.strip_prefix("  redis-cli -h 127.0.0.1 -p ")).unwrap();
    let port = redis.split(' ').next().unwrap();
    assert_eq!(stdout(&tally(&["add", "hello", "--server", &format!("127.0.0.1:{port}")])), "1\n");
}

/// The sum of a box over all counters.
fn boxed(banner: &str, name: &str) -> i64 {
    get(banner, "/v1/balance")["total"][name].as_i64().unwrap()
}

#[test]
fn where_there_is_no_terminal_the_traffic_ends_in_a_plain_line() {
    let dir = tempfile::tempdir().unwrap();
    let server = told(&dir, "90");
    let story = 2 * 1000 + 5 + 102 + 1;
    // The traffic is bounded, so this ends whether all of it comes or not.
    let is_sent = (0..10_000).any(|_| boxed(&server.banner, "received") == story + 90);
    assert!(is_sent, "{} of {} came", boxed(&server.banner, "received"), story + 90);
    assert_eq!(boxed(&server.banner, "rejected"), 0);
    let config = get(&server.banner, "/v1/config");
    let total = |counter: &Value| format!("{} {}", counter["counterName"].as_str().unwrap(), counter["total"]);
    let totals: Vec<String> = config["counters"].as_array().unwrap().iter().map(total).collect();
    assert!(config["counters"][0]["total"].as_i64().unwrap() > 901, "{totals:?}");

    let banner = server.banner.clone();
    let (code, rest) = server.stop(Signal::INT);
    assert_eq!(code, Some(0));
    let line = rest.lines().next().unwrap().to_owned();
    let Some(said) = line.strip_prefix("90 events sent, the traffic has ended: ") else { panic!("{rest}") };
    assert_eq!(said.split(", ").map(|total| total.replace(',', "")).collect::<Vec<_>>(), totals, "{line}");
    let all = format!("{banner}{rest}");
    assert_eq!(all.chars().find(|c| c.is_control() && *c != '\n'), None, "{all:?}");
}

fn is_empty(dir: &tempfile::TempDir) -> bool {
    std::fs::read_dir(dir.path()).unwrap().next().is_none()
}

#[test]
fn a_signal_ends_the_demo_and_nothing_is_left() {
    for (signal, another) in [(Signal::INT, None), (Signal::TERM, Some(Signal::INT))] {
        let dir = tempfile::tempdir().unwrap();
        let server = Served::run(&mut in_directory(&dir), Stdio::null());
        assert!(!is_empty(&dir));
        let pid = Pid::from_raw(server.pid() as i32).unwrap();
        another.into_iter().for_each(|another| kill_process(pid, another).unwrap());
        let (code, rest) = server.stop(signal);
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.ends_with("stopped\n"), "{rest}");
        assert!(is_empty(&dir));
    }
}

#[test]
fn a_story_need_not_be_heard_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = in_directory(&dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut told = String::new();
    // The late event of the fourth step waits for its run, the server for nobody.
    while !told.ends_with("1  Views: a batch that is sent again counts once\n") {
        assert!(output.read_line(&mut told).unwrap() > 0, "{told}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    output.read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!told.contains("\nready\n") && told.ends_with("stopped\n"), "{told}");
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(complaints, "");
    assert!(is_empty(&dir));
}

/// What a demo shows on a terminal until it has said something, and then until it has ended.
fn shown_until(said: &str, change: impl FnOnce(&mut Command)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (mut terminal, inside) = terminal();
    let mut command = in_directory(&dir);
    command.args(["--events", "300"]).stdout(inside).stderr(Stdio::null());
    change(&mut command);
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    let mut read = |shown: &mut Vec<u8>| {
        // A terminal that nobody writes to any more ends in an error.
        let length = terminal.read(&mut part).unwrap_or(0);
        shown.extend_from_slice(&part[..length]);
        length > 0
    };
    while !String::from_utf8_lossy(&shown).contains(said) {
        assert!(read(&mut shown), "{}", String::from_utf8_lossy(&shown));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    while read(&mut shown) {}
    assert_eq!(child.wait().unwrap().code(), Some(0));
    String::from_utf8(shown).unwrap()
}

#[test]
fn a_terminal_has_one_line_that_changes_in_its_place() {
    let shown = shown_until("the traffic has ended", |_| {});
    let (_, live) = shown.split_once("ready\r\n").unwrap();
    let states: Vec<&str> = live.lines().next().unwrap().split("\r\x1b[2K").collect();
    assert!(states.len() >= 2, "{live:?}");
    for state in states {
        assert!(state.contains(" events sent, ") && state.contains(": views "), "{state:?}");
        assert!(!state.contains(char::is_control) && state.chars().count() <= 80, "{state:?}");
    }
    let ended = "\nstopping: finishing what was accepted, then a checkpoint\r\nstopped\r\n";
    assert!(live.ends_with(ended) && live.lines().count() == 3, "{live:?}");
}

#[test]
fn a_terminal_that_cannot_redraw_gets_plain_lines() {
    let shown = shown_until("the traffic has ended", |command| _ = command.env("TERM", "dumb"));
    assert_eq!(shown.replace("\r\n", "\n").chars().find(|c| c.is_control() && *c != '\n'), None, "{shown:?}");
}
