//! `tally bench`: the command line of the load generator. What a load is and how it is driven is in `tally-bench`.

mod cleanup;
mod events;

use crate::access::first_line;
use crate::address;
use crate::client::SecretArgs;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress;
use crate::signals::Signals;
use clap::{Args, ValueEnum};
use events::EventsArgs;
use indicatif::ProgressBar;
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tally_bench::{Distribution, KEYS_MAX, KeyPattern, Limit, Load, LoadError, Phase, Questions};

const RESP_SERVER: &str = "127.0.0.1:7379";
const HTTP_SERVER: &str = "127.0.0.1:7070";
const CONNECTIONS_MAX: usize = 10_000;
const RATE_MAX: u64 = 1_000_000_000;
/// Names that nobody else gives to a counter: those of the default are deleted after a run.
const RESP_KEY_PATTERN: &str = "bench:%08d";

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BenchOp {
    /// Pipelined INCRs
    Incr,
    /// Pipelined GETs
    Get,
    /// INCRs at full rate, and beside them --readers connections that send one GET at a time
    Mix,
    /// GETs over HTTP, one at a time: --path
    HttpGet,
    /// POST /v1/events with NDJSON bodies, or with --compact batches
    Events,
}

impl BenchOp {
    fn is_http(self) -> bool {
        matches!(self, BenchOp::HttpGet | BenchOp::Events)
    }
}

/// Measure a running server, or anything that speaks the Redis protocol
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tally bench                        INCR over a million keys, for 10 seconds
  tally bench --op get --pipeline 1 --seconds 5        single GETs
  tally bench --op mix --readers 10  GET latency while writes run at full rate
  tally bench --op http-get --connections 1            reads over HTTP
  tally bench --op http-get --key-pattern views:v%08d --path '/v1/counters/{}'
                                     any path, with an id in it
  tally bench --pipeline 1 --rate 2000                 single INCRs at a pace
  tally bench --op events            events over HTTP
  tally bench --op events --compact  the same in compact batches
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
    #[arg(long, value_enum, default_value_t = BenchOp::Incr, help_heading = "Load")]
    op: BenchOp,
    /// Connections; each has one question under way
    #[arg(long, default_value_t = 50, value_name = "N", help_heading = "Load")]
    connections: usize,
    /// Commands per question (RESP)
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "Load")]
    pipeline: usize,
    /// Additional connections that send one GET at a time (--op mix)
    #[arg(long, default_value_t = 10, value_name = "N", help_heading = "Load")]
    readers: usize,
    /// What is read, with the key in place of {} (--op http-get)
    #[arg(long, default_value = "/v1/counters/{}", value_name = "PATH", value_parser = path, help_heading = "Load")]
    path: String,
    /// Operations per second of all connections together, at even distances; latencies count from when a question was
    /// due, also if it had to wait for a free connection [default: as many as the server answers]
    #[arg(long, value_name = "N", help_heading = "Load")]
    rate: Option<u64>,

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

    /// Where the server is [default: 127.0.0.1:7379; 127.0.0.1:7070 over HTTP]
    #[arg(long, value_name = "ADDR", help_heading = "Server and report")]
    server: Option<String>,
    /// The first line of this file is the token that the server asks for over HTTP
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
struct Bench {
    args: BenchArgs,
    load: Load,
    /// Turns true when somebody presses Ctrl-C.
    interrupted: Arc<AtomicBool>,
}

pub fn run(args: BenchArgs, out: &mut Output) -> Result<()> {
    let bench = Bench::new(args)?;
    let measured = bench.phases(out);
    // What was made is removed however the run ended.
    let cleaned = if bench.cleans_up() { cleanup::run(&bench.load) } else { Ok(()) };
    measured.and(cleaned)?;
    if bench.is_interrupted() { Err(Failure::interrupted()) } else { Ok(()) }
}

