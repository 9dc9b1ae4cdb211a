//! What an operator does: configurations, late runs, corrections.

use super::World;
use crate::fault::Fault;
use crate::oracle::Config;
use tally_cluster::control::ControlRecord;
use tally_core::ledger::Delta;

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

    /// Takes back one of the corrections that nobody has taken back. Answers whether there is one.
    pub fn revert(&mut self) -> bool {
        if self.corrections.is_empty() {
            return false;
        }
        self.hit(Fault::Revert);
        let at = self.random.below(self.corrections.len() as u64) as usize;
        let opposite = self.corrections.swap_remove(at).into_iter().map(|(id, delta)| (id, -delta));
        self.correct_by(&opposite.collect::<Vec<_>>());
        true
    }

    pub fn correct(&mut self, deltas: &[(String, i64)]) {
        self.hit(Fault::Correction);
        self.corrections.push(deltas.to_vec());
        self.correct_by(deltas);
    }

    fn correct_by(&mut self, deltas: &[(String, i64)]) {
        let delta = |(id, delta): &(String, i64)| Delta { id: id.as_bytes().to_vec(), bucket_ms: None, delta: *delta };
        self.control.push(ControlRecord::Correct { deltas: deltas.iter().map(delta).collect() });
        self.referee.correction(deltas);
        self.note(format_args!("control {}: {deltas:?}", self.control.len()));
    }
}
