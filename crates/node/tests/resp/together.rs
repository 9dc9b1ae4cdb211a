//! Transactions and databases beside everything else: HTTP, restarts, counters that are not in memory, bounds.

use crate::servers::{Settings, Tally};
use crate::wire::{Reply, Wire, encode};
use std::io::{Read, Write};
use std::net::TcpStream;
use tally_core::limits;
use tally_node::clock::Stopwatch;
use tally_node::worker::Spawner;

const DECLARATIONS: &str = "
counters:
  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}]}
";

fn start(declarations: Option<&str>, change: Option<fn(&mut tally_node::assemble::Options)>) -> Tally {
    let settings = Settings { declarations: declarations.map(str::to_owned), change, ..Settings::default() };
    Tally::start(&settings)
}

fn with_http(options: &mut tally_node::assemble::Options) {
    options.http = Some("127.0.0.1:0".parse().unwrap());
}

/// Sends commands, written as words, in one packet, and takes as many replies.
fn say(wire: &mut Wire, commands: &[&str]) -> Vec<Reply> {
    let split = |command: &&str| encode(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    wire.send(&commands.iter().flat_map(split).collect::<Vec<u8>>());
    commands.iter().map(|_| wire.reply().expect("the connection is open")).collect()
}

fn last(wire: &mut Wire, commands: &[&str]) -> String {
    let reply = say(wire, commands).pop().unwrap();
    reply.iter().map(|line| line.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

fn http(tally: &Tally, method: &str, path: &str, body: &str) -> String {
    let address = tally.node().http_addr().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    write!(stream, "{head}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn until(mut holds: impl FnMut() -> bool) {
    let started = Stopwatch::start();
    while !holds() {
        assert!(started.elapsed().as_secs() < 30, "it does not come about");
        std::thread::yield_now();
    }
}

#[test]
fn whatever_changes_a_watched_counter_makes_exec_do_nothing() {
    let tally = start(Some(DECLARATIONS), Some(with_http));
    let mut wire = Wire::connect(tally.address());
    say(&mut wire, &["SET a 5", "INCR hits:1"]);
    let changes: [(&str, &str, &str, &str); 4] = [
        ("a", "POST", "/v1/counters/a/increment", "{\"delta\": 2}"),
        ("hits:1", "POST", "/v1/events", "{\"type\": \"hit\", \"dimensions\": {\"page\": \"1\"}}"),
        ("hits:1", "DELETE", "/v1/counters/hits:1", ""),
        ("a", "DELETE", "/v1/counters/a", ""),
    ];
    for (key, method, path, body) in changes {
        say(&mut wire, &[&format!("WATCH {key}")]);
        let answer = http(&tally, method, path, body);
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
        assert_eq!(last(&mut wire, &["MULTI", "INCR b", "EXEC"]), "*-1", "{method} {path}");
        say(&mut wire, &[&format!("WATCH {key}")]);
        http(&tally, "GET", path.trim_end_matches("/increment"), "");
        http(&tally, "POST", "/v1/counters/other/increment", "{}");
        assert_eq!(last(&mut wire, &["MULTI", "GET nosuch", "EXEC"]), "*1 $-1", "nothing happened to {key}");
    }
    assert_eq!(last(&mut wire, &["GET b"]), "$-1");
    tally.stop();
}

#[test]
fn http_sees_database_0_only() {
    let tally = start(None, Some(with_http));
    let mut wire = Wire::connect(tally.address());
    say(&mut wire, &["SET n:1 5", "SELECT 3", "SET n:1 100", "SET n:2 1000", "SET only 1"]);
    assert!(http(&tally, "GET", "/v1/counters/n:1", "").contains("\"value\":5"));
    let absent = http(&tally, "GET", "/v1/counters/only", "");
    assert!(!absent.contains("\"value\":1"), "{absent}");
    for pattern in ["n:*", "*"] {
        let sum = http(&tally, "GET", &format!("/v1/counters/{pattern}/aggregate"), "");
        assert!(sum.contains("\"value\":5") && sum.contains("\"counters\":1"), "{sum}");
    }
    // Nor can an id be written that would be one of another database.
    let strange = http(&tally, "GET", "/v1/counters/%FF%00%00%00%00%00%00%03only", "");
    assert!(strange.starts_with("HTTP/1.1 4"), "{strange}");
    assert!(http(&tally, "POST", "/v1/counters/only/increment", "{}").contains("\"value\":1"));
    assert_eq!(last(&mut wire, &["GET only"]), "$1 1");
    tally.stop();
}

#[test]
fn nobody_sees_a_part_of_a_transaction() {
    let tally = start(None, Some(with_http));
    let address = tally.address();
    let write = move || {
        let mut wire = Wire::connect(address);
        for _ in 0..300 {
            say(&mut wire, &["MULTI", "INCR left", "INCR x", "INCR y", "INCR right", "EXEC"]);
        }
    };
    let writer = Spawner::thread("writer", write).unwrap();
    let mut wire = Wire::connect(address);
    while !writer.is_finished() {
        let reply = say(&mut wire, &["MGET left right"]).pop().unwrap();
        assert!(reply.len() == 3 || reply[2] == reply[4], "{reply:?}");
        let read = http(&tally, "POST", "/v1/counters/get", "{\"ids\": [\"left\", \"right\"]}");
        let values: Vec<&str> =
            read.split("\"value\":").skip(1).map(|rest| rest.split([',', '}']).next().unwrap()).collect();
        assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{read}");
    }
    writer.join().unwrap();
    assert_eq!(last(&mut wire, &["MGET left right"]), "*2 $3 300 $3 300");
    tally.stop();
}

#[test]
fn a_transaction_is_one_batch_of_the_log() {
    let tally = start(None, None);
    let mut wire = Wire::connect(tally.address());
    let from = tally.node().engine().applied();
    let commands: Vec<String> = (0..5_000).map(|n| format!("INCR k{n}")).collect();
    let mut all = vec!["MULTI"];
    all.extend(commands.iter().map(String::as_str));
    all.push("EXEC");
    assert!(last(&mut wire, &all).starts_with("*5000 "));
    let mut reader = tally.node().engine().log().reader(from).unwrap();
    let batch = reader.next().unwrap().expect("the transaction is in the log");
    assert_eq!(batch.count, 5_000, "all or nothing is left by a crash");
    tally.stop();
}

#[test]
fn databases_are_after_a_restart_what_they_were_before_it() {
    let tally = start(None, None);
    let mut wire = Wire::connect(tally.address());
    say(
        &mut wire,
        &["SET a 1", "SELECT 1", "SET a 2", "SET b 3 EX 1000", "SELECT 2", "SET gone 1", "FLUSHDB", "SET a 4"],
    );
    say(&mut wire, &["SELECT 9", "SET gone 1", "SET gone2 1", "FLUSHDB"]);
    let mut tally = tally;
    for _ in 0..2 {
        tally = tally.restart();
        let mut wire = Wire::connect(tally.address());
        assert_eq!(last(&mut wire, &["MGET a b gone"]), "*3 $1 1 $-1 $-1");
        assert_eq!(last(&mut wire, &["SELECT 1", "MGET a b gone"]), "*3 $1 2 $1 3 $-1");
        assert_eq!(last(&mut wire, &["DBSIZE"]), ":2");
        assert_eq!(last(&mut wire, &["SELECT 2", "KEYS *"]), "*1 $1 a");
        assert_eq!(last(&mut wire, &["SELECT 9", "DBSIZE"]), ":0");
        assert_eq!(last(&mut wire, &["SELECT 0", "DBSIZE"]), ":1");
    }
    tally.stop();
}

#[test]
fn ends_are_after_a_restart_what_they_were_before_it() {
    let tally = start(None, None);
    let mut wire = Wire::connect(tally.address());
    say(
        &mut wire,
        &[
            "SET a 1 EX 1000",
            "SET a 2 KEEPTTL",
            "SET b 1 EX 1000",
            "GETEX b PERSIST",
            "SETEX c 2000 1",
            "PSETEX d 2000000 1",
        ],
    );
    say(
        &mut wire,
        &[
            "MSET e 1 f 1 g 1 h 1",
            "EXPIRE e 1000",
            "PEXPIREAT f 4102444800123",
            "EXPIREAT g 4102444800",
            "GETEX h PX 90000",
        ],
    );
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|key| format!("PEXPIRETIME {key}"));
    let ends = |wire: &mut Wire| say(wire, &keys.each_ref().map(String::as_str));
    let before = ends(&mut wire);
    assert_eq!((&before[1][0][..], &before[5][0][..]), (&b":-1"[..], &b":4102444800123"[..]));
    let tally = tally.restart();
    let mut wire = Wire::connect(tally.address());
    assert_eq!(ends(&mut wire), before);
    assert_eq!(last(&mut wire, &["GET a"]), "$1 2");
    tally.stop();
}

#[test]
fn what_a_flush_leaves_behind_is_swept_away() {
    let tally = start(None, None);
    let mut wire = Wire::connect(tally.address());
    say(&mut wire, &["SET a 1", "SELECT 5"]);
    for round in 0..3 {
        let sets: Vec<String> = (0..1500).map(|n| format!("SET k{n} {round}")).collect();
        say(&mut wire, &sets.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(last(&mut wire, &["DEL kept", "DBSIZE"]), ":1500");
        assert_eq!(last(&mut wire, &["FLUSHDB", "DBSIZE"]), ":0");
        assert_eq!(last(&mut wire, &["SET kept 1", "DBSIZE"]), ":1");
    }
    until(|| tally.node().engine().len() == 2);
    assert_eq!(last(&mut wire, &["KEYS *"]), "*1 $4 kept");
    assert_eq!(last(&mut wire, &["SELECT 0", "DBSIZE"]), ":1");
    tally.stop();
}

#[test]
fn counters_that_are_not_in_memory_take_part() {
    let tally = start(None, Some(|options| options.table_bytes = Some(1 << 20)));
    let mut wire = Wire::connect(tally.address());
    let fill: Vec<String> = (0..60_000).map(|n| format!("SET k{n} {n}")).collect();
    say(&mut wire, &["SELECT 2"]);
    for part in fill.chunks(4_000) {
        say(&mut wire, &part.iter().map(String::as_str).collect::<Vec<_>>());
    }
    until(|| {
        say(&mut wire, &["INCR more"]);
        tally.node().engine().cold() > 0
    });
    let mut other = Wire::connect(tally.address());
    say(&mut other, &["SELECT 2"]);
    for n in (0..60_000).step_by(997) {
        let (key, absent) = (format!("k{n}"), format!("absent{n}"));
        say(&mut wire, &[&format!("WATCH {key} {absent}")]);
        let commands = ["MULTI", &format!("INCR {key}"), &format!("GET {key}"), &format!("GET {absent}"), "EXEC"];
        let value = (n + 1).to_string();
        assert_eq!(last(&mut wire, &commands), format!("*3 :{value} ${} {value} $-1", value.len()));
        say(&mut wire, &[&format!("WATCH {absent}")]);
        say(&mut other, &[&format!("INCR {absent}"), &format!("DEL {absent}")]);
        assert_eq!(last(&mut wire, &["MULTI", "EXEC"]), "*-1");
    }
    tally.stop();
}

/// Sends many commands and takes their replies, without leaving more under way than a table of a mebibyte has room for.
fn say_all(wire: &mut Wire, commands: impl Iterator<Item = String>) -> Vec<Reply> {
    let commands: Vec<String> = commands.collect();
    let parts = commands.chunks(2_000);
    parts.flat_map(|part| say(wire, &part.iter().map(String::as_str).collect::<Vec<_>>())).collect()
}

#[test]
fn counters_that_are_not_in_memory_get_other_names() {
    const NAMES: usize = 40_000;
    const END_MS: u64 = 4_102_444_800_123;
    let tally = start(None, Some(|options| options.table_bytes = Some(1 << 20)));
    let mut wire = Wire::connect(tally.address());
    let ends = |n: usize| n.is_multiple_of(3);
    let set = |n: usize| if ends(n) { format!("SET k{n} {n} PXAT {END_MS}") } else { format!("SET k{n} {n}") };
    say_all(&mut wire, (0..NAMES).map(set));
    until(|| {
        say(&mut wire, &["INCR more"]);
        tally.node().engine().cold() > 0
    });
    let all_are = |replies: Vec<Reply>, reply: &[u8]| assert!(replies.iter().all(|own| own == &[reply]), "{reply:?}");
    // All of them, so also those that memory has no room for. The new names are not there, or are those of counters that are not in memory.
    all_are(say_all(&mut wire, (0..NAMES).map(|n| format!("RENAME k{n} r{n}"))), b"+OK");
    all_are(say_all(&mut wire, (0..NAMES).step_by(2).map(|n| format!("COPY r{n} c{n}"))), b":1");
    all_are(say_all(&mut wire, (0..NAMES).step_by(2).map(|n| format!("COPY r{n} c{n}"))), b":0");
    all_are(say_all(&mut wire, (0..NAMES).step_by(4).map(|n| format!("RENAMENX r{} c{n}", n + 1))), b":0");
    all_are(say_all(&mut wire, (0..NAMES).step_by(4).map(|n| format!("RENAME r{} c{n}", n + 1))), b"+OK");
    all_are(say_all(&mut wire, (3..NAMES).step_by(4).map(|n| format!("MOVE r{n} 1"))), b":1");
    let tally = tally.restart();
    let mut wire = Wire::connect(tally.address());
    let mut holds = |name: char, n: usize, value: usize| {
        let text = value.to_string();
        let end = if ends(value) { format!(":{END_MS}") } else { ":-1".to_owned() };
        assert_eq!(last(&mut wire, &[&format!("GET {name}{n}")]), format!("${} {text}", text.len()), "{name}{n}");
        assert_eq!(last(&mut wire, &[&format!("PEXPIRETIME {name}{n}")]), end, "{name}{n}");
    };
    for n in (0..NAMES).step_by(400) {
        holds('r', n, n);
        holds('c', n, n + 1);
        holds('c', n + 2, n + 2);
    }
    let gone = say_all(&mut wire, (0..NAMES).step_by(4).map(|n| format!("EXISTS k{n} r{} r{}", n + 1, n + 3)));
    all_are(gone, b":0");
    // A half was copied, a quarter is another one's copy now, and a quarter is elsewhere.
    assert_eq!(last(&mut wire, &["DBSIZE"]), format!(":{}", NAMES + NAMES / 2 - 2 * (NAMES / 4) + 1));
    assert_eq!(last(&mut wire, &["SELECT 1", "DBSIZE"]), format!(":{}", NAMES / 4));
    assert_eq!(last(&mut wire, &["GET r399"]), "$3 399");
    tally.stop();
}

#[test]
fn a_transaction_that_is_too_large_is_refused_and_does_nothing() {
    let tally = start(None, None);
    let mut wire = Wire::connect(tally.address());
    say(&mut wire, &["MULTI", "INCR a"]);
    let long = vec![b'x'; 1024 * 1024];
    let mut queued = 0;
    let refusal = loop {
        let reply = wire.command(&[b"ECHO", &long]);
        if reply != [b"+QUEUED"] {
            break String::from_utf8(reply[0].clone()).unwrap();
        }
        queued += 1;
    };
    assert_eq!(queued, limits::RESP_QUEUED_BYTES_MAX / long.len() - 1);
    assert!(refusal.starts_with("-ERR the commands of one transaction have at most 16777216 bytes"), "{refusal}");
    assert!(last(&mut wire, &["EXEC"]).starts_with("-EXECABORT"));
    assert_eq!(last(&mut wire, &["GET a"]), "$-1");
    tally.stop();
}

#[test]
fn there_is_an_end_to_what_clients_may_watch() {
    let tally = start(None, None);
    let mut wire = Wire::connect(tally.address());
    let key = |n: usize| [&n.to_le_bytes()[..], &[b'k'; 4000]].concat();
    let mut watched = 0;
    let refusal = loop {
        let reply = wire.command(&[b"WATCH", &key(watched)]);
        if reply != [b"+OK"] {
            break String::from_utf8(reply[0].clone()).unwrap();
        }
        watched += 1;
    };
    assert!(watched > 1000 && watched * 4008 <= limits::WATCHED_BYTES_MAX, "{watched}");
    assert!(refusal.starts_with("-ERR the keys that all clients watch"), "{refusal}");
    // A key once more takes nothing, and what one client lets go another may have.
    assert_eq!(wire.command(&[b"WATCH", &key(0)]), [b"+OK"]);
    drop(wire);
    let mut other = Wire::connect(tally.address());
    until(|| other.command(&[b"WATCH", b"a"]) == [b"+OK"]);
    tally.stop();
}
