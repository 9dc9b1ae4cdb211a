//! What the shares of `--memory` are, and what is held of those that are counted.

use crate::memory::Shares;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug)]
pub struct MemoryMetrics {
    shares: Family<ShareName, Gauge>,
    /// Counters, repeats, the ledger and new ids.
    pub state_bytes: Gauge,
    /// What clients make the node hold, as of the last scrape.
    pub clients_bytes: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShareName {
    share: &'static str,
}

impl MemoryMetrics {
    pub fn register(registry: &mut Registry) -> MemoryMetrics {
        let (shares, held): (Family<ShareName, Gauge>, Family<ShareName, Gauge>) = Default::default();
        registry.register("memory_share_bytes", "What --memory is split into", shares.clone());
        registry.register("memory_held_bytes", "What is held of the shares of --memory", held.clone());
        let held = |share| held.get_or_create_owned(&ShareName { share });
        MemoryMetrics { shares, state_bytes: held("state"), clients_bytes: held("clients") }
    }

    pub fn set_shares(&self, shares: &Shares) {
        for (share, bytes) in shares.by_name() {
            self.shares.get_or_create(&ShareName { share }).set(bytes as i64);
        }
    }
}
