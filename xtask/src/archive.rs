//! `cargo xtask archive`: events of all contracts go to a server that is killed again and again; then pyiceberg and DuckDB read its
//! archive, and the SQL of the guide recounts what the counters say.
//!
//! Every event carries a number of its own. Of those whose request was acknowledged there must be exactly one row, of those whose
//! answer was lost at most one, and of others none.

use crate::client::{HttpClient, was_cut};
use crate::install;
use crate::random::Random;
use crate::server::{Place, Server};
use crate::shell::{self, step};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Who else reads it.
pub const PACKAGES: [&str; 5] = [
    "pyiceberg[sql-sqlite,pyarrow]==0.12.0",
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-iceberg==1.5.5",
    "duckdb-extension-avro==1.5.5",
];
/// `sent` is the number of an event; it is rolled up so that it is a column.
const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rollups: [[sent]]
    maxCardinality: {sent: 1}
    rules: [{on: video.viewed, op: increment}]
  - counterName: likes
    mode: transition
    dimensions: [video]
    entity: [user, video]
    rules: [{on: video.liked, op: increment}, {on: video.unliked, op: decrement}]
  - counterName: impressions
    mode: persistent
    dimensions: [ad]
    rules: [{on: ad.shown, op: increment}]
";
const EVENTS_PER_REQUEST: u64 = 50;
const REQUESTS_AT_THE_END: u64 = 50;
const FLUSH_EVERY: u64 = 10;
/// How long a server lives that is killed.
const LIFE_MS_MIN: u64 = 50;
const LIFE_MS_MORE: u64 = 1000;
const KEYS: u64 = 7;

#[derive(Args)]
pub struct ArchiveArgs {
    /// How often the server is killed
    #[arg(long, default_value_t = 12)]
    rounds: u64,
    /// Repeats the events of an earlier run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Default for ArchiveArgs {
    fn default() -> ArchiveArgs {
        ArchiveArgs { rounds: 12, seed: 1 }
    }
}

pub fn run(args: ArchiveArgs) -> Result<()> {
    step("the archive, read by others");
    let python = install::python_packages("archive", &PACKAGES)?;
    let scratch = shell::scratch_dir("archive-")?;
    let archive = scratch.path().join("archive");
    let place = Place::new(shell::build_tally(false)?, scratch.path(), CONFIG, "64KiB")?;
    let place = place.with(&["--archive", archive.to_str().context("the scratch directory is UTF-8")?]);
    let mut sender = Sender { random: Random::new(args.seed), next: 0, acknowledged: Vec::new() };
    for _ in 0..args.rounds {
        let server = place.start()?.wait_for_tally()?;
        let (http, life) = (server.http()?, Duration::from_millis(LIFE_MS_MIN + sender.random.below(LIFE_MS_MORE)));
        thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send(http, u64::MAX));
            thread::sleep(life);
            server.kill();
            sending.join().expect("a sender ends with its server")
        })?;
    }
    let server = place.start()?.wait_for_tally()?;
    sender.send(server.http()?, REQUESTS_AT_THE_END)?;
    let live = ["views", "likes", "impressions"].into_iter().map(|name| Ok((name, live(&server, name)?)));
    let live = live.collect::<Result<BTreeMap<_, _>>>()?;
    flush(server.http()?)?;
    recount_by_itself(server.http()?, &live)?;
    recount(
        &python,
        &archive,
        &json!({
            "acknowledged": sender.acknowledged,
            "attempted": (0..sender.next).map(|number| number.to_string()).collect::<Vec<_>>(),
            "live": live,
        }),
    )?;
    server.stop()
}

/// Sends events, and remembers of which it was told that they are there.
struct Sender {
    random: Random,
    next: u64,
    acknowledged: Vec<String>,
}

impl Sender {
    /// Until the server is gone, or so many requests. Now and then all of it is asked to be in the archive, so that kills meet its
    /// commits.
    fn send(&mut self, server: SocketAddr, requests: u64) -> Result<()> {
        for request in 1..=requests {
            let sent =
                self.request(server).and_then(|()| if request % FLUSH_EVERY == 0 { flush(server) } else { Ok(()) });
            match sent {
                Err(error) if requests == u64::MAX && error.downcast_ref().is_some_and(was_cut) => break,
                other => other?,
            }
        }
        Ok(())
    }

    fn request(&mut self, server: SocketAddr) -> Result<()> {
        let first = self.next;
        let events: Vec<Value> = (0..EVENTS_PER_REQUEST).map(|_| self.event()).collect();
        post(server, "/v1/events", &json!(events).to_string())?;
        self.acknowledged.extend((first..self.next).map(|number| number.to_string()));
        Ok(())
    }

