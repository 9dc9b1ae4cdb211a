//! What the node says about itself at `/metrics`, in either text format of Prometheus ([`text`]).
//!
//! Everything is registered once at start. Code that counts per commit, per slice of a pipeline or per request holds the
//! handles directly; nothing here is touched per event. Where entries ended is not counted here: a scrape takes it from the committed state
//! ([`balance`]), so it is of one moment and survives a restart.

mod anomalies;
mod archive;
mod backup;
mod balance;
mod cut;
mod disk;
mod lag;
mod memory;
mod probes;
mod process;
mod reconciliation;
pub mod text;
mod timings;
mod unmatched;
mod workers;

pub use anomalies::{AnomalyMetrics, WebhookMetrics};
pub use archive::ArchiveMetrics;
pub use backup::BackupMetrics;
pub use balance::{BalanceMetrics, BoxSum, BoxSums};
pub use cut::{CutOff, Cuts};
pub use lag::Lag;
pub use memory::MemoryMetrics;
pub use probes::{ProbeMetrics, WrongProbe};
pub use reconciliation::ReconciliationMetrics;
pub use timings::Timings;
pub use unmatched::Unmatched;

use crate::clock::Clock;
use crate::engine::Trouble;
use crate::worker::Board;
use disk::DiskSpace;
pub use process::CpuSeconds;
use process::Process;
pub use process::resident_bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Every metric of a node. Handles are cheap to clone and safe to use from any thread.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub http_requests: Family<HttpRequest, Counter>,
    pub http_request_seconds: Family<HttpRoute, Timings>,
    resp_command_seconds: Family<CommandFamily, Timings>,
    clients: Family<ClientKind, Gauge>,
    pub cuts: Cuts,
    /// Passwords that were not the password.
    pub auth_failures: Counter,
    /// Changes of counters that were made: entries that counted, and writes by name.
    pub updates: Counter,
    /// Events of which at least one entry stood before.
    pub duplicate_events: Counter,
    /// Look-ups made again because the store had moved on in between.
    pub lookup_retries: Counter,
    /// Events that were taken apart, good or bad.
    pub events: Counter,
    /// Events that were no events.
    pub events_invalid: Counter,
    /// Events that no counter listens to.
    pub events_unmatched: Counter,
    pub unmatched: Unmatched,
    /// Where entries ended, as of the last scrape.
    pub balances: Arc<BalanceMetrics>,
    /// What goes on in the background.
    pub workers: Arc<Board>,
    pub resp_commands: Counter,
    pub commits: Counter,
    pub commit_bytes: Counter,
    pub sync_seconds: Histogram,
    /// From the append to the answers.
    pub commit_seconds: Timings,
    /// How long writes from other threads waited for their commit to begin.
    pub queue_wait_seconds: Timings,
    pub checkpoints: Counter,
    pub checkpoint_failures: Counter,
    pub checkpoint_seconds: Timings,
    /// When the last one was finished, since 1970; 0 if none was since the start.
    pub checkpoint_timestamp_seconds: Gauge<f64, AtomicU64>,
    /// Records that a restart would replay.
    pub records_since_checkpoint: Gauge,
    /// Counters that memory holds.
    pub counters_in_memory: Gauge,
    /// Counters that only the store holds.
    pub counters_cold: Gauge,
    /// Memory of the table of counters.
    pub table_bytes: Gauge,
    pub log_end_offset: Gauge,
    /// Submissions that were turned away because the queue was full.
    pub queue_refusals: Counter,
    /// Sessions, or other groups, remembered against repeats.
    pub dedup_sessions: Gauge,
    pub dedup_bytes: Gauge,
    /// Memory of the ledger: event ids, entities, idempotency keys, and their filters.
    pub ledger_bytes: Gauge,
    pub memory: MemoryMetrics,
    troubles: Family<TroubleKind, Gauge>,
    /// How far the wall clock is ahead of the time of the log; negative if it is behind.
    pub clock_ahead_seconds: Gauge<f64, AtomicU64>,
    /// Since when the oldest write waits.
    pub lag: Arc<Lag>,
    projection_lag_seconds: Gauge<f64, AtomicU64>,
    /// The same number as `lookup_retries`, under a name that people know; it is not that of a counter, so a gauge shows it.
    conflict_retries: Gauge,
    pub disk: DiskSpace,
    pub archive: ArchiveMetrics,
    pub reconciliation: ReconciliationMetrics,
    pub anomalies: AnomalyMetrics,
    pub webhooks: WebhookMetrics,
    pub backup: BackupMetrics,
    pub probes: ProbeMetrics,
}

