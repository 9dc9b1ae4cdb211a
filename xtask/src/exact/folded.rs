//! `folded`: what somebody outside makes of a snapshot and the commits behind it, through kills and reconnects. It must be every
//! counter, to the last one; no commit comes twice and none is missed.
//!
//! The server is killed while requests are under way, so nobody here knows what has counted. That does not matter: the copy is
//! compared with the server, counter by counter, and every commit must begin where the copy stands.

use super::life::End;
use super::{Plan, answer::offset};
use crate::client::{HttpClient, RespClient, Subscription, encode, was_cut};
use crate::random::Random;
use crate::server::Server;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// All modes, keys that move, and lateness.
pub const CONFIG: &str = "\
counters:
  - {counterName: hits, mode: simple, dimensions: [page], rules: [{on: hit, op: increment}, {on: unhit, op: decrement}]}
  - {counterName: views, mode: display, dimensions: [page], dedup: {by: [session, seq], window: 2s}, rules: [{on: hit, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [page], entity: [user, page], rules: [{on: like, op: increment}, {on: unlike, op: decrement}]}
  - {counterName: votes, mode: transition, dimensions: [page], entity: [user], rules: [{on: like, op: increment}, {on: unlike, op: decrement}]}
  - {counterName: paid, mode: persistent, dimensions: [page], rules: [{on: ad, op: increment}]}
  - {counterName: heard, mode: display, dimensions: [page], dedup: none, lateness: {allowed: 1s, corrected: 1m, every: 1s}, rules: [{on: hit, op: increment}]}
";

const EVENTS_PER_REQUEST: u64 = 200;
const PAGES: u64 = 500;
const USERS: u64 = 200;
/// Ad-hoc counters that come and go.
const AD_HOC: u64 = 20;
/// The longest the last late entries may take to count.
const LATE_MAX: Duration = Duration::from_secs(60);

pub fn run(plan: &Plan) -> Result<String> {
    let mut random = Random::new(plan.seed);
    let (copy, mut sent, mut kills, mut stops) = (Mutex::new(Copy::default()), 0, 0, 0);
    while sent < plan.events {
        let end = End::choose(&mut random);
        life(plan, &copy, &mut random, &mut sent, end).with_context(|| format!("life {}", kills + stops + 1))?;
        match end {
            End::Kill => kills += 1,
            End::Stop => stops += 1,
        }
    }
    let mut copy = copy.into_inner().expect("nobody panics while holding the copy");
    let server = plan.place.start()?.wait_for_tally()?;
    let counters = compare(&server, &mut copy).context("at the end")?;
    server.stop()?;
    let (commits, snapshots) = (copy.commits, copy.snapshots);
    Ok(format!(
        "{sent} events, {counters} counters equal; {commits} commits, {snapshots} snapshots, {kills} kills, {stops} stops"
    ))
}

/// One life of the server: the copy follows it while it is loaded, then it ends in the middle of something.
fn life(plan: &Plan, copy: &Mutex<Copy>, random: &mut Random, sent: &mut u64, end: End) -> Result<()> {
    let server = plan.place.start()?.wait_for_tally()?;
    let http = server.http()?;
    // Now and then it has lost everything and begins anew.
    if random.one_in(5) {
        let mut copy = lock(copy);
        *copy = Copy { commits: copy.commits, snapshots: copy.snapshots, ..Copy::default() };
    }
    lock(copy).begin(http)?;
    let stream = Subscription::open(http, &lock(copy).path())?;
    let resp = server.resp;
    thread::scope(|scope| {
        let follower = scope.spawn(|| follow(copy, stream));
        let (seed, events) = (random.next(), plan.events - *sent);
        let sender = scope.spawn(move || send(http, resp, seed, events));
        let ends = Instant::now() + plan.life;
        while Instant::now() < ends && !sender.is_finished() {
            thread::park_timeout(ends.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)));
        }
        end.bring(server)?;
        *sent += sender.join().expect("the sender answers, it does not panic")?;
        follower.join().expect("the follower answers, it does not panic")
    })
}

