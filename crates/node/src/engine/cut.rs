//! Cuts, from the moment they are due until the store has them. ([`super::checkpoint`] is the thread that writes them there.)

use super::Refusal;
use super::checkpoint::Job;
use super::thread::Desk;
use crate::worker::{Context, Next, Retry, Spec, Work, WorkFailure};
use flume::Sender;
use std::rc::Rc;
use tally_core::memory::cell::SEGMENTS;
use tally_storage::log::Log;

/// Segments of a cut that are collected between two words about its progress.
const SEGMENTS_PER_WORD: usize = SEGMENTS / 16;

/// Takes a cut whenever one is due or wanted.
pub(super) struct Cutter<L: Log> {
    pub desk: Rc<Desk<L>>,
    pub jobs: Sender<Job>,
}

impl<L: Log + 'static> Cutter<L> {
    pub fn spec(desk: &Desk<L>) -> Spec {
        Spec::new("cut", "takes checkpoints when they are due", Retry::every(desk.options.checkpoint_retry))
            .waits_for("a checkpoint to be due")
            .woken_by(&desk.cut_due)
            .vital()
    }

    /// One cut, from its beginning until the store has it.
    async fn cut(&self, context: &Context) -> Result<(), Refusal> {
        self.desk.settle_all().await?;
        let (job, handover) = self.desk.writer.borrow_mut().begin_cut()?;
        self.jobs.send_async(Job::Write(job)).await.map_err(|_| Refusal::ShuttingDown)?;
        let mut told = 0;
        loop {
            let Some(rows) = self.desk.writer.borrow_mut().collect() else { break };
            let collected = self.desk.writer.borrow().state().values.table.collected();
            if collected >= told + SEGMENTS_PER_WORD {
                context.progress(format!("{collected} of {SEGMENTS} segments collected"));
                told = collected;
            }
            if !rows.is_empty() {
                // If the store gives up it stops listening, and says so below.
                let _ = handover.chunks.send_async(Some(rows)).await;
            }
            // Commits come first; a cut takes what time they leave.
            tokio::task::yield_now().await;
        }
        if !self.desk.writer.borrow().is_cut_abandoned() {
            let _ = handover.chunks.send_async(None).await;
        }
        drop(handover.chunks);
        context.progress("all segments collected; the store writes them".to_owned());
        let written = handover.written.await.map_err(|_| Refusal::ShuttingDown)?;
        let (finished, content) = self.desk.writer.borrow_mut().finish_cut(written);
        // Millions of rows are not dropped while everybody waits. If nobody is there any more, nobody waits.
        let _ = self.jobs.send_async(Job::Forget(content)).await;
        finished
    }
}

impl<L: Log + 'static> Work for Cutter<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let waiters = self.desk.cut_waiters.take();
        if waiters.is_empty() && !self.desk.writer.borrow().is_cut_due() {
            return Ok(Next::WhenWoken);
        }
        let result = self.cut(context).await;
        self.desk.cut_ended.notify_waiters();
        for waiter in waiters {
            let _ = waiter.send(result.clone());
        }
        result?;
        Ok(Next::WhenWoken)
    }
}

impl<L: Log> Drop for Cutter<L> {
    /// Nobody is to wait for a cut that does not come.
    fn drop(&mut self) {
        self.desk.cut_waiters.take();
    }
}
