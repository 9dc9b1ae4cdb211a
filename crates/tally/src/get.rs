//! `tally get`: reads counters of a running server, by id or by pattern.

use crate::client::{RespClient, ServerAnswer, ServerArgs};
use crate::failure::{Failure, Result};
use crate::output::{Output, readable, remark};
use clap::Args;

/// Ids that one command asks for.
const IDS_PER_CALL: usize = 1000;

/// Print the value of one or more counters
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally get visits                    42
  tally get views:v1 views:v2         a line each, with the id
  tally get 'views:*'                 all that match; * stands for any text
  tally get --json visits             {\"id\":\"visits\",\"value\":42}

What is not there is named on stderr, and the exit code is 3. Among several
counters it is shown as (none), or as null in JSON.")]
pub struct GetArgs {
    /// The counters, such as visits or views:v42, or patterns such as 'views:*'
    #[arg(required = true)]
    ids: Vec<String>,
    /// Of what a pattern matches, print at most this many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// An id and its value, if it has one.
type ReadValue = (Vec<u8>, Option<String>);

pub fn run(args: GetArgs, out: &mut Output) -> Result<()> {
    let mut client = RespClient::connect(&args.server)?;
    let mut readings = Vec::new();
    let mut missing = Vec::new();
    for id in &args.ids {
        let ids = if id.contains('*') { matching(&mut client, id, args.limit)? } else { vec![id.clone().into_bytes()] };
        if ids.is_empty() {
            missing.push(format!("no counter matches {id}"));
        }
        readings.extend(read(&mut client, &ids)?);
    }
    let absent = readings.iter().filter(|(_, value)| value.is_none());
    missing.extend(absent.map(|(id, _)| format!("there is no counter {}", readable(id))));
    let is_plain = args.ids.len() == 1 && !args.ids[0].contains('*');
    print(&readings, is_plain, args.json, out)?;
    if missing.is_empty() { Ok(()) } else { Err(Failure::not_there(missing.join("; "))) }
}

/// One counter by its id is a bare value, so that a script can use it; everything else is a table.
fn print(readings: &[ReadValue], is_plain: bool, json: bool, out: &mut Output) -> Result<()> {
    let width = readings.iter().map(|(id, _)| readable(id).chars().count()).max().unwrap_or(0);
    for (id, value) in readings {
        match value {
            _ if json => out.json(&serde_json::json!({"id": readable(id), "value": value.as_deref().map(number)}))?,
            Some(value) if is_plain => out.line(value)?,
            None if is_plain => {}
            value => out.line(format_args!("{:<width$}  {}", readable(id), value.as_deref().unwrap_or("(none)")))?,
        }
    }
    Ok(())
}

/// A Redis may have text there.
fn number(value: &str) -> serde_json::Value {
    value.parse::<i64>().map_or_else(|_| value.into(), Into::into)
}

fn read(client: &mut RespClient, ids: &[Vec<u8>]) -> Result<Vec<ReadValue>> {
    let mut readings = Vec::with_capacity(ids.len());
    for ids in ids.chunks(IDS_PER_CALL) {
        let command: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain(ids.iter().map(Vec::as_slice)).collect();
        let values = match client.call(&command)? {
            ServerAnswer::List(values) if values.len() == ids.len() => values,
            other => return Err(other.strange()),
        };
        readings.extend(ids.iter().cloned().zip(values.into_iter().map(|value| value.text())));
    }
    Ok(readings)
}

/// The ids that match, in order; the first `limit` of them.
fn matching(client: &mut RespClient, pattern: &str, limit: usize) -> Result<Vec<Vec<u8>>> {
    let pattern = glob(pattern);
    let (mut ids, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let ServerAnswer::List(parts) = client.call(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"])? else {
            return Err(Failure::new("the server gave a strange answer to SCAN"));
        };
        let mut parts = parts.into_iter();
        cursor = parts.next().and_then(ServerAnswer::text).unwrap_or_default();
        if let Some(ServerAnswer::List(found)) = parts.next() {
            ids.extend(found.into_iter().filter_map(ServerAnswer::bytes));
        }
        if ids.len() > limit || cursor == "0" || cursor.is_empty() {
            break;
        }
    }
    ids.sort_unstable();
    ids.dedup();
    if ids.len() > limit {
        remark(format_args!("only the first {limit} are shown; raise --limit to see more"));
        ids.truncate(limit);
    }
    Ok(ids)
}

/// The pattern as Redis writes it, in which more than `*` has a meaning.
fn glob(pattern: &str) -> String {
    let mut glob = String::with_capacity(pattern.len());
    for c in pattern.chars() {
        if matches!(c, '?' | '[' | ']' | '\\') {
            glob.push('\\');
        }
        glob.push(c);
    }
    glob
}
