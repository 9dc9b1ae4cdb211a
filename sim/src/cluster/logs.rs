//! Logs as a broker keeps them: in order, with its own clock, and never losing what it has confirmed.

use super::World;
use crate::fault::Fault;
use tally_cluster::collect::{BatchId, Outgoing, To};
use tally_cluster::message::{Logged, Offsets, ToValues};

/// One partition of a topic.
#[derive(Clone, Debug)]
pub struct Topic<T> {
    messages: Vec<(u64, u64, T)>,
    end: u64,
}

impl<T> Default for Topic<T> {
    fn default() -> Topic<T> {
        Topic { messages: Vec::new(), end: 0 }
    }
}

impl<T: Offsets> Topic<T> {
    /// Answers its offset.
    pub fn append(&mut self, appended_ms: u64, message: T) -> u64 {
        let offset = self.end;
        self.end += message.span();
        self.messages.push((offset, appended_ms, message));
        offset
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// The message at an offset.
    pub fn read(&self, offset: u64) -> Option<Logged<'_, T>> {
        let at = self.messages.binary_search_by_key(&offset, |(offset, ..)| *offset).ok()?;
        let (offset, appended_ms, message) = &self.messages[at];
        Some(Logged { offset: *offset, appended_ms: *appended_ms, message })
    }
}

/// A batch that was given up by its sender and will arrive.
pub struct Delayed {
    pub sender: u64,
    pub id: BatchId,
    pub outgoing: Outgoing,
}

impl World {
    /// The logs' clock.
    pub fn broker_ms(&self) -> u64 {
        self.now_ms + self.broker_ahead_ms
    }

    /// A batch of a collector arrives at its log.
    pub fn append_batch(&mut self, sender: u64, id: BatchId, outgoing: &Outgoing) {
        let appended_ms = self.broker_ms();
        let payload = outgoing.payload.clone();
        let offset = match outgoing.to {
            To::Events { partition, .. } => self.events[partition as usize].append(appended_ms, payload),
            To::Values { partition } => {
                self.values_log[partition as usize].append(appended_ms, ToValues::Operations(payload))
            }
        };
        self.trace.note(format_args!("{:?} {}/{} at {offset} of {:?}", sender, id.incarnation, id.seq, outgoing.to));
        if self.referee.appended(sender, id, outgoing.to, offset, appended_ms) {
            self.hit(Fault::ControlBehind);
        }
    }

    /// One of the batches that were on their way for too long arrives.
    pub fn arrive(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let at = self.random.below(self.delayed.len() as u64) as usize;
        let Delayed { sender, id, outgoing } = self.delayed.swap_remove(at);
        self.append_batch(sender, id, &outgoing);
    }

    pub fn delay(&mut self, sender: u64, id: BatchId, outgoing: Outgoing) {
        self.delayed.push(Delayed { sender, id, outgoing });
    }

    pub fn arrivals(&self) -> usize {
        self.delayed.len()
    }
}
