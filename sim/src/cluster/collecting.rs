//! Collectors and what happens to them: sends that fail in every way, spools, crashes, old copies of disks.

use super::logs::Delayed;
use super::{FATES, World, partitions};
use crate::fault::Fault;
use std::collections::BTreeMap;
use tally_cluster::collect::{BatchId, Collector, Outgoing, To};
use tally_cluster::control::Control;

/// A machine that collects.
pub struct CollectorHost {
    pub sender: u64,
    pub process: Option<Collector>,
    /// Its clock differs by so much.
    pub skew_ms: i64,
    /// What is on its disk, durably.
    pub disk: BTreeMap<BatchId, Outgoing>,
    /// What is written there and not synced.
    unsynced: Vec<BatchId>,
    /// An old copy of the disk.
    image: BTreeMap<BatchId, Outgoing>,
    incarnations: u64,
}

/// How a send ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Confirmed,
    /// It is appended, and nobody hears of it.
    AnswerLost,
    Lost,
    /// It will be appended when nobody expects it.
    Delayed,
    /// It is appended twice.
    Twice,
}

impl CollectorHost {
    pub fn new(sender: u64) -> CollectorHost {
        let (disk, image) = (BTreeMap::new(), BTreeMap::new());
        CollectorHost { sender, process: None, skew_ms: 0, disk, unsynced: Vec::new(), image, incarnations: 0 }
    }
}

impl World {
    pub fn collector_clock_ms(&self, collector: usize) -> u64 {
        self.now_ms.saturating_add_signed(self.collectors[collector].skew_ms)
    }

    /// A new life.
    pub fn start_collector(&mut self, collector: usize) {
        let host = &mut self.collectors[collector];
        host.incarnations += 1;
        let (sender, incarnation, spool) = (host.sender, host.incarnations, host.disk.clone());
        host.process = Some(Collector::start(sender, incarnation, partitions(FATES), partitions(super::VALUES), spool));
        self.note(format_args!("collector {collector} starts, life {incarnation}"));
    }

    /// It dies: what is not on its disk is gone, and what is there unsynced as well.
    pub fn crash_collector(&mut self, collector: usize) {
        self.hit(Fault::CollectorCrash);
        let host = &mut self.collectors[collector];
        host.process = None;
        if !std::mem::take(&mut host.unsynced).is_empty() {
            self.hit(Fault::UnsyncedLoss);
        }
    }

    /// Keeps a copy of its disk.
    pub fn copy_disk(&mut self, collector: usize) {
        let host = &mut self.collectors[collector];
        host.image = host.disk.clone();
    }

    /// It comes back from that copy: what was drained since is there again.
    pub fn restore_disk(&mut self, collector: usize) {
        self.hit(Fault::OldImage);
        let host = &mut self.collectors[collector];
        // What was promised since the copy was made is on the other disk, which an operator brings back as well.
        let mut disk = host.image.clone();
        disk.extend(std::mem::take(&mut host.disk));
        host.disk = disk;
    }

    pub fn learn_control(&mut self, collector: usize) {
        let clock_ms = self.collector_clock_ms(collector);
        let known = self.control.len() as u64;
        let declarations = Control(&self.control).declarations(known).cloned().unwrap_or_default();
        // What waits was made under what was known before.
        self.flush(collector);
        let Some(process) = &mut self.collectors[collector].process else { return };
        process.learn(known, declarations, clock_ms);
    }

    /// What waits becomes batches.
    pub fn flush(&mut self, collector: usize) {
        let clock_ms = self.collector_clock_ms(collector);
        let Some(process) = &mut self.collectors[collector].process else { return };
        process.flush(clock_ms);
        self.register(collector);
    }

    /// The referee hears of batches when they are made.
    fn register(&mut self, collector: usize) {
        let clock_ms = self.collector_clock_ms(collector);
        let host = &self.collectors[collector];
        let Some(process) = &host.process else { return };
        for (id, outgoing) in process.out() {
            self.referee.made(host.sender, *id, outgoing, process.control(), clock_ms);
        }
    }

    /// Batches that no log has confirmed, oldest first.
    pub fn outgoing(&self, collector: usize) -> Vec<BatchId> {
        self.collectors[collector]
            .process
            .as_ref()
            .map_or_else(Vec::new, |process| process.out().keys().copied().collect())
    }

    pub fn send(&mut self, collector: usize, id: BatchId, sent: Sent) {
        let host = &self.collectors[collector];
        let sender = host.sender;
        let outgoing = host.process.as_ref().and_then(|process| process.out().get(&id)).cloned();
        let Some(outgoing) = outgoing else { return };
        match sent {
            Sent::Confirmed => self.append_batch(sender, id, &outgoing),
            Sent::AnswerLost => {
                self.hit(Fault::LostAnswer);
                self.append_batch(sender, id, &outgoing);
            }
            Sent::Twice => {
                self.hit(Fault::DuplicateSend);
                self.append_batch(sender, id, &outgoing);
                self.append_batch(sender, id, &outgoing);
            }
            Sent::Lost => self.hit(Fault::LostSend),
            Sent::Delayed => {
                self.hit(Fault::DelayedSend);
                self.delay(sender, id, outgoing);
            }
        }
        if matches!(sent, Sent::Confirmed | Sent::Twice) {
            let host = &mut self.collectors[collector];
            host.disk.remove(&id);
            let told = host.process.as_mut().map(|process| process.appended(id)).unwrap_or_default();
            self.referee.acknowledged(sender, id, &told);
        }
    }

    /// Writes a batch to the disk; it is no promise before [`World::sync_spool`].
    pub fn write_spool(&mut self, collector: usize, id: BatchId) {
        self.collectors[collector].unsynced.push(id);
    }

    pub fn sync_spool(&mut self, collector: usize) {
        let host = &mut self.collectors[collector];
        let Some(process) = &mut host.process else { return };
        for id in std::mem::take(&mut host.unsynced) {
            let Some(outgoing) = process.out().get(&id) else { continue };
            host.disk.insert(id, outgoing.clone());
            let told = process.spool(id);
            self.referee.acknowledged(host.sender, id, &told);
        }
    }

    /// A log that stands still gets an empty batch, so that its time and its control go on.
    pub fn beat(&mut self, collector: usize) {
        let Some(process) = &mut self.collectors[collector].process else { return };
        for partition in 0..FATES {
            process.beat(To::Events { partition, group: 0 });
        }
        self.beat_values(collector);
    }

    /// The same, for logs of values alone.
    pub fn beat_values(&mut self, collector: usize) {
        let Some(process) = &mut self.collectors[collector].process else { return };
        for partition in 0..super::VALUES {
            process.beat(To::Values { partition });
        }
        self.flush(collector);
    }

    /// A batch that is on its way arrives although its sender has sent it again.
    pub fn is_under_way(&self, id: BatchId) -> bool {
        self.delayed.iter().any(|Delayed { id: delayed, .. }| *delayed == id)
    }
}
