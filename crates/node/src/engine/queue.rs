//! The way of submissions from other threads to the writer: a bounded queue for each stream, and one bell for all.
//!
//! The writer takes a share of each stream into every commit, so a flood in one of them delays the others by one share at
//! most.

use super::Refusal;
use super::shared::Reply;
use crate::metrics::Lag;
use flume::{Receiver, Sender, TrySendError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tally_core::limits::{QUEUE_BYTES_MAX, QUEUE_SUBMISSIONS_MAX, STREAM_SHARE_BYTES};
use tally_core::op::{Stream, Submission};
use tokio::sync::Notify;

/// A submission and who waits for it.
pub(super) struct Queued {
    pub submission: Submission,
    pub reply: Reply,
    /// When it was queued, as [`Lag`] has the time.
    pub at_us: u64,
}

/// What other threads hold.
pub(super) struct Queues {
    streams: [(Sender<Queued>, AtomicUsize); Stream::ALL.len()],
    bell: Notify,
    lag: Arc<Lag>,
}

/// What the writer holds.
pub(super) struct Waiting([Receiver<Queued>; Stream::ALL.len()]);

pub(super) fn queues(lag: Arc<Lag>) -> (Queues, Waiting) {
    let pairs = Stream::ALL.map(|_| flume::bounded(QUEUE_SUBMISSIONS_MAX));
    let receivers = pairs.each_ref().map(|(_, receiver)| receiver.clone());
    let streams = pairs.map(|(sender, _)| (sender, AtomicUsize::new(0)));
    (Queues { streams, bell: Notify::new(), lag }, Waiting(receivers))
}

impl Queues {
    /// How long the oldest waits.
    pub fn lag(&self) -> &Arc<Lag> {
        &self.lag
    }

    pub fn send(&self, submission: Submission, reply: Reply) -> Result<(), Refusal> {
        let stream = submission.needs.stream() as usize;
        let (queue, queued_bytes) = &self.streams[stream];
        let bytes = bytes(&submission);
        let before = queued_bytes.fetch_add(bytes, Ordering::AcqRel);
        // A single submission always fits: its own size is bounded where it is made.
        let fits = before == 0 || before + bytes <= QUEUE_BYTES_MAX;
        let at_us = self.lag.now_us();
        let queued = Queued { submission, reply, at_us };
        let sent = if fits { queue.try_send(queued).map_err(refusal) } else { Err(Refusal::busy()) };
        match sent {
            Ok(()) => {
                self.lag.enqueued(stream, at_us);
                self.bell.notify_one();
            }
            Err(_) => _ = queued_bytes.fetch_sub(bytes, Ordering::AcqRel),
        }
        sent
    }

    /// Waits until somebody has sent something.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Takes a share of each stream.
    pub fn take_shares(&self, waiting: &Waiting, mut take: impl FnMut(Queued)) {
        for (stream, (receiver, (_, queued_bytes))) in waiting.0.iter().zip(&self.streams).enumerate() {
            let (mut share, mut last_us) = (0, 0);
            while share < STREAM_SHARE_BYTES
                && let Ok(queued) = receiver.try_recv()
            {
                let bytes = bytes(&queued.submission);
                queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
                share += bytes;
                last_us = queued.at_us;
                self.lag.committing(queued.at_us);
                take(queued);
            }
            self.lag.dequeued(stream, if receiver.is_empty() { 0 } else { last_us });
            if !receiver.is_empty() {
                // It came while the mark was taken away.
                self.lag.enqueued(stream, self.lag.now_us());
            }
        }
    }
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Receiver::is_empty)
    }
}

fn bytes(submission: &Submission) -> usize {
    submission.records.len() + size_of_val(&*submission.ops) + size_of_val(&*submission.stamps)
}

fn refusal(error: TrySendError<Queued>) -> Refusal {
    match error {
        TrySendError::Full(_) => Refusal::busy(),
        TrySendError::Disconnected(_) => Refusal::ShuttingDown,
    }
}
