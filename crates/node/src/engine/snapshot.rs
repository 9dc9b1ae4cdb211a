//! Every counter at one position: a view of the store as of a checkpoint.

use super::shared::Shared;
use super::{Engine, Page, Reading, Refusal, Wanted};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tally_core::counter::rollup::{Minutes, Unit};
use tally_core::database::Space;
use tally_core::id::CellHasher;
use tally_core::ledger::parts::block::BlockParts;
use tally_core::ledger::{Band, LedgerKey};
use tally_core::limits::{SNAPSHOT_KEPT_MS, SNAPSHOT_KEPT_TOLD_MS, SNAPSHOTS_MAX};
use tally_core::machine::Machine;
use tally_core::position::Position;
use tally_core::record::DecodeError;
use tally_core::values::KeptRollup;
use tally_storage::store::{self, Checkpoint};

/// How often a checkpoint is taken for a snapshot: a flush in the middle of one leaves nothing.
pub(super) const ATTEMPTS_MAX: usize = 10;

pub struct Snapshot {
    view: Box<dyn store::Reads>,
    position: Position,
    counters: u64,
    hasher: CellHasher,
    /// What the core knows beside rows.
    state: Vec<u8>,
}

impl Engine {
    /// Takes a snapshot, and holds it until nobody has asked for it for a while. The commits behind its
    /// position say what they did to each counter.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Refusal> {
        let place = self.shared.snapshots.place(&self.shared)?;
        let followed_from = self.follow_commits().await?;
        Ok(place.hold(self.snapshot_from(followed_from).await?))
    }

    /// What every counter is worth at a position, for who does not follow from there and reads it at once.
    pub async fn base(&self) -> Result<Snapshot, Refusal> {
        self.snapshot_from(Position::default()).await
    }

    /// A snapshot that is not from before a position.
    async fn snapshot_from(&self, from: Position) -> Result<Snapshot, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            self.checkpoint(Wanted::Everything).await?;
            let shared = self.shared.clone();
            let taken = self.shared.blocking(move || Snapshot::take(&shared)).await??;
            if let Some(snapshot) = taken.filter(|snapshot| snapshot.position.offset >= from.offset) {
                return Ok(snapshot);
            }
        }
        Err(Refusal::busy())
    }

    /// A snapshot that is held, by its position; it is in use.
    pub fn held_snapshot(&self, position: Position) -> Option<Arc<Snapshot>> {
        self.shared.snapshots.find(position, self.shared.clock.passed())
    }

    /// All of it was told. Whether it arrived nobody knows, so it is held a little longer, unless its place is needed.
    pub fn told_snapshot(&self, snapshot: &Arc<Snapshot>) {
        let is_it = |held: &&mut HeldSnapshot| held.snapshot.as_ref().is_some_and(|it| Arc::ptr_eq(it, snapshot));
        if let Some(held) = self.shared.snapshots.lock().iter_mut().find(is_it) {
            held.is_told = true;
        }
    }
}

/// The place of a snapshot that is being taken; it is given up if nothing comes of it.
struct SnapshotPlace<'a> {
    snapshots: &'a Snapshots,
    number: u64,
}

impl SnapshotPlace<'_> {
    fn hold(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(snapshot);
        if let Some(held) = self.snapshots.lock().iter_mut().find(|held| held.place == self.number) {
            held.snapshot = Some(snapshot.clone());
        }
        snapshot
    }
}

impl Drop for SnapshotPlace<'_> {
    fn drop(&mut self) {
        self.snapshots.lock().retain(|held| held.place != self.number || held.snapshot.is_some());
    }
}

/// Snapshots that are held for those who read them.
#[derive(Default)]
pub(super) struct Snapshots(Mutex<Vec<HeldSnapshot>>);

struct HeldSnapshot {
    /// `None` while it is being taken.
    snapshot: Option<Arc<Snapshot>>,
    place: u64,
    /// When it was last used, by [`crate::clock::Clock::passed`].
    used: Duration,
    /// Somebody was told all of it.
    is_told: bool,
}

impl HeldSnapshot {
    fn is_over(&self, now: Duration) -> bool {
        let kept_ms = if self.is_told { SNAPSHOT_KEPT_TOLD_MS } else { SNAPSHOT_KEPT_MS };
        now.saturating_sub(self.used) >= Duration::from_millis(kept_ms)
    }
}

