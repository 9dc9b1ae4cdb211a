//! Counters that end and that only the store has: looked up before their time has come, so that what ends, and when, follows from
//! the log and not from what happens to be in memory.
//!
//! A worker does it a minute ahead. If it could not, whoever lets time pass does it there and then ([`know`]): the writer, and a
//! start.

use super::Refusal;
use super::lookup::Found;
use super::thread::Desk;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::id::CellKey;
use tally_core::ledger::{Ending, LedgerKey};
use tally_core::limits::ENDINGS_AHEAD_MS;
use tally_core::machine::{Machine, Need};
use tally_storage::log::Log;
use tally_storage::store::{Error, Store};

/// How often the worker looks.
const LOOK_EVERY: Duration = Duration::from_millis(ENDINGS_AHEAD_MS / 4);
const RETRY: Retry = Retry { first: Duration::from_secs(1), most: LOOK_EVERY };

/// The counters that end within a stretch of time.
pub(super) struct FoundEndings {
    times: Range<u64>,
    rows: Found,
}

impl FoundEndings {
    /// What the store says, as of so many cuts, beside what it may not have yet.
    fn in_store(
        store: &dyn Store,
        cuts: u64,
        times: Range<u64>,
        unwritten: Vec<Ending>,
    ) -> Result<FoundEndings, Error> {
        let keys = LedgerKey::endings(&times);
        let mut needs: Vec<Need> = unwritten.into_iter().map(|(_, cell)| Need::Cell(cell)).collect();
        let mut read = Ok(());
        store.ledger_rows(&keys.start, &keys.end, &mut |key, _| match LedgerKey::decode(key) {
            Ok(LedgerKey::Ending(_, cell)) => {
                needs.push(Need::Cell(cell));
                ControlFlow::Continue(())
            }
            other => {
                read = Err(Error::Damaged(format!("{other:?} stands among the endings")));
                ControlFlow::Break(())
            }
        })?;
        read?;
        Ok(FoundEndings { times, rows: Found::in_store(store, cuts, needs)? })
    }

    /// From now on memory has all that end in this time.
    fn load(self, state: &mut Machine) {
        for (need, stored) in self.rows.into_rows() {
            state.load(need, stored);
        }
        let table = &mut state.values.table;
        assert!(self.times.start <= table.ends_kept_before_ms(), "no time is left out");
        table.keep_ends_before(self.times.end.max(table.ends_kept_before_ms()));
    }
}

/// Sees to it that memory has every counter whose time has come at `log_time_ms`.
pub(super) fn know(state: &mut Machine, store: &dyn Store, log_time_ms: u64) -> Result<(), Error> {
    if let Some(times) = state.endings_missing(log_time_ms) {
        let unwritten = state.values.facts.endings.unwritten(&times);
        FoundEndings::in_store(store, 0, times, unwritten)?.load(state);
    }
    Ok(())
}

/// Makes every deadline a fact, in a store that was written when it was none.
pub(super) fn find_all(state: &mut Machine, store: &dyn Store) -> Result<(), Error> {
    if !std::mem::take(&mut state.values.lacks_endings) {
        return Ok(());
    }
    store.rows(CellKey::NONE, &mut |cell, row| {
        if let Some(expiry) = row.expiry {
            state.values.facts.endings.insert((expiry.at_ms, cell));
        }
        ControlFlow::Continue(())
    })
}

/// Looks up what ends soon.
pub(super) struct EndingsFinder<L: Log> {
    pub desk: Rc<Desk<L>>,
}

impl<L: Log> EndingsFinder<L> {
    pub fn spec() -> Spec {
        Spec::new("endings", "looks up counters that end soon and are only in the store", RETRY)
    }
}

impl<L: Log + 'static> Work for EndingsFinder<L> {
    async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
        self.look_ahead().await?;
        Ok(Next::After(LOOK_EVERY))
    }
}

impl<L: Log + 'static> EndingsFinder<L> {
    /// Half of the time ahead is enough. If a cut ends meanwhile, what was found is not for certain, and it is tried again next time.
    async fn look_ahead(&self) -> Result<(), Refusal> {
        let shared = &self.desk.shared;
        let soon_ms = shared.clock.now_ms() + ENDINGS_AHEAD_MS / 2;
        let (times, unwritten) = {
            let writer = self.desk.writer.borrow();
            let Some(times) = writer.state().endings_missing(soon_ms) else { return Ok(()) };
            let unwritten = writer.state().values.facts.endings.unwritten(&times);
            (times, unwritten)
        };
        let (store, cuts) = (shared.store.clone(), shared.cuts.load(Ordering::Acquire));
        let found = move || FoundEndings::in_store(&*store, cuts, times, unwritten);
        let found = shared.blocking(found).await?.map_err(|error| Refusal::store(&error))?;
        let mut writer = self.desk.writer.borrow_mut();
        if cuts == shared.cuts.load(Ordering::Acquire) {
            found.load(writer.state_mut());
        }
        Ok(())
    }
}
