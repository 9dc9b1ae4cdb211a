//! `tally query`: a question in SQL.

use crate::failure::Result;
use crate::http::HttpArgs;
use crate::output::{Output, readable, remark};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;

/// The server says that time is over, and not the connection.
const BEYOND: Duration = Duration::from_secs(30);

/// Ask a server in SQL, over its archive and over what counters say now
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally query 'select counter, sum(value) from counters group by counter'
  tally query 'select type, count(*) from events group by type order by 2 desc'
  tally query --format csv 'select * from fates' > fates.csv
  tally query - < question.sql

Tables of the archive: events, fates, corrections, base.
What counters say now: counters, parts, boxes, commits.")]
pub struct QueryArgs {
    /// A statement that reads; - takes it from stdin
    statement: String,
    /// How the answer is printed
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: QueryFormat,
    /// How many rows are answered at most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    rows: u64,
    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    server: HttpArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum QueryFormat {
    /// Columns for a person
    #[default]
    Table,
    /// An object per line
    Json,
    /// Comma-separated values, with a header
    Csv,
}

pub fn run(args: QueryArgs, out: &mut Output) -> Result<()> {
    let body = json!({
        "query": statement(&args.statement)?,
        "maxRows": args.rows,
        "timeoutMs": args.timeout.as_millis() as u64,
    });
    let path = if args.format == QueryFormat::Csv { "/v1/sql?format=csv" } else { "/v1/sql" };
    let answer = args.server.post_within(args.timeout + BEYOND, path, "application/json", &body.to_string())?;
    if answer.header("tally-truncated") == Some("true") {
        remark("there are more rows; --rows N shows more of them");
    }
    match args.format {
        QueryFormat::Csv => out.text(&answer.body),
        QueryFormat::Json => rows(&answer.json()?).iter().try_for_each(|row| out.json(row)),
        QueryFormat::Table => print_table(&answer.json()?, out),
    }
}

fn statement(given: &str) -> Result<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut statement = String::new();
    std::io::stdin().read_to_string(&mut statement).map_err(|error| {
        crate::failure::Failure::new("the statement cannot be read").why(error).remedy("Give it as text in UTF-8.")
    })?;
    Ok(statement)
}

fn rows(answer: &Value) -> &[Value] {
    answer["rows"].as_array().map_or(&[], Vec::as_slice)
}

fn print_table(answer: &Value, out: &mut Output) -> Result<()> {
    let columns = answer["columns"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<&str> = columns.iter().filter_map(|column| column["name"].as_str()).collect();
    let is_number = |column: &Value| ["integer", "number"].contains(&column["type"].as_str().unwrap_or_default());
    let to_the_right: Vec<bool> = columns.iter().map(is_number).collect();
    let mut lines = vec![names.iter().map(|name| readable(name.as_bytes())).collect::<Vec<_>>()];
    lines.extend(rows(answer).iter().map(|row| names.iter().map(|name| cell(&row[*name])).collect()));
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    for line in &lines {
        let padded = line.iter().zip(&widths).zip(&to_the_right).map(|((text, width), to_the_right)| {
            if *to_the_right { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        out.line(padded.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => readable(text.as_bytes()),
        other => other.to_string(),
    }
}