/// Sends until the server goes away; answers how many events were sent.
fn send(http: SocketAddr, resp: SocketAddr, seed: u64, events: u64) -> Result<u64> {
    let mut random = Random::new(seed);
    let mut sent = 0;
    let mut run = || -> io::Result<()> {
        let (mut client, mut redis) = (HttpClient::connect(http)?, RespClient::connect(resp)?);
        for round in 0.. {
            if sent >= events {
                break;
            }
            let lines: String = (0..EVENTS_PER_REQUEST).map(|_| event(&mut random)).collect();
            client.post_lines("/v1/events", &lines)?;
            sent += EVENTS_PER_REQUEST;
            if round % 3 == 0 {
                change_by_name(&mut redis, &mut random)?;
            }
            if round % 20 == 7 {
                correct(&mut client, &mut random)?;
            }
        }
        Ok(())
    };
    match run() {
        Err(error) if !was_cut(&error) => Err(error.into()),
        _ => Ok(sent),
    }
}

fn event(random: &mut Random) -> String {
    let kind = ["hit", "hit", "unhit", "like", "unlike", "ad"][random.below(6) as usize];
    let (page, user, id) = (random.below(PAGES), random.below(USERS), random.below(1 << 40) % 500_000);
    let seq = random.below(1_000);
    // One in ten happened some seconds ago.
    let ago_ms = if random.one_in(10) { 5_000 } else { 0 };
    let at = jiff::Timestamp::now() - jiff::SignedDuration::from_millis(ago_ms);
    format!(
        "{{\"type\":\"{kind}\",\"eventId\":\"e{id}\",\"session\":\"s{user}\",\"seq\":{seq},\"occurredAt\":\"{at}\",\"dimensions\":{{\"page\":\"p{page}\",\"user\":\"u{user}\"}}}}\n"
    )
}

/// A few commands of Redis clients, some of which let counters go.
fn change_by_name(redis: &mut RespClient, random: &mut Random) -> io::Result<()> {
    let mut commands = Vec::new();
    let key = |random: &mut Random| format!("a{}", random.below(AD_HOC));
    let (one, other, number) = (key(random), key(random), random.below(1_000).to_string());
    let all: [&[&str]; 7] = [
        &["INCRBY", &one, &number],
        &["SET", &one, &number],
        &["DEL", &one],
        &["RENAME", &one, &other],
        &["MSETNX", &one, "1", &other, "2"],
        &["PEXPIRE", &one, "300"],
        &["FLUSHALL"],
    ];
    // A flush is rare, or nothing would ever grow.
    let chosen = if random.one_in(200) { 6 } else { random.below(6) as usize };
    encode(&mut commands, all[chosen]);
    redis.send(&commands)?;
    redis.reply().map(drop)
}

fn correct(client: &mut HttpClient, random: &mut Random) -> io::Result<()> {
    let (page, delta) = (random.below(PAGES), random.below(20) as i64 - 10);
    let body = format!(
        "{{\"reason\":\"a test\",\"author\":\"me\",\"deltas\":[{{\"id\":\"hits:p{page}\",\"delta\":{delta}}},{{\"id\":\"a1\",\"delta\":1}}]}}"
    );
    let (status, text) = client.post("/v1/corrections", "application/json", &body)?;
    let number = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|value| value["number"].as_u64());
    if let (201, Some(number)) = (status, number) {
        client.post(&format!("/v1/corrections/{number}/apply"), "application/json", "")?;
    }
    Ok(())
}

/// What somebody outside has, and where he stands.
#[derive(Default)]
struct Copy {
    position: Option<String>,
    values: BTreeMap<String, i64>,
    commits: u64,
    snapshots: u64,
}

#[derive(Deserialize)]
struct Head {
    position: String,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    value: i64,
}

#[derive(Deserialize)]
struct Commit {
    from: String,
    to: String,
    #[serde(default)]
    flushed: bool,
    #[serde(default)]
    unnamed: u64,
    deltas: Vec<Delta>,
}

#[derive(Deserialize)]
struct Delta {
    id: String,
    delta: i64,
    value: Option<i64>,
}

impl Copy {
    /// Takes a snapshot, if it has nothing.
    fn begin(&mut self, http: SocketAddr) -> Result<()> {
        if self.position.is_none() {
            let (position, values) = snapshot(http)?;
            (self.position, self.values) = (Some(position), values);
            self.snapshots += 1;
        }
        Ok(())
    }

    fn path(&self) -> String {
        format!("/v1/commits?from={}", self.position.as_deref().unwrap_or_default())
    }

