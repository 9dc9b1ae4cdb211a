//! A cut of one partition as objects, and the rows that a chain of them adds up to.
//!
//! Position travels with state: a cut says where it starts and where it ends, and is added only to rows that stand where it
//! starts. Rows are a function of the chain, so a copy on a worker's disk is a cache of it and nothing else.

use std::collections::BTreeMap;
use tally_core::id::CellKey;
use tally_core::ledger::{self, Change, LedgerRow};
use tally_core::machine::{Machine, Need, Stored};
use tally_core::memory::cell::CellRow;
use tally_core::record::DecodeError;

/// What changed between two positions of a partition.
#[derive(Clone, Debug)]
pub struct PartitionCut<H> {
    pub from: u64,
    pub to: u64,
    /// What the owner needs beside the state.
    pub head: H,
    /// The log has to be read from here: some of what is remembered stands before the cut.
    pub read_from: u64,
    /// A [`Machine::checkpoint`].
    pub state: Vec<u8>,
    pub counters: u64,
    pub cells: Vec<(CellKey, Option<CellRow>)>,
    pub facts: Vec<LedgerRow>,
}

impl<H> PartitionCut<H> {
    /// Freezes what has changed. Until [`finish`] or [`abort`] it is on its way.
    pub fn begin(state: &mut Machine, from: u64, to: u64, head: H) -> PartitionCut<H> {
        let (bytes, read_from) = state.checkpoint(to);
        let counters = state.values.table.cells().len();
        state.values.table.begin_cut();
        let facts = state.begin_facts_cut().rows().collect();
        state.values.names.clear();
        let mut cells = Vec::new();
        while let Some(rows) = state.values.table.collect() {
            cells.extend(rows.sorted().map(|change| (change.key, change.row)));
        }
        PartitionCut { from, to, head, read_from, state: bytes, counters, cells, facts }
    }
}

/// The chain has the cut.
pub fn finish(state: &mut Machine) {
    state.values.table.finish_cut();
    state.finish_facts_cut();
}

/// The chain does not have it.
pub fn abort(state: &mut Machine) {
    state.values.table.abort_cut();
    state.abort_facts_cut();
}

/// What a chain of cuts adds up to.
#[derive(Clone, Debug)]
pub struct ChainRows<H> {
    pub to: u64,
    /// Of the last cut; `None` before the first.
    pub last: Option<LastCut<H>>,
    cells: BTreeMap<CellKey, CellRow>,
    facts: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug)]
pub struct LastCut<H> {
    pub head: H,
    pub read_from: u64,
    pub state: Vec<u8>,
    pub counters: u64,
}

impl<H> Default for ChainRows<H> {
    fn default() -> ChainRows<H> {
        ChainRows { to: 0, last: None, cells: BTreeMap::new(), facts: BTreeMap::new() }
    }
}

impl<H: Clone> ChainRows<H> {
    /// Adds the next cut of the chain.
    pub fn add(&mut self, cut: &PartitionCut<H>) -> Result<(), DecodeError> {
        assert_eq!(cut.from, self.to, "a cut is added to what it starts from");
        for (key, row) in &cut.cells {
            match row {
                Some(row) => drop(self.cells.insert(*key, row.clone())),
                None => drop(self.cells.remove(key)),
            }
        }
        for LedgerRow { key, change } in &cut.facts {
            let value = match change {
                Change::Put(value) => Some(value.clone()),
                Change::Delete => None,
                Change::Add(numbers) => ledger::add(self.facts.get(key).map(Vec::as_slice), numbers)?,
            };
            match value {
                Some(value) => drop(self.facts.insert(key.clone(), value)),
                None => drop(self.facts.remove(key)),
            }
        }
        self.to = cut.to;
        let (head, state) = (cut.head.clone(), cut.state.clone());
        self.last = Some(LastCut { head, read_from: cut.read_from, state, counters: cut.counters });
        Ok(())
    }

    /// Cells that end some time.
    pub fn expiring(&self) -> impl Iterator<Item = CellKey> + '_ {
        self.cells.iter().filter(|(_, row)| row.expiry.is_some()).map(|(key, _)| *key)
    }

    /// Rows of facts, by key.
    pub fn facts(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.facts
    }

    /// What is stored under something that an owner needs to know.
    pub fn get(&self, need: Need) -> Result<Stored, DecodeError> {
        match (need, need.ledger_key()) {
            (Need::Cell(key), _) => Ok(Stored::Cell(self.cells.get(&key).cloned())),
            (_, Some(key)) => need.decode(self.facts.get(&key.encode()).map(Vec::as_slice)),
            (_, None) => unreachable!("what is no cell is a fact"),
        }
    }
}
