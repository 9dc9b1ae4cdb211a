//! The same random commands to a real Redis and to Tally: the replies must be the same, all of them.
//!
//! Commands are drawn with a seed from words that make sense and words that do not, over two connections, in several
//! databases and both protocols, inside of transactions and outside. Left out is only what the servers cannot agree
//! on: values that are not integers, and moments so close that the answer depends on the clock.
//!
//! `cargo test` sends a share. `cargo xtask differential` sends as many as it is told.

use crate::servers::{Redis, Settings, Tally};
use crate::tree::Tree;
use crate::wire::{Wire, encode};
use std::collections::VecDeque;

/// Sent if nobody asks for more.
const COMMANDS: usize = 20_000;
const SEED: u64 = 20_261_115;
/// How much of what led to a difference is told.
const ROUNDS_TOLD: usize = 30;
/// What is forgotten now and then, so that databases are empty, too.
const FLUSHED_EVERY: usize = 40;

/// The generator of Knuth's MMIX: enough for drawing words.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.roll(words.len())]
    }
}

const KEYS: &[&str] = &["a", "b", "c", "", "a:b"];
const VALUES: &[&str] = &["0", "1", "-1", "5", "42", "-1000", "9223372036854775807", "-9223372036854775808"];
const NUMBERS: &[&str] =
    &["1", "-1", "7", "0", "9223372036854775807", "-9223372036854775808", "x", "", "1.5", "01", "+1", " 1"];
const MOMENTS_S: &[&str] = &["33177117420", "33177117500", "44177117420", "1", "0", "-5", "9223372036854776", "x"];
const MOMENTS_MS: &[&str] = &["33177117420000", "33177117500000", "1", "0", "-5", "9223372036854775807", "x"];
const CONDITIONS: &[&str] = &["NX", "XX", "GT", "LT", "nx", "lt", "FOO"];
const SET_OPTIONS: &[&str] = &[
    "NX",
    "XX",
    "GET",
    "KEEPTTL",
    "xx",
    "get",
    "FOO",
    "EX",
    "PXAT 44177117420000",
    "EXAT 33177117420",
    "EX 0",
    "PX x",
];

const GETEX_OPTIONS: &[&str] = &[
    "",
    "PERSIST",
    "EX 1000000000",
    "PXAT 44177117420000",
    "EXAT 33177117420",
    "EX 0",
    "PX x",
    "EX",
    "FOO",
    "PERSIST EX 5",
];
const COPY_OPTIONS: &[&str] =
    &["", "", "REPLACE", "DB 1", "DB 2 REPLACE", "replace db 0", "DB", "DB 16", "DB x", "FOO"];
const LIFETIMES: &[&str] = &["1000000000", "2000000000", "0", "-1", "x", "9223372036854775807"];
const ABOUT_COMMANDS: &[&str] = &[
    "INFO incr",
    "INFO set",
    "INFO nosuch",
    "INFO copy rename",
    "INFO exec watch",
    "INFO client|setname config|resetstat",
    "LIST FILTERBY PATTERN decr*",
    "LIST FILTERBY PATTERN client|*name",
    "LIST FILTERBY ACLCAT transaction",
    "LIST FILTERBY MODULE nosuch",
    "LIST FILTERBY PATTERN",
    "GETKEYS MSET a 1 b 2",
    "GETKEYS COPY a b REPLACE",
    "GETKEYS GET",
    "GETKEYS PING x",
    "DOCS nosuch",
    "COUNT x",
    "nosuch",
];
const ABOUT_CLIENTS: &[&str] = &[
    "SETNAME x",
    "SETNAME",
    "GETNAME",
    "ID x",
    "NO-EVICT on",
    "NO-EVICT off",
    "NO-EVICT x",
    "LIST TYPE replica",
    "LIST TYPE nosuch",
    "LIST ID x",
    "LIST nosuch",
    "REPLY nosuch",
    "nosuch",
];

/// What the generator has to know about a connection: where one command may end the round.
#[derive(Clone, Copy, Default)]
struct Talk {
    in_transaction: bool,
}

/// One command, or a few where only together they have an answer that one can foretell.
fn draw(dice: &mut Dice, talk: &mut Talk) -> Vec<Vec<String>> {
    match dice.roll(96) {
        0..24 => vec![words(&draw_newer(dice))],
        24 => ["FLUSHDB", "SET only 1", "RANDOMKEY"].map(words).to_vec(),
        _ => vec![words(&draw_older(dice, talk))],
    }
}