    /// An event of any contract; one in a few repeats an identity that stood before.
    fn event(&mut self) -> Value {
        let number = self.next;
        self.next += 1;
        let (sent, key) = (number.to_string(), format!("k{}", self.random.below(KEYS)));
        let old = self.random.below(number.max(1));
        let identity = if self.random.below(4) == 0 { old } else { number };
        match self.random.below(4) {
            0 => {
                json!({"type": "ad.shown", "eventId": format!("e{identity}"), "dimensions": {"ad": key, "sent": sent}})
            }
            1 => {
                let kind = if self.random.below(3) == 0 { "video.unliked" } else { "video.liked" };
                let user = format!("u{}", self.random.below(50));
                json!({"type": kind, "eventId": format!("l{number}"), "dimensions": {"video": key, "user": user, "sent": sent}})
            }
            _ => json!({"type": "video.viewed", "session": format!("s{}", identity % 20), "seq": identity,
                "dimensions": {"video": key, "sent": sent}}),
        }
    }
}

/// What all keys of a counter are worth, those at 0 left out.
fn live(server: &Server, counter: &str) -> Result<BTreeMap<String, i64>> {
    let mut client = HttpClient::connect(server.http()?)?;
    let body = client.get(&format!("/v1/counters?match={counter}:*&limit=1000"))?;
    let list: Value = serde_json::from_str(&body)?;
    let rows = list["counters"].as_array().context("a list has counters")?;
    let row = |row: &Value| {
        let id = row["id"].as_str()?.split_once(':')?.1.to_owned();
        Some((id, row["value"].as_i64()?))
    };
    let rows: Option<BTreeMap<String, i64>> = rows.iter().map(row).collect();
    Ok(rows.context("rows have ids and values")?.into_iter().filter(|(_, value)| *value != 0).collect())
}

fn flush(server: SocketAddr) -> Result<()> {
    post(server, "/v1/archive/flush", "")
}

fn post(server: SocketAddr, path: &str, body: &str) -> Result<()> {
    ask(server, path, body).map(|_| ())
}

/// What is answered to a request of JSON.
pub fn ask(server: SocketAddr, path: &str, body: &str) -> Result<Value> {
    let (status, answer) = HttpClient::connect(server)?.patient()?.post(path, "application/json", body)?;
    ensure!(status == 200, "{path} was answered {status}: {answer}");
    Ok(serde_json::from_str(&answer)?)
}

/// The statements of the guide, asked of the server, and its own recount.
fn recount_by_itself(server: SocketAddr, live: &BTreeMap<&str, BTreeMap<String, i64>>) -> Result<()> {
    let guide = std::fs::read_to_string(shell::workspace().join("docs/guide/reconciliation.md"))?;
    for (counter, live) in live {
        let statement = statement(&guide, counter).context("the guide counts each again")?;
        // By the hour it comes to the same, all hours together.
        let by_hour = statement_of_hours(&guide, counter);
        for statement in [Some(statement), by_hour].into_iter().flatten() {
            let counted = counted_by(server, statement)?;
            ensure!(counted == *live, "{counter}: the guide's {statement} comes to {counted:?}, and live is {live:?}");
        }
        println!("  {counter}: the statements of the guide come to the same");
    }
    let report = ask(server, "/v1/reconciliation", "")?;
    let counters = report["counters"].as_array().context("a report has counters")?;
    let agree = counters.iter().all(|counter| counter["differing"] == 0 && counter["notCompared"].is_null());
    ensure!(agree && counters.len() == live.len(), "the server's own recount differs: {report}");
    println!("  the server's own recount agrees");
    Ok(())
}

/// The statement of a guide for a counter.
fn statement<'g>(guide: &'g str, counter: &str) -> Option<&'g str> {
    let block = guide.split("```sql\n").find(|block| block.starts_with(&format!("-- {counter}:")));
    block.and_then(|block| block.split("```").next())
}

fn statement_of_hours<'g>(guide: &'g str, counter: &str) -> Option<&'g str> {
    statement(guide, &format!("{counter}_by_hour"))
}

/// What each key comes to by a statement, without those that come to nothing.
fn counted_by(server: SocketAddr, statement: &str) -> Result<BTreeMap<String, i64>> {
    let answer = ask(server, "/v1/sql", &json!({"query": statement}).to_string())?;
    let mut counted = BTreeMap::<String, i64>::new();
    for row in answer["rows"].as_array().context("an answer has rows")? {
        let key = row["id"].as_str().and_then(|id| Some(id.split_once(':')?.1)).context("rows have ids")?;
        *counted.entry(key.to_owned()).or_default() += row["value"].as_i64().context("rows have values")?;
    }
    counted.retain(|_, value| *value != 0);
    Ok(counted)
}

fn recount(python: &Path, archive: &Path, told: &Value) -> Result<()> {
    let workspace = shell::workspace();
    let mut child = Command::new(python)
        .arg(workspace.join("xtask/archive/recount.py"))
        .arg(archive)
        .arg(workspace.join("docs/guide/archive.md"))
        .stdin(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("it was asked for")?.write_all(told.to_string().as_bytes())?;
    ensure!(child.wait()?.success(), "the archive does not have what the counters say");
    Ok(())
}
