//! `tally check`: reads a configuration as `serve` would, and says what it understood, defaults included.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use tally_core::counter::duration::shown;
use tally_core::counter::{
    ConfigError, ConfigErrors, Counter, Declarations, Direction, Lateness, Retention, Rollup, Rollups, Rule, schema,
};
use tally_core::limits::CONFIG_BYTES_MAX;

/// Check a configuration file without starting a server
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally check counters.yaml
  tally check --schema > config.schema.json   for editors that check YAML

An error shows the line, the column and the text it is about, and the exit code
is 1.")]
pub struct CheckArgs {
    /// The configuration, in YAML
    #[arg(required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the JSON Schema of a configuration instead
    #[arg(long, conflicts_with = "file")]
    schema: bool,
    /// Print what was understood as JSON
    #[arg(long, conflicts_with = "schema")]
    json: bool,
}

pub fn run(args: CheckArgs, out: &mut Output) -> Result<()> {
    let Some(file) = args.file else {
        return out.text(schema());
    };
    let declarations = parse(&file, &read(&file)?)?;
    refuse_blank(&file, &declarations)?;
    match args.json {
        true => out.json(&as_json(&file, &declarations)),
        false => print(&file, &declarations, out),
    }
}

fn print(file: &Path, declarations: &Declarations, out: &mut Output) -> Result<()> {
    out.line(format_args!("{}: {} declared", file.display(), counted(declarations.counters().len(), "counter")))?;
    for counter in declarations.counters() {
        out.line(format_args!("  {}", describe(counter)))?;
        for (setting, value) in settings(counter) {
            out.line(format_args!("    {setting:<12} {value}"))?;
        }
    }
    let keys = declarations.idempotency();
    let (keep, most) = (shown(keys.keep_ms), keys.keys_max);
    out.line(format_args!("  idempotency of direct writes: keys are known for {keep}, at most {most}"))
}

/// The same for a program.
fn as_json(file: &Path, declarations: &Declarations) -> Value {
    let counter = |counter: &Counter| {
        let rules: Vec<Value> = counter.rules.iter().map(|rule| json!({"on": rule.on, "op": op(rule.op)})).collect();
        let settings: Map<String, Value> =
            settings(counter).into_iter().map(|(setting, value)| (setting.to_owned(), value.into())).collect();
        json!({
            "counterName": counter.name, "mode": counter.mode().name(), "dimensions": counter.dimensions,
            "rules": rules, "settings": settings,
        })
    };
    let keys = declarations.idempotency();
    json!({
        "file": file.display().to_string(),
        "counters": declarations.counters().iter().map(counter).collect::<Vec<_>>(),
        "idempotency": {"keep": shown(keys.keep_ms), "maxKeys": keys.keys_max},
    })
}

fn op(direction: Direction) -> &'static str {
    match direction {
        Direction::Increment => "increment",
        Direction::Decrement => "decrement",
    }
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
    Declarations::parse(yaml).map_err(|errors| wrong(file, &errors))
}

/// Refuses a file in which nothing stands: somebody has named the wrong one.
pub fn refuse_blank(file: &Path, declarations: &Declarations) -> Result<()> {
    if !declarations.is_blank() {
        return Ok(());
    }
    Err(Failure::new(format!("{}: the configuration is empty", file.display()))
        .why("it says nothing, and a node without declared counters would ignore all events")
        .remedy("Name the right file, or write counters: [] if this is meant."))
}

/// What is wrong with a configuration, all of it.
pub fn wrong(file: &Path, errors: &ConfigErrors) -> Failure {
    let place = |error: &ConfigError| match error.line {
        0 => file.display().to_string(),
        line => format!("{}:{line}:{}", file.display(), error.column),
    };
    if let [error] = &errors.shown[..] {
        let why = [Some(error.message.clone()), error.snippet().map(|snippet| indented(&snippet, 4))];
        return Failure::new(format!("{}: the configuration is not valid", place(error)))
            .why(why.into_iter().flatten().collect::<Vec<_>>().join("\n"))
            .remedy(sentence(&error.fix));
    }
    let count = errors.shown.len() + errors.more;
    let mut text = format!("{}: the configuration has {count} errors", file.display());
    for error in &errors.shown {
        text.push_str(&format!("\n  {}: {}", place(error), error.message));
        text.extend(error.snippet().map(|snippet| format!("\n{}", indented(&snippet, 4))));
        text.push_str(&format!("\n    fix: {}", sentence(&error.fix)));
    }
    if errors.more > 0 {
        text.push_str(&format!("\n  and {} more", errors.more));
    }
    Failure::new(text)
}

fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}", "")).collect::<Vec<_>>().join("\n")
}

/// With a capital letter and a full stop, unless it ends in something of the kind.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|first| first.to_uppercase().collect()).unwrap_or_default();
    let stop = if text.ends_with(['?', '.', '"', ']', '}']) { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

fn describe(counter: &Counter) -> String {
    let key: String = counter.dimensions.iter().map(|dimension| format!(":{{{dimension}}}")).collect();
    let events: Vec<String> = counter.rules.iter().map(event).collect();
    let fed = if events.is_empty() { String::new() } else { format!(", fed by {}", events.join(", ")) };
    format!("{}{key}  {}{fed}", counter.name, counter.mode().name())
}

fn event(rule: &Rule) -> String {
    match rule.op {
        Direction::Increment => rule.on.to_string(),
        Direction::Decrement => format!("{} (decrement)", rule.on),
    }
}

/// What holds for a counter, whether its declaration says so or not.
fn settings(counter: &Counter) -> Vec<(&'static str, String)> {
    let mut settings = counter.contract.described();
    if counter.mode().takes_lateness() && !counter.rules.is_empty() {
        let value = counter.lateness.map_or("none: events count whenever they come".into(), lateness);
        settings.push(("lateness", value));
    }
    let floor = if counter.floor_at_zero { "true: reads show 0 for a sum below it" } else { "false" };
    settings.push(("floorAtZero", floor.into()));
    settings.push(("durability", counter.durability.map_or("as the node", |durability| durability.name()).into()));
    if !counter.is_archived {
        settings.push(("archive", "none: its events are not kept for its sake".into()));
    }
    if !counter.rollups.is_empty() {
        settings.push(("rollups", rollups(&counter.rollups)));
    }
    if !counter.rollups.retention.keeps().is_empty() {
        settings.push(("retention", retention(&counter.rollups.retention)));
    }
    settings
}

fn rollups(rollups: &Rollups) -> String {
    let mut text = rollups.all.iter().map(Rollup::to_string).collect::<Vec<_>>().join(" ");
    if rollups.all.iter().any(|rollup| rollup.unit.is_some()) {
        text.push_str(&format!(", by the clocks of {}", rollups.zone.name()));
    }
    for (dimension, most) in &rollups.limits {
        text.push_str(&format!(", at most {most} values of {dimension}"));
    }
    text
}

fn retention(retention: &Retention) -> String {
    let ends = retention.keeps().last().is_some_and(|keep| keep.ms.is_some());
    format!("{retention}{}", if ends { ", then deleted" } else { "" })
}

fn lateness(lateness: Lateness) -> String {
    let Lateness { allowed_ms, corrected_ms, every_ms, restated_ms } = lateness;
    format!(
        "allowed {}, corrected up to {} every {}, older restated every {}",
        shown(allowed_ms),
        shown(corrected_ms),
        shown(every_ms),
        shown(restated_ms)
    )
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
