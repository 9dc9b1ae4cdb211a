//! What an operator does: configurations, late runs, corrections, clears.

use super::World;
use crate::fault::Fault;
use crate::oracle::Config;
use crate::oracle::worth::Kind;
use tally_cluster::control::{Cleared, ControlRecord};
use tally_core::ledger::{Delta, Purpose};

impl World {
    pub fn configure(&mut self, config: Config) {
        if !self.control.is_empty() {
            self.hit(Fault::ConfigChange);
        }
        let record =
            ControlRecord::config(&config.yaml(), self.control.len() as u64).expect("the oracle's texts are sound");
        self.control.push(record);
        self.referee.configured(config);
        self.note(format_args!("control {}: {config:?}", self.control.len()));
    }

    pub fn run_late(&mut self, due_by_ms: u64) {
        self.hit(Fault::LateRun);
        self.control.push(ControlRecord::LateRun { due_by_ms });
        self.referee.late_run(due_by_ms);
        self.note(format_args!("control {}: what is due by {due_by_ms}", self.control.len()));
    }

    /// Takes back one of the corrections, clears and reverts that nobody has taken back. Answers whether there is one.
    pub fn revert(&mut self) -> bool {
        if self.corrections.is_empty() {
            return false;
        }
        let at = self.random.below(self.corrections.len() as u64) as usize;
        let generation = self.corrections[at];
        self.revert_generation(generation);
        true
    }

    pub fn revert_generation(&mut self, generation: u64) {
        self.hit(Fault::Revert);
        self.corrections.retain(|known| *known != generation);
        self.control.push(ControlRecord::Revert { generation });
        self.referee.reverted(generation);
        self.corrected(format_args!("takes back generation {generation}"));
    }

    pub fn correct(&mut self, kind: Kind, deltas: &[(String, i64)]) -> u64 {
        self.hit(if kind == Kind::Restores { Fault::Restore } else { Fault::Correction });
        let purpose = if kind == Kind::Restores { Purpose::Restore } else { Purpose::Adjust };
        let delta = |(id, delta): &(String, i64)| Delta { id: id.as_bytes().to_vec(), bucket_ms: None, delta: *delta };
        self.control.push(ControlRecord::Correct { purpose, deltas: deltas.iter().map(delta).collect() });
        self.referee.correction(kind, deltas);
        self.corrected(format_args!("{kind:?} {deltas:?}"))
    }

    /// Clears a key, or all keys of a counter.
    pub fn clear(&mut self, cleared: Cleared) -> u64 {
        self.hit(Fault::Clear);
        let what = match &cleared {
            Cleared::Key(id) => String::from_utf8_lossy(id).into_owned(),
            Cleared::Counter(name) => name.to_string(),
        };
        self.control.push(ControlRecord::Clear(cleared));
        self.referee.cleared(&what);
        self.corrected(format_args!("clears {what}"))
    }

    /// Something is a generation, which can be taken back. Answers which.
    fn corrected(&mut self, what: std::fmt::Arguments<'_>) -> u64 {
        let generation = self.referee.last_generation();
        self.corrections.push(generation);
        self.note(format_args!("control {}: {what}", self.control.len()));
        generation
    }
}
