//! `tally top`: the keys of a declared counter with the greatest values.

use crate::failure::Result;
use crate::http::{HttpArgs, escaped};
use crate::output::{Output, readable, remark};
use clap::Args;
use serde_json::{Value, json};

/// Print the keys of a declared counter with the greatest values
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally top views           the ten videos with the most views
  tally top views -k 100    the first hundred
  tally top views --window 24h         of the running hour and the 23 before
  tally top views --by country -k 3    the first three of each country
  tally top views --json    {\"id\":\"views:v1\",\"value\":42} per line

A window, and a dimension, need a roll-up that has them; if there is none, the
error names the one to declare.")]
pub struct TopArgs {
    /// The name of a declared counter
    counter: String,
    /// How many keys
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: u64,
    /// Since when: all, 1h (the running hour) or 24h (it and the 23 before)
    #[arg(long, value_name = "WINDOW", default_value = "all")]
    window: String,
    /// The first keys of each value of this dimension
    #[arg(long, value_name = "DIMENSION")]
    by: Option<String>,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: TopArgs, out: &mut Output) -> Result<()> {
    let path = format!("/v1/top/{}", escaped(&args.counter));
    let k = args.k.to_string();
    let parameters = [("k", Some(&*k)), ("window", Some(&*args.window)), ("by", args.by.as_deref())];
    let answer = args.server.get(&path, &parameters)?.json()?;
    if answer["kind"] == "estimate" {
        remark(estimate(&answer));
    }
    let Some(groups) = answer["groups"].as_array() else { return print(&answer["top"], None, args.json, out) };
    for group in groups {
        if !args.json {
            out.line(format_args!("{}  {}", text(&group["value"]), group["total"]))?;
        }
        print(&group["top"], Some(&group["value"]), args.json, out)?;
    }
    Ok(())
}

/// Who will know better, and when.
fn estimate(answer: &Value) -> &'static str {
    match answer["rollup"].is_null() {
        true => "an estimate: the server is looking through all keys, ask again in a moment",
        false => "an estimate: others may have come to as much; GET /v1/top says how much at most",
    }
}

/// As it can be shown: what people send has control characters, too.
fn text(value: &Value) -> String {
    readable(value.as_str().unwrap_or_default().as_bytes())
}

/// Prints keys; those of a group are set in, and as JSON say whose they are.
fn print(rows: &Value, group: Option<&Value>, json: bool, out: &mut Output) -> Result<()> {
    let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
    let width = rows.iter().map(|row| text(&row["id"]).chars().count()).max().unwrap_or(0);
    let indent = if group.is_some() { "  " } else { "" };
    for row in rows {
        match (json, group) {
            (true, None) => out.json(row)?,
            (true, Some(group)) => out.json(&json!({"group": group, "id": row["id"], "value": row["value"]}))?,
            (false, _) => out.line(format_args!("{indent}{:<width$}  {}", text(&row["id"]), row["value"]))?,
        }
    }
    Ok(())
}
