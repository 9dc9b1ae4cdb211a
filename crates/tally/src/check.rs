//! `tally check`: reads a configuration as `serve` would, and says what it found.

use crate::failure::{Failure, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use tally_core::counter::{Counter, Declarations};
use tally_core::limits::CONFIG_BYTES_MAX;

/// Check a configuration file without starting a server
#[derive(Args)]
#[command(after_help = "\
Example:
  tally check counters.yaml
An error shows the line, the column and the text it is about, and the exit code is 1.")]
pub struct CheckArgs {
    /// The configuration, in YAML
    file: PathBuf,
}

pub fn run(args: CheckArgs) -> Result<()> {
    let declarations = parse(&args.file, &read(&args.file)?)?;
    println!("{}: {} declared", args.file.display(), counted(declarations.counters().len(), "counter"));
    for counter in declarations.counters() {
        println!("  {}", describe(counter));
    }
    Ok(())
}

/// The text of a configuration file.
pub fn read(file: &Path) -> Result<String> {
    let failure = || Failure::new(format!("{} cannot be read", file.display()));
    let bytes = std::fs::metadata(file).map_err(|error| failure().why(error).remedy("Check the path."))?.len();
    if bytes > CONFIG_BYTES_MAX as u64 {
        return Err(failure()
            .why(format!("it has {bytes} bytes, and a configuration has at most {CONFIG_BYTES_MAX}"))
            .remedy("Name the configuration, not a file of data."));
    }
    std::fs::read_to_string(file).map_err(|error| failure().why(error).remedy("Check that it is text in UTF-8."))
}

/// Understands a configuration, or says where it cannot.
pub fn parse(file: &Path, yaml: &str) -> Result<Declarations> {
    Declarations::parse(yaml).map_err(|error| {
        let place = match error.line {
            0 => file.display().to_string(),
            line => format!("{}:{line}:{}", file.display(), error.column),
        };
        Failure::new(format!("{place}: the configuration is not valid"))
            .why(error)
            .remedy("Correct the line and run tally check again.")
    })
}

fn describe(counter: &Counter) -> String {
    let key: String = counter.dimensions.iter().map(|dimension| format!(":{{{dimension}}}")).collect();
    let events: Vec<&str> = counter.rules.iter().map(|rule| &*rule.on).collect();
    let fed = if events.is_empty() { String::new() } else { format!(", fed by {}", events.join(", ")) };
    format!("{}{key}  {}{fed}", counter.name, counter.mode.name())
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_line_column_and_text() {
        let yaml = "counters:\n  - counterName: views\n    mode: sideways\n";
        let text = parse(Path::new("c.yaml"), yaml).unwrap_err().to_string();
        assert!(text.contains("c.yaml:3:11"), "{text}");
        assert!(text.contains("mode: sideways"), "{text}");
    }
}
