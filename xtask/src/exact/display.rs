//! `display`: several connections send sessions with retries and out of order, while the server is killed and stopped.
//!
//! The rule is about the order of the log and its time. Each session stays with one connection, which has one request
//! under way, so the order of its events is the order in which they were sent; the time of each request is told by the
//! commits. A request without an answer would have neither, so a life ends when all are answered. What every request was
//! answered, and every value after every restart, must be what the model says.

mod model;
mod traffic;

use super::Plan;
use super::answer::{Answer, Boxes};
use super::commits::Followed;
use super::life::{End, verify_values};
use crate::client::{HttpClient, Subscription};
use crate::random::Random;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use model::{Met, Model, WINDOWS_MS};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};
use traffic::{COUNTRIES, Event, Next, Traffic, VIDEOS};

/// The windows are those of the model.
pub const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    dedup: {by: [session, seq], window: 2s}
    rules:
      - {on: video.viewed, op: increment}
  - counterName: views_by_country
    mode: display
    dimensions: [country]
    dedup: {by: [session, seq], window: 5s}
    rules:
      - {on: video.viewed, op: increment}
";

const LANES: u32 = 4;

pub fn run(plan: &Plan) -> Result<String> {
    let mut trial = Trial::new(plan);
    let (mut kills, mut stops) = (0, 0);
    while !trial.lanes.iter().all(Traffic::is_done) {
        let end = End::choose(&mut trial.random);
        trial.life(plan, end).with_context(|| format!("life {}", kills + stops + 1))?;
        match end {
            End::Kill => kills += 1,
            End::Stop => stops += 1,
        }
        println!("  {} events; entries: {}", trial.sent, trial.model.met);
    }
    let server = plan.place.start()?.wait_for_tally()?;
    trial.verify(&server).context("after the last restart")?;
    server.stop()?;
    trial.ensure_it_tested_something()?;
    let Boxes { counted, duplicate, .. } = trial.entries;
    Ok(format!(
        "{} events, {counted} entries counted and {duplicate} duplicates: {}; {} windows, {kills} kills, {stops} stops",
        trial.sent,
        trial.model.met,
        trial.windows()
    ))
}

/// A request and its answer.
struct Sent {
    events: Vec<Event>,
    answer: Answer,
}

struct Trial {
    random: Random,
    started: Instant,
    lanes: Vec<Traffic>,
    commits: Followed,
    model: Model,
    keys: Vec<String>,
    sent: u64,
    entries: Boxes,
}

impl Trial {
    fn new(plan: &Plan) -> Trial {
        let mut random = Random::new(plan.seed);
        let lane = |n| Traffic::new(n, LANES, plan.events / u64::from(LANES), random.next());
        let videos = (0..VIDEOS).map(|n| format!("views:v{n}"));
        Trial {
            lanes: (0..LANES).map(lane).collect(),
            random,
            started: Instant::now(),
            commits: Followed::default(),
            model: Model::new(),
            keys: videos.chain(COUNTRIES.iter().map(|country| format!("views_by_country:{country}"))).collect(),
            sent: 0,
            entries: Boxes::default(),
        }
    }

    /// One life of the server: it must know what it should, then it is loaded, then it ends.
    fn life(&mut self, plan: &Plan, end: End) -> Result<()> {
        let server = plan.place.start()?.wait_for_tally()?;
        self.verify(&server)?;
        let http = server.http()?;
        let stream = Subscription::open(http, &self.commits.path())?;
        let Trial { lanes, commits, started, .. } = self;
        let (started, until) = (*started, started.elapsed() + plan.life);
        let sent = thread::scope(|scope| {
            let follower = scope.spawn(|| commits.follow(stream));
            let lanes: Vec<_> =
                lanes.iter_mut().map(|lane| scope.spawn(move || send(lane, http, started, until))).collect();
            let sent: Result<Vec<_>> =
                lanes.into_iter().map(|lane| lane.join().expect("a lane answers, it does not panic")).collect();
            let told = sent.and_then(|sent| {
                let log_ends = sent.iter().flatten().map(|sent: &Sent| sent.answer.log_end);
                commits.wait(log_ends.max().unwrap_or(0))?;
                Ok(sent)
            });
            end.bring(server)?; // Which ends the stream of commits, too.
            follower.join().expect("the follower answers, it does not panic")?;
            told
        })?;
        self.judge(&sent)
    }

    /// Compares every answer with the model's.
    fn judge(&mut self, lanes: &[Vec<Sent>]) -> Result<()> {
        let Trial { commits, model, entries, .. } = self;
        let commits = commits.lock();
        if let Some(first) = lanes.iter().filter_map(|lane| lane.first()).map(|sent| sent.answer.log_end).min() {
            model.begin_life(commits.log_time_ms(first)?);
        }
        for Sent { events, answer } in lanes.iter().flatten() {
            let log_time_ms = commits.log_time_ms(answer.log_end)?;
            let mut expected = Boxes::default();
            events.iter().for_each(|event| expected += model.take(*event, log_time_ms));
            ensure!(
                answer.boxes == expected,
                "the request up to record {}, at log time {log_time_ms}, was answered {:?} and must be {expected:?}; it was {events:?}",
                answer.log_end,
                answer.boxes
            );
            self.sent += events.len() as u64;
            *entries += expected;
        }
        Ok(())
    }

    fn verify(&self, server: &Server) -> Result<()> {
        verify_values(server, &self.keys, &self.model.values())
    }

    /// How many of the shorter windows the run has crossed.
    fn windows(&self) -> u64 {
        let commits = self.commits.lock();
        let window = |log_time_ms: Option<u64>| log_time_ms.unwrap_or(0) / WINDOWS_MS[0];
        window(commits.last_log_time_ms()) - window(commits.first_log_time_ms())
    }

    fn ensure_it_tested_something(&self) -> Result<()> {
        let met @ Met { fresh, same_window, previous_window, forgotten, across_restarts } = self.model.met;
        let all = [fresh, same_window, previous_window, forgotten, across_restarts];
        ensure!(all.iter().all(|&n| n > 0), "a part of the rule was never met: {met:?}; send more --events");
        Ok(())
    }
}

/// Sends what is next until it is time, and answers what was sent.
fn send(traffic: &mut Traffic, http: SocketAddr, started: Instant, until: Duration) -> Result<Vec<Sent>> {
    let mut client = HttpClient::connect(http)?;
    let (mut sent, mut body) = (Vec::new(), String::new());
    while started.elapsed() < until {
        let now = started.elapsed();
        match traffic.next(now.as_millis() as u64) {
            Next::Done => break,
            // The moment of a retry, not a wait for anything.
            Next::WaitUntil(due) => thread::sleep(Duration::from_millis(due).min(until).saturating_sub(now)),
            Next::Send(events) => {
                body.clear();
                events.iter().for_each(|event| event.push_line(&mut body));
                let (status, text) = client.post_lines("/v1/events", &body)?;
                ensure!(status == 200, "events were answered {status}: {text}");
                let answer = Answer::parse(&text, events.len(), WINDOWS_MS.len() as u64)?;
                sent.push(Sent { events, answer });
            }
        }
    }
    Ok(sent)
}
