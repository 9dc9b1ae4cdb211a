//! `tally top`: the keys of a declared counter with the greatest values.

use crate::failure::Result;
use crate::http::{HttpArgs, escaped};
use crate::output::{Output, remark};
use clap::Args;

/// Print the keys of a declared counter with the greatest values
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally top views           the ten videos with the most views
  tally top views -k 100    the first hundred
  tally top views --json    {\"id\":\"views:v1\",\"value\":42} per line")]
pub struct TopArgs {
    /// The name of a declared counter
    counter: String,
    /// How many keys
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: u64,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: TopArgs, out: &mut Output) -> Result<()> {
    let path = format!("/v1/top/{}", escaped(&args.counter));
    let answer = args.server.get(&path, &[("k", Some(&args.k.to_string()))])?.json()?;
    if answer["kind"] == "estimate" {
        remark("an estimate: the server is looking through all keys, ask again in a moment");
    }
    let rows = answer["top"].as_array().map_or(&[][..], Vec::as_slice);
    let id = |row: &serde_json::Value| row["id"].as_str().unwrap_or_default().to_owned();
    let width = rows.iter().map(|row| id(row).chars().count()).max().unwrap_or(0);
    for row in rows {
        match args.json {
            true => out.json(row)?,
            false => out.line(format_args!("{:<width$}  {}", id(row), row["value"]))?,
        }
    }
    Ok(())
}
