//! What a recount found, for those who watch.

use super::counter;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{Atomic, Gauge};
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

    /// By which share a counter differs, and how many of its keys; nothing is told of one that was not compared.
    pub fn tell(&self, name: &str, found: Option<(f64, u64)>) {
        set(&self.drift, name, found.map(|(drift, _)| drift));
        set(&self.differing, name, found.map(|(_, differing)| differing as i64));
    }

    pub fn tell_hour(&self, name: &str, drift: Option<f64>) {
        set(&self.hour_drift, name, drift);
    }

    pub fn alert(&self, name: &str, is_lasting: bool) {
        self.alerts.get_or_create_owned(&label(name)).set(is_lasting.into());
    }
}

/// Without a number the series ends: what it was the last time is no longer known.
fn set<N, A>(series: &Family<CounterName, Gauge<N, A>>, name: &str, number: Option<N>)
where
    A: Atomic<N> + Default,
{
    match number {
        Some(number) => _ = series.get_or_create_owned(&label(name)).set(number),
        None => _ = series.remove(&label(name)),
    }
}

fn label(name: &str) -> CounterName {
    CounterName { counter: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_told_any_more_of_a_counter_that_is_not_compared() {
        let mut registry = Registry::default();
        let metrics = ReconciliationMetrics::register(&mut registry);
        for name in ["views", "likes"] {
            metrics.tell(name, Some((0.5, 7)));
            metrics.tell_hour(name, Some(0.5));
        }
        metrics.tell("views", None);
        metrics.tell_hour("views", None);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(!text.contains("views") && text.matches("{counter=\"likes\"}").count() == 3, "{text}");
    }
}
