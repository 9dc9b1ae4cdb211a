//! Flags: what the command line takes, and what the documents name.

use crate::page::{self, Page, assert_same};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn help(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tally")).args(args).arg("--help").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The flags that a help text explains; those that every command has are left out.
fn flags(help: &str) -> BTreeSet<String> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let flags = lines.flat_map(|line| line.split([' ', ',']).filter(|word| word.starts_with("--")).take(1));
    flags.filter(|flag| !["--help", "--version"].contains(flag)).map(str::to_owned).collect()
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<&str> {
    let listed = help.split("Commands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).collect()
}

/// The flags of each command, those of its own commands included.
fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let of = |name: &str| {
        let text = help(&[name]);
        let below = listed(&text).into_iter().flat_map(|below| flags(&help(&[name, below])));
        flags(&text).into_iter().chain(below).collect()
    };
    listed(&help(&[])).into_iter().map(|name| (name.to_owned(), of(name))).collect()
}

#[test]
fn the_guide_lists_every_flag_of_serve_and_no_other() {
    let rows = Page::open("docs/guide/operations.md").section("## Flags of `tally serve`").rows();
    let words = rows.iter().flat_map(|row| page::words(&row[0]));
    let written = words.filter_map(|word| word.split(' ').next().map(str::to_owned)).collect();
    assert_same(
        "docs/guide/operations.md, \"Flags of `tally serve`\"",
        &written,
        "tally serve --help",
        &commands()["serve"],
    );
}

/// Programs that are not ours, in commands that documents show.
const OTHERS: [&str; 8] = ["curl", "redis-cli", "cargo", "docker", "promtool", "apt-get", "systemctl", "cp"];

#[test]
fn every_flag_that_a_document_names_exists() {
    let commands = commands();
    let every: BTreeSet<&String> = commands.values().flatten().collect();
    let mut unknown = Vec::new();
    for page in page::all() {
        for code in page.code() {
            let code = code.trim_start_matches("$ ");
            let mut words = code.split_whitespace();
            let program = words.clone().next().unwrap_or_default();
            // `cargo run --release -- serve` is ours behind the dashes.
            let code = code.split_once(" -- ").map_or(code, |(_, ours)| ours);
            if OTHERS.contains(&program) && !code.starts_with("serve") {
                continue;
            }
            let command = words.nth(1).filter(|_| program == "tally");
            let known = |flag: &str| {
                let of_command = command.and_then(|command| commands.get(command));
                of_command.map_or_else(|| every.iter().any(|known| *known == flag), |flags| flags.contains(flag))
            };
            let flags = code.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
            for flag in flags {
                let end = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
                let flag = flag.split(end).next().unwrap();
                if !known(flag) && !["--help", "--version"].contains(&flag) && !page.name.contains("CONTRIBUTING") {
                    unknown.push(format!("{}: {code}", page.name));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "no such flag: {unknown:#?}");
}

#[test]
fn every_command_of_the_command_line_is_named_in_the_readme_or_the_guide() {
    let text: String = page::all().iter().map(|page| page.text().to_owned()).collect();
    let missing: Vec<String> = commands().into_keys().filter(|name| !text.contains(&format!("tally {name}"))).collect();
    assert!(missing.is_empty(), "no document names tally {missing:?}");
}

#[test]
fn the_guide_lists_every_command_of_the_command_line_and_no_other() {
    let rows = Page::open("docs/guide/operations.md").section("## The command line").rows();
    let words = rows.iter().flat_map(|row| page::words(&row[0]));
    let written = words.filter_map(|word| word.strip_prefix("tally ").map(str::to_owned)).collect();
    let there = commands().into_keys().collect();
    assert_same("docs/guide/operations.md, \"The command line\"", &written, "tally --help", &there);
}
