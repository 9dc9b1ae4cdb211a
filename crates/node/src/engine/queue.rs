//! The way of submissions from other threads to the writer: a bounded queue for each stream, and one bell for all.
//!
//! The writer takes a share of the queues into every commit, money first: the stream of the highest rank has the first place and,
//! while others wait, half of what is left. So a flood in one stream delays another by one commit, whose size is bounded
//! ([`super::share`]).

use super::Refusal;
use super::shared::Reply;
use crate::metrics::Lag;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tally_core::limits::{QUEUE_BYTES_MAX, QUEUE_SUBMISSIONS_MAX};
use tally_core::op::{Stream, Submission};
use tokio::sync::Notify;

/// A submission and who waits for it.
pub(super) struct Queued {
    pub submission: Submission,
    pub reply: Reply,
    /// When it was queued, as [`Lag`] has the time.
    pub at_us: u64,
}

/// What waits in each stream, by rank.
type Streams = [Mutex<StreamQueue>; Stream::ALL.len()];

#[derive(Default)]
struct StreamQueue {
    submissions: VecDeque<Queued>,
    bytes: usize,
    /// Nobody takes anything out any more.
    is_closed: bool,
}

/// What other threads hold.
pub(super) struct Queues {
    streams: Arc<Streams>,
    bell: Notify,
    lag: Arc<Lag>,
}

/// Rings the bell when it is dropped, whatever becomes of whoever holds it.
#[must_use = "the writer may sleep until it is dropped"]
pub(super) struct Ring<'a>(&'a Notify);

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// What the writer holds; once it is gone, nothing is queued any more.
pub(super) struct Waiting(Arc<Streams>);

pub(super) fn queues(lag: Arc<Lag>) -> (Queues, Waiting) {
    let streams: Arc<Streams> = Arc::default();
    (Queues { streams: streams.clone(), bell: Notify::new(), lag }, Waiting(streams))
}

impl Queues {
    /// How long the oldest waits.
    pub fn lag(&self) -> &Arc<Lag> {
        &self.lag
    }

    /// Queues a submission. The writer hears of it when the answer is dropped, if it does not look before.
    pub fn send(&self, submission: Submission, reply: Reply) -> Result<Ring<'_>, Refusal> {
        let stream = submission.needs.stream() as usize;
        let at_us = self.lag.now_us();
        let mut queue = lock(&self.streams[stream]);
        queue.push(Queued { submission, reply, at_us })?;
        self.lag.enqueued(stream, at_us);
        Ok(Ring(&self.bell))
    }

    /// Waits until somebody has sent something.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Takes what goes into one commit, the highest stream first; answers its bytes. That is at most `commit_bytes`, or more only by the
    /// first submission of a stream: each that waits gets one in.
    pub fn take_shares(&self, waiting: &Waiting, commit_bytes: usize, mut take: impl FnMut(Queued)) -> usize {
        let waits = waiting.0.each_ref().map(|queue| !lock(queue).submissions.is_empty());
        let mut taken_bytes = 0;
        for stream in (0..waits.len()).rev().filter(|stream| waits[*stream]) {
            let left = commit_bytes.saturating_sub(taken_bytes);
            let share = if waits[..stream].contains(&true) { left / 2 } else { left };
            taken_bytes += self.take_share(stream, share, &mut take);
        }
        taken_bytes
    }

    fn take_share(&self, stream: usize, share_bytes: usize, take: &mut impl FnMut(Queued)) -> usize {
        let mut taken_bytes = 0;
        let next = |taken_bytes| {
            let mut queue = lock(&self.streams[stream]);
            let queued = queue.pop(|bytes| taken_bytes == 0 || taken_bytes + bytes <= share_bytes)?;
            self.lag.committing(queued.at_us);
            self.lag.dequeued(stream, queue.submissions.front().map_or(0, |next| next.at_us));
            Some(queued)
        };
        while let Some(queued) = next(taken_bytes) {
            taken_bytes += bytes(&queued.submission);
            take(queued);
        }
        taken_bytes
    }
}

impl StreamQueue {
    fn push(&mut self, queued: Queued) -> Result<(), Refusal> {
        if self.is_closed {
            return Err(Refusal::ShuttingDown);
        }
        let bytes = bytes(&queued.submission);
        // A single submission always fits: its own size is bounded where it is made.
        let fits = self.bytes == 0 || self.bytes + bytes <= QUEUE_BYTES_MAX;
        if !fits || self.submissions.len() >= QUEUE_SUBMISSIONS_MAX {
            return Err(Refusal::busy());
        }
        self.bytes += bytes;
        self.submissions.push_back(queued);
        Ok(())
    }

