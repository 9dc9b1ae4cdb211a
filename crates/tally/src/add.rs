//! `tally add`: adds to a counter of a running server.

use crate::client::{Answer, Client, ServerArgs};
use crate::failure::{Failure, Result};
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
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: AddArgs) -> Result<()> {
    let answer = Client::connect(&args.server)?.call(&["INCRBY", &args.id, &args.delta.to_string()])?;
    match answer {
        Answer::Integer(value) => println!("{value}"),
        other => return Err(Failure::new("the server gave a strange answer").why(format!("{other:?}"))),
    }
    Ok(())
}
