//! Whoever follows the changes of values, and the fates of entries, has all of them.

use super::contracts::{Bench, event, hasher};
use super::*;
use crate::commit::{Deltas, Exception, Gathering, Slot, Slots, Subject, exceptions};
use crate::head::{Head, RULES};
use crate::ledger::BoxKind;
use crate::memory::cell::ValueChanges;
use crate::position::Position;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a consumer outside makes of deltas.
#[derive(Default)]
struct Folded(BTreeMap<Vec<u8>, i64>);

impl Folded {
    fn fold(&mut self, deltas: Deltas) {
        assert_eq!(deltas.unnamed, 0);
        if deltas.flushed {
            self.0.clear();
        }
        for counter in deltas.counters.iter() {
            let before = self.0.get(counter.id).copied().unwrap_or(0);
            assert_eq!(i128::from(before) + counter.delta, counter.value.unwrap_or(0).into(), "{counter:?}");
            match counter.value {
                Some(value) => drop(self.0.insert(counter.id.into(), value)),
                None => drop(self.0.remove(counter.id)),
            }
        }
    }
}

/// A commit that nothing was said of.
fn slot() -> Slot {
    let mut slots = Slots::new(Position::default());
    slots.enter(Position::default(), 0, false, &Arc::default());
    slots.close().expect("a batch came")
}

fn all_ids() -> impl Iterator<Item = Vec<u8>> {
    let named = ["total", "late"].map(|id| id.as_bytes().to_vec());
    let keyed = |n| ["hits", "likes", "paid"].map(|name| format!("{name}:p{n}").into_bytes());
    (0..6).map(id).chain((0..6).flat_map(keyed)).chain(named)
}

/// Boxes of all declared counters, but for what was simply counted.
fn boxes(state: &Machine) -> BTreeMap<(usize, &'static str), i64> {
    let fates = BoxKind::ALL.into_iter().filter(|kind| *kind != BoxKind::Counted);
    let declared = state.declarations().counters().iter().enumerate();
    declared
        .flat_map(|(index, counter)| {
            let boxes = state.balance(&counter.name).expect("it is declared").boxes;
            fates.clone().map(move |kind| ((index, kind.name()), boxes.get(kind)))
        })
        .filter(|(_, entries)| *entries != 0)
        .collect()
}

fn tally(exceptions: &[Exception]) -> BTreeMap<(usize, &'static str), i64> {
    let mut told = BTreeMap::new();
    for exception in exceptions {
        if let Subject::Declared(index) = exception.counter {
            *told.entry((usize::from(index), exception.fate.name())).or_default() += 1;
        }
    }
    told
}

