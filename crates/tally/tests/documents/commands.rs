//! Commands of the Redis protocol: what the table has, and what the guide lists.

use crate::page::{self, Page, assert_same, words};
use crate::wire::Asked;
use std::collections::BTreeSet;

/// Every command of the table, and every subcommand as `client|id`.
fn known() -> BTreeSet<String> {
    let directory = "crates/node/src/frontend/resp/command";
    let files = std::fs::read_dir(page::root().join(directory)).unwrap().flatten();
    let sources = files.filter(|file| file.path().is_file()).map(|file| std::fs::read_to_string(file.path()).unwrap());
    let names = |source: String| -> Vec<String> {
        let rows = source.split("Command::new(").skip(1);
        rows.filter_map(|row| row.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned)).collect()
    };
    let names: BTreeSet<String> = sources.flat_map(names).collect();
    assert!(names.contains("incr") && names.contains("client|id"), "the table is written otherwise: {names:?}");
    names
}

#[test]
fn the_table_is_what_a_client_is_told() {
    let answer = Asked::start().resp("COMMAND COUNT");
    let commands = known().into_iter().filter(|name| !name.contains('|')).count();
    assert!(answer.starts_with(&format!(":{commands}\r\n")), "{commands} are in the table: {answer}");
}

/// In the guide a container is followed by its subcommands in brackets, or by one subcommand.
fn listed(cell: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let mut listed = BTreeSet::new();
    let mut last = String::new();
    let mut in_brackets = false;
    for (index, part) in cell.split('`').enumerate() {
        if index % 2 == 0 {
            in_brackets = (in_brackets || part.contains('(')) && !part.contains(')');
            continue;
        }
        let word = part.to_lowercase().replace(' ', "|");
        if !in_brackets {
            last = word.split('|').next().unwrap().to_owned();
            listed.insert(word);
        } else if known.iter().any(|name| name.starts_with(&format!("{last}|"))) {
            listed.insert(format!("{last}|{word}"));
        }
    }
    listed
}

#[test]
fn the_guide_lists_every_command_and_no_other() {
    let known = known();
    let rows = Page::open("docs/guide/redis.md").section("## Commands").rows();
    let mut written: BTreeSet<String> = rows.iter().flat_map(|row| listed(&row[1], &known)).collect();
    let containers: BTreeSet<String> =
        known.iter().filter_map(|name| name.split_once('|')).map(|(container, _)| container.to_owned()).collect();
    written.extend(
        containers
            .iter()
            .filter(|name| written.iter().any(|w| w.starts_with(&format!("{name}|"))))
            .cloned()
            .collect::<Vec<_>>(),
    );
    // Every container explains itself, and what is only there to be refused is no offer.
    let there = known.into_iter().filter(|name| !name.ends_with("|help") && name != "config|set").collect();
    assert_same("docs/guide/redis.md, \"Commands\"", &written, "the table of commands", &there);
}

#[test]
fn what_the_guide_calls_missing_is_missing() {
    let known = known();
    let text = Page::open("docs/guide/redis.md").section("## Commands").text().to_owned();
    let told = text.split("In this version there is no").nth(1).unwrap_or_default().split("(`SET").next().unwrap();
    let there: Vec<String> = words(told).into_iter().filter(|word| known.contains(&word.to_lowercase())).collect();
    assert!(there.is_empty(), "docs/guide/redis.md says that there is no {there:?}, but there is");
}
