//! Events that no counter listens to, by their type: most often a misspelt one. Types are a client's own words, so only the first
//! of them have a metric of their own.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::HashSet;
use std::sync::Mutex;
use tally_core::limits::UNMATCHED_TYPES_KEPT_MAX;

/// What those share that came when there was no room any more.
const OTHER: &str = "other";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventType {
    r#type: String,
}

#[derive(Debug, Default)]
pub struct Unmatched {
    by_type: Family<EventType, Counter>,
    known: Mutex<HashSet<String>>,
}

impl Unmatched {
    pub(super) fn register(registry: &mut Registry) -> Unmatched {
        let unmatched = Unmatched::default();
        let help = "Events that no counter listens to, by their type";
        registry.register("events_unmatched_by_type", help, unmatched.by_type.clone());
        // It is there before it is needed, so that a rate can be taken of it.
        unmatched.count_others(0);
        unmatched
    }

    pub fn count(&self, event_type: &str, events: u64) {
        let label = if self.has_room_for(event_type) { event_type } else { OTHER };
        self.by_type.get_or_create(&EventType { r#type: label.to_owned() }).inc_by(events);
    }

    /// Events whose type nobody has looked at.
    pub fn count_others(&self, events: u64) {
        self.by_type.get_or_create(&EventType { r#type: OTHER.to_owned() }).inc_by(events);
    }

    fn has_room_for(&self, event_type: &str) -> bool {
        let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        known.contains(event_type) || (known.len() < UNMATCHED_TYPES_KEPT_MAX && known.insert(event_type.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_types_have_a_metric_of_their_own() {
        let unmatched = Unmatched::default();
        for n in 0..UNMATCHED_TYPES_KEPT_MAX + 50 {
            unmatched.count(&format!("t{n}"), 2);
            unmatched.count("t0", 1);
        }
        unmatched.count_others(7);
        let of = |label: &str| unmatched.by_type.get_or_create(&EventType { r#type: label.to_owned() }).get();
        assert_eq!(of("t0"), UNMATCHED_TYPES_KEPT_MAX as u64 + 50 + 2);
        assert_eq!((of("t99"), of(OTHER)), (2, 50 * 2 + 7));
    }
}
