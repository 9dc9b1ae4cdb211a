//! Rolls buckets that have become old into coarser ones, and deletes what is kept no longer.
//!
//! Where that begins follows from log time alone, and nobody may ask for more than there is then; this worker sees to it that the disk
//! follows. It goes through the keys of a counter, looks in the store for old rows, and has them moved by the next cut, some thousands
//! at a time: what a cut moves is in the one place or the other for everybody. A late entry may come for a bucket that was moved. It
//! is in a row of its own until the next time.

use super::shared::Shared;
use super::thread::Desk;
use super::{Refusal, Wanted};
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tally_core::counter::Counter;
use tally_core::counter::rollup::{Minutes, minute_of};
use tally_core::id::{CellKey, SEPARATOR};
use tally_core::ledger::{Fold, OldBuckets};
use tally_core::limits::{FOLDED_BYTES_PER_CUT_MAX, FOLDED_ROWS_PER_CUT_MAX, FOLDS_PER_CUT_MAX};
use tally_storage::log::Log;
use tally_storage::store::{self, Reads};
use tokio::sync::oneshot;

/// Keys that one unit of work looks at.
const PAGE_NAMES: usize = 1024;
/// How often somebody looks whether anything has become old.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Counters that are looked at in one unit of work, while everybody waits.
const COUNTERS_AT_ONCE: usize = 64;
/// A walk waits so many times as long behind the last one as that took: it is work for everybody's disk.
const WALK_APART_TIMES: u32 = 9;

const RETRY: Retry = Retry { first: Duration::from_secs(1), most: Duration::from_secs(60) };

pub(super) struct BandFolds<L: Log> {
    desk: Rc<Desk<L>>,
    under_way: Option<BandWalk>,
    /// What was old, by counter, when its keys were gone through last.
    done: BTreeMap<Box<str>, Vec<OldBuckets>>,
    /// The minute of log time and the declarations of which this is known, or being found out.
    looked: Option<(Minutes, u64)>,
    /// The counter that is looked at next, and how many are left to be looked at. All have their turn, however often one of them is due.
    turn: usize,
    left: usize,
    /// No walk begins before this, by the time that passes.
    not_before: Duration,
}

/// A walk through the keys of a counter.
struct BandWalk {
    counter: Box<str>,
    old: Arc<Vec<OldBuckets>>,
    at: WalkAt,
    found: FoundFolds,
    looked_at: u64,
    begun: Duration,
}

impl BandWalk {
    fn new(counter: &Counter, old: Vec<OldBuckets>, begun: Duration) -> BandWalk {
        let at = WalkAt::Whole { has_keys: counter.has_keys() };
        let (counter, old) = (counter.name.clone(), Arc::new(old));
        BandWalk { counter, old, at, found: FoundFolds::default(), looked_at: 0, begun }
    }
}

/// Which keys come next.
#[derive(Clone, Debug)]
enum WalkAt {
    /// The counter as a whole, and then its keys.
    Whole {
        has_keys: bool,
    },
    /// Those behind this one.
    Behind(Option<Vec<u8>>),
    End,
}

/// What is to be moved by one cut.
#[derive(Clone, Debug, Default)]
struct FoundFolds {
    folds: Vec<Fold>,
    rows: usize,
    bytes: usize,
}

impl FoundFolds {
    fn is_full(&self) -> bool {
        self.folds.len() >= FOLDS_PER_CUT_MAX
            || self.rows >= FOLDED_ROWS_PER_CUT_MAX
            || self.bytes >= FOLDED_BYTES_PER_CUT_MAX
    }
}

impl<L: Log> BandFolds<L> {
    pub fn spec() -> Spec {
        Spec::new("bands", "rolls old buckets of time into coarser ones, and deletes what is kept no longer", RETRY)
    }

    pub fn new(desk: Rc<Desk<L>>) -> BandFolds<L> {
        let (done, not_before) = (BTreeMap::new(), Duration::ZERO);
        BandFolds { desk, under_way: None, done, looked: None, turn: 0, left: 0, not_before }
    }
}

impl<L: Log + 'static> Work for BandFolds<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let now = context.clock().passed();
        let Some(walk) = &mut self.under_way else { return Ok(self.begin(now)) };
        if walk.found.is_full() || matches!(walk.at, WalkAt::End) {
            // What could not be moved is moved with the next cut that can be made.
            fold(&self.desk, &walk.found.folds).await?;
            walk.found = FoundFolds::default();
            let took = context.clock().passed() - now;
            self.end_if_through(context);
            return Ok(Next::After(took));
        }
        let (at, found, looked_at) = look(&self.desk.shared, walk).await?;
        (walk.at, walk.found, walk.looked_at) = (at, found, walk.looked_at + looked_at);
        context.progress(format!("{} keys of {} looked at", walk.looked_at, walk.counter));
        Ok(Next::Again)
    }
}

