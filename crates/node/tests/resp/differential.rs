//! The same random commands to a real Redis and to Tally: the replies must be the same, all of them.
//!
//! Commands are drawn with a fixed seed from words that make sense and words that do not. Left out is only what the
//! servers cannot agree on: values that are not integers, and moments so close that the answer depends on the clock.

use crate::servers::{Redis, Settings, Tally};
use crate::wire::{Reply, Wire, encode};

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

fn draw(dice: &mut Dice) -> Vec<String> {
    let key = dice.pick(KEYS);
    let text = match dice.roll(24) {
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
        18 => dice
            .pick(&[
                "DBSIZE",
                "PING",
                "ECHO x",
                "HELLO 5",
                "HELLO x",
                "SELECT 0",
                "SELECT 1",
                "CLIENT REPLY SKIP",
                "FLUSHALL",
            ])
            .to_owned(),
        19 => dice
            .pick(&["nosuch a b", "INCR", "GET", "SET a", "EXPIRE a", "MGET", "CLIENT nosuch", "CONFIG GET databases"])
            .to_owned(),
        20 => format!("KEYS {:?}", dice.pick(&["nosuch*", "[", "x", "\\"])),
        21 => format!("SCAN {} COUNT 100 MATCH nosuch", dice.pick(&["0", "x", "0 COUNT 0", "0 COUNT x"])),
        22 => format!("COMMAND INFO {}", dice.pick(&["incr", "set", "nosuch", "scan"])),
        _ => dice
            .pick(&["HELLO 2", "HELLO 3", "RESET", "CLIENT SETNAME x", "CLIENT GETNAME", "CLIENT REPLY ON"])
            .to_owned(),
    };
    words(&text)
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

/// Times to live may differ by as much as the commands are apart, and connections have numbers of their own.
fn same(command: &[String], redis: &Reply, tally: &Reply) -> bool {
    let number = |reply: &Reply| std::str::from_utf8(&reply[0][1..]).ok().and_then(|text| text.parse::<i64>().ok());
    match (command[0].as_str(), number(redis), number(tally)) {
        ("TTL", Some(redis), Some(tally)) => (redis - tally).abs() <= 20,
        ("PTTL", Some(redis), Some(tally)) => (redis - tally).abs() <= 20_000,
        ("HELLO", Some(14 | 7), Some(14 | 7)) => redis.len() == tally.len(),
        _ => redis == tally,
    }
}

#[test]
fn random_pipelines_get_the_replies_that_redis_gives() {
    let settings = Settings::default();
    let (redis, tally) = (Redis::start(&settings), Tally::start(&settings));
    let (mut redis_wire, mut tally_wire) = (Wire::connect(redis.address()), Wire::connect(tally.address()));
    let mut dice = Dice(20_261_115);
    for round in 0..1500 {
        let mut commands: Vec<Vec<String>> = (0..1 + dice.roll(12)).map(|_| draw(&mut dice)).collect();
        // The last one is always heard, so it is known when all replies are there.
        commands.extend([words("CLIENT REPLY ON"), words("ECHO done")]);
        let bytes: Vec<u8> = commands
            .iter()
            .flat_map(|command| encode(&command.iter().map(String::as_bytes).collect::<Vec<_>>()))
            .collect();
        let [redis_replies, tally_replies] = [&mut redis_wire, &mut tally_wire].map(|wire| {
            wire.send(&bytes);
            let mut replies = Vec::new();
            while replies.last().is_none_or(|reply: &Reply| reply[..] != [&b"$4"[..], b"done"]) {
                replies.push(wire.reply().expect("the connection stays open"));
            }
            replies
        });
        assert_eq!(
            redis_replies.len(),
            tally_replies.len(),
            "round {round}: {commands:?}\n{redis_replies:?}\n{tally_replies:?}"
        );
        let heard = heard(&commands);
        assert_eq!(heard.len(), redis_replies.len(), "round {round}: {commands:?}");
        for ((command, redis), tally) in heard.iter().zip(&redis_replies).zip(&tally_replies) {
            assert!(
                same(command, redis, tally),
                "round {round}: {command:?} in {commands:?}\n  redis {}\n  tally {}",
                show(redis),
                show(tally)
            );
        }
    }
    tally.stop();
}

/// The commands whose replies are not skipped.
fn heard(commands: &[Vec<String>]) -> Vec<&Vec<String>> {
    let (mut heard, mut skip) = (Vec::new(), false);
    for command in commands {
        let is_skip = command[..] == ["CLIENT", "REPLY", "SKIP"];
        if !skip && !is_skip || command[..] == ["CLIENT", "REPLY", "ON"] || command[0] == "RESET" {
            heard.push(command);
        }
        skip = is_skip;
    }
    heard
}

fn show(reply: &Reply) -> String {
    reply.iter().map(|line| line.escape_ascii().to_string()).collect::<Vec<_>>().join(" | ")
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
