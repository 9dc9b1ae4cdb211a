//! A histogram of durations that takes many observations of one length at once: all commands of a pipeline are answered at the
//! same moment, and each of them counts. It takes no lock, so the writer's thread may use it once per slice.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets, in microseconds: from less than any disk takes to longer than anybody waits.
const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

#[derive(Clone, Debug, Default)]
pub struct Timings(Arc<TimingsInner>);

#[derive(Debug, Default)]
struct TimingsInner {
    buckets: [AtomicU64; BOUNDS_US.len()],
    /// Beyond the last bound.
    beyond: AtomicU64,
    sum_us: AtomicU64,
}

impl Timings {
    /// So many things took so long each.
    #[inline]
    pub fn observe(&self, took: Duration, times: u64) {
        let us = took.as_micros() as u64;
        let bucket = BOUNDS_US.iter().position(|bound| us <= *bound);
        let bucket = bucket.map_or(&self.0.beyond, |index| &self.0.buckets[index]);
        bucket.fetch_add(times, Ordering::Relaxed);
        self.0.sum_us.fetch_add(us * times, Ordering::Relaxed);
    }
}

impl EncodeMetric for Timings {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.0.buckets.iter().chain([&self.0.beyond]).map(|bucket| bucket.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.0.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl TypedMetric for Timings {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    #[test]
    fn many_of_one_length_are_counted_one_by_one() {
        let timings = Timings::default();
        timings.observe(Duration::from_micros(100), 64);
        timings.observe(Duration::from_micros(101), 1);
        timings.observe(Duration::from_secs(60), 2);
        let mut registry = Registry::default();
        registry.register("taken", "How long", timings);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "taken_sum 120.006501",
            "taken_count 67",
            "taken_bucket{le=\"0.00005\"} 0",
            "taken_bucket{le=\"0.0001\"} 64",
            "taken_bucket{le=\"0.00025\"} 65",
            "taken_bucket{le=\"10.0\"} 65",
            "taken_bucket{le=\"+Inf\"} 67",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