/// A route, by its pattern and method.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HttpRoute {
    pub method: &'static str,
    pub route: String,
}

/// What the commands of one slice of a pipeline do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandFamily {
    family: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClientKind {
    protocol: &'static str,
}

/// A client that is connected, for as long as this is kept.
#[derive(Debug)]
pub struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TroubleKind {
    kind: &'static str,
}

/// The answer that a request got, and from which route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HttpRequest {
    pub method: &'static str,
    /// The pattern of the route, never the path of the request: the number of label values is bounded.
    pub route: String,
    pub status: u16,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics::with_lag(Arc::new(Lag::new(Clock::system())))
    }

    /// With the lag of queues that are there already.
    pub fn with_lag(lag: Arc<Lag>) -> Metrics {
        let mut registry = Registry::default();
        let balances = Arc::new(BalanceMetrics::default());
        registry.register_collector(Box::new(Arc::clone(&balances)));
        let workers = Arc::new(Board::default());
        registry.register_collector(Box::new(Arc::clone(&workers)));
        registry.register_collector(Box::new(Process));
        let help = "Changes of counters that were made: entries that counted, and writes by name";
        let updates = counter(&mut registry, "counter_update_success", help);
        let help = "Events of which at least one entry stood before";
        let duplicate_events = counter(&mut registry, "duplicate_event_dropped", help);
        let help = "Look-ups made again because the store had moved on";
        let conflict_retries = gauge(&mut registry, "counter_update_conflict_retries", help);
        let projection_lag_seconds = Gauge::default();
        let help = "How long the oldest write waits that readers do not see yet";
        registry.register_with_unit("projection_lag", help, Unit::Seconds, projection_lag_seconds.clone());
        let r = registry.sub_registry_with_prefix("tally");
        r.register("build", "What runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        r.register("updates", "The same as counter_update_success", updates.clone());
        r.register("duplicate_events", "The same as duplicate_event_dropped", duplicate_events.clone());
        let http_request_seconds = Family::default();
        let help = "How long requests took, to the head of their answer";
        r.register_with_unit("http_request", help, Unit::Seconds, http_request_seconds.clone());
        let resp_command_seconds = Family::default();
        let help = "How long commands of the Redis protocol took, from their arrival to their answer";
        r.register_with_unit("resp_command", help, Unit::Seconds, resp_command_seconds.clone());
        let clients = Family::default();
        r.register("clients", "Clients that are connected", clients.clone());
        let cuts = Cuts::register(r);
        let checkpoint_timestamp_seconds = Gauge::default();
        let help = "When the last checkpoint was finished, since 1970; 0 if none was since the start";
        r.register_with_unit("checkpoint_timestamp", help, Unit::Seconds, checkpoint_timestamp_seconds.clone());
        let http_requests = Family::default();
        r.register("http_requests", "HTTP requests by route and status", http_requests.clone());
        let troubles = Family::default();
        r.register("trouble", "1 while it lasts, by kind", troubles.clone());
        let clock_ahead_seconds = Gauge::default();
        let help = "How far the wall clock is ahead of the time of the log";
        r.register_with_unit("clock_ahead", help, Unit::Seconds, clock_ahead_seconds.clone());
        Metrics {
            http_requests,
            http_request_seconds,
            resp_command_seconds,
            clients,
            cuts,
            updates,
            duplicate_events,
            lookup_retries: counter(r, "lookup_retries", "Look-ups made again because the store had moved on"),
            auth_failures: counter(r, "resp_auth_failures", "Passwords that were not the password"),
            troubles,
            clock_ahead_seconds,
            events: counter(r, "events", "Events received"),
            events_invalid: counter(r, "events_invalid", "Events that could not be read"),
            events_unmatched: counter(r, "events_unmatched", "Events that no counter listens to"),
            unmatched: Unmatched::register(r),
            balances,
            workers,
            resp_commands: counter(r, "resp_commands", "Commands of the Redis protocol"),
            commits: counter(r, "commits", "Commits to the log"),
            commit_bytes: counter(r, "commit_bytes", "Bytes committed to the log"),
            sync_seconds: sync_seconds(r),
            commit_seconds: timings(r, "commit", "How long commits took, from the append to the answers"),
            queue_wait_seconds: timings(r, "queue_wait", "How long writes over HTTP waited for their commit to begin"),
            checkpoints: counter(r, "checkpoints", "Checkpoints taken"),
            checkpoint_failures: counter(r, "checkpoint_failures", "Checkpoints that failed"),
            checkpoint_seconds: timings(r, "checkpoint", "How long checkpoints took"),
            checkpoint_timestamp_seconds,
            records_since_checkpoint: gauge(r, "records_since_checkpoint", "Records that a restart would replay"),
            counters_in_memory: gauge(r, "counters_in_memory", "Counters held in memory"),
            counters_cold: gauge(r, "counters_cold", "Counters held by the store alone"),
            table_bytes: gauge(r, "table_bytes", "Bytes of the table of counters in memory"),
            log_end_offset: gauge(r, "log_end_offset", "Offset behind the last record of the log"),
            queue_refusals: counter(r, "queue_refusals", "Submissions refused because the queue was full"),
            dedup_sessions: gauge(r, "dedup_sessions", "Sessions or other groups remembered against repeats"),
            dedup_bytes: gauge(r, "dedup_bytes", "Bytes of the memory of repeats"),
            ledger_bytes: gauge(r, "ledger_bytes", "Bytes of the ledger in memory, with its filters"),
            memory: MemoryMetrics::register(r),
            disk: DiskSpace::new(r),
            archive: ArchiveMetrics::register(r),
            reconciliation: ReconciliationMetrics::register(r),
            anomalies: AnomalyMetrics::register(r),
            webhooks: WebhookMetrics::register(r),
            backup: BackupMetrics::register(r),
            probes: ProbeMetrics::register(r),
            conflict_retries,
            lag,
            projection_lag_seconds,
            registry,
        }
    }

    /// Whether a trouble lasts.
    pub fn trouble(&self, trouble: Trouble) -> Gauge {
        self.troubles.get_or_create_owned(&TroubleKind { kind: trouble.name() })
    }

    /// How long commands of a family take.
    pub fn resp_command_seconds(&self, family: &'static str) -> Timings {
        self.resp_command_seconds.get_or_create_owned(&CommandFamily { family })
    }

    /// Counts a client for as long as the answer is kept.
    pub fn connected(&self, protocol: &'static str) -> Connected {
        let clients = self.clients.get_or_create_owned(&ClientKind { protocol });
        clients.inc();
        Connected(clients)
    }

    /// The text that a scrape answers with, as OpenMetrics.
    pub fn encode(&self) -> String {
        self.projection_lag_seconds.set(self.lag.seconds());
        self.conflict_retries.set(self.lookup_retries.get() as i64);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a String takes every write");
        text
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let metric = Counter::default();
    registry.register(name, help, metric.clone());
    metric
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let metric = Gauge::default();
    registry.register(name, help, metric.clone());
    metric
}

fn timings(registry: &mut Registry, name: &str, help: &str) -> Timings {
    let metric = Timings::default();
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

/// From 50 µs, better than any disk that keeps its word, to 13 s.
fn sync_seconds(registry: &mut Registry) -> Histogram {
    let metric = Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(50e-6, 2.0, 19));
    registry.register_with_unit("sync", "How long the log's sync took", Unit::Seconds, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_what_was_counted() {
        let metrics = Metrics::new();
        let request = HttpRequest { method: "GET", route: "/v1/counters/{id}".to_owned(), status: 200 };
        metrics.http_requests.get_or_create(&request).inc();
        metrics.sync_seconds.observe(0.0003);
        let text = metrics.encode();
        for line in [
            r#"tally_http_requests_total{method="GET",route="/v1/counters/{id}",status="200"} 1"#,
            "counter_update_conflict_retries 0",
            "projection_lag_seconds 0.0",
            "tally_sync_seconds_count 1",
            "tally_log_end_offset 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