/// Commands that counter code uses beside those that count.
fn draw_newer(dice: &mut Dice) -> String {
    let (key, other, value) = (dice.pick(KEYS), dice.pick(KEYS), dice.pick(VALUES));
    match dice.roll(16) {
        0..=1 => format!("SETNX {key:?} {value}"),
        2 => format!("{} {key:?} {:?} {value}", dice.pick(&["SETEX", "PSETEX"]), dice.pick(LIFETIMES)),
        3 => format!("MSET {key:?} {value} {other:?} {} {}", dice.pick(VALUES), dice.pick(&["", "", "c"])),
        4 => format!("MSETNX {key:?} {value} {other:?} {} {}", dice.pick(VALUES), dice.pick(&["", "", "c"])),
        5..=6 => format!("GETEX {key:?} {}", dice.pick(GETEX_OPTIONS)),
        7 => format!("{} {key:?}", dice.pick(&["EXPIRETIME", "PEXPIRETIME"])),
        8 => format!("TOUCH {key:?} {other:?} nosuch"),
        9..=10 => format!("{} {key:?} {other:?}", dice.pick(&["RENAME", "RENAME", "RENAMENX"])),
        11..=12 => format!("COPY {key:?} {other:?} {}", dice.pick(COPY_OPTIONS)),
        13 => format!("MOVE {key:?} {}", dice.pick(&["0", "1", "2", "16", "x"])),
        14 => format!("COMMAND {}", dice.pick(ABOUT_COMMANDS)),
        _ => match dice.roll(3) {
            0 => dice
                .pick(&["TIME", "TIME x", "RANDOMKEY x", "RENAME a", "CONFIG RESETSTAT", "MSET a", "COPY a"])
                .to_owned(),
            _ => format!("CLIENT {}", dice.pick(ABOUT_CLIENTS)),
        },
    }
}

fn draw_older(dice: &mut Dice, talk: &mut Talk) -> String {
    let key = dice.pick(KEYS);
    match dice.roll(32) {
        0..=3 => format!("{} {key:?}", dice.pick(&["INCR", "DECR", "incr", "Decr"])),
        4..=5 => format!("{} {key:?} {:?}", dice.pick(&["INCRBY", "DECRBY"]), dice.pick(NUMBERS)),
        6..=8 => format!("{} {key:?}", dice.pick(&["GET", "GETDEL", "STRLEN", "TYPE", "PERSIST", "GET"])),
        9..=10 => {
            let options: Vec<&str> = (0..dice.roll(4)).map(|_| dice.pick(SET_OPTIONS)).collect();
            format!("SET {key:?} {} {}", dice.pick(VALUES), options.join(" "))
        }
        11 => format!("GETSET {key:?} {}", dice.pick(VALUES)),
        12..=13 => {
            let conditions: Vec<&str> = (0..dice.roll(3)).map(|_| dice.pick(CONDITIONS)).collect();
            let (command, moments) =
                if dice.roll(2) == 0 { ("EXPIREAT", MOMENTS_S) } else { ("PEXPIREAT", MOMENTS_MS) };
            format!("{command} {key:?} {:?} {}", dice.pick(moments), conditions.join(" "))
        }
        14 => format!(
            "{} {key:?} {:?}",
            dice.pick(&["EXPIRE", "PEXPIRE"]),
            dice.pick(&["0", "-1", "1000000000", "x", "9223372036854775807"])
        ),
        15 => format!("{} {key:?}", dice.pick(&["TTL", "PTTL"])),
        16..=17 => format!("{} {key:?} {:?} {key:?}", dice.pick(&["DEL", "UNLINK", "EXISTS", "MGET"]), dice.pick(KEYS)),
        18 => dice.pick(&["DBSIZE", "PING", "ECHO x", "HELLO 5", "HELLO x", "INFO keyspace"]).to_owned(),
        19 => dice
            .pick(&["nosuch a b", "INCR", "GET", "SET a", "EXPIRE a", "MGET", "CLIENT nosuch", "CONFIG GET databases"])
            .to_owned(),
        20 => format!("KEYS {:?}", dice.pick(&["*", "a*", "?", "nosuch*", "[", "\\", "[^a]"])),
        21 => format!("SCAN {} COUNT 100 MATCH {}", dice.pick(&["0", "0", "x", "0 COUNT 0"]), dice.pick(&["*", "a*"])),
        22 => format!("COMMAND INFO {}", dice.pick(&["incr", "set", "nosuch", "scan", "exec", "watch"])),
        23..=24 => format!("SELECT {}", dice.pick(&["0", "0", "1", "2", "15", "16", "-1", "x", ""])),
        25 => dice.pick(&["FLUSHDB", "FLUSHDB ASYNC", "FLUSHDB x", "DBSIZE", "KEYS *", "FLUSHALL"]).to_owned(),
        26..=27 if !talk.in_transaction => {
            talk.in_transaction = true;
            "MULTI".to_owned()
        }
        26..=28 if talk.in_transaction => {
            talk.in_transaction = false;
            dice.pick(&["EXEC", "EXEC", "EXEC", "EXEC", "DISCARD"]).to_owned()
        }
        26..=28 => dice.pick(&["EXEC", "DISCARD", "UNWATCH", "MULTI x"]).to_owned(),
        29 => format!("WATCH {key:?} {:?}", dice.pick(KEYS)),
        30 => dice.pick(&["UNWATCH", "WATCH", "CLIENT SETNAME x", "CLIENT GETNAME"]).to_owned(),
        // A muted transaction could not be told from one that is over.
        _ if talk.in_transaction => dice.pick(&["HELLO 2", "HELLO 3", "GET a"]).to_owned(),
        _ => dice.pick(&["HELLO 2", "HELLO 3", "RESET", "CLIENT REPLY SKIP", "CLIENT REPLY ON"]).to_owned(),
    }
}

