//! Settings: fields of the YAML, and when a checkpoint is due.

use crate::page::{self, Page};
use std::collections::BTreeSet;
use tally_node::engine::EngineOptions;

/// Every field that the JSON Schema knows, wherever it may stand.
fn fields(schema: &serde_json::Value, found: &mut BTreeSet<String>) {
    match schema {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                if name == "properties" {
                    found.extend(member.as_object().unwrap().keys().cloned());
                }
                fields(member, found);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

#[test]
fn the_reference_names_every_field_of_the_configuration() {
    let mut known = BTreeSet::new();
    fields(&serde_json::from_str(&tally_core::counter::schema()).unwrap(), &mut known);
    let code: String = Page::open("docs/guide/counters.md").code().into_iter().collect::<Vec<_>>().join("\n");
    let named: BTreeSet<&str> = code.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let missing: Vec<_> = known.iter().filter(|field| !named.contains(field.as_str())).collect();
    assert!(missing.is_empty(), "docs/guide/counters.md does not name {missing:?}");
}

#[test]
fn the_guide_says_when_a_checkpoint_is_due() {
    let EngineOptions {
        checkpoint_log_bytes,
        checkpoint_records,
        checkpoint_names_bytes,
        checkpoint_ledger_rows,
        checkpoint_retry,
        ..
    } = EngineOptions::default();
    let millions = |n: u64| format!("{} million", n / 1_000_000);
    let said = [
        ("checkpoint_records", format!("{} records", millions(checkpoint_records))),
        ("checkpoint_names_bytes", format!("{} MiB of new ids", checkpoint_names_bytes >> 20)),
        ("checkpoint_ledger_rows", format!("{} changed rows of the ledger", millions(checkpoint_ledger_rows as u64))),
        ("checkpoint_retry", format!("tried again after {} s", checkpoint_retry.as_secs())),
    ];
    let page = Page::open("docs/guide/operations.md");
    let section = page.section("## Checkpoints and restart");
    let missing: Vec<_> = said.iter().filter(|(_, words)| !section.text().contains(&**words)).collect();
    assert!(missing.is_empty(), "{} does not say {missing:?}", section.name);
    let log = format!("`{}GiB`", checkpoint_log_bytes >> 30);
    let flag = page.rows().into_iter().find(|row| row[0].contains("--checkpoint-log")).unwrap();
    assert!(flag.contains(&log), "--checkpoint-log is {log} and not {flag:?}");
    // A new option is a new line above.
    let options = page::file("crates/node/src/engine/options.rs");
    let declared = options.split("impl Default").next().unwrap().matches("pub checkpoint_").count();
    assert_eq!(declared, said.len() + 1, "EngineOptions has another number of checkpoint_… than this test knows");
}
