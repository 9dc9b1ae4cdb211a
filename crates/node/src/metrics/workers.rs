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
        let units: Figure = |worker| Some(worker.shown().units);
        counters(&mut encoder, "tally_worker_units", "Units of work that were done", &workers, units)?;
        let errors: Figure = |worker| Some(worker.shown().errors);
        counters(&mut encoder, "tally_worker_errors", "Units of work that failed", &workers, errors)?;
        let in_a_row: Figure = |worker| Some(worker.shown().errors_in_a_row);
        let help = "Units of work that failed since the last that did not";
        gauges(&mut encoder, "tally_worker_errors_in_a_row", help, &workers, in_a_row)?;
        let queue: Figure = |worker| worker.shown().queue;
        gauges(&mut encoder, "tally_worker_queue", "What waits to be done", &workers, queue)
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

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    workers: &[Arc<Status>],
    figure: Figure,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for worker in workers {
        let Some(value) = figure(worker) else { continue };
        let labels = [("worker", worker.spec.name.as_str())];
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    workers: &[Arc<Status>],
    figure: Figure,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for worker in workers {
        let Some(value) = figure(worker) else { continue };
        metric.encode_family(&[("worker", worker.spec.name.as_str())])?.encode_gauge(&value)?;
    }
    Ok(())
}
