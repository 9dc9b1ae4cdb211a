//! The view, and what happens to it.

use super::values::ValuesProcess;
use super::{VALUES, World};
use crate::fault::Fault;
use tally_cluster::view::{BUCKETS, BucketWrite, ViewAnswer};
use tally_core::position::Position;
use tally_storage::view::{BucketPart, Update, View, ViewRow, ViewValue};

/// The bucket of a values partition in the view that all share.
fn bucket_in_view(partition: u32, bucket: u32) -> u32 {
    partition * BUCKETS + bucket
}

fn position(partition: u32, offset: u64) -> Position {
    Position { epoch: 0, log: partition, offset }
}

impl World {
    /// Writes every bucket that is due. Answers whether there was one.
    pub(super) fn publish(&mut self, partition: u32, process: &mut ValuesProcess, answer_lost: bool) -> bool {
        self.look(partition, process);
        let due: Vec<u32> = process.writer.due().collect();
        for bucket in &due {
            let ValuesProcess { owner, chain, writer } = process;
            let ids: Vec<Box<[u8]>> = owner.ids().map(Box::from).collect();
            let write =
                writer.write(*bucket, owner.next(), ids.iter().map(|id| &**id), |id| owner.row(id, &chain.rows));
            let answer = self.write(partition, &write);
            let answer = if answer_lost { ViewAnswer::Elsewhere } else { answer };
            writer.answered(&write, answer);
        }
        if answer_lost && !due.is_empty() {
            self.hit(Fault::ViewAnswerLost);
        }
        !due.is_empty()
    }

    /// A bucket that is not where it was left is sent again.
    fn look(&mut self, partition: u32, process: &mut ValuesProcess) {
        let buckets: Vec<u32> = (0..BUCKETS).map(|bucket| bucket_in_view(partition, bucket)).collect();
        let standing = self.view.positions(&buckets).expect("a view in memory answers");
        for (bucket, at) in (0..).zip(standing) {
            let ValuesProcess { owner, writer, .. } = process;
            let of_bucket = || owner.ids().find(|id| tally_cluster::view::bucket_of(id) == bucket).map(Box::from);
            writer.seen(bucket, at.map(|at| at.offset), of_bucket);
        }
    }

    fn write(&mut self, partition: u32, write: &BucketWrite) -> ViewAnswer {
        let row = |(id, row): (&Box<[u8]>, &tally_cluster::view::OwnerRow)| ViewRow {
            id: id.to_vec(),
            value: row.value.map(|value| ViewValue { value, generation: row.generation }),
        };
        let rows: Vec<ViewRow> = write.rows.iter().map(row).collect();
        let (bucket, to) = (bucket_in_view(partition, write.bucket), position(partition, write.to));
        self.trace.note(format_args!("view {bucket} {:?} to {}: {} rows", write.from, write.to, rows.len()));
        let is_there = match write.from {
            Some(from) => self.view.update(Update { bucket, from: position(partition, from), to, rows: &rows }).is_ok(),
            None => {
                self.sendings += 1;
                let part = BucketPart { bucket, sending: self.sendings, is_first: true, last: Some(to), rows: &rows };
                self.view.send(part).is_ok()
            }
        };
        if is_there { ViewAnswer::Stands } else { ViewAnswer::Elsewhere }
    }

    pub fn rows_in_view(&self) -> usize {
        (0..VALUES * BUCKETS).map(|bucket| self.view.rows(bucket).len()).sum()
    }

    pub fn copy_view(&mut self) {
        self.view_copy = self.view.copy();
    }

    pub fn view_back_in_time(&mut self) {
        self.hit(Fault::ViewBackInTime);
        self.view.put_back(&self.view_copy);
    }

    pub fn lose_bucket(&mut self) {
        self.hit(Fault::ViewBucketLost);
        let bucket = self.random.below(u64::from(VALUES * BUCKETS)) as u32;
        self.view.lose(bucket);
    }

    /// Every bucket shows what its owner's keys were worth at its position, all of them and no other.
    pub fn check_view(&mut self) {
        for partition in 0..VALUES {
            for bucket in 0..BUCKETS {
                let in_view = bucket_in_view(partition, bucket);
                let at = self.view.positions(&[in_view]).expect("a view in memory answers")[0];
                let Some(at) = at else { continue };
                if at.offset > self.values_log[partition as usize].end() {
                    self.referee.fail(format!("bucket {in_view} stands at {at}, ahead of its log"));
                }
                let worth = &self.referee.worths[partition as usize];
                let mut failure = None;
                let rows = self.view.rows(in_view);
                for (id, shown) in &rows {
                    let key = std::str::from_utf8(id).expect("ids are text here");
                    let right = worth.at(key, at.offset);
                    if right != (Some(shown.value), shown.generation) {
                        failure = Some(format!("the view shows {shown:?} for {key} at {at}, and {right:?} is right"));
                    }
                }
                let is_of_bucket = |key: &str| tally_cluster::view::bucket_of(key.as_bytes()) == bucket;
                let live =
                    worth.now().filter(|(key, ..)| is_of_bucket(key) && worth.at(key, at.offset).0.is_some()).count();
                if failure.is_none() && live != rows.len() {
                    failure = Some(format!("bucket {in_view} has {} rows at {at}, and {live} are right", rows.len()));
                }
                if let Some(failure) = failure {
                    self.referee.fail(failure);
                }
            }
        }
    }
}
