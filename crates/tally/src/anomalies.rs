//! `tally anomalies`: rates that jumped, and trends that are told in advance.

use crate::failure::Result;
use crate::http::HttpArgs;
use crate::output::{Output, readable};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

const EXPECTED: &str = "/v1/anomalies/expected";

/// Show which rates jumped, and tell a server what to expect
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  tally anomalies                       the newest first
  tally anomalies expect 'views:*' --from 2026-11-18T18:00:00Z --to 2026-11-18T20:00:00Z --reason 'the final is on'
  tally anomalies expected              what was told in advance
  tally anomalies forget 3              and take it back

A jump is at least ten times what a key used to come to in a minute, and at
least 1000; the configuration may say otherwise (anomalies)."
)]
pub struct AnomaliesArgs {
    #[command(subcommand)]
    command: Option<AnomaliesCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Args)]
struct ListArgs {
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u64,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
struct CommonArgs {
    /// Print JSON, an object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: HttpArgs,
}

#[derive(Subcommand)]
enum AnomaliesCommand {
    Expect(ExpectArgs),
    Expected(ExpectedArgs),
    Forget(ForgetArgs),
}

/// Tell a trend in advance: its jumps are recorded as expected, and nobody is told
#[derive(Args)]
struct ExpectArgs {
    /// Of which keys: an id, in which * stands for any text
    #[arg(value_name = "MATCH")]
    pattern: String,
    /// When it begins [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// When it is over
    #[arg(long, value_name = "TIME")]
    to: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Up to how many times what a key used to come to [default: whatever comes]
    #[arg(long, value_name = "N")]
    factor: Option<u64>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Show the trends that were told in advance
#[derive(Args)]
struct ExpectedArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// Take back what was told in advance
#[derive(Args)]
struct ForgetArgs {
    /// Its number
    number: u64,
    #[command(flatten)]
    common: CommonArgs,
}

pub fn run(args: AnomaliesArgs, out: &mut Output) -> Result<()> {
    match args.command {
        None => list(&args.list, out),
        Some(AnomaliesCommand::Expect(args)) => expect(&args, out),
        Some(AnomaliesCommand::Expected(args)) => {
            let answer = args.common.server.get(EXPECTED, &[])?.json()?;
            rows(&answer["expected"]).iter().try_for_each(|trend| show(trend, args.common.json, out))
        }
        Some(AnomaliesCommand::Forget(args)) => {
            let answer = args.common.server.delete(&format!("{EXPECTED}/{}", args.number))?;
            show(&answer.json()?, args.common.json, out)
        }
    }
}

fn list(args: &ListArgs, out: &mut Output) -> Result<()> {
    let limit = args.limit.to_string();
    let answer = args.common.server.get("/v1/anomalies", &[("limit", Some(&limit))])?.json()?;
    let anomalies = rows(&answer["anomalies"]);
    if args.common.json {
        return anomalies.iter().try_for_each(|anomaly| out.json(anomaly));
    }
    if answer["rule"].is_null() {
        out.line("nobody looks for anomalies: the configuration says anomalies: none")?;
    } else if anomalies.is_empty() {
        let known = if answer["warm"] == true { "" } else { "; what is usual is not known yet" };
        out.line(format_args!("no rate has jumped{known}"))?;
    }
    anomalies.iter().try_for_each(|anomaly| out.line(sentence(anomaly)))
}

fn sentence(anomaly: &Value) -> String {
    let at_most = if anomaly["beforeAtMost"] == true { "at most " } else { "" };
    let about = if anomaly["share"].as_f64() < Some(1.0) { "about " } else { "" };
    let expected = anomaly["expected"].as_str().map_or(String::new(), |why| format!(", expected: {}", plain(why)));
    let (minute, id) = (text(&anomaly["minute"]), text(&anomaly["id"]));
    let (before, after, factor) = (&anomaly["before"], &anomaly["after"], &anomaly["factor"]);
    format!("{minute}  {id}  {about}{after} in the minute, {at_most}{before} before: {factor} times{expected}")
}

fn expect(args: &ExpectArgs, out: &mut Output) -> Result<()> {
    let mut body = json!({"match": args.pattern, "to": args.to, "reason": args.reason});
    if let Some(from) = &args.from {
        body["from"] = json!(from);
    }
    if let Some(factor) = args.factor {
        body["factor"] = json!(factor);
    }
    let answer = args.common.server.post(EXPECTED, "application/json", &body.to_string())?;
    show(&answer.json()?, args.common.json, out)
}

fn show(trend: &Value, as_json: bool, out: &mut Output) -> Result<()> {
    if as_json {
        return out.json(trend);
    }
    let size = trend["factor"].as_u64().map_or(String::new(), |factor| format!(", up to {factor} times"));
    let (pattern, from, to, reason) =
        (text(&trend["match"]), text(&trend["from"]), text(&trend["to"]), text(&trend["reason"]));
    out.line(format_args!("{}  {pattern}  from {from} to {to}{size}: {reason}", trend["number"]))
}

fn rows(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    plain(value.as_str().unwrap_or_default())
}

fn plain(text: &str) -> String {
    readable(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_one_sentence_that_says_what_is_certain() {
        let mut jump = json!({"minute": "2026-11-18T18:00:00.000Z", "id": "views:v1", "before": 120.5, "beforeAtMost": false,
            "after": 4200, "factor": 34.9, "share": 1.0, "expected": null});
        assert_eq!(sentence(&jump), "2026-11-18T18:00:00.000Z  views:v1  4200 in the minute, 120.5 before: 34.9 times");
        (jump["beforeAtMost"], jump["share"], jump["expected"]) = (json!(true), json!(0.2), json!("the final"));
        assert_eq!(
            sentence(&jump),
            "2026-11-18T18:00:00.000Z  views:v1  about 4200 in the minute, at most 120.5 before: 34.9 times, expected: the final"
        );
    }
}
