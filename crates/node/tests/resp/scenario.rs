//! Scenarios as text.
//!
//! ```text
//! # a comment
//! % requirepass sesame          how the server is started: requirepass, maxclients, or tally (declarations, as YAML)
//! == a title                    a new scenario: all counters are forgotten and new connections made
//! > SET a "b\r\n"               a command, sent as an array of bulk strings
//! > INCR a ; INCR a             several, sent in one packet
//! >> PING\r\n                   bytes, sent as they are
//! < $1 | 5                      the next reply, its lines separated by ` | `
//! <~ *2 | $1 | a | $1 | b       the same, in any order
//! <redis +OK                    what only Redis answers, or only Tally
//! ?> GET a                      asked again until the reply is the expected one
//! b> GET a                      on another connection, whose replies are `b<`
//! (closed) or (closed b)        the server closes the connection
//! ```
//!
//! `\r \n \t \\ \" \xHH` are escapes and `{a x 100}` is a hundred times `a`. In replies `{int}`, `{any}` and `{90..100}` match
//! what they say, and `(empty)` is an empty line.

use crate::servers::Settings;
use crate::wire::{Reply, Wire, encode};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use tally_node::clock::Stopwatch;

const PATIENCE_SECONDS: u64 = 20;

pub struct Scenario {
    file: String,
    pub settings: Settings,
    lines: Vec<(usize, Line)>,
}

#[derive(Clone, Debug)]
enum Line {
    Title,
    Send { connection: char, bytes: Vec<u8>, until: bool },
    Expect { connection: char, server: String, reply: String, any_order: bool },
    Closed { connection: char },
}

impl Scenario {
    pub fn load(file: &str) -> Scenario {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/resp").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut scenario = Scenario { file: file.to_owned(), settings: Settings::default(), lines: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            scenario.read_line(number + 1, line);
        }
        scenario
    }

    fn read_line(&mut self, number: usize, line: &str) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        if let Some(setting) = line.strip_prefix("% ") {
            return self.set(setting);
        }
        let parsed = parse_line(line).unwrap_or_else(|| panic!("{}:{number}: cannot read {line:?}", self.file));
        self.lines.push((number, parsed));
    }

    fn set(&mut self, setting: &str) {
        match setting.split_once(' ') {
            Some(("requirepass", password)) => self.settings.password = Some(password.to_owned()),
            Some(("maxclients", count)) => self.settings.clients_max = Some(count.parse().unwrap()),
            Some(("tally", yaml)) => self.settings.declarations = Some(yaml.to_owned()),
            _ => panic!("{}: unknown setting {setting:?}", self.file),
        }
    }

    /// Plays all scenarios of the file on the server at `address`.
    pub fn run(&self, server: &str, address: SocketAddr) {
        let mut connections: HashMap<char, Wire> = HashMap::new();
        let mut repeat: Option<(char, Vec<u8>)> = None;
        for (number, line) in &self.lines {
            let place = format!("{}:{number} on {server}", self.file);
            match line {
                Line::Title => {
                    connections.clear();
                    self.forget_everything(address);
                }
                Line::Send { connection, bytes, until } => {
                    wire(&mut connections, *connection, address).send(bytes);
                    repeat = until.then(|| (*connection, bytes.clone()));
                }
                Line::Expect { server: only, .. } if !only.is_empty() && only != server => {}
                Line::Expect { connection, reply, any_order, .. } => {
                    let wire = wire(&mut connections, *connection, address);
                    let again = repeat.take().filter(|(asked, _)| asked == connection);
                    expect(wire, reply, *any_order, again, &place);
                }
                Line::Closed { connection } => {
                    let more = wire(&mut connections, *connection, address).reply();
                    assert!(more.is_none(), "{place}: not closed, but answered {}", show(&more.unwrap_or_default()));
                }
            }
        }
    }

    fn forget_everything(&self, address: SocketAddr) {
        if self.settings.declarations.is_some() {
            return;
        }
        // A connection that was just dropped may still be counted.
        let started = Stopwatch::start();
        loop {
            let mut wire = Wire::connect(address);
            if let Some(password) = &self.settings.password {
                wire.send(&encode(&[b"AUTH", password.as_bytes()]));
                wire.reply();
            }
            wire.send(&encode(&[b"FLUSHALL"]));
            match wire.reply() {
                Some(reply) if reply == [b"+OK"] => {
                    wire.send(&encode(&[b"QUIT"]));
                    while wire.reply().is_some() {}
                    return;
                }
                other => assert!(started.elapsed().as_secs() < PATIENCE_SECONDS, "FLUSHALL answered {other:?}"),
            }
        }
    }
}

fn wire(connections: &mut HashMap<char, Wire>, name: char, address: SocketAddr) -> &mut Wire {
    connections.entry(name).or_insert_with(|| Wire::connect(address))
}