fn words(text: &str) -> Vec<String> {
    let quoted = |word: &str| {
        word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).map(|word| word.replace("\\\\", "\\"))
    };
    // A quoted word holds at most one space, at its beginning.
    let text = text.replace("\" 1\"", "\"\u{1}1\"");
    text.split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| quoted(word).unwrap_or(word.to_owned()).replace('\u{1}', " "))
        .collect()
}

fn bytes(commands: &[Vec<String>]) -> Vec<u8> {
    commands.iter().flat_map(|command| encode(&command.iter().map(String::as_bytes).collect::<Vec<_>>())).collect()
}

/// Sends commands and whatever makes sure that an answer is the last, and takes all answers.
fn ask(wire: &mut Wire, commands: &[Vec<String>], talk: Talk) -> Vec<Tree> {
    let (last, expected): (_, &[&[u8]]) = match talk.in_transaction {
        // Refused without spoiling the transaction.
        true => (vec![words("MULTI")], &[b"-ERR MULTI calls can not be nested"]),
        false => (vec![words("CLIENT REPLY ON"), words("ECHO done")], &[b"$4", b"done"]),
    };
    wire.send(&[bytes(commands), bytes(&last)].concat());
    let mut replies = Vec::new();
    loop {
        let reply = wire.reply().expect("the connection stays open");
        if reply == expected {
            return replies;
        }
        replies.push(Tree::parse(&reply));
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

#[test]
fn random_pipelines_get_the_replies_that_redis_gives() {
    let (commands_max, seed) =
        (setting("TALLY_DIFFERENTIAL_COMMANDS", COMMANDS as u64) as usize, setting("TALLY_DIFFERENTIAL_SEED", SEED));
    let settings = Settings::default();
    let (redis, tally) = (Redis::start(&settings), Tally::start(&settings));
    let mut wires = [redis.address(), tally.address()].map(|address| [Wire::connect(address), Wire::connect(address)]);
    let mut talks = [Talk::default(); 2];
    let mut dice = Dice(seed);
    let (mut sent, mut round, mut before) = (0, 0, VecDeque::new());
    while sent < commands_max {
        let connection = dice.roll(2);
        let mut commands: Vec<Vec<String>> =
            (0..1 + dice.roll(12)).flat_map(|_| draw(&mut dice, &mut talks[connection])).collect();
        if round % FLUSHED_EVERY == 0 && !talks[connection].in_transaction {
            commands.push(words("FLUSHALL"));
        }
        let [redis, tally] = wires.each_mut().map(|wires| ask(&mut wires[connection], &commands, talks[connection]));
        if redis != tally {
            let apart = redis.iter().zip(&tally).position(|(redis, tally)| redis != tally);
            let apart = apart.unwrap_or(redis.len().min(tally.len()));
            let told: String = before.iter().map(|(at, sent)| format!("\n  {at}> {sent:?}")).collect();
            panic!(
                "before it{told}\nseed {seed}, round {round}, connection {connection}, reply {apart} to {commands:?}\n  redis {:?}\n  tally {:?}\nall\n  redis {redis:?}\n  tally {tally:?}",
                redis.get(apart),
                tally.get(apart)
            );
        }
        (sent, round) = (sent + commands.len(), round + 1);
        before.push_back((connection, commands));
        if before.len() > ROUNDS_TOLD {
            before.pop_front();
        }
    }
    println!("{sent} commands in {round} pipelines, seed {seed}: the same replies");
    tally.stop();
}

#[test]
fn random_patterns_find_the_names_that_redis_finds() {
    let settings = Settings::default();
    let (redis, tally) = (Redis::start(&settings), Tally::start(&settings));
    let mut wires = [Wire::connect(redis.address()), Wire::connect(tally.address())];
    let mut dice = Dice(7);
    let mut text = |alphabet: &[u8], len: usize| -> Vec<u8> {
        (0..dice.roll(len)).map(|_| alphabet[dice.roll(alphabet.len())]).collect()
    };
    for _ in 0..150 {
        let name = text(b"ab]^-\\*\xff", 6);
        wires.iter_mut().for_each(|wire| assert_eq!(wire.command(&[b"SET", &name, b"1"]), [b"+OK"]));
    }
    for _ in 0..1500 {
        let pattern = text(b"ab*?[]^-\\\xff", 8);
        let [redis, tally] = wires.each_mut().map(|wire| {
            let mut names = wire.command(&[b"KEYS", &pattern]);
            names.sort_unstable();
            names
        });
        assert_eq!(redis, tally, "KEYS {}", pattern.escape_ascii());
    }
    tally.stop();
}
