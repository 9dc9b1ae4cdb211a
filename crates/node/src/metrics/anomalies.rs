//! Rates that jumped, and who was told of what.

use super::counter;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What keys share that nobody declared: their names are anybody's, and without a bound.
const OTHERS: &str = "";

#[derive(Debug)]
pub struct AnomalyMetrics {
    by_counter: Family<CounterName, Counter>,
    expected: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CounterName {
    counter: String,
}

impl AnomalyMetrics {
    pub(super) fn register(registry: &mut Registry) -> AnomalyMetrics {
        let by_counter: Family<CounterName, Counter> = Family::default();
        let what =
            "Keys whose rate jumped within a minute, by their declared counter; those of no declared one together";
        registry.register("anomalies", what, by_counter.clone());
        let metrics = AnomalyMetrics {
            by_counter,
            expected: counter(
                registry,
                "anomalies_expected",
                "Jumps that were told in advance, which are no anomalies",
            ),
        };
        // It is there before it is needed, so that a rate can be taken of it.
        metrics.of(OTHERS);
        metrics
    }

    fn of(&self, counter: &str) -> Counter {
        self.by_counter.get_or_create_owned(&CounterName { counter: counter.to_owned() })
    }

    /// A key of a declared counter, or of none, has jumped.
    pub fn count(&self, counter: Option<&str>, is_expected: bool) {
        match is_expected {
            true => self.expected.inc(),
            false => self.of(counter.unwrap_or(OTHERS)).inc(),
        };
    }
}

#[derive(Debug)]
pub struct WebhookMetrics {
    pub delivered: Counter,
    /// Attempts, of which a message has several.
    pub failures: Counter,
    pub lapsed: Counter,
}

impl WebhookMetrics {
    pub(super) fn register(registry: &mut Registry) -> WebhookMetrics {
        WebhookMetrics {
            delivered: counter(registry, "webhook_delivered", "Messages that a webhook has taken"),
            failures: counter(registry, "webhook_failures", "Attempts to tell a webhook that failed"),
            lapsed: counter(registry, "webhook_lapsed", "Messages to a webhook that were let go of"),
        }
    }
}
