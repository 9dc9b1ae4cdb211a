//! Replies as trees, without what two servers may say differently: the order of names, the number of a connection, the
//! moment at which a time to live was read or `TIME` was asked for, and what `INFO` adds to the number of keys.

use crate::wire::Reply;
use std::fmt;

/// Seconds and milliseconds that only a time to live has here, and by how much two readings of it may differ: up to a
/// moment that somebody may name, and up to the last one.
const TTLS: [(std::ops::Range<i64>, i64); 4] = [
    (900_000_000..50_000_000_000, 60),
    (900_000_000_000..50_000_000_000_000, 60_000),
    (9_223_370_000_000_000..9_223_371_000_000_000, 60),
    (9_223_370_000_000_000_000..9_223_371_000_000_000_000, 60_000),
];

/// Seconds since 1970, from 2020 to 2080.
const YEARS: std::ops::Range<i64> = 1_577_000_000..3_471_000_000;

#[derive(Clone)]
pub enum Tree {
    Leaf(Vec<u8>),
    Number(i64),
    List(u8, Vec<Tree>),
}

impl Tree {
    /// Reads a reply as [`crate::wire::Wire`] cuts it into lines.
    pub fn parse(lines: &Reply) -> Tree {
        let mut lines = lines.iter();
        let tree = Tree::next(&mut lines);
        assert!(lines.next().is_none(), "a reply is one tree");
        tree
    }

    fn next<'a>(lines: &mut impl Iterator<Item = &'a Vec<u8>>) -> Tree {
        let line = lines.next().expect("a reply is complete");
        let number = std::str::from_utf8(&line[1..]).ok().and_then(|text| text.parse::<i64>().ok());
        match (line[0], number) {
            (b':', Some(number)) => Tree::Number(number),
            (b'$' | b'=', Some(0..)) => Tree::Leaf(told(lines.next().expect("a text follows its length"))),
            (kind @ (b'*' | b'~'), Some(len @ 0..)) => Tree::list(kind, len, lines),
            (b'%', Some(len @ 0..)) => Tree::list(b'%', 2 * len, lines),
            _ => Tree::Leaf(line.clone()),
        }
    }

    fn list<'a>(kind: u8, len: i64, lines: &mut impl Iterator<Item = &'a Vec<u8>>) -> Tree {
        let mut items: Vec<Tree> = (0..len).map(|_| Tree::next(lines)).collect();
        // Values are numbers; what begins with a letter is a name, and names come in any order.
        if items.iter().all(|item| matches!(item, Tree::Leaf(text) if text.first().is_none_or(u8::is_ascii_alphabetic)))
        {
            items.sort_by(|a, b| a.text().cmp(b.text()));
        }
        // Only `TIME` answers with a moment of these years: two servers are not asked at the same one.
        if let [Tree::Leaf(seconds), Tree::Leaf(_)] = &items[..]
            && std::str::from_utf8(seconds).is_ok_and(|text| text.parse().is_ok_and(|s| YEARS.contains(&s)))
        {
            items = vec![Tree::Leaf(b"now".to_vec())];
        }
        if let Some(at) = items.iter().position(|item| item.text() == b"id")
            && items.first().is_some_and(|first| first.text() == b"server")
        {
            items[at + 1] = Tree::Leaf(b"of the connection".to_vec());
        }
        Tree::List(kind, items)
    }

    fn text(&self) -> &[u8] {
        match self {
            Tree::Leaf(text) => text,
            _ => b"",
        }
    }
}

/// What `INFO keyspace` says of each database behind the number of its keys is left out.
fn told(text: &[u8]) -> Vec<u8> {
    if !text.starts_with(b"# Keyspace") && !text.starts_with(b"txt:# Keyspace") {
        return text.to_vec();
    }
    let text = String::from_utf8_lossy(text);
    text.lines().map(|line| line.split(',').next().unwrap_or(line)).collect::<Vec<_>>().join("\n").into_bytes()
}

impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        match (self, other) {
            (Tree::Leaf(a), Tree::Leaf(b)) => a == b,
            (Tree::Number(a), Tree::Number(b)) => a == b || may_be_ttls(*a, *b),
            (Tree::List(kind, a), Tree::List(other, b)) => kind == other && a == b,
            _ => false,
        }
    }
}

fn may_be_ttls(a: i64, b: i64) -> bool {
    TTLS.iter().any(|(range, apart)| range.contains(&a) && range.contains(&b) && a.abs_diff(b) <= *apart as u64)
}

impl fmt::Debug for Tree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Leaf(text) => write!(out, "{}", text.escape_ascii()),
            Tree::Number(number) => write!(out, ":{number}"),
            Tree::List(kind, items) => {
                write!(out, "{}", char::from(*kind))?;
                out.debug_list().entries(items).finish()
            }
        }
    }
}

#[test]
fn a_tree_differs_only_where_servers_may_not() {
    let tree = |lines: &[&str]| Tree::parse(&lines.iter().map(|line| line.as_bytes().to_vec()).collect());
    assert_eq!(tree(&["*2", "$1", "a", "$1", "b"]), tree(&["*2", "$1", "b", "$1", "a"]));
    assert_ne!(tree(&["*2", "$1", "1", "$1", "2"]), tree(&["*2", "$1", "2", "$1", "1"]));
    assert_eq!(tree(&[":31000000000"]), tree(&[":31000000003"]));
    assert_ne!(tree(&[":9223372036854775806"]), tree(&[":9223372036854775807"]));
    assert_ne!(tree(&[":5"]), tree(&["$1", "5"]));
}