impl<L: Log + 'static> BandFolds<L> {
    fn begin(&mut self, now: Duration) -> Next {
        let declarations = self.desk.writer.borrow().state().declarations().clone();
        let log_time_ms = self.desk.writer.borrow().state().log_time_ms();
        let standing = (minute_of(log_time_ms as i64), declarations.version());
        if now < self.not_before {
            return Next::After(LOOK_EVERY);
        }
        if self.looked.replace(standing) != Some(standing) {
            self.done.retain(|counter, _| !declarations.rollups_of(counter).is_empty());
            self.left = declarations.counters().len();
        }
        for _ in 0..self.left.min(COUNTERS_AT_ONCE) {
            let counter = &declarations.counters()[self.turn % declarations.counters().len()];
            (self.turn, self.left) = ((self.turn + 1) % declarations.counters().len(), self.left - 1);
            let kept = declarations.rollups_of(&counter.name).iter();
            let old: Vec<_> = kept.filter_map(|kept| kept.old_buckets(log_time_ms)).collect();
            if !old.is_empty() && self.done.get(&counter.name) != Some(&old) {
                self.under_way = Some(BandWalk::new(counter, old, now));
                return Next::Again;
            }
        }
        if self.left == 0 { Next::After(LOOK_EVERY) } else { Next::Again }
    }

    fn end_if_through(&mut self, context: &Context) {
        if let Some(walk) = self.under_way.take_if(|walk| matches!(walk.at, WalkAt::End)) {
            let now = context.clock().passed();
            self.not_before = now + (now - walk.begun) * WALK_APART_TIMES;
            self.done.insert(walk.counter, Arc::unwrap_or_clone(walk.old));
        }
    }
}

/// Has rows moved by the next cut, and waits until they are.
async fn fold<L: Log + 'static>(desk: &Desk<L>, folds: &[Fold]) -> Result<(), Refusal> {
    if folds.is_empty() {
        return Ok(());
    }
    desk.commit();
    // A store that does not say whether it has made a cut is asked where it stands, so no two with rows in them stand at one place.
    desk.writer.borrow_mut().move_on(desk.shared.clock.now_ms())?;
    desk.writer.borrow_mut().state_mut().values.facts.parts.fold(folds.to_vec());
    let (done, waits) = oneshot::channel();
    desk.request_cut(Wanted::Everything, done);
    waits.await.unwrap_or(Err(Refusal::ShuttingDown))
}

/// Looks at the next keys of a walk, up to the one at which there is no more room. Answers where that is, everything that is to be moved
/// up to there, and at how many it has looked.
async fn look(shared: &Arc<Shared>, walk: &BandWalk) -> Result<(WalkAt, FoundFolds, u64), Refusal> {
    let (old, at, mut found, hasher) = (walk.old.clone(), walk.at.clone(), walk.found.clone(), shared.hasher);
    let counter = walk.counter.clone();
    let read = move |_: &Shared, store: &dyn Reads| {
        let after = match at {
            WalkAt::Whole { has_keys } => {
                find(store, &old, hasher.key(counter.as_bytes()), &mut found)?;
                let next = if has_keys { WalkAt::Behind(None) } else { WalkAt::End };
                return Ok((if found.is_full() { at } else { next }, found, 1));
            }
            WalkAt::Behind(after) => after,
            WalkAt::End => return Ok((WalkAt::End, found, 0)),
        };
        let prefix = [counter.as_bytes(), &[SEPARATOR]].concat();
        let ids = store.names(&prefix, after.as_deref(), PAGE_NAMES)?;
        let mut passed = after;
        for (n, id) in ids.iter().enumerate() {
            find(store, &old, hasher.key(id), &mut found)?;
            if found.is_full() {
                // Some of this one may be left.
                return Ok((WalkAt::Behind(passed), found, n as u64));
            }
            passed = Some(id.clone());
        }
        let next = if ids.len() < PAGE_NAMES { WalkAt::End } else { WalkAt::Behind(passed) };
        Ok((next, found, ids.len() as u64))
    };
    shared.from_store(read).await
}

/// Finds old rows of a key, as many as there is room for. Blocks on the store.
fn find(store: &dyn Reads, old: &[OldBuckets], cell: CellKey, found: &mut FoundFolds) -> Result<(), store::Error> {
    for buckets in old {
        for rows in buckets.rows_of(cell) {
            let mut read = Ok(());
            store.ledger_rows(&rows.keys.start, &rows.keys.end, &mut |key, row| {
                if found.is_full() {
                    return ControlFlow::Break(());
                }
                match buckets.note(&rows, key, &mut found.folds) {
                    Ok(true) => (found.rows, found.bytes) = (found.rows + 1, found.bytes + row.len()),
                    Ok(false) => {}
                    Err(error) => {
                        read = Err(error);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            read.map_err(|error| store::Error::Damaged(format!("a row of parts: {error}")))?;
        }
    }
    Ok(())
}
