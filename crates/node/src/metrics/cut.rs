//! Connections that the node did not take, or ended although their clients had not: how many, and why.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Why a client was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutOff {
    /// There was no place, for anybody or for one more of its address.
    NoPlace,
    /// A newcomer got the place of one who had never been answered.
    Displaced,
    /// The memory for all clients was used up.
    Memory,
    /// It neither went on sending nor took what it was sent.
    Stalled,
    /// It said nothing in time, or not what it had to.
    Silent,
}

impl CutOff {
    pub const ALL: [CutOff; 5] = [CutOff::NoPlace, CutOff::Displaced, CutOff::Memory, CutOff::Stalled, CutOff::Silent];

    pub fn name(self) -> &'static str {
        match self {
            CutOff::NoPlace => "no_place",
            CutOff::Displaced => "displaced",
            CutOff::Memory => "memory",
            CutOff::Stalled => "stalled",
            CutOff::Silent => "silent",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutOffLabels {
    protocol: &'static str,
    reason: &'static str,
}

#[derive(Debug)]
pub struct Cuts(Family<CutOffLabels, Counter>);

impl Cuts {
    pub fn register(registry: &mut Registry) -> Cuts {
        let family = Family::default();
        let help = "Connections that were not taken or were ended, by protocol and reason";
        registry.register("connections_cut", help, family.clone());
        let cuts = Cuts(family);
        // Whoever watches for the first one has to see that there was none before.
        for protocol in ["http", "resp"] {
            CutOff::ALL.into_iter().for_each(|reason| drop(cuts.of(protocol, reason)));
        }
        cuts
    }

    pub fn of(&self, protocol: &'static str, reason: CutOff) -> Counter {
        self.0.get_or_create_owned(&CutOffLabels { protocol, reason: reason.name() })
    }
}
