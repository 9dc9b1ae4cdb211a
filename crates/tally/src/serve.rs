//! `tally serve`: runs a node until it is told to stop.

use crate::access::{self, AccessArgs, Door};
use crate::address;
use crate::allocator;
use crate::check;
use crate::container;
use crate::failure::{Failure, Result};
use crate::logging::LogFormat;
use crate::restore::parse_place;
use crate::signals::Signals;
use bytesize::ByteSize;
use clap::Args;
use rustix::fs::Mode;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tally_core::counter::{Archived, duration};
use tally_core::limits::{CHECKPOINT_LOG_BYTES_MIN, HTTP_THREADS_MAX, MEMORY_BYTES_MIN, WEBHOOKS_MAX};
use tally_node::archive::ArchiveStatus;
use tally_node::assemble::{Node, Options, StartError};
use tally_node::backup::Place;
use tally_node::data_dir::DataDirError;
use tally_node::engine::{CommitsOptions, NodeDurability, RecoveryError};
use tally_node::frontend::http;
use tally_node::frontend::resp::RespOptions;
use tally_node::proof::Signer;
use tally_node::webhook::{WebhookOptions, WebhookUrl, WebhookUrlError};

pub const HTTP: &str = "127.0.0.1:7070";
pub const RESP: &str = "127.0.0.1:7379";
const INTERVAL: Duration = Duration::from_secs(1);
/// Instead of a directory.
const NONE: &str = "none";

/// Run a server
#[derive(Args)]
#[command(after_help = "\
Examples:
  tally serve                          counters need no declaration
  tally serve --config counters.yaml --data /srv/tally
  tally serve --resp localhost:6379    where Redis clients expect a server

SIGTERM or Ctrl-C finishes what was accepted, takes a checkpoint and ends with
exit code 0.")]
pub struct ServeArgs {
    /// Declared counters, in YAML; without it those that the data directory knows stay in force
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// Where events of declared counters are kept in tables that other engines read, or none [default: archive, in --data]
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Sign the roots of the archive with this key; make one with tally keygen
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,
    /// Keep backups in this directory or under s3://bucket/prefix, or none; tally backup has one taken, and backup: {every: 1d} in the configuration
    #[arg(long, value_name = "PLACE", value_parser = parse_place)]
    backup: Option<Place>,
    /// Post anomalies and lasting drift to this https:// or http:// address; may be given again
    #[arg(long, value_name = "URL", value_parser = parse_webhook)]
    webhook: Vec<WebhookUrl>,
    /// The first line of this file is what messages to webhooks are signed with
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_secret_file: Option<PathBuf>,
    /// Counters that the configuration no longer declares, on purpose; their names stay theirs
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "config")]
    remove: Vec<String>,
    /// Where to listen for HTTP
    #[arg(long, value_name = "ADDR", default_value = HTTP, value_parser = address::listening)]
    http: SocketAddr,
    /// Where to listen for the Redis protocol
    #[arg(long, value_name = "ADDR", default_value = RESP, value_parser = address::listening)]
    resp: SocketAddr,
    /// Where to serve /metrics, /healthz and /readyz as well, to whoever can connect, without a token
    #[arg(long, value_name = "ADDR", value_parser = address::listening)]
    metrics: Option<SocketAddr>,

    /// Memory for counters, queues and caches, such as 4GiB [default: half of what there is]
    #[arg(long, value_name = "SIZE", help_heading = "Tuning")]
    memory: Option<ByteSize>,
    /// Memory for counters alone; for tests that want most of them cold
    #[arg(long, hide = true)]
    table_memory: Option<ByteSize>,
    /// When a write is on disk: sync (before its answer), interval (a second later at most; or interval:200ms), none
    #[arg(long, value_name = "WHEN", default_value = "sync", value_parser = parse_durability, help_heading = "Tuning")]
    durability: NodeDurability,
    /// Take a checkpoint after this much log; more means fewer checkpoints and a longer restart after a crash
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_checkpoint_log, help_heading = "Tuning")]
    checkpoint_log: ByteSize,
    /// How long commits are kept for those who follow them
    #[arg(long, value_name = "TIME", default_value = "72h", value_parser = humantime::parse_duration, help_heading = "Tuning")]
    commits_keep: Duration,
    /// How much of the disk they take at most [default: 1GiB, or a tenth of what is free if that is less]
    #[arg(long, value_name = "SIZE", help_heading = "Tuning")]
    commits_bytes: Option<ByteSize>,
    /// Threads for HTTP [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = parse_threads, help_heading = "Tuning")]
    http_threads: Option<usize>,
    /// How log lines are written; they go to stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, env = "TALLY_LOG_FORMAT", help_heading = "Tuning")]
    pub log_format: LogFormat,

    #[command(flatten)]
    access: AccessArgs,

    /// Give up record N of the log and all behind it, if the log is damaged there; the refusal to start names N
    #[arg(long, value_name = "N", help_heading = "Repair")]
    discard_from: Option<u64>,
    /// Start although the clock is far from the time of the last write; the refusal to start says how far
    #[arg(long, help_heading = "Repair")]
    accept_clock: bool,
}

