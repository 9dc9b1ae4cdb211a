//! `tally total`: what all keys of a declared counter come to.

use crate::failure::{Failure, Result};
use crate::http::{HttpArgs, escaped};
use crate::output::Output;
use clap::Args;

/// Print what all keys of a declared counter come to
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally total views           1234567
  tally total views --json    {\"id\":\"views\",\"value\":1234567}")]
pub struct TotalArgs {
    /// The name of a declared counter
    counter: String,
    /// Print JSON: {"id":"views","value":42}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: TotalArgs, out: &mut Output) -> Result<()> {
    let answer = args.server.get(&format!("/v1/counters/{}", escaped(&args.counter)), &[])?.json()?;
    if answer["exists"] == false {
        return Err(Failure::not_there(format!("there is no counter {}", args.counter)));
    }
    match args.json {
        true => out.json(&serde_json::json!({"id": answer["id"], "value": answer["value"]})),
        false => out.line(&answer["value"]),
    }
}
