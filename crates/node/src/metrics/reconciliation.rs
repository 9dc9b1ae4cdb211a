//! What a recount found, for those who watch.

use super::counter;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// A share of something.
type Share = Gauge<f64, AtomicU64>;

#[derive(Debug)]
pub struct ReconciliationMetrics {
    pub runs: Counter,
    drift: Family<CounterName, Share>,
    hour_drift: Family<CounterName, Share>,
    differing: Family<CounterName, Gauge>,
    alerts: Family<CounterName, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CounterName {
    counter: String,
}

impl ReconciliationMetrics {
    pub(super) fn register(registry: &mut Registry) -> ReconciliationMetrics {
        let (drift, differing, alerts): (Family<_, _>, Family<_, _>, Family<_, _>) = Default::default();
        let hour_drift = Family::default();
        let what = "Share of a counter by which its keys differ from the last recount";
        registry.register("reconciliation_drift_ratio", what, Family::clone(&drift));
        let what = "The same for the last hour (or longer bucket) that is over, of counters with a roll-up by time";
        registry.register("reconciliation_hour_drift_ratio", what, Family::clone(&hour_drift));
        registry.register("reconciliation_differing_keys", "Keys that differ from the last recount", differing.clone());
        let what =
            "Whether a counter differs by more than 0.1 % in three hours, or did so from three recounts in a row";
        registry.register("reconciliation_alert", what, alerts.clone());
        let runs = counter(registry, "reconciliation_runs", "Recounts that were compared with the counters");
        ReconciliationMetrics { runs, drift, hour_drift, differing, alerts }
    }

    pub fn tell(&self, name: &str, drift: f64, differing: u64) {
        self.drift.get_or_create_owned(&label(name)).set(drift);
        self.differing.get_or_create_owned(&label(name)).set(differing as i64);
    }

    pub fn tell_hour(&self, name: &str, drift: f64) {
        self.hour_drift.get_or_create_owned(&label(name)).set(drift);
    }

    pub fn alert(&self, name: &str, is_lasting: bool) {
        self.alerts.get_or_create_owned(&label(name)).set(is_lasting.into());
    }
}

fn label(name: &str) -> CounterName {
    CounterName { counter: name.to_owned() }
}
