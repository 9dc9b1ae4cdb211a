//! What the node says about itself at `/metrics`, in the OpenMetrics text format.
//!
//! Everything is registered once at start. Code that counts per commit or per request holds the handles directly; nothing
//! here is touched per event. Where entries ended is not counted here: a scrape takes it from the committed state
//! ([`balance`]), so it is of one moment and survives a restart.

mod balance;
mod unmatched;

pub use balance::{Balances, Sum, Sums};
pub use unmatched::Unmatched;

use crate::engine::Trouble;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Every metric of a node. Handles are cheap to clone and safe to use from any thread.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub http_requests: Family<HttpRequest, Counter>,
    /// Events that were taken apart, good or bad.
    pub events: Counter,
    /// Events that were no events.
    pub events_invalid: Counter,
    /// Events that no counter listens to.
    pub events_unmatched: Counter,
    pub unmatched: Unmatched,
    /// Where entries ended, as of the last scrape.
    pub balances: Arc<Balances>,
    pub resp_commands: Counter,
    pub commits: Counter,
    pub commit_bytes: Counter,
    pub sync_seconds: Histogram,
    pub checkpoints: Counter,
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
    /// Look-ups made again because the store had moved on in between. It never falls; a gauge, since the name that people know
    /// it by is not that of a counter.
    pub conflict_retries: Gauge,
    troubles: Family<TroubleKind, Gauge>,
    /// How far the wall clock is ahead of the time of the log; negative if it is behind.
    pub clock_ahead_seconds: Gauge<f64, AtomicU64>,
    /// How long the last submission waited for the writer.
    pub projection_lag_seconds: Gauge<f64, AtomicU64>,
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
        let mut registry = Registry::default();
        let balances = Arc::new(Balances::default());
        registry.register_collector(Box::new(Arc::clone(&balances)));
        let conflict_retries = gauge(
            &mut registry,
            "counter_update_conflict_retries",
            "Look-ups made again because the store had moved on",
        );
        let projection_lag_seconds = Gauge::default();
        let help = "How long the last write waited for the writer";
        registry.register_with_unit("projection_lag", help, Unit::Seconds, projection_lag_seconds.clone());
        let r = registry.sub_registry_with_prefix("tally");
        let http_requests = Family::default();
        r.register("http_requests", "HTTP requests by route and status", http_requests.clone());
        let troubles = Family::default();
        r.register("trouble", "1 while it lasts, by kind", troubles.clone());
        let clock_ahead_seconds = Gauge::default();
        let help = "How far the wall clock is ahead of the time of the log";
        r.register_with_unit("clock_ahead", help, Unit::Seconds, clock_ahead_seconds.clone());
        Metrics {
            http_requests,
            troubles,
            clock_ahead_seconds,
            events: counter(r, "events", "Events received"),
            events_invalid: counter(r, "events_invalid", "Events that could not be read"),
            events_unmatched: counter(r, "events_unmatched", "Events that no counter listens to"),
            unmatched: Unmatched::register(r),
            balances,
            resp_commands: counter(r, "resp_commands", "Commands of the Redis protocol"),
            commits: counter(r, "commits", "Commits to the log"),
            commit_bytes: counter(r, "commit_bytes", "Bytes committed to the log"),
            sync_seconds: sync_seconds(r),
            checkpoints: counter(r, "checkpoints", "Checkpoints taken"),
            counters_in_memory: gauge(r, "counters_in_memory", "Counters held in memory"),
            counters_cold: gauge(r, "counters_cold", "Counters held by the store alone"),
            table_bytes: gauge(r, "table_bytes", "Bytes of the table of counters in memory"),
            log_end_offset: gauge(r, "log_end_offset", "Offset behind the last record of the log"),
            queue_refusals: counter(r, "queue_refusals", "Submissions refused because the queue was full"),
            dedup_sessions: gauge(r, "dedup_sessions", "Sessions or other groups remembered against repeats"),
            dedup_bytes: gauge(r, "dedup_bytes", "Bytes of the memory of repeats"),
            ledger_bytes: gauge(r, "ledger_bytes", "Bytes of the ledger in memory, with its filters"),
            conflict_retries,
            projection_lag_seconds,
            registry,
        }
    }

    /// Whether a trouble lasts.
    pub fn trouble(&self, trouble: Trouble) -> Gauge {
        self.troubles.get_or_create_owned(&TroubleKind { kind: trouble.name() })
    }

    /// The text that a scrape answers with.
    pub fn encode(&self) -> String {
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
