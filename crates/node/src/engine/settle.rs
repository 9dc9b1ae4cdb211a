//! Rows of cells for which entries were counted before anybody knew them: looked up soon after, many at a time.
//!
//! An entry needs no answer, so it does not wait for the store. A cut, a follower and whoever asks for the number of counters do:
//! they begin when nothing is unsettled ([`Desk::settle_all`]).

use super::Refusal;
use super::thread::Desk;
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use std::rc::Rc;
use std::time::Duration;
use tally_storage::log::Log;

const RETRY: Retry = Retry { first: Duration::from_millis(100), most: Duration::from_secs(5) };

pub(super) struct Settler<L: Log> {
    pub desk: Rc<Desk<L>>,
}

impl<L: Log> Settler<L> {
    pub fn spec(due: &Wake) -> Spec {
        Spec::new("settle", "looks up cells for which entries were counted without waiting for them", RETRY)
            .waits_for("an entry of a counter that is only in the store")
            .woken_by(due)
            .vital()
    }
}

impl<L: Log + 'static> Work for Settler<L> {
    async fn work(&mut self, _: &Context) -> Result<Next, WorkFailure> {
        self.desk.settle().await?;
        Ok(Next::WhenWoken)
    }
}

impl<L: Log + 'static> Desk<L> {
    /// Looks up what is unsettled until nothing is. That is so when this ends, as long as the caller goes on without waiting.
    async fn settle(&self) -> Result<(), Refusal> {
        loop {
            let needs = self.writer.borrow().unsettled();
            if needs.is_empty() {
                return Ok(());
            }
            let found = self.shared.lookup(needs).await?;
            self.writer.borrow_mut().settle(found);
        }
    }

    /// The same, while nothing is added to it; nothing is staged then that would add to it.
    pub(super) async fn settle_all(&self) -> Result<(), Refusal> {
        self.writer.borrow_mut().hold_blind(true);
        self.commit();
        let settled = self.settle().await;
        self.writer.borrow_mut().hold_blind(false);
        settled
    }
}
