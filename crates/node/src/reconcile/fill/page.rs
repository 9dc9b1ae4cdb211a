//! What an answer in SQL says that keys lack, and how it is divided among records of the log.

use super::super::scene::{numbers, texts};
use crate::sql::Answer;
use tally_core::counter::rollup::minute_of;
use tally_core::ledger::{FillKey, FillPart};
use tally_core::limits::FILL_RECORD_BYTES;
use tally_core::record::put_bytes;
use tally_core::values::KeptRollup;

/// What keys lack, in their order.
pub struct Page {
    pub keys: Vec<FillKey>,
    /// The last key that is there as a whole, if there are more; or the last bucket of one that is too large for that.
    pub cut: Option<(String, Option<u64>)>,
    pub rows: usize,
}

impl Page {
    /// `None` if not even a bucket is there as a whole.
    pub fn read(answer: &Answer, stand_in: &KeptRollup) -> Option<Page> {
        let dimensions = stand_in.rollup.dimensions.len();
        let mut rows: Vec<(String, u64, FillPart)> = Vec::new();
        for batch in &answer.rows {
            let by: Vec<Vec<String>> = (0..dimensions).map(|n| texts(batch, 2 + n)).collect();
            let sums = numbers(batch, 1).into_iter().zip(numbers(batch, 2 + dimensions));
            for (row, (id, (bucket_ms, delta))) in texts(batch, 0).into_iter().zip(sums).enumerate() {
                let mut values = Vec::new();
                by.iter().for_each(|column| put_bytes(&mut values, column[row].as_bytes()));
                rows.push((id, bucket_ms as u64, FillPart { bucket: minute_of(bucket_ms), values, delta }));
            }
        }
        let mut cut = None;
        if answer.is_truncated {
            let (id, bucket, _) = rows.last()?;
            let key = rows.iter().rposition(|(other, ..)| other != id);
            let whole = key.or_else(|| rows.iter().rposition(|(_, at, _)| at != bucket))?;
            rows.truncate(whole + 1);
            cut = rows.last().map(|(id, bucket, _)| (id.clone(), key.is_none().then_some(*bucket)));
        }
        let (mut keys, told): (Vec<FillKey>, _) = (Vec::new(), rows.len());
        for (id, _, part) in rows {
            match keys.last_mut().filter(|key| key.id == id.as_bytes()) {
                Some(key) => key.parts.push(part),
                None => keys.push(FillKey { id: id.into_bytes(), parts: vec![part] }),
            }
        }
        Some(Page { keys, cut, rows: told })
    }
}

/// As much at a time as one record takes.
pub fn records<T>(all: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    split(all, FILL_RECORD_BYTES, bytes)
}

/// The same keys with so few parts each that several of them are a record.
pub fn parted(keys: Vec<FillKey>) -> Vec<FillKey> {
    const KEY_BYTES: usize = FILL_RECORD_BYTES / 8;
    let parted = keys.into_iter().flat_map(|FillKey { id, parts }| {
        let parts = split(parts, KEY_BYTES, FillPart::bytes).into_iter();
        parts.map(move |parts| FillKey { id: id.clone(), parts })
    });
    parted.collect()
}

/// Stretches of so many bytes, or of one that has more.
fn split<T>(all: Vec<T>, most: usize, bytes: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let (mut stretches, mut room) = (Vec::<Vec<T>>::new(), 0);
    for one in all {
        let takes = bytes(&one);
        match stretches.last_mut().filter(|_| takes <= room) {
            Some(stretch) => {
                stretch.push(one);
                room -= takes;
            }
            None => {
                stretches.push(vec![one]);
                room = most.saturating_sub(takes);
            }
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_is_all_of_it_in_its_order_and_no_more_at_a_time_than_there_is_room_for() {
        assert_eq!(split(vec![3, 3, 3, 9, 1, 8], 8, |n| *n), [vec![3, 3], vec![3], vec![9], vec![1], vec![8]]);
        assert!(split(Vec::new(), 8, |n: &usize| *n).is_empty());
    }
}