impl Snapshots {
    /// A place for one more, if there is one.
    fn place(&self, shared: &Shared) -> Result<SnapshotPlace<'_>, Refusal> {
        let now = shared.clock.passed();
        self.sweep(now);
        let mut held = self.lock();
        if held.len() >= SNAPSHOTS_MAX {
            let told = held.iter().enumerate().filter(|(_, held)| held.is_told);
            let oldest = told.min_by_key(|(_, held)| held.used).map(|(index, _)| index);
            held.remove(oldest.ok_or_else(Refusal::busy)?);
        }
        let place = held.iter().map(|held| held.place + 1).max().unwrap_or(0);
        held.push(HeldSnapshot { snapshot: None, place, used: now, is_told: false });
        Ok(SnapshotPlace { snapshots: self, number: place })
    }

    fn find(&self, position: Position, now: Duration) -> Option<Arc<Snapshot>> {
        self.sweep(now);
        let mut held = self.lock();
        let is_it = |held: &&mut HeldSnapshot| held.snapshot.as_ref().is_some_and(|held| held.position == position);
        let found = held.iter_mut().find(is_it)?;
        found.used = now;
        found.is_told = false;
        found.snapshot.clone()
    }

    /// Lets go of those that nobody came back for.
    pub fn sweep(&self, now: Duration) {
        self.lock().retain(|held| !held.is_over(now));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HeldSnapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot {
    /// The store as it is; `None` before its first checkpoint.
    fn take(shared: &Arc<Shared>) -> Result<Option<Snapshot>, Refusal> {
        let failed = |error: store::Error| Refusal::store(&error);
        let view = shared.store.snapshot().map_err(failed)?;
        let Some(Checkpoint { position, counters, state }) = view.checkpoint().map_err(failed)? else {
            return Ok(None);
        };
        let outside = view.names(&Space::marker(), None, usize::MAX).map_err(failed)?;
        let outside = outside.iter().filter(|id| Space::split(id).0 != Space::MAIN).count() as u64;
        // As the commits say it: a checkpoint that another epoch takes at the same place is none of theirs.
        let holding = shared.commits.holding(position.offset);
        let holding = holding.map_err(|error| Refusal::StoreFailed(error.to_string().into()))?;
        let position = holding.map_or(position, |commit| commit.to);
        let counters = counters.saturating_sub(outside);
        Ok(Some(Snapshot { view, position, counters, hasher: shared.hasher, state }))
    }

    /// Everything before it is in the snapshot, nothing behind it is.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many counters of database 0 there are.
    pub fn counters(&self) -> u64 {
        self.counters
    }

    /// What is known there beside counters and their parts: boxes, what is parked, and what is declared.
    pub fn state(&self) -> Result<Machine, Refusal> {
        let mut state = Machine::new(self.hasher);
        let resumed = state.resume(&self.state).and_then(|_| state.resumed());
        resumed.map_err(|error| Refusal::StoreFailed(error.to_string().into()))?;
        Ok(state)
    }

    /// Up to `limit` counters of database 0 behind an id, and the id to go on behind. One whose time has come since is among them:
    /// the commit that ends it says so.
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> Result<Page, Refusal> {
        self.page_of(b"", after, limit)
    }

    /// The same of those whose ids begin so.
    pub fn page_of(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Page, Refusal> {
        let failed = |error: store::Error| Refusal::store(&error);
        let mut ids = self.view.names(prefix, after, limit).map_err(failed)?;
        let next = if ids.len() == limit { ids.last().cloned() } else { None };
        ids.retain(|id| Space::split(id).0 == Space::MAIN);
        let mut counters = Vec::with_capacity(ids.len());
        let cells: Vec<_> = ids.iter().map(|id| self.hasher.key(id)).collect();
        for (id, row) in ids.into_iter().zip(store::cells(&*self.view, &cells).map_err(failed)?) {
            if let Some(row) = row {
                let reading = Reading { value: row.value, generation: row.mark.generation };
                counters.push((Space::split(&id).1.to_vec(), reading));
            }
        }
        Ok(Page { counters, next })
    }

    /// Tells the parts of a key in one roll-up: the unit and the beginning of each bucket, the values, and what they come to.
    pub fn parts(&self, id: &[u8], kept: &KeptRollup, tell: &mut TellPart<'_>) -> Result<(), Refusal> {
        let cell = self.hasher.key(&Space::MAIN.id(id));
        let own = std::iter::once((None, kept.rollup.unit));
        for (coarser, unit) in own.chain(kept.bands.coarser().map(|unit| (Some(unit), Some(unit)))) {
            let range = LedgerKey::parts_within(cell, Band::new(kept.number, coarser).number(), &(0..Minutes::MAX));
            let mut told = Ok(());
            let visit = &mut |key: &[u8], row: &[u8]| {
                told = tell_row(unit, key, row, tell);
                if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            self.view.ledger_rows(&range.start, &range.end, visit).map_err(|error| Refusal::store(&error))?;
            told.map_err(|error| Refusal::StoreFailed(format!("a row of parts: {error}").into()))?;
        }
        Ok(())
    }
}

/// Is told a part: unit and beginning of its bucket, values, sum.
pub type TellPart<'a> = dyn FnMut(Option<Unit>, Minutes, &[u8], i64) + 'a;

fn tell_row(unit: Option<Unit>, key: &[u8], row: &[u8], tell: &mut TellPart<'_>) -> Result<(), DecodeError> {
    let LedgerKey::Part(_, _, bucket) = LedgerKey::decode(key)? else { return Ok(()) };
    let mut parts = BlockParts::of(row)?;
    while let Some((values, sum)) = parts.take()? {
        tell(unit, bucket, values, sum);
    }
    Ok(())
}
