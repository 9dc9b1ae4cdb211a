//! What a segment's bytes prove: which batches are in it and, if they stop early, whether that is a crash or damage. Pure.
//!
//! The last segment may end in what a crash left of unsynced writes, in any order and torn anywhere. Such a tail is cut. But
//! every batch says up to where the log was synced when it was written, so a readable batch behind the stop that was written
//! after the place was synced proves that the place has been durable: then something durable is missing.
//!
//! Damage among records that nobody will read is passed over, to the next batch that can be read.

use crate::batch::{ALIGN, BatchHeader, HEADER_BYTES};
use crate::index::Index;
use crate::segment::{self, PAGE_BYTES, SegmentHeader};

/// How far the log is good, before or after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub offset: u64,
    pub epoch: u32,
    pub log_time_ms: u64,
}

#[derive(Debug)]
pub(crate) struct SegmentScan {
    pub reached: Reached,
    /// The byte behind the last good batch.
    pub at: usize,
    pub index: Index,
    pub stop: Stop,
    /// Where batches that nobody needs could not be read.
    pub passed_over: Vec<Gap>,
}

/// Records that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub at: usize,
    pub bytes: usize,
    pub offset: u64,
    pub records: u64,
}

/// Why the batches stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Nothing was written there.
    End,
    /// Unsynced writes that did not arrive whole.
    Torn { bytes: usize, what: String },
    /// Durable records are missing.
    Damaged { what: String },
}

/// Walks the batches of a segment. `until` is the offset at which the next segment begins, if there is one; records before
/// `needed_from` nobody will read.
pub(crate) fn scan(
    image: &[u8],
    header: &SegmentHeader,
    before: Reached,
    until: Option<u64>,
    needed_from: u64,
) -> SegmentScan {
    let mut scan = SegmentScan {
        reached: before,
        at: segment::HEADER_BYTES,
        index: Index::default(),
        stop: Stop::End,
        passed_over: Vec::new(),
    };
    while until.is_none_or(|until| scan.reached.offset < until) {
        let Some(batch) = good_batch(image, scan.at, header, &scan.reached) else {
            if scan.pass_over(image, header, needed_from) {
                continue;
            }
            scan.stop = match until {
                Some(_) => Stop::Damaged { what: "the segment is followed by another, but ends here".to_owned() },
                None => tail(image, scan.at, header, &scan.reached),
            };
            return scan;
        };
        scan.index.note(batch.base_offset, scan.at as u64);
        scan.reached = Reached { offset: batch.end(), epoch: batch.epoch, log_time_ms: batch.log_time_ms };
        scan.at += batch.stored_bytes();
    }
    if until.is_some_and(|until| scan.reached.offset > until) {
        scan.stop = Stop::Damaged { what: "the next segment begins before this one ends".to_owned() };
    }
    scan
}

impl SegmentScan {
    /// Goes on behind what cannot be read, if all of that lies before `needed_from`.
    fn pass_over(&mut self, image: &[u8], header: &SegmentHeader, needed_from: u64) -> bool {
        if self.reached.offset >= needed_from {
            return false;
        }
        let before = self.reached;
        let mut later = later_batches(image, self.at, header, &before);
        let whole = later.find(|(at, batch)| batch.payload(&image[*at..]).is_some());
        let Some((at, batch)) = whole.filter(|(_, batch)| batch.base_offset <= needed_from) else { return false };
        let records = batch.base_offset - self.reached.offset;
        self.passed_over.push(Gap { at: self.at, bytes: at - self.at, offset: self.reached.offset, records });
        self.index.resume_at(batch.base_offset, at as u64);
        self.at = at;
        self.reached.offset = batch.base_offset;
        true
    }
}

fn good_batch(image: &[u8], at: usize, header: &SegmentHeader, before: &Reached) -> Option<BatchHeader> {
    let batch = BatchHeader::decode(header.log_id, image.get(at..)?)?;
    let follows = batch.base_offset == before.offset && (before.epoch..=header.epoch).contains(&batch.epoch);
    (follows && batch.payload(&image[at..]).is_some()).then_some(batch)
}

/// What the last segment holds from `at` on, where no good batch is.
pub(crate) fn tail(image: &[u8], at: usize, header: &SegmentHeader, before: &Reached) -> Stop {
    let mut last_end = None;
    for (later_at, later) in later_batches(image, at, header, before) {
        if later.synced > before.offset {
            let what = format!(
                "the batch is unreadable, but the one at byte {later_at} was written after it had been made durable"
            );
            return Stop::Damaged { what };
        }
        last_end = Some((later_at + later.stored_bytes()).min(image.len()));
    }
    if let Some(end) = last_end {
        return Stop::Torn { bytes: end - at, what: "unsynced batches behind one that did not arrive".to_owned() };
    }
    // Every write ends in zeros up to the next page boundary, or in a page of them: no others are an end of the log.
    let page_end = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(image.len());
    match image[at..page_end].iter().rposition(|byte| *byte != 0) {
        None => Stop::End,
        Some(last) => {
            Stop::Torn { bytes: torn_bytes(image, at, header, last + 1), what: "an incomplete batch".to_owned() }
        }
    }
}

/// Batches that lie anywhere behind the stop and belong behind the records reached.
fn later_batches<'a>(
    image: &'a [u8],
    at: usize,
    header: &'a SegmentHeader,
    before: &'a Reached,
) -> impl Iterator<Item = (usize, BatchHeader)> + 'a {
    (at..image.len().saturating_sub(HEADER_BYTES - 1)).step_by(ALIGN).filter_map(move |at| {
        let batch = BatchHeader::decode(header.log_id, &image[at..])?;
        let later = batch.base_offset > before.offset && (before.epoch..=header.epoch).contains(&batch.epoch);
        later.then_some((at, batch))
    })
}

