//! `tally restate`: counts a range of time again from the archive, and proposes what changes.

use crate::check;
use crate::failure::Result;
use crate::http::HttpArgs;
use crate::output::{Output, readable};
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// A recount of everything takes as long as a question may.
const RUN_MAX: Duration = Duration::from_secs(3600);
/// Changes that are shown of each counter.
const SHOWN: usize = 20;

/// Have a server count a range of time again from the archive, and propose what changes
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally restate --from 2026-11-15T18:00:00Z --to 2026-11-15T20:00:00Z
                                     what was counted in two hours, by the rules of then
  tally restate --from -24h --config new.yaml --counter views
                                     a day of views by other rules
  tally restate --from -24h --apply --author ops@example.com
                                     and make it visible, as one generation

Nothing changes without --apply: what would is a proposal, which
POST /v1/corrections/N/apply applies. POST /v1/corrections/N/revert takes it back.")]
pub struct RestateArgs {
    /// Where the range begins, in whole buckets: a time, or a duration before now such as -24h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: String,
    /// Where it ends; now if left out
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Judge the events of the range by this configuration, and not by that of their time
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only this declared counter
    #[arg(long, value_name = "NAME")]
    counter: Option<String>,
    /// Why, for whoever reads the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Apply the correction
    #[arg(long)]
    apply: bool,
    /// Who proposes it, and applies it
    #[arg(long, value_name = "WHO")]
    author: Option<String>,
    /// Print what the server answers, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: RestateArgs, out: &mut Output) -> Result<()> {
    let config = args.config.as_deref().map(check::read).transpose()?;
    let mut body = json!({"from": args.from, "apply": args.apply});
    let given = [
        ("to", &args.to),
        ("counter", &args.counter),
        ("config", &config),
        ("reason", &args.reason),
        ("author", &args.author),
    ];
    for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        body[name] = json!(value);
    }
    let answer = args.server.post_within(RUN_MAX, "/v1/restatements", "application/json", &body.to_string())?;
    let made = answer.json()?;
    if args.json { out.json(&made) } else { print(&made, out) }
}

fn print(made: &Value, out: &mut Output) -> Result<()> {
    let text = |value: &Value| readable(value.as_str().unwrap_or_default().as_bytes());
    let (from, to) = (text(&made["from"]), text(&made["to"]));
    out.line(format_args!("{from} to {to}, counted again at {}", text(&made["position"])))?;
    for counter in made["counters"].as_array().map_or(&[][..], Vec::as_slice) {
        let (name, keys) = (text(&counter["counter"]), counter["keys"].as_array().map_or(&[][..], Vec::as_slice));
        match counter["notRestated"].as_str() {
            Some(why) => out.line(format_args!("{name}: not restated: {why}"))?,
            None if keys.is_empty() => out.line(format_args!("{name}: nothing changes"))?,
            None => out.line(format_args!("{name}: {} changes, {} together", keys.len(), signed(&counter["delta"])))?,
        }
        for key in keys.iter().take(SHOWN) {
            let at = key["bucket"].as_str().map_or(String::new(), |at| format!(" at {}", readable(at.as_bytes())));
            let (live, restated) = (&key["live"], &key["restated"]);
            out.line(format_args!(
                "  {}{at}  {live} becomes {restated} ({})",
                text(&key["id"]),
                signed(&key["delta"])
            ))?;
        }
        if keys.len() > SHOWN {
            out.line(format_args!("  and {} more; --json has them", keys.len() - SHOWN))?;
        }
    }
    let kind = text(&made["kind"]);
    match (made["proposal"].as_u64(), made["generation"].as_u64()) {
        (Some(number), Some(generation)) => {
            out.line(format_args!("correction {number} ({kind}) was applied as generation {generation}"))
        }
        (Some(number), None) => out.line(format_args!(
            "correction {number} ({kind}) is proposed; POST /v1/corrections/{number}/apply makes it visible"
        )),
        (None, _) => Ok(()),
    }
}

fn signed(delta: &Value) -> String {
    format!("{:+}", delta.as_i64().unwrap_or(0))
}
