//! What each generation did to one counter, and why: its steps, in memory while they are new, in the store for good.

use super::question::Question;
use super::view::JoinedView;
use super::{Engine, Reading, Refusal, Seen, decode_row};
use std::collections::BTreeMap;
use std::ops::Range;
use tally_core::counter::Target;
use tally_core::id::CellKey;
use tally_core::ledger::{Cause, Correction, FORGOTTEN_AT, LedgerKey, Purpose, Step};
use tally_core::machine::Machine;

/// Corrections looked at in one turn: each may have many deltas, and the writer waits meanwhile.
const CORRECTIONS_PER_TURN: usize = 16;

/// Why a correction was made.
#[derive(Clone, Debug)]
pub struct Why {
    pub cause: Cause,
    pub reason: String,
    /// Who proposed it, or made it without a proposal.
    pub author: String,
    pub applied_by: String,
    pub proposed_ms: Option<u64>,
    pub purpose: Purpose,
    /// By how much it says that it changes the counter asked about.
    pub delta: i128,
}

/// A page of what corrections have done to a counter, the newest first.
#[derive(Clone, Debug)]
pub struct HistoryPage {
    /// Generations, what each did, and why.
    pub steps: Vec<(u64, Step, Why)>,
    /// The generation before which the next page begins; `None` if this is the last one.
    pub next: Option<u64>,
}

/// What a generation last said about a counter.
#[derive(Clone, Copy, Debug)]
pub enum Said {
    /// No later generation has touched it.
    Now(Seen),
    /// A later generation has, at this moment.
    Until(u64, Reading),
}

impl Engine {
    /// Up to `limit` steps of a counter with generations below `before`, the newest first, and why each was made.
    pub async fn history(&self, target: &Target<'_>, before: u64, limit: usize) -> Result<HistoryPage, Refusal> {
        // There is another page only if there is one more step than this one has room for.
        let mut steps = self.steps(target.cell, before, limit.saturating_add(1)).await?;
        let has_more = steps.len() > limit;
        steps.truncate(limit);
        let next = steps.last().filter(|_| has_more).map(|(generation, _)| *generation);
        let numbers: Vec<_> = steps.iter().map(|(_, step)| step.number).collect();
        let whys = self.whys(&numbers, &target.id).await?;
        let steps = steps.into_iter().zip(whys).map(|((generation, step), why)| (generation, step, why));
        Ok(HistoryPage { steps: steps.collect(), next })
    }

    async fn steps(&self, cell: CellKey, before: u64, limit: usize) -> Result<Vec<(u64, Step)>, Refusal> {
        let ((mut steps, forgotten), view) = self.view(StepsBefore { cell, before, limit }).await?;
        let first = first_known(&view, cell, forgotten).await?;
        for row in view.rows(steps_between(cell, first, before), limit, true).await? {
            steps.extend([step(&row)?]);
        }
        Ok(steps.into_iter().rev().take(limit).collect())
    }

    /// The node's newest generation, and what the one asked for last said about a cell.
    pub async fn said(&self, cell: CellKey, asked: u64) -> Result<(u64, Said), Refusal> {
        // Steps and value must belong together: a correction in between would be in the value, and not in the steps.
        self.consistently(|| self.said_meanwhile(cell, asked)).await
    }

    async fn said_meanwhile(&self, cell: CellKey, asked: u64) -> Result<(u64, Said), Refusal> {
        let (known, view) = self.view(StepsAround { cell, asked }).await?;
        let first = first_known(&view, cell, known.forgotten).await?;
        let behind = steps_between(cell, first.max(asked.saturating_add(1)), FORGOTTEN_AT);
        let stored = view.rows(behind, 1, false).await?.pop().map(|row| step(&row)).transpose()?;
        let later = [known.later, stored].into_iter().flatten().min_by_key(|(generation, _)| *generation);
        let at_most = steps_between(cell, first, asked.saturating_add(1));
        let stored = view.rows(at_most, 1, true).await?.pop().map(|row| step(&row)).transpose()?;
        let last = known.last.max(stored.map(|(generation, _)| generation));
        let said = match later {
            None => Said::Now(self.see_one(cell).await?),
            Some((_, step)) => Said::Until(step.at_ms, Reading { value: step.before, generation: last.unwrap_or(0) }),
        };
        Ok((known.newest, said))
    }

    /// Why some corrections were made, and what each says about the counter `id`. None of them is too new for memory and too
    /// old for the store: memory is asked first.
    pub(super) async fn whys(&self, numbers: &[u64], id: &[u8]) -> Result<Vec<Why>, Refusal> {
        let mut whys = Vec::with_capacity(numbers.len());
        for turn in numbers.chunks(CORRECTIONS_PER_TURN) {
            let (known, view) = self.view(WhysOf { numbers: turn.to_vec(), id: id.to_vec() }).await?;
            for (number, known) in turn.iter().zip(known) {
                whys.push(match known {
                    Some(why) => why,
                    None => stored_why(&view, *number, id).await?,
                });
            }
        }
        Ok(whys)
    }
}

async fn stored_why(view: &JoinedView<'_>, number: u64, id: &[u8]) -> Result<Why, Refusal> {
    let row = view.row(LedgerKey::Correction(number).encode()).await?;
    let missing = || Refusal::StoreFailed(format!("correction {number} left steps, but is not there itself").into());
    Ok(Why::of(decode_row(&row.ok_or_else(missing)?)?, id))
}

struct WhysOf {
    numbers: Vec<u64>,
    id: Vec<u8>,
}

impl Question for WhysOf {
    type Answer = Vec<Option<Why>>;

    fn answer(self, state: &Machine) -> Self::Answer {
        let known = |number| state.values.facts.corrections.get(number).map(|correction| Why::of(correction, &self.id));
        self.numbers.iter().map(|number| known(*number)).collect()
    }
}

impl Why {
    fn of(correction: Correction, id: &[u8]) -> Why {
        let Correction { cause, purpose, reason, author, deltas, applied_by, proposed_ms, .. } = correction;
        let of_id = deltas.iter().filter(|delta| delta.id == id);
        let delta = of_id.map(|delta| i128::from(delta.delta)).sum();
        Why { cause, purpose, reason, author, applied_by, proposed_ms, delta }
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
