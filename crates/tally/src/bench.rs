//! `tally bench`: a load generator for Tally and, over the Redis protocol, for anything that speaks it.
//!
//! The flow of a run: arguments → lanes (one per connection) → the driver → a report.

#![allow(clippy::disallowed_methods, reason = "a load generator measures time; nothing here decides what is counted")]

mod cleanup;
mod driver;
mod events;
mod keys;
mod lane;
mod process;
mod report;
mod resp;

use crate::access::first_line;
use crate::address;
use crate::client::SecretArgs;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::signals::Signals;
use clap::{Args, ValueEnum};
use driver::{Limit, Measured};
use events::{EventsArgs, EventsLane, EventsShape};
use indicatif::{ProgressBar, ProgressStyle};
use keys::{Distribution, KeyPattern, Picker};
use lane::Group;
use report::Report;
use resp::RespLane;
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const RESP_SERVER: &str = "127.0.0.1:7379";
const HTTP_SERVER: &str = "127.0.0.1:7070";
const CONNECTIONS_MAX: usize = 10_000;
/// Names that nobody else gives to a counter: those of the default are deleted after a run.
const RESP_KEY_PATTERN: &str = "bench:%08d";

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Op {
    /// Pipelined INCRs
    Incr,
    /// Pipelined GETs
    Get,
    /// INCRs at full rate, and beside them --readers connections that send one GET at a time
    Mix,
    /// POST /v1/events with NDJSON bodies
    Events,
}

/// Measure a running server, or anything that speaks the Redis protocol
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tally bench                        INCR over a million keys, for 10 seconds
  tally bench --op get --pipeline 1 --seconds 5        single GETs
  tally bench --op mix --readers 10  GET latency while writes run at full rate
  tally bench --op events            events over HTTP
  tally bench --op events --type ad.shown --dimension ad --ids --duplicates 5
                                     numbered ids, of which 5 % come twice
  tally bench --keys 10000000 --preload --requests 0 --keep
                                     just touch ten million counters
  tally bench --server localhost:6379                  the same load on a Redis

The counters bench:00000000 and so on that a run has made are deleted after it,
also after Ctrl-C. --keep leaves them. Counters that you name yourself with
--key-pattern, and those that events feed, are left as they are.")]
pub struct BenchArgs {
    /// What the connections do
    #[arg(long, value_enum, default_value_t = Op::Incr, help_heading = "Load")]
    op: Op,
    /// Connections; each has one question under way
    #[arg(long, default_value_t = 50, value_name = "N", help_heading = "Load")]
    connections: usize,
    /// Commands per question (RESP)
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "Load")]
    pipeline: usize,
    /// Additional connections that send one GET at a time (--op mix)
    #[arg(long, default_value_t = 10, value_name = "N", help_heading = "Load")]
    readers: usize,

    #[command(flatten)]
    events: EventsArgs,

    /// How many different keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N", help_heading = "Keys")]
    keys: u64,
    /// Their names, with a number of fixed width [default: bench:%08d; v%08d for events]
    #[arg(long, value_name = "PATTERN", help_heading = "Keys")]
    key_pattern: Option<KeyPattern>,
    /// uniform, zipf:EXPONENT, or one (a single hot key)
    #[arg(long, default_value = "uniform", value_name = "DIST", help_heading = "Keys")]
    dist: Distribution,
    /// First increment every key once, in order
    #[arg(long, help_heading = "Keys")]
    preload: bool,
    /// Leave the counters there that the run has made
    #[arg(long, help_heading = "Keys")]
    keep: bool,
    /// Makes a run repeatable
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Keys")]
    seed: u64,

    /// End after this many operations
    #[arg(long, value_name = "N", help_heading = "End")]
    requests: Option<u64>,
    /// End after this many seconds [default: 10, if --requests is not given]
    #[arg(long, value_name = "S", help_heading = "End")]
    seconds: Option<f64>,

    /// Where the server is [default: 127.0.0.1:7379; 127.0.0.1:7070 for events]
    #[arg(long, value_name = "ADDR", help_heading = "Server and report")]
    server: Option<String>,
    /// The first line of this file is the token that the server asks for (--op events)
    #[arg(long, value_name = "FILE", help_heading = "Server and report")]
    http_token_file: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Server and report")]
    secret: SecretArgs,
    /// Also report CPU and memory of the server's process on this machine
    #[arg(long, value_name = "PID", help_heading = "Server and report")]
    server_pid: Option<u32>,
    /// Report as JSON
    #[arg(long, help_heading = "Server and report")]
    json: bool,
}

