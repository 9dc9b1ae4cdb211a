//! What is asked of the state: by name, with an answer of its own type, and nothing in it changes.
//!
//! The state belongs to the writer's thread. A question crosses to it, is answered between two commits, and its answer crosses
//! back; while the writer waits for the disk it is answered where it is asked ([`super::lent`]). Only the engine can put one; frontends have [`crate::counters::Counters`] for what they may know.

use super::shared::Message;
use super::together::IdFilter;
use super::{Engine, Refusal};
use crate::worker::Spawner;
use tally_core::fates::Balance;
use tally_core::machine::Machine;
use tally_core::position::Position;
use tokio::sync::oneshot;

pub(super) trait Question: Send + 'static {
    type Answer: Send + 'static;

    /// Everybody who writes waits meanwhile, so it has to be short.
    fn answer(self, state: &Machine) -> Self::Answer;
}

/// A question with the one who waits for its answer.
pub(super) trait Asked: Send {
    fn answer(self: Box<Self>, state: &Machine);
}

struct Posed<Q: Question> {
    question: Q,
    reply: oneshot::Sender<Q::Answer>,
}

impl<Q: Question> Asked for Posed<Q> {
    fn answer(self: Box<Self>, state: &Machine) {
        // Whoever asked may be gone; then nobody minds.
        drop(self.reply.send(self.question.answer(state)));
    }
}

/// A question whose answer is gone on with.
struct Followed<Q: Question, F, T> {
    question: Q,
    takes_long: fn(&Q::Answer) -> bool,
    go_on: F,
    spawner: Spawner,
    reply: oneshot::Sender<Followup<Q::Answer, F, T>>,
}

/// What comes back: what the answer led to, or the answer and how to go on.
enum Followup<A, F, T> {
    Done(T),
    Left(A, F),
}

impl<Q, F, T> Asked for Followed<Q, F, T>
where
    Q: Question,
    F: FnOnce(Q::Answer) -> T + Send + 'static,
    T: Send + 'static,
{
    fn answer(self: Box<Self>, state: &Machine) {
        let Followed { question, takes_long, go_on, spawner, reply } = *self;
        let answer = question.answer(state);
        match takes_long(&answer) {
            true => spawner.aside(move || drop(reply.send(Followup::Done(go_on(answer))))),
            false => drop(reply.send(Followup::Left(answer, go_on))),
        }
    }
}

impl Engine {
    /// Asks, and goes on with the answer: here, or if that `takes_long`, as anything does that may wait for a disk, on a thread where
    /// nobody else waits for it. The writer itself hands it on to that one: whoever asks is woken once.
    pub(super) async fn ask_and<Q, F, T>(
        &self,
        question: Q,
        takes_long: fn(&Q::Answer) -> bool,
        go_on: F,
    ) -> Result<T, Refusal>
    where
        Q: Question,
        F: FnOnce(Q::Answer) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (reply, followup) = oneshot::channel();
        let spawner = self.shared.workers.spawner();
        self.shared.send(Message::Ask(Box::new(Followed { question, takes_long, go_on, spawner, reply }))).await?;
        match followup.await.map_err(|_| Refusal::ShuttingDown)? {
            Followup::Done(done) => Ok(done),
            Followup::Left(answer, go_on) => Ok(go_on(answer)),
        }
    }

    pub(super) async fn ask<Q: Question>(&self, question: Q) -> Result<Q::Answer, Refusal> {
        let question = match self.shared.lent.answer(question) {
            Ok(answer) => return Ok(answer),
            Err(question) => question,
        };
        let (reply, answer) = oneshot::channel();
        self.shared.send(Message::Ask(Box::new(Posed { question, reply }))).await?;
        answer.await.map_err(|_| Refusal::ShuttingDown)
    }

    /// The boxes of every counter there ever was, as of one position.
    pub async fn balances(&self) -> Result<(Vec<Balance>, Position), Refusal> {
        self.ask(AskBalances(self.clone())).await
    }

    /// How many late entries wait for counters with such ids, also for some that do not exist yet.
    pub async fn pending_of(&self, matches: IdFilter) -> Result<u64, Refusal> {
        self.ask(PendingOf(matches)).await
    }
}

struct AskBalances(Engine);

impl Question for AskBalances {
    type Answer = (Vec<Balance>, Position);

    fn answer(self, state: &Machine) -> Self::Answer {
        (state.balances(), self.0.applied())
    }
}

struct PendingOf(IdFilter);

impl Question for PendingOf {
    type Answer = u64;

    fn answer(self, state: &Machine) -> u64 {
        let waiting = state.fates.contracts.parked.iter().filter(|(_, _, entry)| (self.0)(&entry.id));
        waiting.map(|(_, _, entry)| entry.entries).sum()
    }
}

/// Tests look wherever they like.
#[cfg(test)]
mod look {
    use super::*;

    struct Look<F>(F);

    impl<T: Send + 'static, F: FnOnce(&Machine) -> T + Send + 'static> Question for Look<F> {
        type Answer = T;

        fn answer(self, state: &Machine) -> T {
            (self.0)(state)
        }
    }

    impl Engine {
        pub async fn look<T: Send + 'static>(
            &self,
            look: impl FnOnce(&Machine) -> T + Send + 'static,
        ) -> Result<T, Refusal> {
            self.ask(Look(look)).await
        }
    }
}
