//! `tally add`: adds to a counter of a running server.

use crate::client::{RespClient, ServerAnswer, ServerArgs};
use crate::failure::Result;
use crate::output::Output;
use clap::Args;

/// Add to a counter and print its new value
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally add visits          one more
  tally add visits 10       ten more
  tally add seats -2        two fewer")]
pub struct AddArgs {
    /// The counter, such as visits or page:home
    id: String,
    /// How many; negative to subtract
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    delta: i64,
    /// Print JSON: {"id":"visits","value":1}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: AddArgs, out: &mut Output) -> Result<()> {
    let answer = RespClient::connect(&args.server)?.call(&["INCRBY", &args.id, &args.delta.to_string()])?;
    match answer {
        ServerAnswer::Integer(value) if args.json => out.json(&serde_json::json!({"id": args.id, "value": value})),
        ServerAnswer::Integer(value) => out.line(value),
        other => Err(other.strange()),
    }
}
