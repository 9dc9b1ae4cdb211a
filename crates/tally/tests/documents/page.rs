//! A document, as far as these tests read it: headings, rows of tables, words in code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub struct Page {
    pub name: String,
    text: String,
}

/// Where the repository is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the repository: a document, or source where a table is written.
pub fn file(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every document for users, operators and those who change Tally.
pub fn all() -> Vec<Page> {
    let mut names: Vec<String> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(str::to_owned).to_vec();
    for directory in ["docs/guide", "docs/formats", "docs/ops"] {
        let entries = std::fs::read_dir(root().join(directory)).into_iter().flatten().flatten();
        let files = entries.map(|entry| format!("{directory}/{}", entry.file_name().to_str().unwrap()));
        names.extend(files.filter(|name| name.ends_with(".md")));
    }
    names.sort();
    names.iter().map(|name| Page::open(name)).collect()
}

impl Page {
    pub fn open(name: &str) -> Page {
        Page { name: name.to_owned(), text: file(name) }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// What stands under a heading, to the next one of its rank or a higher one.
    pub fn section(&self, heading: &str) -> Page {
        let rank = rank(heading);
        let mut lines = self.text.lines().skip_while(|line| *line != heading);
        assert!(lines.next().is_some(), "{} has no heading {heading:?}", self.name);
        let mut in_block = false;
        let goes_on = |line: &&str| {
            in_block ^= line.starts_with("```");
            in_block || !(1..=rank).contains(&self::rank(line))
        };
        let text: Vec<&str> = lines.take_while(goes_on).collect();
        Page { name: format!("{} under {heading:?}", self.name), text: text.join("\n") }
    }

    /// The cells of each row of its tables, without heads.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let is_rule = |line: &str| line.starts_with("|--") || line.starts_with("|:-");
        let lines: Vec<&str> = self.text.lines().collect();
        let is_head = |index: usize| lines.get(index + 1).is_some_and(|next| is_rule(next));
        let rows = lines.iter().enumerate();
        rows.filter(|(index, line)| line.starts_with('|') && !is_rule(line) && !is_head(*index))
            .map(|(_, line)| cells(line))
            .collect()
    }

    /// Everything that is written as code, within lines and in blocks.
    pub fn code(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut in_block = false;
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            } else if in_block {
                found.insert(line.to_owned());
            } else {
                found.extend(words(line));
            }
        }
        found
    }
}

/// How many `#` a heading has; 0 for what is none.
fn rank(line: &str) -> usize {
    let hashes = line.chars().take_while(|c| *c == '#').count();
    if line[hashes..].starts_with(' ') { hashes } else { 0 }
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    row.split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

/// What stands between backticks.
pub fn words(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Fails unless both sides say the same, and says what each lacks.
#[track_caller]
pub fn assert_same(document: &str, written: &BTreeSet<String>, code: &str, there: &BTreeSet<String>) {
    let missing: Vec<_> = there.difference(written).collect();
    let surplus: Vec<_> = written.difference(there).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "{document} does not say what {code} has\n  missing in the document: {missing:#?}\n  in the document alone: {surplus:#?}"
    );
}
