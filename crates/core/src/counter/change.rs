//! What a new configuration adds, changes and removes.

use super::Declarations;
use std::fmt;

/// The names of counters that differ between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredChanges {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
}

/// Names that are shown of a kind of change.
const NAMES_SHOWN_MAX: usize = 20;

impl Declarations {
    pub fn changes_since(&self, before: &Declarations) -> DeclaredChanges {
        let mut changes = DeclaredChanges::default();
        for counter in self.counters() {
            let name = counter.name.to_string();
            match before.counters().iter().find(|known| known.name == counter.name) {
                None => changes.added.push(name),
                Some(known) if known != counter => changes.changed.push(name),
                Some(_) => {}
            }
        }
        let is_gone = |name: &str| self.find(name.as_bytes()).is_none_or(|index| self.is_removed(index));
        let gone = before.counters().iter().filter(|counter| is_gone(&counter.name));
        changes.removed = gone.map(|counter| counter.name.to_string()).collect();
        changes
    }
}

/// `a, b and 7 more`.
pub fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(NAMES_SHOWN_MAX).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMES_SHOWN_MAX) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

impl fmt::Display for DeclaredChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let told: Vec<String> = kinds
            .iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{kind} {}", listed(names)))
            .collect();
        f.write_str(if told.is_empty() { "settings changed" } else { "" })?;
        f.write_str(&told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declare(counters: &[&str]) -> Declarations {
        let yaml: String = counters.iter().map(|counter| format!("  - {{counterName: {counter}}}\n")).collect();
        Declarations::parse(&format!("counters:\n{yaml}")).expect("it is valid")
    }

    #[test]
    fn what_was_added_changed_and_removed_is_named() {
        let before = declare(&["a, mode: simple", "b, mode: simple", "c, mode: simple"]);
        let after = declare(&["b, mode: simple, floorAtZero: true", "d, mode: simple", "c, mode: simple"]);
        assert_eq!(after.changes_since(&before).to_string(), "added d; changed b; removed a");
        assert_eq!(after.changes_since(&after).to_string(), "settings changed");
    }

    #[test]
    fn a_long_list_is_cut_short() {
        let names: Vec<String> = (0..22).map(|n| n.to_string()).collect();
        assert!(listed(&names).ends_with("18, 19 and 2 more"));
        assert_eq!(listed(&names[..2]), "0, 1");
    }
}
