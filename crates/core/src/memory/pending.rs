//! What changed since the last cut, above what is in the running cut: the life of a cut, the same for everything that has one.
//!
//! A cut takes the recent changes by a move and shares them with the thread that writes them. Until it ends they are looked
//! up under the newer ones. If it fails they become recent again, under the newer ones.

use std::sync::Arc;

/// Changes that newer changes can be laid over.
pub(crate) trait Overlay: Default + Clone {
    fn overlay(&mut self, newer: Self);
}

#[derive(Default)]
pub(crate) struct Pending<T> {
    pub recent: T,
    flying: Option<Arc<T>>,
}

impl<T: Overlay> Pending<T> {
    pub fn newest_first(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.recent).chain(self.flying.as_deref())
    }

    pub fn oldest_first(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.flying.as_deref().into_iter().chain(std::iter::once(&self.recent))
    }

    pub fn begin_cut(&mut self) -> Arc<T> {
        assert!(self.flying.is_none(), "one cut at a time");
        let flying = Arc::new(std::mem::take(&mut self.recent));
        self.flying.insert(flying).clone()
    }

    /// The store has the cut. There may be none: whatever was in it has been flushed since.
    pub fn finish_cut(&mut self) -> Option<Arc<T>> {
        self.flying.take()
    }

    pub fn abort_cut(&mut self) {
        if let Some(flying) = self.flying.take() {
            let newer = std::mem::replace(&mut self.recent, Arc::unwrap_or_clone(flying));
            self.recent.overlay(newer);
        }
    }
}