pub fn run(args: ServeArgs) -> Result<()> {
    #[cfg(debug_assertions)]
    plant();
    let config = args.config.as_deref().map(check::read).transpose()?;
    if let (Some(file), Some(yaml)) = (&args.config, &config) {
        check::refuse_blank(file, &check::parse(file, yaml)?)?;
    }
    let options = options(&args, config)?;
    say_what_is_chosen(&args, &options);
    let guards = Guards::of(&options);
    let node = start(options, args.config.as_deref())?;
    let signals = Signals::catch()?;
    say_what_is_there(&node, guards);
    signals.wait();
    stop(node)
}

/// Plants a bug for a test: `views 1763400000000 1763400060000` makes views count twice at these log times. No release looks for it.
#[cfg(debug_assertions)]
fn plant() {
    let Ok(planted) = std::env::var("TALLY_PLANTED_DOUBLE_COUNT") else { return };
    if let [counter, from_ms, to_ms] = planted.split(' ').collect::<Vec<_>>()[..]
        && let (Ok(from_ms), Ok(to_ms)) = (from_ms.parse(), to_ms.parse())
    {
        tally_core::planted::count_twice(counter, from_ms..to_ms);
    }
}

/// Starts a node, or says to a person why not.
pub fn start(options: Options, config: Option<&Path>) -> Result<Node> {
    // What is counted is nobody else's business, whoever makes the file.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let data = options.data_dir.display().to_string();
    let options = Options { give_back: allocator::give_back, sql: Some(tally_sql::make), ..options };
    Node::start(options).map_err(|error| explain(error, &data, config.unwrap_or(Path::new("the configuration"))))
}

/// Ends a node in order.
pub fn stop(node: Node) -> Result<()> {
    say("stopping: finishing what was accepted, then a checkpoint");
    node.stop().map_err(|refusal| {
        Failure::new("the last checkpoint could not be taken")
            .why(refusal)
            .remedy("Nothing that was acknowledged is lost: the next start replays the log.")
    })?;
    say("stopped");
    Ok(())
}

/// Prints a line; a server goes on when nobody reads what it prints.
pub fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

fn options(args: &ServeArgs, config: Option<String>) -> Result<Options> {
    let defaults = Options::new(&args.data);
    let archive = archive_directory(args.archive.as_deref(), &args.data);
    if archive.is_none() && args.sign_key.is_some() {
        return Err(Failure::new("--sign-key signs the roots of the archive, and --archive is none")
            .remedy("Leave out one of the two."));
    }
    Ok(Options {
        http: Some(args.http),
        resp: Some(args.resp),
        watch: args.metrics,
        http_threads: args.http_threads.unwrap_or(defaults.http_threads),
        config,
        memory_bytes: args.memory.map_or_else(half_of_memory, |size| size.as_u64()),
        table_bytes: args.table_memory.map(|size| size.as_u64() as usize),
        durability: args.durability,
        checkpoint_log_bytes: args.checkpoint_log.as_u64(),
        commits: CommitsOptions { keep: args.commits_keep, bytes_max: commits_bytes(args) },
        accept_clock: args.accept_clock,
        remove: args.remove.clone(),
        archive,
        backup: args.backup.clone().filter(|place| *place != Place::from(Path::new(NONE))),
        needs_backup_place: args.backup.is_none(),
        signer: args.sign_key.as_deref().map(signer).transpose()?,
        webhooks: webhooks(args)?,
        resp_options: RespOptions { password: args.access.resp(args.resp)?, ..RespOptions::default() },
        http_options: http::HttpOptions { access: args.access.http(args.http)?, ..http::HttpOptions::default() },
        watch_access: args.metrics.map(access::watch).unwrap_or_default(),
        log: tally_storage::log::local::LogOptions { discard_from: args.discard_from, ..defaults.log.clone() },
        ..defaults
    })
}

fn webhooks(args: &ServeArgs) -> Result<WebhookOptions> {
    if args.webhook.len() > WEBHOOKS_MAX {
        return Err(Failure::new(format!("--webhook is given {} times", args.webhook.len()))
            .remedy(format!("Give it {WEBHOOKS_MAX} times at most, or let one receiver tell others.")));
    }
    let secret = args.webhook_secret_file.as_deref().map(access::first_line).transpose()?;
    Ok(WebhookOptions { urls: args.webhook.clone(), secret: secret.map(|secret| secret.into_bytes().into()) })
}