/// A run with all its defaults filled in and its bounds checked.
struct Run {
    args: BenchArgs,
    server: SocketAddr,
    key: KeyPattern,
    limit: Limit,
    password: Option<String>,
    /// Turns true when somebody presses Ctrl-C.
    interrupted: Arc<AtomicBool>,
}

pub fn run(args: BenchArgs, out: &mut Output) -> Result<()> {
    let run = Run::new(args)?;
    let measured = run.phases(out);
    // What was made is removed however the run ended.
    let cleaned = if run.cleans_up() { run.clean_up() } else { Ok(()) };
    measured.and(cleaned)?;
    if run.interrupted.load(Ordering::Acquire) { Err(Failure::interrupted()) } else { Ok(()) }
}

impl Run {
    fn new(args: BenchArgs) -> Result<Run> {
        let (server, pattern) = match args.op {
            Op::Events => (HTTP_SERVER, events::DEFAULT_KEY_PATTERN),
            _ => (RESP_SERVER, RESP_KEY_PATTERN),
        };
        let server = resolve(args.server.as_deref().unwrap_or(server))?;
        let key = match &args.key_pattern {
            Some(pattern) => pattern.clone(),
            None => pattern.parse().expect("the default patterns are patterns"),
        };
        check_bounds(&args, &key)?;
        let time = match (args.seconds, args.requests) {
            (Some(seconds), _) => Duration::from_secs_f64(seconds),
            (None, Some(_)) => Duration::MAX,
            (None, None) => Duration::from_secs(10),
        };
        let limit = Limit { operations: args.requests.unwrap_or(u64::MAX), time };
        // HTTP has no password; one may be in the environment for the sake of others.
        let password = if args.op == Op::Events { None } else { args.secret.password()? };
        Ok(Run { args, server, key, limit, password, interrupted: Signals::catch()?.into_flag()? })
    }

    fn phases(&self, out: &mut Output) -> Result<()> {
        if self.args.preload {
            self.report("preload", &self.preload_limit(), out, || self.preload())?;
        }
        if self.limit.operations > 0 && !self.interrupted.load(Ordering::Acquire) {
            self.report("load", &self.limit, out, || self.load())?;
        }
        Ok(())
    }

    /// Whether the run makes counters that are nobody's but its own.
    fn cleans_up(&self) -> bool {
        let writes = self.args.preload || matches!(self.args.op, Op::Incr | Op::Mix);
        writes && !self.args.keep && self.args.key_pattern.is_none() && self.args.op != Op::Events
    }

    fn clean_up(&self) -> Result<()> {
        cleanup::run(self.server, self.password.as_deref(), &self.key, self.args.keys)
    }

    fn preload_limit(&self) -> Limit {
        Limit { operations: self.args.keys, time: Duration::MAX }
    }

    fn preload(&self) -> Result<Measured> {
        let limit = self.preload_limit();
        self.drive(self.resp_lanes(Group::Increments, self.args.connections), Picker::in_order(self.args.keys), limit)
    }

    fn load(&self) -> Result<Measured> {
        let picker = Picker::new(self.args.dist, self.args.keys, self.args.seed);
        let connections = self.args.connections;
        match self.args.op {
            Op::Incr => self.drive(self.resp_lanes(Group::Increments, connections), picker, self.limit),
            Op::Get => self.drive(self.resp_lanes(Group::Reads, connections), picker, self.limit),
            Op::Mix => {
                let mut lanes = self.resp_lanes(Group::Increments, connections);
                lanes.extend((0..self.args.readers).map(|_| RespLane::new(Group::Reads, &self.key, 1)));
                self.drive(lanes, picker, self.limit)
            }
            Op::Events => self.drive(self.events_lanes()?, picker, self.limit),
        }
    }

    fn resp_lanes(&self, group: Group, connections: usize) -> Vec<RespLane> {
        (0..connections).map(|_| RespLane::new(group, &self.key, self.args.pipeline)).collect()
    }

    fn events_lanes(&self) -> Result<Vec<EventsLane>> {
        let Run { args, server, key, .. } = self;
        let token = args.http_token_file.as_deref().map(first_line).transpose()?;
        let shape = args.events.shape(server.to_string(), key.clone(), args.seed, SystemTime::now());
        let shape = EventsShape { token, ..shape };
        events::lanes(shape, args.connections)
            .map_err(|why| Failure::new("these events cannot be built").why(why).remedy("Raise --event-bytes."))
    }

