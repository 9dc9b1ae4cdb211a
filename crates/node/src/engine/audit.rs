//! The audit of event ids that came again, the newest first.

use super::question::Question;
use super::view::JoinedView;
use super::{Engine, Refusal, decode_row};
use tally_core::id::CellKey;
use tally_core::ledger::{Duplicate, DuplicatePlace, LedgerKey};
use tally_core::machine::Machine;

/// Rows looked at in one turn: the writer waits meanwhile.
pub const AUDIT_TURN_ROWS: usize = 1000;

impl Engine {
    /// How many repeats there were.
    pub async fn audited(&self) -> Result<u64, Refusal> {
        self.ask(Audited).await
    }

    /// The next rows back from a place, of one event id or of all; fewer than [`AUDIT_TURN_ROWS`] only if there are no more.
    pub async fn duplicates(
        &self,
        event_id: Option<CellKey>,
        before: DuplicatePlace,
    ) -> Result<Vec<Duplicate>, Refusal> {
        let (mut rows, view) = self.view(DuplicatesBefore { event_id, before }).await?;
        if rows.len() < AUDIT_TURN_ROWS {
            // All that the store has alone is older than what memory has.
            let before = rows.last().map_or(before, |row: &Duplicate| (row.offset, row.index));
            rows.extend(stored(&view, event_id, before, AUDIT_TURN_ROWS - rows.len()).await?);
        }
        Ok(rows)
    }
}

struct Audited;

impl Question for Audited {
    type Answer = u64;

    fn answer(self, state: &Machine) -> u64 {
        state.fates.contracts.audited
    }
}

struct DuplicatesBefore {
    event_id: Option<CellKey>,
    before: DuplicatePlace,
}

impl Question for DuplicatesBefore {
    type Answer = Vec<Duplicate>;

    fn answer(self, state: &Machine) -> Vec<Duplicate> {
        let duplicates = &state.fates.facts.duplicates;
        match self.event_id {
            Some(event_id) => duplicates.of_before(event_id, self.before).rev().take(AUDIT_TURN_ROWS).collect(),
            None => duplicates.before(self.before).rev().take(AUDIT_TURN_ROWS).collect(),
        }
    }
}

async fn stored(
    view: &JoinedView<'_>,
    event_id: Option<CellKey>,
    before: DuplicatePlace,
    limit: usize,
) -> Result<Vec<Duplicate>, Refusal> {
    let Some(event_id) = event_id else {
        let range = LedgerKey::Duplicate(0, 0).encode()..LedgerKey::Duplicate(before.0, before.1).encode();
        return view.rows(range, limit, true).await?.iter().map(|(_, row)| decode_row(row)).collect();
    };
    let key = |(offset, index)| LedgerKey::DuplicateOf(event_id, offset, index).encode();
    let index = view.rows(key((0, 0))..key(before), limit, true).await?;
    let place = |(key, _): &(Vec<u8>, Vec<u8>)| match LedgerKey::decode(key) {
        Ok(LedgerKey::DuplicateOf(_, offset, index)) => Ok(LedgerKey::Duplicate(offset, index).encode()),
        _ => Err(damaged("its key cannot be read")),
    };
    let rows = view.many(index.iter().map(place).collect::<Result<_, _>>()?).await?;
    rows.into_iter().map(|row| decode_row(&row.ok_or_else(|| damaged("it is not where the index says"))?)).collect()
}

fn damaged(what: &str) -> Refusal {
    Refusal::StoreFailed(format!("a row of the audit is damaged: {what}").into())
}