impl Bench {
    fn new(args: BenchArgs) -> Result<Bench> {
        let load = args.load()?;
        Ok(Bench { args, load, interrupted: Signals::catch()?.into_flag()? })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    fn phases(&self, out: &mut Output) -> Result<()> {
        if self.args.preload {
            self.report(Phase::Preload, out)?;
        }
        if self.load.limit.operations > 0 && !self.is_interrupted() {
            self.report(Phase::Load, out)?;
        }
        Ok(())
    }

    /// Whether the run makes counters that are nobody's but its own.
    fn cleans_up(&self) -> bool {
        let BenchArgs { op, preload, keep, key_pattern, .. } = &self.args;
        let writes = *preload || matches!(op, BenchOp::Incr | BenchOp::Mix);
        writes && !keep && key_pattern.is_none() && !op.is_http()
    }

    /// Runs a phase and prints what it measured.
    fn report(&self, phase: Phase, out: &mut Output) -> Result<()> {
        let limit = self.load.limit(phase);
        let bar = progress_bar(&limit);
        let measured = self.load.run(phase, |done, elapsed| {
            bar.set_position(if limit.operations < u64::MAX { done } else { elapsed.as_millis() as u64 });
            bar.set_message(format!("{:.0} k/s", done as f64 / elapsed.as_secs_f64() / 1000.0));
            if self.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        let report = measured.map_err(|error| failure(error, self.load.server))?;
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
}

fn failure(error: LoadError, server: SocketAddr) -> Failure {
    match error {
        LoadError::Events(why) => Failure::new("these events cannot be built").why(why).remedy("Raise --event-bytes."),
        LoadError::Usage(why) => Failure::new("the usage of a process is unknown").why(why),
        LoadError::Drive(error) => Failure::new(format!("the load on {server} could not be run")).why(error).remedy(
            "Start the server (tally serve), name another with --server, or give its password with --password-file.",
        ),
    }
}

impl BenchArgs {
    fn load(&self) -> Result<Load> {
        let server = if self.op.is_http() { HTTP_SERVER } else { RESP_SERVER };
        let pattern = if self.op == BenchOp::Events { events::DEFAULT_KEY_PATTERN } else { RESP_KEY_PATTERN };
        let server = resolve(self.server.as_deref().unwrap_or(server))?;
        let key = match &self.key_pattern {
            Some(pattern) => pattern.clone(),
            None => pattern.parse().expect("the default patterns are patterns"),
        };
        check_bounds(self, &key)?;
        Ok(Load {
            questions: self.questions(server, &key)?,
            server,
            // HTTP has no password; one may be in the environment for the sake of others.
            password: if self.op.is_http() { None } else { self.secret.password()? },
            connections: self.connections,
            pipeline: self.pipeline,
            key,
            keys: self.keys,
            distribution: self.dist,
            seed: self.seed,
            limit: self.limit(),
            rate: self.rate,
            server_pid: self.server_pid,
        })
    }

    fn limit(&self) -> Limit {
        let time = match (self.seconds, self.requests) {
            (Some(seconds), _) => Duration::from_secs_f64(seconds),
            (None, Some(_)) => Duration::MAX,
            (None, None) => Duration::from_secs(10),
        };
        Limit { operations: self.requests.unwrap_or(u64::MAX), time }
    }

    fn questions(&self, server: SocketAddr, key: &KeyPattern) -> Result<Questions> {
        let token = || self.http_token_file.as_deref().map(first_line).transpose();
        Ok(match self.op {
            BenchOp::Incr => Questions::Increments,
            BenchOp::Get => Questions::Reads,
            BenchOp::Mix => Questions::Mixed { readers: self.readers },
            BenchOp::HttpGet => Questions::HttpReads { path: self.path.clone(), token: token()? },
            BenchOp::Events => {
                #[allow(clippy::disallowed_methods, reason = "events of a load happen when it begins")]
                let now = SystemTime::now();
                Questions::Events(Box::new(self.events.shape(
                    server.to_string(),
                    token()?,
                    key.clone(),
                    self.seed,
                    now,
                )))
            }
        })
    }
}

/// What can stand in a request as it is.
fn path(text: &str) -> std::result::Result<String, String> {
    match text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err("a path begins with / and has no blanks".to_owned()),
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
    bounded("keys", args.keys, KEYS_MAX.min(key.capacity()))?;
    bounded("connections", args.connections as u64, CONNECTIONS_MAX as u64)?;
    bounded("pipeline", args.pipeline as u64, 100_000)?;
    args.rate.map_or(Ok(()), |rate| bounded("rate", rate, RATE_MAX))?;
    args.events.check()?;
    if args.op.is_http() && args.preload {
        return Err(Failure::new("--preload cannot be used over HTTP")
            .why("it increments counters by name over the Redis protocol")
            .remedy("Leave it out."));
    }
    match args.seconds {
        Some(seconds) if !(seconds > 0.0 && seconds < 1e6) => {
            Err(Failure::new(format!("--seconds {seconds} is not a duration")).remedy("Give a number above 0."))
        }
        _ => Ok(()),
    }
}

fn progress_bar(limit: &Limit) -> ProgressBar {
    progress::bar(if limit.operations < u64::MAX { limit.operations } else { limit.time.as_millis() as u64 })
}
