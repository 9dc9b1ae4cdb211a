//! What the engine does for its own health, on a thread that may take its time: it tells the filters which rows the store
//! has, and forgets idempotency keys whose time is over.

use super::{Engine, Refusal};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tally_core::aggregate::State;
use tally_core::id::CellKey;
use tally_core::ledger::{Answered, LedgerKey, LedgerKind, Row};
use tokio::sync::watch;

/// Rows handed to the writer at a time.
const CHUNK_ROWS: usize = 16 * 1024;
/// How often expired idempotency keys are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(10 * 60);

type Tell<T> = fn(&mut State, Vec<T>);

/// A filter, and how it learns which rows the store has.
struct Filter {
    kind: LedgerKind,
    is_learning: fn(&State) -> bool,
    tell: Tell<CellKey>,
    done: fn(&mut State),
}

const CLAIMS: Filter = Filter {
    kind: LedgerKind::Claim,
    is_learning: |state| state.ledger.claims.filter_is_learning(),
    tell: |state, keys| state.ledger.claims.filter_add(&keys),
    done: |state| state.ledger.claims.filter_done(),
};
const ENTITIES: Filter = Filter {
    kind: LedgerKind::Entity,
    is_learning: |state| state.ledger.entities.filter_is_learning(),
    tell: |state, keys| state.ledger.entities.filter_add(&keys),
    done: |state| state.ledger.entities.filter_done(),
};
const ANSWERS: Filter = Filter {
    kind: LedgerKind::Answer,
    is_learning: |state| state.ledger.answers.filter_is_learning(),
    tell: |state, keys| state.ledger.answers.filter_add(&keys),
    done: |state| state.ledger.answers.filter_done(),
};

impl Engine {
    /// Runs until the node stops, and looks whether it does when its thread is unparked.
    pub fn tend(&self, stopping: &watch::Receiver<bool>) {
        for filter in [CLAIMS, ENTITIES, ANSWERS] {
            self.teach(&filter, stopping);
        }
        while !*stopping.borrow() {
            if let Err(error) = self.forget_answers(stopping) {
                tracing::debug!(%error, "expired idempotency keys stay for now");
            }
            self.teach(&ANSWERS, stopping);
            std::thread::park_timeout(FORGET_EVERY);
        }
    }

    /// Fills a filter that does not know yet what the store has. Without it everything is looked up, which is slower and no
    /// less right.
    fn teach(&self, filter: &Filter, stopping: &watch::Receiver<bool>) {
        let (is_learning, done) = (filter.is_learning, filter.done);
        if let Ok(true) = pollster::block_on(self.visit(move |state| is_learning(state))) {
            let told = self.pass_on(filter.kind, stopping, |key, _| Some(key), filter.tell);
            let _ = told.and_then(|()| self.tell_writer(done));
        }
    }

    /// Rows that a cut has replaced since they were read are left alone; the next time finds what is left. Which of them are
    /// over is for the state to say, by the time of the log: nobody may get another answer because they are gone.
    fn forget_answers(&self, stopping: &watch::Receiver<bool>) -> Result<(), Refusal> {
        let cuts = self.shared.cuts.load(Ordering::Acquire);
        let over = |key, row: &[u8]| {
            let answered = Answered::decode(row).ok()?;
            let is_current = self.shared.cuts.load(Ordering::Acquire) == cuts;
            is_current.then_some((key, answered))
        };
        self.pass_on(LedgerKind::Answer, stopping, over, State::forget_answers)?;
        self.tell_writer(State::renew_answers)
    }

    /// Hands some rows to the writer, chunk by chunk.
    fn pass_on<T: Send + 'static>(
        &self,
        kind: LedgerKind,
        stopping: &watch::Receiver<bool>,
        pick: impl Fn(CellKey, &[u8]) -> Option<T>,
        tell: Tell<T>,
    ) -> Result<(), Refusal> {
        let range = LedgerKey::range(kind);
        let mut chunk = Vec::new();
        let mut told = Ok(());
        let visited = self.shared.store.ledger_rows(&range.start, &range.end, &mut |key, row| {
            if let Ok(LedgerKey::Claim(key) | LedgerKey::Entity(key) | LedgerKey::Answer(key)) = LedgerKey::decode(key)
            {
                chunk.extend(pick(key, row));
            }
            if chunk.len() >= CHUNK_ROWS {
                let rows = std::mem::take(&mut chunk);
                told = self.tell_writer(move |state| tell(state, rows));
            }
            if told.is_err() || *stopping.borrow() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        visited.map_err(|error| Refusal::store(&error))?;
        told?;
        if *stopping.borrow() {
            return Err(Refusal::ShuttingDown);
        }
        self.tell_writer(move |state| tell(state, chunk))
    }

    fn tell_writer(&self, visit: impl FnOnce(&mut State) + Send + 'static) -> Result<(), Refusal> {
        pollster::block_on(self.visit(visit))
    }
}
