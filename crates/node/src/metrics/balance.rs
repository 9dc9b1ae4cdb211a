//! The balance in the words of OpenMetrics: per counter, per stream and in total.
//!
//! A counter of OpenMetrics never falls. Late entries leave their box when they are applied, so that box is a gauge of its
//! own, and the balance reads
//! `entries_received_total = sum(entries_total) + entries_late`.

use arc_swap::ArcSwap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tally_core::fates::Balance;
use tally_core::ledger::{BoxKind, Boxes};

/// The balance of every counter, as of the last scrape.
#[derive(Debug, Default)]
pub struct BalanceMetrics {
    last: ArcSwap<Vec<Balance>>,
}

impl BalanceMetrics {
    pub fn set(&self, balances: Vec<Balance>) {
        self.last.store(Arc::new(balances));
    }
}

/// Boxes of several counters, added up.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoxSum {
    pub received: u64,
    pub boxes: Boxes,
}

impl BoxSum {
    fn add(&mut self, balance: &Balance) {
        self.received += balance.received;
        self.boxes.add(&balance.boxes);
    }

    fn boxed(&self, kind: BoxKind) -> u64 {
        u64::try_from(self.boxes.get(kind)).unwrap_or(0)
    }
}

/// The sums of each stream and in total.
#[derive(Debug, Default)]
pub struct BoxSums {
    pub streams: BTreeMap<&'static str, BoxSum>,
    pub total: BoxSum,
}

impl BoxSums {
    pub fn of(balances: &[Balance]) -> BoxSums {
        let mut sums = BoxSums::default();
        for balance in balances {
            sums.streams.entry(balance.stream.name()).or_default().add(balance);
            sums.total.add(balance);
        }
        sums
    }
}

type BoxLabels<'a> = Vec<(&'static str, &'a str)>;

/// One line of the balance: whose it is, and the line itself.
type BoxLine<'a> = (BoxLabels<'a>, BoxSum);

fn line(balance: &Balance) -> BoxLine<'_> {
    let labels = vec![("counter", &*balance.name), ("stream", balance.stream.name())];
    (labels, BoxSum { received: balance.received, boxes: balance.boxes })
}

impl Collector for BalanceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let balances = self.last.load();
        let BoxSums { streams, total } = BoxSums::of(&balances);
        let streams: Vec<_> = streams.into_iter().map(|(stream, sum)| (vec![("stream", stream)], sum)).collect();
        level(&mut encoder, "tally_entries", &[(Vec::new(), total)])?;
        level(&mut encoder, "tally_stream_entries", &streams)?;
        level(&mut encoder, "tally_declared_entries", &balances.iter().map(line).collect::<Vec<_>>())
    }
}

/// Three metrics: what came, where it ended, and what is late.
fn level(encoder: &mut DescriptorEncoder<'_>, name: &str, lines: &[BoxLine<'_>]) -> fmt::Result {
    let described = format!("{name}_received");
    let mut metric = encoder.encode_descriptor(&described, "Entries received", None, MetricType::Counter)?;
    for (labels, sum) in lines {
        sample(&mut metric, labels, sum.received)?;
    }
    let mut metric = encoder.encode_descriptor(name, "Entries by the box they ended in", None, MetricType::Counter)?;
    for (labels, sum) in lines {
        for kind in BoxKind::ALL.into_iter().filter(|kind| *kind != BoxKind::Late) {
            let labels = [labels.as_slice(), &[("box", kind.name())]].concat();
            sample(&mut metric, &labels, sum.boxed(kind))?;
        }
    }
    let described = format!("{name}_late");
    let help = "Entries that came late and wait for their run";
    let mut metric = encoder.encode_descriptor(&described, help, None, MetricType::Gauge)?;
    for (labels, sum) in lines {
        with_labels(&mut metric, labels, |metric| metric.encode_gauge(&sum.boxed(BoxKind::Late)))?;
    }
    Ok(())
}

fn sample(metric: &mut MetricEncoder<'_>, labels: &BoxLabels<'_>, value: u64) -> fmt::Result {
    with_labels(metric, labels, |metric| metric.encode_counter::<NoLabelSet, _, u64>(&value, None))
}

/// A metric without labels is no family.
fn with_labels(
    metric: &mut MetricEncoder<'_>,
    labels: &BoxLabels<'_>,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { encode(metric) } else { encode(&mut metric.encode_family(labels)?) }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;
    use tally_core::op::Stream;

    fn balance(name: &str, stream: Stream, boxes: Boxes) -> Balance {
        Balance { name: name.into(), stream, received: boxes.received() as u64, boxes, watermark_ms: None, sums: None }
    }

    #[test]
    fn a_scrape_tells_where_entries_ended_per_counter_per_stream_and_in_total() {
        let metrics = Metrics::new();
        let views = Boxes { counted: 5, duplicate: 2, late: 1, ..Boxes::default() };
        let bills = Boxes { counted: 3, conflict: 4, ..Boxes::default() };
        metrics.balances.set(vec![
            balance("views", Stream::Display, views),
            balance("plays", Stream::Display, Boxes { ignored: 1, ..Boxes::default() }),
            balance("bi\"lls", Stream::Persistent, bills),
        ]);
        let text = metrics.encode();
        for line in [
            r#"tally_declared_entries_received_total{counter="views",stream="display"} 8"#,
            r#"tally_declared_entries_total{counter="views",stream="display",box="duplicate"} 2"#,
            r#"tally_declared_entries_late{counter="views",stream="display"} 1"#,
            r#"tally_declared_entries_total{counter="bi\"lls",stream="persistent",box="conflict"} 4"#,
            r#"tally_stream_entries_received_total{stream="display"} 9"#,
            r#"tally_stream_entries_total{stream="display",box="ignored"} 1"#,
            r#"tally_stream_entries_late{stream="display"} 1"#,
            "tally_entries_received_total 16",
            r#"tally_entries_total{box="counted"} 8"#,
            "tally_entries_late 1",
            "# TYPE tally_entries_late gauge",
            "# TYPE tally_entries counter",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains(r#"box="late""#), "a counter that falls is no counter");
    }

    #[test]
    fn before_the_first_scrape_everything_is_zero() {
        let text = Metrics::new().encode();
        for line in
            ["tally_entries_received_total 0", r#"tally_entries_total{box="rejected"} 0"#, "tally_entries_late 0"]
        {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
