//! A view in memory: for simulations, and as the plainest statement of the contract.

use super::{
    BucketPart, Shown, Update, Updated, View, ViewError, ViewRow, ViewValue, check_read, check_rows, check_update,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tally_core::position::Position;

#[derive(Default)]
pub struct MemoryView {
    buckets: Mutex<Buckets>,
}

type Buckets = BTreeMap<u32, Bucket>;

/// Everything that is written and lost together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bucket {
    /// `None` while it is being sent.
    position: Option<Position>,
    sending: Option<u64>,
    rows: BTreeMap<Vec<u8>, ViewValue>,
}

/// A view as it was at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy(Buckets);

impl Bucket {
    fn put(&mut self, rows: &[ViewRow]) {
        for row in rows {
            match row.value {
                Some(value) => self.rows.insert(row.id.clone(), value),
                None => self.rows.remove(&row.id),
            };
        }
    }
}

impl MemoryView {
    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loses a bucket, as an eviction or the end of a shard would.
    pub fn lose(&self, bucket: u32) {
        self.lock().remove(&bucket);
    }

    /// What could be put back later.
    pub fn copy(&self) -> Copy {
        Copy(self.lock().clone())
    }

    /// Goes back in time, as a server does that comes back from an old copy.
    pub fn put_back(&self, copy: &Copy) {
        *self.lock() = copy.0.clone();
    }

    /// All rows of a bucket that stands somewhere, in the order of their ids.
    pub fn rows(&self, bucket: u32) -> Vec<(Vec<u8>, ViewValue)> {
        let buckets = self.lock();
        let standing = buckets.get(&bucket).filter(|bucket| bucket.position.is_some());
        standing.into_iter().flat_map(|bucket| bucket.rows.clone()).collect()
    }
}

impl View for MemoryView {
    fn update(&self, update: Update<'_>) -> Result<Updated, ViewError> {
        check_rows(update.rows)?;
        let mut buckets = self.lock();
        let found = buckets.get(&update.bucket).and_then(|bucket| bucket.position);
        let updated = check_update(&update, found)?;
        if updated == Updated::Written {
            let bucket = buckets.entry(update.bucket).or_default();
            bucket.put(update.rows);
            bucket.position = Some(update.to);
        }
        Ok(updated)
    }

    fn send(&self, part: BucketPart<'_>) -> Result<(), ViewError> {
        check_rows(part.rows)?;
        let mut buckets = self.lock();
        let bucket = buckets.entry(part.bucket).or_default();
        match bucket.sending == Some(part.sending) {
            // All of it is there: a part that comes once more has nothing to say.
            true if bucket.position.is_some() => return Ok(()),
            true => {}
            false if part.is_first => *bucket = Bucket { sending: Some(part.sending), ..Bucket::default() },
            false => return Err(ViewError::Fenced { bucket: part.bucket }),
        }
        bucket.put(part.rows);
        bucket.position = part.last;
        Ok(())
    }

    fn read(&self, ids: &[(u32, &[u8])]) -> Result<Vec<Shown>, ViewError> {
        check_read(ids.len())?;
        let buckets = self.lock();
        let shown = |&(bucket, id): &(u32, &[u8])| {
            let standing = buckets.get(&bucket).filter(|bucket| bucket.position.is_some());
            Shown {
                position: standing.and_then(|bucket| bucket.position),
                value: standing.and_then(|bucket| bucket.rows.get(id).copied()),
            }
        };
        Ok(ids.iter().map(shown).collect())
    }

    fn positions(&self, buckets: &[u32]) -> Result<Vec<Option<Position>>, ViewError> {
        check_read(buckets.len())?;
        let standing = self.lock();
        Ok(buckets.iter().map(|bucket| standing.get(bucket).and_then(|bucket| bucket.position)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::suite;

    suite::tests!(&|| Box::new(MemoryView::default()));

    #[test]
    fn a_view_that_goes_back_in_time_is_found_out_by_the_next_update() {
        let view = MemoryView::default();
        suite::send_whole(&view, 1, 10, &[]).unwrap();
        let copy = view.copy();
        suite::update(&view, 1, 10, 20, &[]).unwrap();
        view.put_back(&copy);
        assert!(
            matches!(suite::update(&view, 1, 20, 30, &[]), Err(ViewError::Behind { found, .. }) if found.offset == 10)
        );
        suite::update(&view, 1, 10, 30, &[]).unwrap();
    }

    #[test]
    fn a_bucket_that_is_lost_is_told_and_never_begun_at_0() {
        let view = MemoryView::default();
        suite::send_whole(&view, 1, 10, &[suite::row("a", 1)]).unwrap();
        view.lose(1);
        assert_eq!(suite::update(&view, 1, 10, 20, &[suite::row("b", 1)]), Err(ViewError::Lost { bucket: 1 }));
        assert_eq!(view.positions(&[1]).unwrap(), [None]);
        assert!(view.rows(1).is_empty());
    }
}