/// The length of the batch that is torn, if its header tells, or else of what is certainly there.
fn torn_bytes(image: &[u8], at: usize, header: &SegmentHeader, at_least: usize) -> usize {
    let told = BatchHeader::decode(header.log_id, &image[at..]).map_or(0, |batch| batch.stored_bytes());
    told.max(at_least).min(image.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::payload_crc;

    const SEGMENT: SegmentHeader =
        SegmentHeader { log_id: 9, sequence: 2, base_offset: 100, epoch: 5, segment_bytes: 16_384, log_time_ms: 0 };
    const BEFORE: Reached = Reached { offset: 100, epoch: 3, log_time_ms: 0 };

    fn batch(base_offset: u64, epoch: u32, synced: u64) -> Vec<u8> {
        let payload = [1; 200];
        let header = BatchHeader {
            payload_crc: payload_crc(&payload),
            payload_bytes: 200,
            epoch,
            count: 10,
            base_offset,
            log_time_ms: 0,
            synced,
        };
        [&header.encode(SEGMENT.log_id)[..], &payload].concat()
    }

    /// Scans a segment with these bytes behind its header, as the last one.
    fn scan_last(parts: &[Vec<u8>]) -> SegmentScan {
        let mut image = parts.iter().fold(vec![0; segment::HEADER_BYTES], |image, part| [image, part.clone()].concat());
        image.resize(SEGMENT.segment_bytes as usize, 0);
        scan(&image, &SEGMENT, BEFORE, None, 0)
    }

    fn check(parts: &[Vec<u8>], offset: u64, stop: impl Fn(&Stop) -> bool) {
        let scan = scan_last(parts);
        assert_eq!(scan.reached.offset, offset);
        assert!(stop(&scan.stop), "{:?}", scan.stop);
    }

    fn is_torn(stop: &Stop) -> bool {
        matches!(stop, Stop::Torn { .. })
    }

    fn is_damaged(stop: &Stop) -> bool {
        matches!(stop, Stop::Damaged { .. })
    }

    #[test]
    fn batches_that_follow_each_other_are_good_up_to_the_zeros() {
        check(&[batch(100, 3, 100), batch(110, 5, 110)], 120, |stop| *stop == Stop::End);
    }

    #[test]
    fn an_old_batch_exactly_behind_the_last_good_one_is_not_taken() {
        // What a recycled segment shows if the zeros behind a batch of the same size were not written.
        check(&[batch(100, 3, 100), batch(40, 3, 40)], 110, is_torn);
    }

    #[test]
    fn an_epoch_that_runs_backwards_or_ahead_of_the_segment_is_not_taken() {
        check(&[batch(100, 4, 100), batch(110, 3, 110)], 110, is_torn);
        check(&[batch(100, 4, 100), batch(110, 6, 110)], 110, is_torn);
        check(&[batch(100, 2, 100)], 100, is_torn);
    }

    #[test]
    fn a_later_batch_tells_an_unsynced_hole_from_a_damaged_one() {
        let hole = vec![0xee; 256];
        check(&[batch(100, 3, 100), hole.clone(), batch(120, 3, 110)], 110, is_torn);
        check(&[batch(100, 3, 100), hole.clone(), batch(120, 3, 120)], 110, is_damaged);
        // Neither old batches nor those of a lost epoch are evidence.
        check(&[batch(100, 3, 100), hole.clone(), batch(90, 3, 90)], 110, is_torn);
        check(&[batch(100, 3, 100), hole, batch(120, 2, 120)], 110, is_torn);
    }

    #[test]
    fn a_hole_in_what_nobody_needs_is_passed_over_and_one_behind_it_is_not() {
        let hole = vec![0xee; 256];
        let parts = [batch(100, 3, 100), hole, batch(120, 3, 120), batch(130, 3, 130)];
        let mut image = parts.iter().fold(vec![0; segment::HEADER_BYTES], |image, part| [image, part.clone()].concat());
        image.resize(SEGMENT.segment_bytes as usize, 0);
        let scan = |needed_from| scan(&image, &SEGMENT, BEFORE, None, needed_from);
        for needed_from in [120, 125, 140, 500] {
            let scan = scan(needed_from);
            assert_eq!((scan.reached.offset, &scan.stop), (140, &Stop::End));
            assert_eq!(scan.passed_over, [Gap { at: 4352, bytes: 256, offset: 110, records: 10 }]);
            assert_eq!(scan.index.find(125).map(|entry| entry.offset), Some(120));
        }
        for needed_from in [0, 110, 119] {
            assert!(is_damaged(&scan(needed_from).stop), "needed from {needed_from}");
        }
    }

    #[test]
    fn a_segment_that_is_followed_by_another_must_reach_it_exactly() {
        let mut image = [vec![0; segment::HEADER_BYTES], batch(100, 3, 100), batch(110, 3, 110)].concat();
        image.resize(SEGMENT.segment_bytes as usize, 0);
        let stop = |until| scan(&image, &SEGMENT, BEFORE, Some(until), 0).stop;
        assert_eq!(stop(120), Stop::End);
        assert_eq!(stop(110), Stop::End);
        assert!(is_damaged(&stop(115)) && is_damaged(&stop(130)));
    }
}
