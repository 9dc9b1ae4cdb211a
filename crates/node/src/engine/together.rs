//! Reads that belong together: each correction is seen in all of them, or in none.

use super::{Engine, Reading, Refusal, Seen};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tally_core::database::Space;
use tally_core::id::CellKey;
use tally_core::limits::SCAN_NAMES_MAX;

/// How often reads are made again because a correction came in between.
const CONSISTENT_READS_MAX: usize = 1_000;
/// Cold counters that are read at the same time.
const READS_AT_ONCE: usize = 32;
/// Names that one step of a walk asks for.
const PAGE_NAMES: usize = 1024;

/// Tells ids apart, and knows nothing else of counters.
pub type IdFilter = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Counters of database 0 that are asked for by what their ids look like.
#[derive(Clone)]
pub struct Matching {
    /// What all of them begin with: it narrows the walk.
    pub prefix: Vec<u8>,
    pub matches: IdFilter,
}

/// What counters add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchedSum {
    /// Of what reads show. Wide enough for [`SCAN_NAMES_MAX`] counters of any value.
    pub value: i128,
    pub counters: u64,
    /// The highest of them.
    pub generation: u64,
    /// Late entries that wait for them, also for some that do not exist yet.
    pub pending: u64,
}

impl fmt::Debug for Matching {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Matching").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Engine {
    /// Makes some reads that see each correction as a whole or not at all.
    pub(super) async fn consistently<T, F>(&self, read: impl Fn() -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        let mut applied = self.shared.applied.subscribe();
        for _ in 0..CONSISTENT_READS_MAX {
            let revision = self.shared.revision.load(Ordering::Acquire);
            if revision % 2 == 1 {
                // The writer says so when it is done; its end of the channel is as old as we are.
                let _ = applied.changed().await;
                continue;
            }
            let result = read().await?;
            if self.shared.revision.load(Ordering::Acquire) == revision {
                return Ok(result);
            }
        }
        Err(Refusal::busy())
    }

    /// What readers are told about some counters, one for each cell in their order.
    pub async fn see(&self, cells: &[CellKey]) -> Result<Vec<Seen>, Refusal> {
        let read =
            || stream::iter(cells.iter().copied().map(|cell| self.see_one(cell))).buffered(READS_AT_ONCE).try_collect();
        self.consistently(read).await
    }

    /// Only within [`Self::consistently`] does all of it belong together.
    pub(super) async fn see_one(&self, cell: CellKey) -> Result<Seen, Refusal> {
        Ok(Seen { reading: self.get(cell).await?, pending: self.shared.cells.pending(cell) })
    }

    /// The same for cells whose values alone matter.
    pub(super) async fn readings(&self, cells: &[CellKey]) -> Result<Vec<Option<Reading>>, Refusal> {
        Ok(self.see(cells).await?.into_iter().map(|seen| seen.reading).collect())
    }

    /// Adds up counters; `None` if more than [`SCAN_NAMES_MAX`] ids would have to be looked at.
    pub async fn sum(&self, of: &Matching) -> Result<Option<MatchedSum>, Refusal> {
        self.consistently(|| self.walk(of)).await
    }

    async fn walk(&self, of: &Matching) -> Result<Option<MatchedSum>, Refusal> {
        let declarations = self.declarations();
        let mut sum = MatchedSum { pending: self.pending_of(of.matches.clone()).await?, ..MatchedSum::default() };
        let mut after = None;
        for _ in 0..SCAN_NAMES_MAX / PAGE_NAMES {
            let page = self.scan(Space::MAIN, of.prefix.clone(), after, PAGE_NAMES).await?;
            for (id, reading) in page.counters.iter().filter(|(id, _)| (of.matches)(id)) {
                sum.value += i128::from(declarations.shown(id, reading.value));
                sum.counters += 1;
                sum.generation = sum.generation.max(reading.generation);
            }
            after = page.next;
            if after.is_none() {
                return Ok(Some(sum));
            }
        }
        Ok(None)
    }
}
