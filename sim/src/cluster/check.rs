//! What has to hold when everything has converged.

use super::{FATES, VALUES, World};
use crate::oracle::worth::Sums;
use crate::oracle::{Boxes, Config};
use std::collections::BTreeMap;
use tally_core::ledger::BoxKind;

impl World {
    /// Holds everything against the oracle. Nothing fails any more, and everything was read.
    pub fn check(&mut self) {
        self.referee.check_promises();
        self.check_boxes();
        self.check_values();
        self.check_sums();
        self.check_commits();
        self.check_view();
        self.check_followed();
    }

    fn check_boxes(&mut self) {
        let (mut told, mut right) = (BTreeMap::<String, Boxes>::new(), BTreeMap::<String, Boxes>::new());
        let (mut waiting, mut voids, mut alarms) = (0, 0, 0);
        for partition in 0..FATES as usize {
            let Some(process) = &self.fates[partition].active else { unreachable!("everything runs in the end") };
            for balance in process.owner.balances() {
                let of = |kind| balance.boxes.get(kind);
                told.entry(balance.name.to_string()).or_default().add(&Boxes {
                    received: balance.received as i64,
                    counted: of(BoxKind::Counted),
                    duplicate: of(BoxKind::Duplicate),
                    conflict: of(BoxKind::Conflict),
                    rejected: of(BoxKind::Rejected),
                    ignored: of(BoxKind::Ignored),
                    late: of(BoxKind::Late),
                });
            }
            let (void, alarm) = process.owner.voids();
            (waiting, voids, alarms) = (waiting + process.owner.waiting(), voids + void, alarms + alarm);
            for (name, boxes) in &self.referee.judges[partition].boxes {
                right.entry((*name).to_owned()).or_default().add(boxes);
            }
        }
        told.retain(|_, boxes| boxes.received > 0);
        if told != right {
            return self.referee.fail(format!("boxes are {told:?}, and {right:?} is right"));
        }
        if let Some((name, boxes)) = told.iter().find(|(_, boxes)| !boxes.adds_up()) {
            return self.referee.fail(format!("boxes of {name} do not add up: {boxes:?}"));
        }
        let late: i64 = told.values().map(|boxes| boxes.late).sum();
        if late != waiting as i64 {
            self.referee.fail(format!("{waiting} entries wait, and {late} are late"));
        }
        if alarms > 0 {
            self.referee.fail(format!("{alarms} of {voids} void batches were no repeats"));
        }
    }

    fn check_values(&mut self) {
        for partition in 0..VALUES as usize {
            let Some(process) = &mut self.values[partition].active else { unreachable!("everything runs in the end") };
            let right: Vec<(String, Option<i64>, u64)> =
                self.referee.worths[partition].now().map(|(key, value, at)| (key.to_owned(), value, at)).collect();
            for (key, value, generation) in &right {
                let row = process.owner.row(key.as_bytes(), &process.chain.rows);
                if (row.value, row.generation) != (*value, *generation) {
                    let right = (value, generation);
                    return self.referee.fail(format!("{key} is {row:?}, and {right:?} is right"));
                }
            }
            let known: Vec<&str> = right.iter().map(|(key, ..)| key.as_str()).collect();
            let strange = process.owner.ids().find(|id| !known.iter().any(|key| key.as_bytes() == *id));
            // Somebody may have named what was not there.
            let strange =
                strange.map(Box::<[u8]>::from).filter(|id| process.owner.row(id, &process.chain.rows).value.is_some());
            if let Some(id) = strange {
                return self
                    .referee
                    .fail(format!("{} counts, and nobody has counted it", String::from_utf8_lossy(&id)));
            }
            let parked = self.referee.judges.iter().flat_map(|judge| &judge.parked);
            let mut waiting = BTreeMap::<&str, i64>::new();
            for ((key, _), parked) in parked.filter(|((key, _), _)| known.contains(&key.as_str())) {
                *waiting.entry(key).or_default() += parked.entries;
            }
            let wrong = waiting.iter().find(|(key, entries)| process.owner.waiting(key.as_bytes()) as i64 != **entries);
            if let Some((key, entries)) = wrong {
                return self.referee.fail(format!("{entries} entries wait for {key}, and its owner knows of others"));
            }
        }
    }

    /// What counted, what was adjusted and what was restored are known apart, for each counter in each partition.
    fn check_sums(&mut self) {
        let spec = Config::Second.spec();
        for partition in 0..VALUES as usize {
            let Some(process) = &self.values[partition].active else { unreachable!("everything runs in the end") };
            let told = |counter: &str| process.owner.sums(counter).unwrap_or_default();
            let is_wrong = |(counter, right): &(&str, Sums)| {
                let told = told(counter);
                let right = [right.counted, right.adjusted, right.restored].map(i128::from);
                [told.counted, told.adjusted, told.restored] != right
            };
            let wrong = {
                let mut all = self.referee.worths[partition].sums();
                all.find(|one| spec.counter_of(one.0).is_some() && is_wrong(one))
            };
            let wrong = wrong.map(|(counter, right)| {
                format!("{counter} adds up to {:?} in {partition}, not to {right:?}", told(counter))
            });
            if let Some(failure) = wrong {
                return self.referee.fail(failure);
            }
        }
    }

    /// Commits follow each other without a gap up to where everything was read, and say of every entry what became of it.
    fn check_commits(&mut self) {
        let mut told = Boxes::default();
        for partition in 0..FATES {
            let mut end = 0;
            for commit in self.referee.chain(partition) {
                end = commit.to.offset;
                for exception in &commit.exceptions {
                    *match exception.fate {
                        BoxKind::Duplicate => &mut told.duplicate,
                        BoxKind::Conflict => &mut told.conflict,
                        BoxKind::Rejected => &mut told.rejected,
                        BoxKind::Ignored => &mut told.ignored,
                        BoxKind::Late => &mut told.late,
                        BoxKind::Counted => &mut told.counted,
                    } += 1;
                }
            }
            let read = self.fates[partition as usize].active.as_ref().map_or(0, |process| process.owner.emitted_to());
            if end != read {
                return self.referee.fail(format!("commits of {partition} end at {end}, and slots at {read}"));
            }
        }
        // The last batches are of slots that nobody has closed: they are empty.
        let mut right = Boxes::default();
        self.referee.judges.iter().for_each(|judge| right.add(&judge.exceptions));
        if told != right {
            self.referee.fail(format!("commits tell of {told:?}, and {right:?} is right"));
        }
    }
}