    /// The next submission, if its size is fine.
    fn pop(&mut self, fits: impl FnOnce(usize) -> bool) -> Option<Queued> {
        let queued = self.submissions.pop_front_if(|queued| fits(bytes(&queued.submission)))?;
        self.bytes -= bytes(&queued.submission);
        Some(queued)
    }
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|queue| lock(queue).submissions.is_empty())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for queue in &*self.0 {
            // Whoever waits is told by the end of the way to answer.
            *lock(queue) = StreamQueue { is_closed: true, ..StreamQueue::default() };
        }
    }
}

fn lock(queue: &Mutex<StreamQueue>) -> MutexGuard<'_, StreamQueue> {
    // Nothing in here panics halfway.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bytes(submission: &Submission) -> usize {
    submission.records.len() + size_of_val(&*submission.ops) + size_of_val(&*submission.stamps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use tally_core::op::Needs;
    use tokio::sync::oneshot;

    const SHARE: usize = 1000;

    fn send(queues: &Queues, stream: Stream, bytes: usize) -> Result<(), Refusal> {
        let needs = Needs { stream: Some(stream), ..Needs::default() };
        let submission = Submission { records: vec![0; bytes], needs, ..Submission::default() };
        queues.send(submission, oneshot::channel().0).map(drop)
    }

    /// What one commit takes: the streams in order, with the bytes of each submission.
    fn take(queues: &Queues, waiting: &Waiting) -> Vec<(Stream, usize)> {
        let mut taken = Vec::new();
        let all = queues.take_shares(waiting, SHARE, |queued| {
            taken.push((queued.submission.needs.stream(), queued.submission.records.len()));
        });
        assert_eq!(all, taken.iter().map(|(_, bytes)| bytes).sum::<usize>());
        taken
    }

    fn started() -> (Queues, Waiting) {
        queues(Arc::new(Lag::new(Clock::system())))
    }

    #[test]
    fn a_higher_stream_is_taken_before_a_flood_that_was_there_first() {
        let (queues, waiting) = started();
        (0..50).for_each(|_| send(&queues, Stream::Display, 300).unwrap());
        send(&queues, Stream::Simple, 20).unwrap();
        send(&queues, Stream::Persistent, 10).unwrap();
        let flood = (Stream::Display, 300);
        assert_eq!(take(&queues, &waiting), [(Stream::Persistent, 10), (Stream::Simple, 20), flood, flood, flood]);
        assert_eq!(take(&queues, &waiting), [flood, flood, flood], "nothing else waits: all of the share");
    }

    #[test]
    fn a_commit_never_holds_more_than_its_bound_but_for_what_is_larger_alone() {
        let (queues, waiting) = started();
        for stream in Stream::ALL {
            (0..100).for_each(|n| send(&queues, stream, 7 * n).unwrap());
        }
        while !waiting.is_empty() {
            let bytes: usize = take(&queues, &waiting).iter().map(|(_, bytes)| bytes).sum();
            assert!(bytes <= SHARE + 3 * 7 * 99, "{bytes}");
        }
        send(&queues, Stream::Display, 5 * SHARE).unwrap();
        send(&queues, Stream::Display, 1).unwrap();
        assert_eq!(take(&queues, &waiting), [(Stream::Display, 5 * SHARE)]);
        assert_eq!(take(&queues, &waiting), [(Stream::Display, 1)]);
        queues.lag().committed();
        assert!(waiting.is_empty() && queues.lag().seconds() == 0.0, "nobody waits any more");
    }

    #[test]
    fn a_flood_of_a_higher_stream_leaves_half_to_those_below() {
        let (queues, waiting) = started();
        for stream in [Stream::Display, Stream::Persistent] {
            (0..20).for_each(|_| send(&queues, stream, 100).unwrap());
        }
        let (money, views) = ((Stream::Persistent, 100), (Stream::Display, 100));
        assert_eq!(take(&queues, &waiting), [[money; 5], [views; 5]].concat());
    }

    #[test]
    fn what_is_too_much_is_refused_and_fits_again_once_something_was_taken() {
        let (queues, waiting) = started();
        (0..QUEUE_SUBMISSIONS_MAX).for_each(|_| send(&queues, Stream::Display, SHARE).unwrap());
        assert!(matches!(send(&queues, Stream::Display, 1), Err(Refusal::Busy { .. })));
        send(&queues, Stream::Persistent, 1).unwrap();
        take(&queues, &waiting);
        send(&queues, Stream::Display, 1).unwrap();
        drop(waiting);
        assert!(matches!(send(&queues, Stream::Display, 1), Err(Refusal::ShuttingDown)));
    }
}
