//! What was counted in a commit: the entries of its batches, but for those that it names as exceptions.

use super::Stop;
use crate::engine::{CommitReader, Engine};
use tally_core::anomaly::Detector;
use tally_core::commit::Commit;
use tally_core::counter::Declarations;
use tally_core::database::Space;
use tally_core::head::Head;
use tally_core::id::CellHasher;
use tally_core::record::Record;
use tally_storage::log::{LogError, LogReader};

/// Where it is in the log.
pub struct Look {
    engine: Engine,
    /// `None` until there is a commit behind what was reached.
    commits: Option<CommitReader>,
    log: Option<Box<dyn LogReader>>,
    /// Where the reader of the log stands; commits that are not looked at are not read.
    read_to: u64,
    /// Behind the last commit that was looked at or passed over.
    pub reached: u64,
    id: Vec<u8>,
}

impl Look {
    /// Begins with what comes next.
    pub fn begin(engine: &Engine) -> Look {
        let reached = engine.commits().end().offset;
        Look { engine: engine.clone(), commits: None, log: None, read_to: 0, reached, id: Vec::new() }
    }

    pub fn next(&mut self) -> Result<Option<Commit>, Stop> {
        if self.commits.is_none() {
            self.commits = self.engine.commits().find(self.reached)?.map(|(_, reader)| reader);
        }
        self.commits.as_mut().map_or(Ok(None), |commits| Ok(commits.read()?))
    }

    /// Counts the entries of the commit that was read last, if they are to be counted.
    pub fn count(&mut self, commit: &Commit, detector: &mut Detector) -> Result<(), Stop> {
        let (from, to) = (commit.from.offset.max(self.reached), commit.to.offset);
        self.reached = to;
        let records = to.saturating_sub(from);
        if records == 0 || !detector.enter(from, records) {
            return Ok(());
        }
        match self.read(commit, from, detector) {
            // Nothing is held for this: the log was faster.
            Err(Stop::Log(LogError::Trimmed { .. })) => {
                self.log = None;
                detector.missed(records);
                Ok(())
            }
            read => read,
        }
    }

    fn read(&mut self, commit: &Commit, from: u64, detector: &mut Detector) -> Result<(), Stop> {
        let mut log = match self.log.take().filter(|_| self.read_to == from) {
            Some(log) => log,
            None => self.engine.log().reader(commit.from)?,
        };
        let (declarations, hasher) = (self.engine.declarations(), self.engine.hasher());
        let mut counting = Counting { commit, declarations: &declarations, hasher, id: &mut self.id, detector };
        let mut at = from;
        while at < commit.to.offset {
            let Some(batch) = log.next()? else { return Err(Stop::LogEnds { at, to: commit.to.offset }) };
            if batch.end_offset() <= at {
                continue; // Reading begins with a whole batch, or before.
            }
            at = batch.end_offset();
            if commit.is_void(batch.position.offset) {
                continue;
            }
            let mut bytes = batch.records;
            Head::take(&mut bytes)?;
            for index in 0..u64::from(batch.count) {
                counting.record(batch.position.offset + index, &Record::decode(&mut bytes)?);
            }
        }
        (self.log, self.read_to) = (Some(log), at);
        Ok(())
    }
}

/// One commit and what its records are counted with.
struct Counting<'a> {
    commit: &'a Commit,
    declarations: &'a Declarations,
    hasher: CellHasher,
    id: &'a mut Vec<u8>,
    detector: &'a mut Detector,
}

impl<'a> Counting<'a> {
    fn record(&mut self, offset: u64, record: &Record<'_>) {
        match record {
            Record::Event(event) => {
                let (_, exceptions) = self.commit.exceptions_of(offset);
                let listeners = self.declarations.listeners(&event.event_type).iter();
                // Probes are in nobody's numbers.
                for listener in listeners.filter(|listener| !self.declarations.is_probe(listener.counter)) {
                    let name = self.declarations.counter(listener.counter).name.as_bytes();
                    let is_exception = exceptions.iter().any(|exception| *exception.counter == *name);
                    // What cannot have an id was rejected.
                    if !is_exception && self.declarations.entry_id(listener.counter, event, self.id).is_ok() {
                        self.detector.count(self.hasher.key(self.id), self.id, event.delta);
                    }
                }
            }
            Record::Add { name, delta } => self.named(name, delta.unsigned_abs()),
            Record::AddMany { name, deltas } => {
                let amount = deltas.iter().fold(0, |sum: u64, delta| sum.saturating_add(delta.unsigned_abs()));
                self.named(name, amount);
            }
            Record::AddOnce { name, delta, .. } if self.commit.exceptions_of(offset).1.is_empty() => {
                self.named(name, delta.unsigned_abs());
            }
            _ => {}
        }
    }

    /// As everywhere where others follow, only database 0 is told of.
    fn named(&mut self, name: &[u8], amount: u64) {
        if Space::split(name).0 == Space::MAIN {
            self.detector.count_many(self.hasher.key(name), name, amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::anomaly::WARM_UP_MINUTES;
    use tally_core::commit::{Audit, Digest};
    use tally_core::counter::Jumps;
    use tally_core::counter::probes::PROBE;
    use tally_core::event::Event;
    use tally_core::position::Position;

    const YAML: &str = "
counters: [{counterName: bills, mode: persistent, rules: [{on: paid, op: increment}]}]
probes: {every: 1s}
";

    fn commit() -> Commit {
        Commit {
            from: Position::default(),
            to: Position::default(),
            log_time_ms: 0,
            generation: 0,
            exceptions: Vec::new(),
            corrections: Vec::new(),
            rules: 0,
            voids: Vec::new(),
            audit: Audit::default(),
            digest: Digest::default(),
            deltas: None,
        }
    }

    #[test]
    fn what_jumps_is_told_and_probes_never_do() {
        let (declarations, commit) = (Declarations::parse(YAML).unwrap(), commit());
        let mut detector = Detector::new(Jumps { factor: 2, least: 1 });
        (0..WARM_UP_MINUTES).for_each(|_| drop(detector.end_minute()));
        detector.enter(0, 2);
        let (hasher, id) = (CellHasher::new(1), &mut Vec::new());
        let mut counting =
            Counting { commit: &commit, declarations: &declarations, hasher, id, detector: &mut detector };
        for event_type in ["paid", PROBE] {
            let event = Event { delta: 100, ..Event::new(event_type, 0) };
            counting.record(0, &Record::Event(event));
        }
        let jumps = detector.end_minute().jumps;
        let told: Vec<_> = jumps.iter().map(|jump| String::from_utf8_lossy(&jump.id)).collect();
        assert_eq!(told, ["bills"]);
    }
}
