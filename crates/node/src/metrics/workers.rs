//! What workers do, as metrics: taken from their board by each scrape.

use crate::worker::{Board, Status, WorkerState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;

/// A number of a worker; `None` if it has none.
type Figure = fn(&Status) -> Option<u64>;

impl Collector for Board {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let workers = self.statuses();
        states(&mut encoder, &workers)?;
        let mut tell = |name, help, metric_type, figure: Figure| {
            figures(&mut encoder, name, help, &workers, (metric_type, figure))
        };
        let in_a_row = "Units of work that failed since the last that did not";
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        tell("tally_worker_units", "Units of work that were done", counter, |worker| Some(worker.shown().units))?;
        tell("tally_worker_errors", "Units of work that failed", counter, |worker| Some(worker.shown().errors))?;
        tell("tally_worker_errors_in_a_row", in_a_row, gauge, |worker| Some(worker.shown().errors_in_a_row))?;
        tell("tally_worker_queue", "What waits to be done", gauge, |worker| worker.shown().queue)
    }
}

/// 1 for the state that a worker is in, 0 for the others.
fn states(encoder: &mut DescriptorEncoder<'_>, workers: &[Arc<Status>]) -> fmt::Result {
    let help = "1 for the state that a worker is in";
    let mut metric = encoder.encode_descriptor("tally_worker_state", help, None, MetricType::Gauge)?;
    for worker in workers {
        let is_in = worker.shown().state;
        for state in WorkerState::ALL {
            let labels = [("worker", worker.spec.name.as_str()), ("state", state.name())];
            metric.encode_family(&labels)?.encode_gauge(&u64::from(state == is_in))?;
        }
    }
    Ok(())
}

/// A number of each worker that has one.
fn figures(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    workers: &[Arc<Status>],
    (metric_type, figure): (MetricType, Figure),
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, metric_type)?;
    for worker in workers {
        let Some(value) = figure(worker) else { continue };
        let labels = [("worker", worker.spec.name.as_str())];
        let mut family = metric.encode_family(&labels)?;
        match metric_type {
            MetricType::Counter => family.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
            _ => family.encode_gauge(&value)?,
        }
    }
    Ok(())
}