fn expect(wire: &mut Wire, expected: &str, any_order: bool, again: Option<(char, Vec<u8>)>, place: &str) {
    let started = Stopwatch::start();
    loop {
        let reply =
            wire.reply().unwrap_or_else(|| panic!("{place}: expected {expected}, but the connection is closed"));
        if matches(expected, &reply, any_order) {
            return;
        }
        match &again {
            Some((_, bytes)) if started.elapsed().as_secs() < PATIENCE_SECONDS => wire.send(bytes),
            _ => panic!("{place}:\n  expected {expected}\n  got      {}", show(&reply)),
        }
    }
}

fn matches(expected: &str, reply: &Reply, any_order: bool) -> bool {
    if expected == "{any}" {
        return true;
    }
    let mut expected: Vec<&str> = expected.split(" | ").map(|line| if line == "(empty)" { "" } else { line }).collect();
    let mut reply: Vec<&[u8]> = reply.iter().map(Vec::as_slice).collect();
    if any_order {
        expected.sort_unstable();
        reply.sort_unstable();
    }
    expected.len() == reply.len() && expected.iter().zip(reply).all(|(line, got)| line_matches(line, got))
}

/// A hole swallows as much as it can; behind it the line goes on literally, up to the next hole.
fn line_matches(expected: &str, got: &[u8]) -> bool {
    let hole = expected.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    let Some((before, (hole, after))) = hole.filter(|(_, (hole, _))| !hole.contains(" x ")) else {
        return unescape(expected) == got;
    };
    let Some(got) = got.strip_prefix(&unescape(before)[..]) else { return false };
    (0..=got.len()).rev().any(|len| hole_matches(hole, &got[..len]) && line_matches(after, &got[len..]))
}

fn hole_matches(hole: &str, got: &[u8]) -> bool {
    let number = || std::str::from_utf8(got).ok().and_then(|got| got.parse::<i64>().ok());
    match hole.split_once("..") {
        Some((low, high)) => number().is_some_and(|n| (low.parse().unwrap()..=high.parse().unwrap()).contains(&n)),
        None => hole == "any" || hole == "int" && number().is_some(),
    }
}

fn show(reply: &Reply) -> String {
    let lines =
        reply.iter().map(|line| if line.is_empty() { "(empty)".to_owned() } else { line.escape_ascii().to_string() });
    lines.collect::<Vec<_>>().join(" | ")
}

fn parse_line(line: &str) -> Option<Line> {
    if line.starts_with("== ") {
        return Some(Line::Title);
    }
    if let Some(closed) = line.strip_prefix("(closed") {
        let connection = closed.strip_suffix(')')?.trim_start().chars().next().unwrap_or('a');
        return Some(Line::Closed { connection });
    }
    let (connection, line) = match line.chars().next()? {
        name @ 'a'..='z' => (name, &line[1..]),
        _ => ('a', line),
    };
    let (until, line) = line.strip_prefix('?').map_or((false, line), |line| (true, line));
    if let Some(bytes) = line.strip_prefix(">> ") {
        return Some(Line::Send { connection, bytes: unescape(bytes), until });
    }
    if let Some(commands) = line.strip_prefix("> ") {
        let bytes = commands.split(" ; ").flat_map(|command| encode_words(&words(command))).collect();
        return Some(Line::Send { connection, bytes, until });
    }
    let (marks, reply) = line.strip_prefix('<')?.split_once(' ')?;
    let (any_order, server) = marks.strip_prefix('~').map_or((false, marks), |server| (true, server));
    Some(Line::Expect { connection, server: server.to_owned(), reply: reply.to_owned(), any_order })
}

fn encode_words(words: &[Vec<u8>]) -> Vec<u8> {
    encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Splits a command into words; those with spaces in them are in double quotes.
fn words(command: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_at(closing_quote(quoted)),
            None if rest.starts_with('{') => rest.split_at(rest.find('}').unwrap() + 1),
            None => rest.split_at(rest.find(' ').unwrap_or(rest.len())),
        };
        words.push(unescape(word));
        rest = behind.strip_prefix('"').unwrap_or(behind).trim_start();
    }
    words
}

fn closing_quote(quoted: &str) -> usize {
    let mut escaped = false;
    quoted
        .find(|c| {
            let closing = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closing
        })
        .expect("a closing quote")
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((repeated, behind)) = repetition(rest) {
            bytes.extend_from_slice(&repeated);
            rest = behind;
        } else if let Some(hex) = rest.strip_prefix("\\x") {
            bytes.push(u8::from_str_radix(&hex[..2], 16).unwrap());
            rest = &hex[2..];
        } else if let Some(escaped) = rest.strip_prefix('\\') {
            let byte = escaped.as_bytes()[0];
            bytes.push(match byte {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                other => other,
            });
            rest = &escaped[1..];
        } else {
            bytes.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
            rest = &rest[c.len_utf8()..];
        }
    }
    bytes
}

/// Reads `{a x 100}`.
fn repetition(text: &str) -> Option<(Vec<u8>, &str)> {
    let (inside, behind) = text.strip_prefix('{')?.split_once('}')?;
    let (unit, count) = inside.split_once(" x ")?;
    Some((unit.repeat(count.parse().ok()?).into_bytes(), behind))
}
