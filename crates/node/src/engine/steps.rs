//! What each generation did to one counter: its steps, in memory while they are new, in the store for good.

use super::question::Question;
use super::view::JoinedView;
use super::{Engine, Reading, Refusal, Seen, decode_row};
use std::collections::BTreeMap;
use std::ops::Range;
use tally_core::id::CellKey;
use tally_core::ledger::{FORGOTTEN_AT, LedgerKey, Step};
use tally_core::machine::Machine;

/// What a generation last said about a counter.
#[derive(Clone, Copy, Debug)]
pub enum Said {
    /// No later generation has touched it.
    Now(Seen),
    /// A later generation has, at this moment.
    Until(u64, Reading),
}

impl Engine {
    /// Up to `limit` steps of a counter with generations below `before`, the newest first.
    pub async fn steps(&self, cell: CellKey, before: u64, limit: usize) -> Result<Vec<(u64, Step)>, Refusal> {
        let ((mut steps, forgotten), view) = self.view(StepsBefore { cell, before, limit }).await?;
        let first = first_known(&view, cell, forgotten).await?;
        for row in view.rows(steps_between(cell, first, before), limit, true).await? {
            steps.extend([step(&row)?]);
        }
        Ok(steps.into_iter().rev().take(limit).collect())
    }

    /// The node's newest generation, and what the one asked for last said about a cell. Only within
    /// [`Engine::consistently`] do the two belong together: a correction in between would be in the value, and not in the steps.
    pub async fn said(&self, cell: CellKey, asked: u64) -> Result<(u64, Said), Refusal> {
        let (known, view) = self.view(StepsAround { cell, asked }).await?;
        let first = first_known(&view, cell, known.forgotten).await?;
        let behind = steps_between(cell, first.max(asked.saturating_add(1)), FORGOTTEN_AT);
        let stored = view.rows(behind, 1, false).await?.pop().map(|row| step(&row)).transpose()?;
        let later = [known.later, stored].into_iter().flatten().min_by_key(|(generation, _)| *generation);
        let at_most = steps_between(cell, first, asked.saturating_add(1));
        let stored = view.rows(at_most, 1, true).await?.pop().map(|row| step(&row)).transpose()?;
        let last = known.last.max(stored.map(|(generation, _)| generation));
        let said = match later {
            None => Said::Now(self.see(cell).await?),
            Some((_, step)) => Said::Until(step.at_ms, Reading { value: step.before, generation: last.unwrap_or(0) }),
        };
        Ok((known.newest, said))
    }
}

struct StepsBefore {
    cell: CellKey,
    before: u64,
    limit: usize,
}

impl Question for StepsBefore {
    /// Steps, and up to which generation all of them are forgotten.
    type Answer = (BTreeMap<u64, Step>, Option<u64>);

    fn answer(self, state: &Machine) -> Self::Answer {
        let steps = &state.values.facts.steps;
        let newest = steps.of(self.cell).rev().filter(|(generation, _)| *generation < self.before).take(self.limit);
        (newest.collect(), steps.forgotten(self.cell))
    }
}

struct StepsAround {
    cell: CellKey,
    asked: u64,
}

/// What memory knows of the steps around a generation.
struct Around {
    /// The node's newest generation.
    newest: u64,
    /// The first step of a later one.
    later: Option<(u64, Step)>,
    /// The last generation up to it that has touched the counter.
    last: Option<u64>,
    forgotten: Option<u64>,
}

impl Question for StepsAround {
    type Answer = Around;

    fn answer(self, state: &Machine) -> Around {
        let StepsAround { cell, asked } = self;
        let steps = &state.values.facts.steps;
        let last = steps.of(cell).rev().find(|(generation, _)| *generation <= asked);
        Around {
            newest: state.values.generations.current,
            later: steps.of(cell).find(|(generation, _)| *generation > asked),
            last: last.map(|(generation, _)| generation),
            forgotten: steps.forgotten(cell),
        }
    }
}

/// The first generation of a counter that is not forgotten, given what memory says.
async fn first_known(view: &JoinedView<'_>, cell: CellKey, in_memory: Option<u64>) -> Result<u64, Refusal> {
    let forgotten = match in_memory {
        Some(forgotten) => Some(forgotten),
        None => {
            let row = view.row(LedgerKey::Step(cell, FORGOTTEN_AT).encode()).await?;
            row.map(|row| decode_row::<Step>(&row)).transpose()?.map(|row| row.number)
        }
    };
    Ok(forgotten.map_or(0, |generation| generation.saturating_add(1)))
}

/// Where the store has the steps of generations from one on and below another.
fn steps_between(cell: CellKey, from: u64, to: u64) -> Range<Vec<u8>> {
    LedgerKey::Step(cell, from).encode()..LedgerKey::Step(cell, to).encode()
}

fn step((key, row): &(Vec<u8>, Vec<u8>)) -> Result<(u64, Step), Refusal> {
    match LedgerKey::decode(key) {
        Ok(LedgerKey::Step(_, generation)) => Ok((generation, decode_row(row)?)),
        other => Err(Refusal::StoreFailed(format!("a key of the ledger is damaged: {other:?}").into())),
    }
}
