//! `tally reconcile`: counts again from the archive, and compares.

use crate::failure::{Failure, Result};
use crate::http::HttpArgs;
use crate::output::{Output, readable};
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// A recount of everything takes as long as a question may.
const RUN_MAX: Duration = Duration::from_secs(3600);
/// Differences that are shown of each counter.
const SHOWN: usize = 20;

/// Have a server count its counters again from the archive, and compare
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally reconcile                       all declared counters, each key
  tally reconcile impressions           one of them
  tally reconcile impressions --apply   and put right what differs, by a correction
  tally reconcile --from -24h           only the last 24 hours, of counters with a roll-up by time

The exit code is 3 if something differs and was not put right, or could not be
counted again. A server does the same every hour; GET /v1/reconciliation has
what it found.")]
pub struct ReconcileArgs {
    /// Only this declared counter
    counter: Option<String>,
    /// Only from this time on, in whole hours: a time, or a duration before now such as -24h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Only before this time; now if left out
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Apply the correction that brings the counters to what was counted again
    #[arg(long)]
    apply: bool,
    /// Who applies it
    #[arg(long, value_name = "WHO", requires = "apply")]
    author: Option<String>,
    /// Print what the server answers, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

pub fn run(args: ReconcileArgs, out: &mut Output) -> Result<()> {
    let mut body = json!({"apply": args.apply});
    let given = [("counter", &args.counter), ("from", &args.from), ("to", &args.to), ("author", &args.author)];
    for (name, value) in given.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        body[name] = json!(value);
    }
    let answer = args.server.post_within(RUN_MAX, "/v1/reconciliation", "application/json", &body.to_string())?;
    let report = answer.json()?;
    if args.json {
        out.json(&report)?;
    } else {
        print(&report, out)?;
    }
    let differs = counters(&report).iter().any(|counter| counter["differing"].as_u64() > Some(0));
    if differs && (report["applied"] != true || report["notCorrected"].is_string()) {
        return Err(Failure::not_there("counters differ from their recount"));
    }
    if counters(&report).iter().any(|counter| counter["failed"] == true) {
        return Err(Failure::not_there("not all counters could be counted again"));
    }
    Ok(())
}

fn counters(report: &Value) -> &[Value] {
    report["counters"].as_array().map_or(&[], Vec::as_slice)
}

fn print(report: &Value, out: &mut Output) -> Result<()> {
    let text = |value: &Value| readable(value.as_str().unwrap_or_default().as_bytes());
    out.line(format_args!("counted again at {}", text(&report["position"])))?;
    let is_range = report["from"].is_string();
    if is_range {
        out.line(format_args!("from {} to {}, in whole buckets", text(&report["from"]), text(&report["to"])))?;
    }
    for counter in counters(report) {
        let name = text(&counter["counter"]);
        if let Some(why) = counter["notCompared"].as_str() {
            out.line(format_args!("{name}: not compared: {why}"))?;
            continue;
        }
        if is_range && counter["buckets"].is_null() {
            out.line(format_args!("{name}: it has no roll-up by time, so all of it was compared"))?;
        }
        let (keys, live, recount) = (&counter["keys"], &counter["live"], &counter["recount"]);
        match counter["differing"].as_u64() {
            Some(0) => out.line(format_args!("{name}: {keys} keys, {live} in all: as counted again"))?,
            _ => {
                let (differing, drift) = (&counter["differing"], counter["drift"].as_f64().unwrap_or_default());
                out.line(format_args!(
                    "{name}: {differing} of {keys} keys differ, by {:.4} %: {live} in all, {recount} by the recount",
                    drift * 100.0
                ))?;
                print_differences(&counter["differences"], out)?;
            }
        }
        if let Some(why) = counter["leftOut"]["why"].as_str() {
            out.line(format_args!("  {} keys not compared: {why}", counter["leftOut"]["keys"]))?;
        }
    }
    if let Some(why) = report["notCorrected"].as_str() {
        out.line(format_args!("not put right: {}", readable(why.as_bytes())))?;
    }
    match (report["proposal"].as_u64(), report["applied"] == true) {
        (Some(number), false) => out.line(format_args!(
            "correction {number} is proposed; tally reconcile --apply, or POST /v1/corrections/{number}/apply, puts it right"
        )),
        (Some(number), true) => out.line(format_args!("put right by proposal {number}")),
        (None, _) => Ok(()),
    }
}

fn print_differences(differences: &Value, out: &mut Output) -> Result<()> {
    let all = differences.as_array().map_or(&[][..], Vec::as_slice);
    for difference in all.iter().take(SHOWN) {
        let text = |name: &str| difference[name].as_str().map(|text| readable(text.as_bytes()));
        let (id, at) = (text("id").unwrap_or_default(), text("bucket"));
        let at = at.map_or(String::new(), |at| format!(" at {at}"));
        out.line(format_args!("  {id}{at}  {} instead of {}", difference["live"], difference["recount"]))?;
    }
    if all.len() > SHOWN {
        out.line(format_args!("  and {} more; --json has them", all.len() - SHOWN))?;
    }
    Ok(())
}