    fn drive<L: lane::Lane>(&self, lanes: Vec<L>, picker: Picker, limit: Limit) -> Result<Measured> {
        let bar = progress_bar(&limit);
        let measured = driver::run(self.server, self.password.as_deref(), lanes, picker, limit, |done, elapsed| {
            bar.set_position(if limit.operations < u64::MAX { done } else { elapsed.as_millis() as u64 });
            bar.set_message(format!("{:.0} k/s", done as f64 / elapsed.as_secs_f64() / 1000.0));
            if self.interrupted.load(Ordering::Acquire) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        measured.map_err(|error| {
            Failure::new(format!("the load on {} could not be run", self.server))
                .why(error)
                .remedy("Start the server (tally serve), name another with --server, or give its password with --password-file.")
        })
    }

    /// Runs `work` and prints what it measured.
    fn report(
        &self,
        phase: &str,
        limit: &Limit,
        out: &mut Output,
        work: impl FnOnce() -> Result<Measured>,
    ) -> Result<()> {
        let usage = |pid| process::usage(pid).map_err(|why| Failure::new("the usage of a process is unknown").why(why));
        let server_usage = || self.args.server_pid.map(|pid| usage(Some(pid))).transpose();
        let (generator_before, server_before) = (usage(None)?, server_usage()?);
        let measured = work()?;
        let server = server_before.zip(server_usage()?).map(|(before, after)| [before, after]);
        let report = Report::new(self.describe(phase, limit), measured, [generator_before, usage(None)?], server);
        match self.args.json {
            true => out.json(&report)?,
            false => out.line(&report)?,
        }
        // Cleaning up takes a while; the figures need not wait for it.
        out.flush()?;
        match report.errors {
            0 => Ok(()),
            n => Err(Failure::new(format!("{n} answers were errors")).why(report.first_error.unwrap_or_default())),
        }
    }

    fn describe(&self, phase: &str, limit: &Limit) -> String {
        let args = &self.args;
        let question = match args.op {
            Op::Events => format!("{} events of {} bytes", args.events.events_per_request, args.events.event_bytes),
            _ => format!("pipeline {}", args.pipeline),
        };
        let keys = match phase {
            "preload" => "in order".to_owned(),
            _ => format!("{:?}", args.dist).to_lowercase(),
        };
        let end = if limit.time < Duration::MAX {
            format!("{:?}", limit.time)
        } else {
            format!("{} operations", limit.operations)
        };
        let op = format!("{:?}", args.op).to_lowercase();
        format!("{phase}: {op}, {} connections, {question}, {} keys {keys}, {end}", args.connections, args.keys)
    }
}

/// The first address of a name that somebody listens on.
fn resolve(server: &str) -> Result<SocketAddr> {
    let addresses = address::resolve(server).map_err(|why| Failure::new("--server cannot be used").why(why))?;
    let answers = |address: &&SocketAddr| TcpStream::connect(address).is_ok();
    // If nobody does, the run says so.
    Ok(addresses.iter().filter(|_| addresses.len() > 1).find(answers).copied().unwrap_or(addresses[0]))
}

fn bounded(name: &str, value: u64, max: u64) -> Result<()> {
    match value {
        0 => Err(Failure::new(format!("--{name} is 0")).remedy(format!("Give a number from 1 to {max}."))),
        _ if value > max => {
            Err(Failure::new(format!("--{name} {value} is too many")).remedy(format!("Give at most {max}.")))
        }
        _ => Ok(()),
    }
}

fn check_bounds(args: &BenchArgs, key: &KeyPattern) -> Result<()> {
    bounded("keys", args.keys, keys::KEYS_MAX.min(key.capacity()))?;
    bounded("connections", args.connections as u64, CONNECTIONS_MAX as u64)?;
    bounded("pipeline", args.pipeline as u64, 100_000)?;
    args.events.check()?;
    if args.op == Op::Events && args.preload {
        return Err(Failure::new("--preload cannot be used with --op events")
            .why("it increments counters by name, and events feed declared ones")
            .remedy("Leave it out."));
    }
    match args.seconds {
        Some(seconds) if !(seconds > 0.0 && seconds < 1e6) => {
            Err(Failure::new(format!("--seconds {seconds} is not a duration")).remedy("Give a number above 0."))
        }
        _ => Ok(()),
    }
}

/// On a terminal; elsewhere nothing is drawn.
fn progress_bar(limit: &Limit) -> ProgressBar {
    let length = if limit.operations < u64::MAX { limit.operations } else { limit.time.as_millis() as u64 };
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}%  {msg}").expect("the template is constant");
    ProgressBar::new(length).with_style(style)
}
