//! The audit of event ids that came again, the newest first.

use super::question::Question;
use super::view::JoinedView;
use super::{Engine, Refusal, decode_row};
use tally_core::fact;
use tally_core::id::CellKey;
use tally_core::ledger::{Duplicate, DuplicatePlace, LedgerKey};
use tally_core::limits::AUDIT_ROWS_LOOKED_AT_MAX;
use tally_core::machine::Machine;

/// Rows looked at in one turn: the writer waits meanwhile.
const AUDIT_TURN_ROWS: usize = 1000;

/// Which repeats somebody wants to see.
#[derive(Clone, Debug)]
pub struct AuditQuestion {
    /// Only repeats of this event id.
    pub event_id: Option<String>,
    /// Only events that feed this counter.
    pub counter: Option<String>,
    /// Only events with another content than the first, or only those with the same.
    pub conflict: Option<bool>,
    pub limit: usize,
    /// Only rows before this place.
    pub before: DuplicatePlace,
}

/// A repeat, and what came first under its event id.
#[derive(Clone, Debug)]
pub struct AuditedRepeat {
    pub repeat: Duplicate,
    /// As [`tally_core::ledger::read_first`] reads it; `None` if it was claimed before contents were kept.
    pub first: Option<Vec<u8>>,
}

/// A page of the audit, the newest first.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// How many repeats there ever were, whatever was asked for.
    pub total: u64,
    pub rows: Vec<AuditedRepeat>,
    /// The place before which the next page begins; `None` if this is the last one. There may be a next page although this one has
    /// room: a page looks at [`AUDIT_ROWS_LOOKED_AT_MAX`] rows.
    pub next: Option<DuplicatePlace>,
}

impl AuditQuestion {
    fn takes(&self, duplicate: &Duplicate) -> bool {
        self.conflict.is_none_or(|conflict| conflict == duplicate.conflict)
            && self.counter.as_ref().is_none_or(|counter| duplicate.counters.contains(counter))
    }
}

impl Engine {
    /// Event ids that came again.
    pub async fn duplicates(&self, wanted: &AuditQuestion) -> Result<AuditPage, Refusal> {
        let total = self.ask(Audited).await?;
        let (repeats, next) = self.repeats(wanted).await?;
        let hasher = self.hasher();
        let key = |row: &Duplicate| (row.first_seen_ms, fact::claim_key(&hasher, row.event_id.as_bytes()));
        let firsts = self.firsts(repeats.iter().map(key).collect()).await?;
        let row = |repeat: Duplicate| AuditedRepeat { first: firsts.get(&key(&repeat)).cloned(), repeat };
        Ok(AuditPage { total, rows: repeats.into_iter().map(row).collect(), next })
    }

    /// A page is gathered in turns, since few of the rows may be those that are asked for.
    async fn repeats(&self, wanted: &AuditQuestion) -> Result<(Vec<Duplicate>, Option<DuplicatePlace>), Refusal> {
        let hashed = |event_id: &String| fact::claim_key(&self.hasher(), event_id.as_bytes());
        let event_id = wanted.event_id.as_ref().map(hashed);
        let (mut found, mut before) = (Vec::new(), wanted.before);
        for _ in 0..AUDIT_ROWS_LOOKED_AT_MAX / AUDIT_TURN_ROWS {
            let rows = self.repeats_before(event_id, before).await?;
            let is_last = rows.len() < AUDIT_TURN_ROWS;
            for row in rows {
                // There is more behind a full page only if there is one more row that belongs on it.
                if found.len() == wanted.limit && wanted.takes(&row) {
                    return Ok((found, Some(before)));
                }
                before = (row.offset, row.index);
                if wanted.takes(&row) {
                    found.push(row);
                }
            }
            if is_last {
                return Ok((found, None));
            }
        }
        Ok((found, Some(before)))
    }

    /// The next rows back from a place, of one event id or of all; fewer than [`AUDIT_TURN_ROWS`] only if there are no more.
    async fn repeats_before(
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
