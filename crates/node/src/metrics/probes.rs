//! What became of probes. Nothing of it is counted anywhere else.

use super::gauge;
use crate::probe::Stage;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug)]
pub struct ProbeMetrics {
    /// Those that have not been sent before, as far as anybody knows.
    pub sent: Counter,
    /// Those that are known, and were sent again.
    pub repeated: Counter,
    pub under_way: Gauge,
    seconds: Family<StageLabel, Histogram>,
    missing: Family<StageLabel, Counter>,
    wrong: Family<WhatLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhatLabel {
    what: &'static str,
}

/// What was not as it had to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongProbe {
    /// One that is new was none, or one that is known was new.
    Answer,
    /// A read showed another number.
    Value,
    /// The archive has come past it, and does not have it.
    Row,
}

impl WrongProbe {
    const ALL: [WrongProbe; 3] = [WrongProbe::Answer, WrongProbe::Value, WrongProbe::Row];

    pub fn name(self) -> &'static str {
        match self {
            WrongProbe::Answer => "answer",
            WrongProbe::Value => "value",
            WrongProbe::Row => "row",
        }
    }
}

/// From a millisecond to beyond a quarter of an hour.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 21))
}

impl ProbeMetrics {
    pub(super) fn register(registry: &mut Registry) -> ProbeMetrics {
        let sent: Family<KindLabel, Counter> = Family::default();
        registry.register("probes_sent", "Probes that were sent, new ones and known ones once more", sent.clone());
        let (missing, wrong): (Family<_, Counter>, Family<_, Counter>) = Default::default();
        registry.register("probes_missing", "Probes that did not get to a stage in time", missing.clone());
        let help = "Answers to probes, values and rows that were not what they had to be";
        registry.register("probes_wrong", help, wrong.clone());
        let seconds = Family::new_with_constructor(buckets as fn() -> Histogram);
        let help = "How long after it was sent a probe got to a stage";
        registry.register_with_unit("probe", help, Unit::Seconds, seconds.clone());
        let kind = |kind| sent.get_or_create_owned(&KindLabel { kind });
        let under_way = gauge(registry, "probes_under_way", "Probes that have not ended at every stage");
        let metrics = ProbeMetrics { sent: kind("new"), repeated: kind("repeat"), under_way, seconds, missing, wrong };
        // They are there before they are needed, so that a rate can be taken of them.
        for stage in Stage::ALL {
            metrics.seconds(stage);
            metrics.missing(stage);
        }
        WrongProbe::ALL.into_iter().for_each(|what| drop(metrics.wrong(what)));
        metrics
    }

    pub fn seconds(&self, stage: Stage) -> Histogram {
        self.seconds.get_or_create_owned(&StageLabel { stage: stage.name() })
    }

    pub fn missing(&self, stage: Stage) -> Counter {
        self.missing.get_or_create_owned(&StageLabel { stage: stage.name() })
    }

    pub fn wrong(&self, what: WrongProbe) -> Counter {
        self.wrong.get_or_create_owned(&WhatLabel { what: what.name() })
    }
}
