//! Bytes on disk: kinds of keys, and tags of records.

use crate::page::{self, Page, assert_same};
use std::collections::{BTreeMap, BTreeSet};
use tally_core::id::CellKey;
use tally_core::ledger::{LedgerKey, LedgerKind};

/// The constants `NAME: u8 = 3` of a module in a source file, as `3 name`.
fn numbers(source: &str, module: &str) -> BTreeMap<u8, String> {
    let text = page::file(source);
    let module = text.split(&format!("mod {module} {{")).nth(1).unwrap().split("\n}").next().unwrap().to_owned();
    let constants = module.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": u8 = "));
    constants.map(|(name, number)| (number.trim_end_matches(';').parse().unwrap(), name.to_lowercase())).collect()
}

/// The first two cells of the rows whose first cell is a number.
fn numbered(page: &Page) -> BTreeMap<u8, String> {
    page.rows().into_iter().filter_map(|row| Some((row[0].parse().ok()?, row[1].clone()))).collect()
}

#[test]
fn the_format_lists_every_kind_of_ledger_key_with_its_length() {
    let written = numbered(&Page::open("docs/formats/keys.md").section("## The ledger"));
    let written: BTreeSet<String> =
        written.iter().map(|(kind, key)| format!("{kind}: {} bytes", key_bytes(key))).collect();
    // The least key of a kind has its length.
    let length = |kind: LedgerKind| {
        let end = LedgerKey::range(kind).start;
        let zeros = |len: usize| LedgerKey::decode(&[end[0..1].to_vec(), vec![0; len]].concat()).is_ok();
        (0..64).find(|len| zeros(*len)).expect("a key of this kind")
    };
    let there = LedgerKind::ALL.iter().map(|kind| format!("{}: {} bytes", *kind as u8, length(*kind))).collect();
    assert_same("docs/formats/keys.md, \"The ledger\"", &written, "LedgerKind", &there);
}

/// "`05`, cell key (16), generation (8)" has 24 bytes behind its kind.
fn key_bytes(key: &str) -> usize {
    let lengths = key.split('(').skip(1).map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>());
    lengths.map(|digits| digits.parse::<usize>().unwrap()).sum()
}

#[test]
fn the_format_lists_every_kind_of_key_of_the_store() {
    let written = numbered(&Page::open("docs/formats/keys.md").section("## Keys"));
    let there = numbers("crates/storage/src/store/key.rs", "kind");
    let bytes = |kinds: BTreeSet<u8>| kinds.iter().map(u8::to_string).collect();
    let (written, there) = (written.into_keys().collect(), there.into_keys().collect());
    assert_same("docs/formats/keys.md, \"Keys\"", &bytes(written), "storage/src/store/key.rs", &bytes(there));
    assert_eq!(CellKey::NONE.to_bytes().len(), 16, "a cell key has 16 bytes, as the format says");
}

#[test]
fn the_format_lists_every_tag_of_a_record() {
    let page = Page::open("docs/formats/wal.md");
    // What stands under the heading of an event are flags.
    let flags: BTreeSet<String> = numbered(&page.section("### Event")).into_values().collect();
    let rows = page.section("## Records").rows();
    let written = rows.iter().filter(|row| !flags.contains(&row[1]));
    let written: BTreeMap<u8, String> =
        written.filter_map(|row| Some((row[0].parse().ok()?, row[1].clone()))).collect();
    let written: BTreeSet<String> =
        written.iter().map(|(tag, name)| format!("{tag} {}", name.to_lowercase().replace(' ', "_"))).collect();
    let there = numbers("crates/core/src/record.rs", "tag");
    // An increment is an addition with a delta of 1, and the format says so.
    let name = |name: &str| if name == "increment" { "add_with_delta_1".to_owned() } else { name.to_owned() };
    let there = there.iter().map(|(tag, tag_name)| format!("{tag} {}", name(tag_name))).collect();
    assert_same("docs/formats/wal.md, \"Records\"", &written, "record.rs", &there);
}
