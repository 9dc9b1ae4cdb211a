//! The counts that are kept in `docs/instructions.md`: written, and compared with.

use crate::shell;
use anyhow::{Context, Result, bail, ensure};
use std::env::consts::ARCH;
use std::path::PathBuf;
use std::process::Command;

/// How far a count may be from the table, either way, in percent.
const TOLERANCE_PERCENT: f64 = 3.0;

fn path() -> PathBuf {
    shell::workspace().join("docs/instructions.md")
}

/// Makes these counts what the table says.
pub fn write(counts: &[(&str, f64)]) -> Result<()> {
    let made_with = format!("{}, {}, {ARCH}", version("rustc")?, version("valgrind")?);
    std::fs::write(path(), render(&made_with, counts))?;
    println!("written to docs/instructions.md");
    Ok(())
}

/// Fails if a count is not what the table says. A processor that speaks another language has other counts, and is passed over.
pub fn compare(counts: &[(&str, f64)]) -> Result<()> {
    let table = std::fs::read_to_string(path()).context("docs/instructions.md cannot be read")?;
    let made_with = made_with(&table).context("docs/instructions.md does not say what it was written with")?;
    if !made_with.ends_with(ARCH) {
        println!("  not compared: the table is of {made_with}, and this is {ARCH}");
        return Ok(());
    }
    let wrong = differences(&table, counts)?;
    if wrong.is_empty() {
        println!("  all within {TOLERANCE_PERCENT} % of docs/instructions.md");
        return Ok(());
    }
    bail!(
        "instructions are more than {TOLERANCE_PERCENT} % from docs/instructions.md: {}. The table was written with {made_with}, this is {}. If the \
         change is meant, run `cargo xtask instructions --write` and say why in the commit",
        wrong.join("; "),
        version("rustc")?
    )
}

/// What of the counts is too far from the table.
fn differences(table: &str, counts: &[(&str, f64)]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (title, count) in counts {
        let known = known(table, title).with_context(|| format!("docs/instructions.md has no line for {title}"))?;
        let percent = (count / known - 1.0) * 100.0;
        println!("  {title:<50} {known:>8.0} in the table, {percent:+.1} %");
        if percent.abs() > TOLERANCE_PERCENT {
            wrong.push(format!("{title} takes {count:.0} instead of {known:.0} ({percent:+.1} %)"));
        }
    }
    Ok(wrong)
}

fn render(made_with: &str, counts: &[(&str, f64)]) -> String {
    let lines: String = counts.iter().map(|(title, count)| format!("| {title} | {count:.0} |\n")).collect();
    format!(
        "# Instructions\n\n\
         Instructions of user code that one operation takes on the hot paths, start and end of the server not counted. `cargo xtask instructions`\n\
         counts them with callgrind on a release build, and `cargo xtask test` fails if one is more than {TOLERANCE_PERCENT} % away from this table, in either direction. A\n\
         change that means to be faster, or has to be slower, writes the table again with `cargo xtask instructions --write`. What the kernel does and\n\
         what the memory makes wait for is not in these numbers: [benchmarks.md](benchmarks.md) has the rates.\n\n\
         | operation | instructions |\n|---|---:|\n{lines}\n\
         Written with: {made_with}\n"
    )
}

/// The count that the table has for an operation.
fn known(table: &str, title: &str) -> Option<f64> {
    table.lines().find_map(|line| {
        let (name, count) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        (name == title).then(|| count.parse().ok())?
    })
}

fn made_with(table: &str) -> Option<&str> {
    table.lines().find_map(|line| line.strip_prefix("Written with: "))
}

/// What a tool says of itself.
fn version(tool: &str) -> Result<String> {
    let output =
        Command::new(tool).arg("--version").output().with_context(|| format!("{tool} could not be started"))?;
    ensure!(output.status.success(), "{tool} --version failed");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::LOADS;
    use super::*;

    #[test]
    fn a_count_is_compared_with_what_was_written_in_both_directions() {
        let table = render("rustc 1, valgrind 2, sparc", &[("`INCR`", 1000.0), ("event", 200.4)]);
        assert_eq!((known(&table, "event"), made_with(&table)), (Some(200.0), Some("rustc 1, valgrind 2, sparc")));
        assert_eq!(differences(&table, &[("`INCR`", 1029.0), ("event", 195.0)]).unwrap(), Vec::<String>::new());
        assert_eq!(differences(&table, &[("`INCR`", 1031.0), ("event", 193.0)]).unwrap().len(), 2);
        assert!(differences(&table, &[("something else", 1.0)]).is_err());
    }

    #[test]
    fn the_table_in_the_documents_has_every_load() {
        let table = std::fs::read_to_string(path()).unwrap();
        assert!(made_with(&table).is_some());
        for load in &LOADS {
            assert!(known(&table, load.title).is_some_and(|count| count > 0.0), "{}", load.title);
        }
    }
}
