//! The handle on the writer's own thread: connections that live there stage and commit without a queue between.

use super::thread::Desk;
use super::watch::{Terms, Watch, WatchVerdict, Watched};
use super::{Committed, Engine, Hot, Refusal, Transacted};
use crate::counters::local::{Keyspace, LocalCounters};
use crate::counters::{Counters, Host};
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use tally_core::database::{DATABASES, Space};
use tally_core::id::CellKey;
use tally_core::machine::Machine;
use tally_core::op::{Answer, Op, OpKind, Submission};
use tally_core::position::Position;
use tally_storage::log::Log;
use tally_storage::log::local::LocalLog;
use tokio::sync::oneshot;

/// How many reads ahead the memory of a counter is asked for.
const READ_AHEAD: usize = 16;

/// A handle to the engine on the writer's own thread.
pub struct LocalEngine<L: Log = LocalLog> {
    pub(super) engine: Engine,
    pub(super) desk: Rc<Desk<L>>,
}

impl<L: Log> Clone for LocalEngine<L> {
    fn clone(&self) -> LocalEngine<L> {
        LocalEngine { engine: self.engine.clone(), desk: self.desk.clone() }
    }
}

impl<L: Log + 'static> LocalEngine<L> {
    /// Looks at the state, between two commits.
    fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(self.desk.writer.borrow().state())
    }

    /// Memory's answer to a read; `None` if only the store knows.
    #[inline]
    fn read_one(&self, op: &Op) -> Option<Answer> {
        match op.kind {
            OpKind::Ttl => self.desk.writer.borrow().ttl(op.cell),
            OpKind::Deadline => self.desk.writer.borrow().deadline(op.cell),
            OpKind::Expiring => Some(Answer::Value(self.look(|state| state.values.expiring(op.arg as usize)) as i64)),
            OpKind::Size => Some(Answer::Value(self.look(|state| state.values.size(op.arg as usize)) as i64)),
            _ => match self.engine.read(op.cell) {
                Hot::Value(value) => Some(Answer::Value(value)),
                Hot::Absent => Some(Answer::Absent),
                Hot::Cold => None,
            },
        }
    }

    /// Reads go on whatever happens to the log.
    fn check_health(&self, submission: &Submission) -> Result<(), Refusal> {
        if submission.record_count > 0 { self.engine.health() } else { Ok(()) }
    }

    /// Waits for a submission that is staged.
    async fn take_answers(
        &self,
        submission: &mut Submission,
        answer: oneshot::Receiver<Result<Committed, Refusal>>,
        answers: &mut Vec<Answer>,
    ) -> Result<Position, Refusal> {
        let ops = self.desk.shared.clock.is_held().then(|| std::mem::take(&mut submission.ops));
        submission.clear();
        let committed: Committed = answer.await.unwrap_or(Err(Refusal::ShuttingDown))?;
        *answers = committed.answers;
        for (_, answer) in ops.iter().flatten().zip(answers.iter_mut()).filter(|(op, _)| op.kind == OpKind::Ttl) {
            *answer = self.desk.shared.left(*answer, committed.log_time_ms);
        }
        Ok(committed.position)
    }
}

impl<L: Log + 'static> LocalCounters for LocalEngine<L> {
    fn counters(&self) -> Arc<dyn Counters> {
        Arc::new(self.engine.clone())
    }

    fn host(&self) -> Host {
        self.engine.host()
    }

    fn keyspace(&self) -> Rc<dyn Keyspace> {
        Rc::new(self.clone())
    }

    fn read(&self, ops: &[Op], answers: &mut Vec<Answer>) -> bool {
        answers.clear();
        ops.iter().take(READ_AHEAD).for_each(|op| self.engine.prefetch(op.cell));
        ops.iter().enumerate().all(|(index, op)| {
            if let Some(ahead) = ops.get(index + READ_AHEAD) {
                self.engine.prefetch(ahead.cell);
            }
            let answer = self.read_one(op);
            answers.extend(answer);
            answer.is_some()
        })
    }

    async fn submit(&self, submission: &mut Submission, answers: &mut Vec<Answer>) -> Result<Position, Refusal> {
        self.check_health(submission)?;
        let (reply, answer) = oneshot::channel();
        self.desk.stage(submission, reply).await;
        self.take_answers(submission, answer, answers).await
    }

    async fn transact(
        &self,
        submission: &mut Submission,
        answers: &mut Vec<Answer>,
        terms: &Terms<'_>,
    ) -> Result<Transacted, Refusal> {
        submission.needs.whole = true;
        if terms.is_empty() {
            return Ok(Transacted::At(self.submit(submission, answers).await?));
        }
        self.check_health(submission)?;
        let (reply, answer) = oneshot::channel();
        let found = self.desk.find(|| Cow::Borrowed(&*submission)).await?;
        let verdict =
            self.desk.writer.borrow_mut().transact(submission, terms, found, reply, self.desk.shared.clock.now_ms());
        self.desk.commit();
        match verdict {
            WatchVerdict::Changed => return Ok(Transacted::Changed),
            WatchVerdict::Outdated => return Ok(Transacted::Outdated),
            WatchVerdict::Holds => {}
        }
        Ok(Transacted::At(self.take_answers(submission, answer, answers).await?))
    }

    async fn watch(&self, watched: Watched<'_>) -> Result<Watch, Refusal> {
        let mut read = Submission::default();
        read.get(watched.cell);
        let found = self.desk.find(|| Cow::Borrowed(&read)).await?;
        self.desk.writer.borrow_mut().watch(watched, found, self.desk.shared.clock.now_ms())
    }
}

impl<L: Log + 'static> Keyspace for LocalEngine<L> {
    fn spaces(&self) -> [Space; DATABASES] {
        self.look(|state| state.values.databases.spaces())
    }

    fn draw_space(&self) -> Space {
        self.desk.writer.borrow_mut().state_mut().values.databases.draw_space()
    }

    fn size(&self, database: usize) -> u64 {
        self.look(|state| state.values.size(database))
    }

    fn only_main(&self) -> bool {
        self.look(|state| state.values.databases.only_main())
    }

    fn changes(&self) -> u64 {
        self.look(|state| state.values.databases.changes())
    }

    fn watched(&self, watches: &[Watch]) -> Vec<CellKey> {
        let watched = &self.desk.writer.borrow().watches;
        watches.iter().filter_map(|watch| watched.cell(watch)).collect()
    }

    fn unwatch(&self, watches: &[Watch]) {
        let watched = &mut self.desk.writer.borrow_mut().watches;
        watches.iter().for_each(|watch| watched.remove(watch));
    }
}
