//! Event ids that the archive says were counted, against the store: an id that the store does not know would be counted once more.
//!
//! Which ids an event claims follows from what was declared when it came, as it did then ([`Stager`]).

use super::files::Tables;
use super::report::{Check, Finding, Fix};
use std::collections::BTreeMap;
use std::sync::Arc;
use tally_archive::ArchivedEvent;
use tally_core::counter::{Declarations, Stager};
use tally_core::id::CellHasher;
use tally_core::ledger::{FactKey, LedgerKey};
use tally_core::op::{OpKind, Submission};
use tally_core::position::Position;
use tally_storage::store::Reads;
use tally_storage::store::key::Key;
use tally_storage::store::local::LocalStore;

/// Ids that are looked up at a time.
const LOOKED_UP: usize = 1000;

pub struct Claims {
    store: LocalStore,
    hasher: CellHasher,
    checkpoint: Option<Position>,
    declared: BTreeMap<u64, Arc<Declarations>>,
    stagers: BTreeMap<u64, Stager>,
    staged: Submission,
    waiting: Vec<Claimed>,
    looked_up: u64,
    pub check: Check,
}

/// An event that has claimed its id.
struct Claimed {
    key: LedgerKey,
    offset: u64,
    event_id: String,
}

impl Claims {
    pub fn new(store: LocalStore, hasher: CellHasher, tables: &Tables) -> Claims {
        let mut check = Check::new("event ids");
        let checkpoint = match store.checkpoint() {
            Ok(checkpoint) => checkpoint.map(|checkpoint| checkpoint.position),
            Err(error) => {
                check.find(Finding::new(error.to_string(), Fix::Backup));
                None
            }
        };
        let (declared, stagers) = (tables.declared.clone(), BTreeMap::new());
        let (staged, waiting, looked_up) = (Submission::default(), Vec::new(), 0);
        Claims { store, hasher, checkpoint, declared, stagers, staged, waiting, looked_up, check }
    }

    /// Where the store stands: what came behind it is claimed when the log is read.
    pub fn checkpoint(&self) -> Option<Position> {
        self.checkpoint
    }

    pub fn look_at(&mut self, row: &ArchivedEvent<'_>) {
        let is_stored = self.checkpoint.is_some_and(|checkpoint| row.place.position.offset < checkpoint.offset);
        let (true, Some(event_id)) = (is_stored, &row.event.event_id) else { return };
        let version = row.under.config_version;
        let Some(declarations) = self.declared.get(&version) else { return };
        let new = || Stager::new(declarations.clone(), self.hasher);
        let stager = self.stagers.entry(version).or_insert_with(new);
        self.staged.ops.clear();
        self.staged.stamps.clear();
        stager.stage(&row.event, 0, &mut self.staged, &mut |_, _| {});
        let mut stamps = self.staged.stamps.iter();
        for op in &self.staged.ops {
            let stamp = if op.has_stamp() { stamps.next() } else { None };
            if let (OpKind::Claim, Some(stamp)) = (op.kind, stamp) {
                let (key, offset) = (FactKey::Claim(stamp.key).ledger_key(), row.place.position.offset);
                self.waiting.push(Claimed { key, offset, event_id: event_id.to_string() });
            }
        }
        if self.waiting.len() >= LOOKED_UP {
            self.look_up();
        }
    }

    fn look_up(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let keys: Vec<Vec<u8>> = waiting.iter().map(|claimed| claimed.key.encode()).collect();
        let keys: Vec<Key<'_>> = keys.iter().map(|key| Key::Ledger(key)).collect();
        let rows = match self.store.read(&keys) {
            Ok(rows) => rows,
            Err(error) => return self.check.find(Finding::new(error.to_string(), Fix::Backup)),
        };
        self.looked_up += waiting.len() as u64;
        for (Claimed { offset, event_id, .. }, _) in waiting.iter().zip(rows).filter(|(_, row)| row.is_none()) {
            let what =
                format!("the store does not know the event id {event_id:?} of record {offset}, which was counted");
            let finding = Finding::new(what, Fix::Ids).at_record(*offset);
            self.check.find(Finding { key: Some(event_id.clone()), ..finding });
        }
    }

    pub fn finish(mut self) -> Check {
        self.look_up();
        self.check.said = format!("{} events with an id that counts once", self.looked_up);
        self.check
    }
}
