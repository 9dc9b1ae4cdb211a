//! Open proposals: corrections that somebody may apply. They are kept as their bytes, in memory and as rows of the store; there are
//! few, and all of them together have a bound ([`PROPOSALS_OPEN_BYTES_MAX`](crate::limits::PROPOSALS_OPEN_BYTES_MAX)).

use super::LedgerKey;
use super::correction::Proposal;
use super::cut::{Change, Kind, LedgerRow, Rows};
use super::row::Row;
use crate::memory::pending::{Overlay, Pending};
use crate::record::DecodeError;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

/// By number; `None` if it is not open any more.
type ProposalChanges = BTreeMap<u64, Option<Arc<[u8]>>>;

impl Overlay for ProposalChanges {
    fn overlay(&mut self, newer: ProposalChanges) {
        self.extend(newer);
    }
}

#[derive(Default)]
pub struct Proposals {
    open: BTreeMap<u64, Arc<[u8]>>,
    bytes: usize,
    changes: Pending<ProposalChanges>,
}

impl Proposals {
    pub fn insert(&mut self, proposal: &Proposal) {
        let bytes: Arc<[u8]> = proposal.to_bytes().into();
        self.put(proposal.number, bytes.clone());
        self.changes.recent.insert(proposal.number, Some(bytes));
    }

    /// Takes in a row of the store.
    pub fn resume(&mut self, row: &[u8]) -> Result<(), DecodeError> {
        let proposal = Proposal::decode(row)?;
        self.put(proposal.number, row.into());
        Ok(())
    }

    /// `false` if it is not open.
    pub fn remove(&mut self, number: u64) -> bool {
        let Some(row) = self.open.remove(&number) else { return false };
        self.bytes -= row.len();
        self.changes.recent.insert(number, None);
        true
    }

    pub fn get(&self, number: u64) -> Option<Proposal> {
        self.row(number).map(|row| read(&row))
    }

    /// The bytes of a proposal, for [`read`]; sharing them costs nothing.
    pub fn row(&self, number: u64) -> Option<Arc<[u8]>> {
        self.open.get(&number).cloned()
    }

    pub fn rows(&self, numbers: impl RangeBounds<u64>) -> impl Iterator<Item = &Arc<[u8]>> {
        self.open.range(numbers).map(|(_, row)| row)
    }

    /// The greatest number below `end` that is open.
    pub fn last_below(&self, end: u64) -> Option<u64> {
        self.open.range(..end).next_back().map(|(number, _)| *number)
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn put(&mut self, number: u64, row: Arc<[u8]>) {
        self.bytes += row.len();
        if let Some(old) = self.open.insert(number, row) {
            self.bytes -= old.len();
        }
    }
}

impl Kind for Proposals {
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        self.changes.begin_cut()
    }

    fn finish_cut(&mut self) {
        self.changes.finish_cut();
    }

    fn abort_cut(&mut self) {
        self.changes.abort_cut();
    }

    /// Proposals stay open: the next cut has to write all of them.
    fn clear(&mut self) {
        self.changes = Pending::default();
        self.changes.recent.extend(self.open.iter().map(|(number, row)| (*number, Some(row.clone()))));
    }

    fn changed(&self) -> usize {
        self.changes.recent.len()
    }

    fn unsettled_bytes(&self) -> usize {
        self.changes.newest_first().flat_map(BTreeMap::values).flatten().map(|row| row.len()).sum()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Rows for ProposalChanges {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.iter().map(|(number, row)| {
            let change = row.as_ref().map_or(Change::Delete, |row| Change::Put(row.to_vec()));
            LedgerRow::new(LedgerKey::Proposal(*number), change)
        }))
    }
}

/// Reads a row of [`Proposals`].
pub fn read(row: &[u8]) -> Proposal {
    Proposal::decode(row).expect("it was encoded or read before it was kept")
}
