//! `tally get`: reads counters of a running server.

use crate::client::{Answer, Client, ServerArgs};
use crate::failure::{Failure, Result};
use clap::Args;

/// Print the value of one or more counters
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally get visits                    42
  tally get views:v1 views:v2         a line each, with the id
A counter that does not exist is shown as (none).")]
pub struct GetArgs {
    /// The counters, such as visits or views:v42
    #[arg(required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(args: GetArgs) -> Result<()> {
    let ids = args.ids.iter().map(String::as_str);
    let command: Vec<&str> = std::iter::once("MGET").chain(ids).collect();
    let values = match Client::connect(&args.server)?.call(&command)? {
        Answer::List(values) if values.len() == args.ids.len() => values,
        other => return Err(Failure::new("the server gave a strange answer").why(format!("{other:?}"))),
    };
    let width = args.ids.iter().map(|id| id.chars().count()).max().unwrap_or(0);
    for (id, value) in args.ids.iter().zip(values) {
        let value = match value {
            Answer::Text(value) => value,
            _ => "(none)".to_owned(),
        };
        match args.ids.len() {
            1 => println!("{value}"),
            _ => println!("{id:<width$}  {value}"),
        }
    }
    Ok(())
}
