//! What `COMMAND DOCS` and `COMMAND INFO` say of each command that both servers have: the same, but for the words.

use crate::servers::{Redis, Settings, Tally};
use crate::tree::Tree;
use crate::wire::Wire;

/// What only one of them has: Tally's own, and what came after the Redis that is compared with.
const OWN: [&str; 2] = ["tally.incrby", "client|setinfo"];

fn text(tree: &Tree) -> &[u8] {
    match tree {
        Tree::Leaf(text) => text,
        _ => b"",
    }
}

/// What a command is documented with, by the name of the field.
fn field(wire: &mut Wire, command: &str, name: &str) -> Option<Tree> {
    let Tree::List(_, documents) = Tree::parse(&wire.command(&[b"COMMAND", b"DOCS", command.as_bytes()])) else {
        panic!("{command} is not documented")
    };
    let [_, Tree::List(_, fields)] = &documents[..] else { panic!("{command} is not documented") };
    fields.chunks(2).find(|pair| text(&pair[0]) == name.as_bytes()).map(|pair| pair[1].clone())
}

/// Arguments without the versions that had them first, in an order that does not matter.
fn plain(tree: Tree) -> Tree {
    let Tree::List(kind, items) = tree else { return tree };
    let mut kept: Vec<Tree> = Vec::new();
    for item in items {
        if kept.last().is_some_and(|last| text(last) == b"since") {
            kept.pop();
        } else {
            kept.push(plain(item));
        }
    }
    kept.sort_by_key(|item| format!("{item:?}"));
    Tree::List(kind, kept)
}

#[test]
fn commands_are_described_as_redis_describes_them() {
    let settings = Settings::default();
    let (redis, tally) = (Redis::start(&settings), Tally::start(&settings));
    let mut wires = [redis.address(), tally.address()].map(Wire::connect);
    let names = wires[1].command(&[b"COMMAND", b"LIST"]);
    let names: Vec<&str> = names[1..].chunks(2).map(|name| std::str::from_utf8(&name[1]).unwrap()).collect();
    assert!(names.len() > 60);
    for name in names.iter().filter(|name| !OWN.contains(name)) {
        for part in ["since", "group", "arguments"] {
            let [redis, tally] = wires.each_mut().map(|wire| field(wire, name, part).map(plain));
            assert_eq!(redis, tally, "{part} of {name}");
        }
        assert!(field(&mut wires[1], name, "summary").is_some() && field(&mut wires[1], name, "complexity").is_some());
        // What a container has is compared one by one.
        if !["client", "command", "config", "function"].contains(name) {
            let [redis, tally] =
                wires.each_mut().map(|wire| Tree::parse(&wire.command(&[b"COMMAND", b"INFO", name.as_bytes()])));
            assert_eq!(redis, tally, "{name}");
        }
    }
    tally.stop();
}