    fn take(&mut self, text: &str) -> Result<()> {
        let commit: Commit = serde_json::from_str(text)?;
        ensure!(self.position.as_ref() == Some(&commit.from), "it does not begin at {:?}", self.position);
        ensure!(commit.unnamed == 0, "some counters have no id");
        if commit.flushed {
            self.values.clear();
        }
        for Delta { id, delta, value } in commit.deltas {
            let before = self.values.get(&id).copied().unwrap_or(0);
            ensure!(before + delta == value.unwrap_or(0), "{id} was {before}, changed by {delta}, and is {value:?}");
            match value {
                Some(value) => self.values.insert(id, value),
                None => self.values.remove(&id),
            };
        }
        self.position = Some(commit.to);
        self.commits += 1;
        Ok(())
    }
}

fn lock(copy: &Mutex<Copy>) -> std::sync::MutexGuard<'_, Copy> {
    copy.lock().expect("nobody panics while holding the copy")
}

/// Reads commits until the server goes away.
fn follow(copy: &Mutex<Copy>, mut stream: Subscription) -> Result<()> {
    while let Some(text) = next_commit(&mut stream)? {
        lock(copy).take(&text).with_context(|| format!("a commit was told as {text}"))?;
    }
    Ok(())
}

/// The data of the next commit; nothing at the end, be it in the middle of one.
fn next_commit(stream: &mut Subscription) -> Result<Option<String>> {
    let (mut name, mut data) = (String::new(), None);
    while let Some(line) = stream.line()? {
        match line.split_once(':') {
            Some(("event", text)) => name = text.trim().to_owned(),
            Some(("data", text)) if name == "problem" => bail!("the commits ended with {text}"),
            Some(("data", text)) if name == "commit" => data = Some(text.trim().to_owned()),
            // Only an empty line says that an event is whole.
            None if line.is_empty() && data.is_some() => return Ok(data),
            _ => {}
        }
    }
    Ok(None)
}

/// Every counter of the server, and the position that they are true for.
fn snapshot(http: SocketAddr) -> Result<(String, BTreeMap<String, i64>)> {
    let mut lines = Subscription::open(http, "/v1/snapshot")?;
    let head = lines.line()?.context("a snapshot has a first line")?;
    let head: Head = serde_json::from_str(&head).with_context(|| format!("a snapshot began with {head}"))?;
    let mut values = BTreeMap::new();
    while let Some(line) = lines.line()? {
        let Line { id, value } = serde_json::from_str(&line).with_context(|| format!("a snapshot has {line}"))?;
        values.insert(id, value);
    }
    Ok((head.position, values))
}

/// Brings the copy to where the server stands and compares every counter, with its own snapshot and with plain reads.
fn compare(server: &Server, copy: &mut Copy) -> Result<usize> {
    let http = server.http()?;
    settle(server)?;
    copy.begin(http)?;
    let mut stream = Subscription::open(http, &copy.path())?;
    let (position, values) = snapshot(http)?;
    while offset(copy.position.as_deref().unwrap_or_default())? < offset(&position)? {
        let text = next_commit(&mut stream)?.context("the commits end before the snapshot")?;
        copy.take(&text).with_context(|| format!("a commit was told as {text}"))?;
    }
    ensure!(copy.position.as_ref() == Some(&position), "{:?} is not {position}", copy.position);
    let differs = |id: &&String| copy.values.get(*id) != values.get(*id);
    if let Some(id) = copy.values.keys().chain(values.keys()).find(differs) {
        bail!("{id} is {:?} in the copy and {:?} in the snapshot", copy.values.get(id), values.get(id));
    }
    let ids: Vec<String> = values.keys().cloned().collect();
    let read = RespClient::connect(server.resp)?.read(&ids)?;
    for (id, found) in ids.iter().zip(read) {
        ensure!(found == copy.values.get(id).copied(), "{id} reads {found:?}, and is {:?}", copy.values.get(id));
    }
    Ok(values.len())
}

/// Nothing is on its way any more: no counter waits for its end, no entry for its run.
fn settle(server: &Server) -> Result<()> {
    let mut redis = RespClient::connect(server.resp)?;
    let keys: Vec<String> = (0..AD_HOC).map(|n| format!("a{n}")).collect();
    let mut command = Vec::new();
    for key in &keys {
        encode(&mut command, &["PERSIST", key]);
    }
    redis.send(&command)?;
    for _ in &keys {
        redis.reply()?;
    }
    let mut client = HttpClient::connect(server.http()?)?;
    let until = Instant::now() + LATE_MAX;
    loop {
        let balance: serde_json::Value = serde_json::from_str(&client.get("/v1/balance")?)?;
        if balance["total"]["late"] == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "late entries wait for more than {LATE_MAX:?}: {balance}");
        thread::park_timeout(Duration::from_millis(50));
    }
}