fn parse_webhook(text: &str) -> std::result::Result<WebhookUrl, String> {
    text.parse().map_err(|error: WebhookUrlError| error.to_string())
}

fn signer(file: &Path) -> Result<Arc<Signer>> {
    Signer::read(file).map(Arc::new).map_err(|error| Failure::new("roots cannot be signed").why(error))
}

/// Where the archive is: without a word beside everything else.
fn archive_directory(given: Option<&Path>, data: &Path) -> Option<PathBuf> {
    let directory = given.map_or_else(|| data.join("archive"), Path::to_owned);
    (directory != Path::new(NONE)).then_some(directory)
}

/// What was asked for, or a part of the disk that nobody misses.
fn commits_bytes(args: &ServeArgs) -> u64 {
    let free = || {
        // The directory may not be there yet; the file system it will be on is.
        let there = args.data.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
        rustix::fs::statvfs(there).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    };
    let derived = || CommitsOptions::default().bytes_max.min(free() / 10);
    args.commits_bytes.map_or_else(derived, |size| size.as_u64())
}

/// Half of the machine's memory, or of what the process's container may use.
fn half_of_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = info.totalram as u64 * u64::from(info.mem_unit.max(1));
    (container::memory_bytes().unwrap_or(u64::MAX).min(machine) / 2).max(MEMORY_BYTES_MIN)
}

fn parse_durability(text: &str) -> std::result::Result<NodeDurability, String> {
    match text.split_once(':') {
        None if text == "sync" => Ok(NodeDurability::Sync),
        None if text == "interval" => Ok(NodeDurability::Interval(INTERVAL)),
        None if text == "none" => Ok(NodeDurability::None),
        Some(("interval", interval)) => match humantime::parse_duration(interval) {
            Ok(interval) if !interval.is_zero() => Ok(NodeDurability::Interval(interval)),
            _ => Err(format!("{interval:?} is not an interval; write interval:200ms")),
        },
        _ => Err("choose sync, interval, interval:200ms or none".to_owned()),
    }
}

/// With none at all, checkpoints would follow each other without an end.
fn parse_checkpoint_log(text: &str) -> std::result::Result<ByteSize, String> {
    match text.parse::<ByteSize>().map_err(|error| error.to_string())? {
        size if size.as_u64() < CHECKPOINT_LOG_BYTES_MIN => {
            Err(format!("give at least {}", ByteSize::b(CHECKPOINT_LOG_BYTES_MIN).display().iec()))
        }
        size => Ok(size),
    }
}

fn parse_threads(text: &str) -> std::result::Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=HTTP_THREADS_MAX).contains(threads));
    threads.ok_or_else(|| format!("give a number from 1 to {HTTP_THREADS_MAX}"))
}

/// Printed first, because a start may take a while.
fn say_what_is_chosen(args: &ServeArgs, options: &Options) {
    let declared = match &args.config {
        Some(file) => format!("declared in {}", file.display()),
        None => "as the data directory has them; --config FILE declares counters".to_owned(),
    };
    say(&format!("Tally {}", env!("CARGO_PKG_VERSION")));
    let data = std::path::absolute(&args.data).unwrap_or_else(|_| args.data.clone());
    say(&format!("  data        {}", data.display()));
    say(&format!("  durability  {}", describe(options.durability)));
    say(&format!("  memory      {}", ByteSize::b(options.memory_bytes).display().iec()));
    say(&format!("  counters    {declared}"));
}

/// What a client must know to be let in.
#[derive(Clone, Copy)]
struct Guards {
    has_token: bool,
    has_password: bool,
}

impl Guards {
    fn of(options: &Options) -> Guards {
        Guards {
            has_token: options.http_options.access.token.is_some(),
            has_password: options.resp_options.password.is_some(),
        }
    }
}

fn say_what_is_there(node: &Node, guards: Guards) {
    let found = node.recovered();
    let Guards { has_token, has_password } = guards;
    say(&format!("  found       {} counters, {} log records replayed", found.counters, found.replayed_records));
    if let Some(changes) = &found.changes {
        say(&format!("  declared    {changes}"));
    }
    if let Some(archive) = node.archive() {
        say(&format!("  archive     {}", describe_archive(&archive.status(), node.engine().declarations().archived())));
    }
    if let Some(address) = node.http_addr() {
        let guard = Door::Http.guard(has_token);
        say(&format!("  HTTP        http://{address}  {guard} (what it offers: http://{address}/docs)"));
        if !has_token {
            warn_if_public(address, Door::Http.offers());
        }
    }
    if let Some(address) = node.resp_addr() {
        say(&format!("  Redis       redis://{address}  {}", Door::Resp.guard(has_password)));
        if !has_password {
            warn_if_public(address, Door::Resp.offers());
        }
    }
    if let Some(address) = node.watch_addr() {
        say(&format!("  metrics     http://{address}/metrics  no token"));
        warn_if_public(address, "read /metrics, which name the counters and say how much they count");
    }
    let bounds = node.bounds();
    say(&format!(
        "  clients     {} over HTTP, {} over the Redis protocol at most; {} of memory for all of them",
        bounds.connections.http,
        bounds.connections.resp,
        ByteSize::b(bounds.client_bytes).display().iec()
    ));
    say("ready");
}