proptest! {
    #[test]
    fn who_folds_the_changes_of_all_batches_has_every_value_and_every_fate(
        batches in proptest::collection::vec((proptest::collection::vec(operation(), 1..8), 0u64..60), 1..12),
        per_commit in 1usize..4,
    ) {
        let mut state = state();
        state.values.table.follow(true);
        let (mut answers, mut submission) = (Vec::new(), Submission::default());
        let (mut folded, mut gathering, mut told) = (Folded::default(), Gathering::new(state.hasher()), slot());
        let (mut log_time_ms, mut offset) = (0, 0);
        for (n, (operations, pause)) in batches.into_iter().enumerate() {
            log_time_ms += pause;
            submission.clear();
            let mut stager = state.stager.clone();
            operations.into_iter().for_each(|operation| stage(operation)(&mut stager, &mut submission));
            // An event that nobody counts has no operation.
            submission.event(&crate::event::Event::new("nobody's", 0));
            let Submission { records, ops, stamps, .. } = &submission;
            let batch = Batch { head: None, first: 0, records, ops, stamps, log_time_ms, offset };
            state.apply(&batch, &mut answers);
            let (first, first_row) = (told.exceptions.len(), told.audit.rows().len());
            let headed = Batch { head: Some(Head { rules: RULES, ..Head::default() }), ..batch };
            exceptions(&headed, submission.record_count, &answers, &mut told);
            if !ops.iter().any(|op| op.kind == OpKind::Flush) {
                // What is told is what the audit has; a flush has forgotten that.
                let kept = state.fates.facts.duplicates.iter().filter(|row| row.offset == offset);
                let kept = kept.map(|row| (row.event_id.into_bytes(), row.first_seen_ms, row.conflict));
                let rows = told.audit.rows()[first_row..].iter();
                let rows = rows.map(|row| (row.event_id.to_vec(), row.first_seen_ms, row.conflict));
                prop_assert_eq!(rows.collect::<Vec<_>>(), kept.collect::<Vec<_>>());
            }
            for row in &told.audit.rows()[first_row..] {
                let mut rest = records.as_slice();
                let mut records = std::iter::from_fn(|| Record::decode(&mut rest).ok());
                let record = records.nth((row.offset - offset) as usize).expect("it is one of the batch");
                let is_of_it = matches!(&record, Record::Event(event) if event.event_id.as_deref().map(str::as_bytes) == Some(&row.event_id));
                prop_assert!(is_of_it, "{:?} is not of {:?}", row, record);
            }
            for exception in &told.exceptions[first..] {
                let mut rest = records.as_slice();
                let mut records = std::iter::from_fn(|| Record::decode(&mut rest).ok());
                let record = records.nth((exception.offset - offset) as usize).expect("it is one of the batch");
                prop_assert!(matches!(record, Record::Event(_) | Record::AddOnce { .. }), "{:?}", record);
            }
            let changes = state.values.table.take_changes().expect("we follow");
            gathering.add(&changes, records, ops, state.declarations());
            offset += u64::from(submission.record_count);
            if n % per_commit == 0 {
                folded.fold(gathering.finish());
                for id in all_ids() {
                    let value = state.values.table.get(state.hasher().key(&id));
                    prop_assert_eq!(folded.0.get(&id).copied(), value, "{}", id.escape_ascii());
                }
                prop_assert_eq!(folded.0.len() as u64, state.values.table.cells().len());
            }
        }
        prop_assert_eq!(tally(&told.exceptions), boxes(&state));
    }
}

/// Folds by cell.
fn fold(cells: &mut BTreeMap<CellKey, i64>, changes: ValueChanges) {
    for change in changes.changes {
        assert_eq!(cells.get(&change.cell).copied(), change.before);
        match change.after {
            Some(value) => cells.insert(change.cell, value),
            None => cells.remove(&change.cell),
        };
    }
}

#[test]
fn corrections_late_runs_and_moved_likes_are_followed() {
    let mut bench = Bench::new();
    bench.state.values.table.follow(true);
    let of: &[(&str, &str)] = &[("user", "u"), ("video", "v"), ("creator", "c")];
    let elsewhere: &[(&str, &str)] = &[("user", "u"), ("video", "v"), ("creator", "d")];
    bench.send(&[event("liked", "1", 100, of), event("viewed", "2", 100_000, of)]);
    bench.send(&[event("liked", "3", 200, elsewhere)]);
    bench.send(&[event("viewed", "4", 95_500, of)]);
    bench.run();
    let clear = bench.clear("fans:d");
    bench.revert(&clear);
    let mut cells = BTreeMap::new();
    let changes = bench.state.values.table.take_changes().expect("we follow");
    assert!(changes.named.contains(&(hasher().key(b"fans:c"), b"fans:c"[..].into())), "the record does not say it");
    fold(&mut cells, changes);
    for id in ["likes:v", "fans:c", "fans:d", "timely:v", "views:v"] {
        let value = bench.state.values.table.get(hasher().key(id.as_bytes()));
        assert_eq!(cells.get(&hasher().key(id.as_bytes())).copied(), value, "{id}");
    }
    assert_eq!((bench.value("fans:c"), bench.value("fans:d"), bench.value("timely:v")), (0, 1, 2));
}

#[test]
fn nothing_is_noted_while_nobody_follows() {
    let mut bench = Bench::new();
    bench.send(&[event("viewed", "2", 100_000, &[("video", "v")])]);
    assert_eq!(bench.state.values.table.take_changes(), None);
    bench.state.values.table.follow(true);
    assert_eq!(bench.state.values.table.take_changes(), Some(ValueChanges::default()), "only what comes from here on");
}