fn describe_archive(status: &ArchiveStatus, archived: Archived) -> String {
    let keeps = match archived {
        Archived::For { keep_ms: Some(keep_ms) } => duration::shown_long(keep_ms),
        _ => "everything".to_owned(),
    };
    format!("{}, keeps {keeps}, {} now", status.directory.display(), ByteSize::b(status.bytes).display().iec())
}

fn warn_if_public(address: SocketAddr, what: &str) {
    if !address.ip().is_loopback() {
        tracing::warn!("{address} can be reached from other machines: whoever reaches it may {what}");
    }
}

fn describe(durability: NodeDurability) -> String {
    match durability {
        NodeDurability::Sync => "sync: an answer means that it is on disk".to_owned(),
        NodeDurability::Interval(interval) => {
            format!("interval: a power cut may take the last {}", humantime::format_duration(interval))
        }
        NodeDurability::None => "none: a power cut may take what the operating system had not written".to_owned(),
    }
}

/// Says to a person why a data directory cannot be used.
pub fn explain(error: StartError, data: &str, config: &Path) -> Failure {
    let failure = Failure::new("Tally cannot start");
    match error {
        StartError::DataDir(DataDirError::InUse(path)) => {
            Failure::new(format!("the data directory {} is in use", path.display()))
                .why("another Tally is running on it, and two would ruin it")
                .remedy("Stop the other one, or choose another directory with --data.")
        }
        StartError::TooLittleMemory { given } => failure
            .why(format!("--memory {} is too little", ByteSize::b(given).display().iec()))
            .remedy(format!("Give at least {}.", ByteSize::b(MEMORY_BYTES_MIN).display().iec())),
        StartError::Listen { address, error } => failure
            .why(format!("it cannot listen on {address}: {error}"))
            .remedy("Stop what listens there, or choose other addresses with --http, --resp and --metrics."),
        StartError::Recovery(RecoveryError::Config(errors)) | StartError::Config(errors) => {
            check::wrong(config, &errors)
        }
        StartError::Recovery(RecoveryError::Removed(names)) => {
            let fix = format!(
                "Name the right file with --config. To remove them, start with --remove {}; nothing is deleted.",
                names.join(",")
            );
            failure.why(RecoveryError::Removed(names)).remedy(fix)
        }
        StartError::Recovery(error @ RecoveryError::NotRemoved { .. }) => {
            failure.why(error).remedy("Name only counters that the configuration no longer declares.")
        }
        StartError::Recovery(RecoveryError::Clock(error)) => failure.why(error).remedy(
            "Set the clock. If it is right, start with --accept-clock: time goes on from the later of the two.",
        ),
        StartError::NoBackupPlace => Failure::new(error.to_string())
            .remedy("Name a directory or s3://bucket/prefix with --backup, or go without: --backup none."),
        StartError::BackupPlace(error) => {
            failure.why(error).remedy("Name a directory of its own for backups, best on another disk.")
        }
        StartError::Recovery(error) => Failure::new(format!("the data in {data} cannot be used")).why(error),
        other => failure.why(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_read_as_a_person_writes_it() {
        assert_eq!(parse_durability("sync"), Ok(NodeDurability::Sync));
        assert_eq!(parse_durability("interval"), Ok(NodeDurability::Interval(INTERVAL)));
        assert_eq!(parse_durability("interval:200ms"), Ok(NodeDurability::Interval(Duration::from_millis(200))));
        for bad in ["", "always", "interval:", "interval:0s", "sync:1s"] {
            assert!(parse_durability(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_that_no_server_could_do_with_are_refused() {
        assert_eq!(parse_checkpoint_log("32KiB"), Ok(ByteSize::kib(32)));
        for bad in ["0", "1B", "4095", "", "much"] {
            assert!(parse_checkpoint_log(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_threads("1"), parse_threads("256")), (Ok(1), Ok(256)));
        for bad in ["0", "257", "20000", "-1", ""] {
            assert!(parse_threads(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn half_of_the_memory_is_at_least_what_a_node_needs() {
        assert!(half_of_memory() >= MEMORY_BYTES_MIN);
    }
}
