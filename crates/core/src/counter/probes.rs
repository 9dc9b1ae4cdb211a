//! Probes: what is declared for them, which nobody else can declare, feed or see.
//!
//! A node that sends itself events of known outcome counts them like any other: a persistent counter, fed by one type of events. What is
//! declared follows from the configuration alone, so a replay judges probes as they were judged. The one cell of that counter is
//! in a space of its own ([`Space::PROBES`]), where no database stands: lists, sums, snapshots, deltas and keys, which look at the
//! space of their database, never meet it.

use super::{Contract, Counter, Declarations, Direction, Durability, Measure, Persistent, Rollups, Rule};
use crate::database::{SPACE_BYTES, Space};
use crate::event::EventError;
use crate::limits::{PROBE_ARCHIVED_MS, PROBE_EVERY_MS, PROBE_WITHIN_MS};

/// The name of the counter, and the type of the events that feed it.
pub const PROBE: &str = "$probe";

/// What stands before the key in ids of the counter, and has no key: so it is the id of its cell.
const PROBE_ID: [u8; SPACE_BYTES + PROBE.len()] = Space::PROBES.id_of(PROBE);

/// How often probes are sent, and after how long one is missing that has not got somewhere: a node has one such setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    pub every_ms: u64,
    /// Until it is acknowledged, applied and told.
    pub within_ms: u64,
    /// Until it can be read in the archive.
    pub archived_ms: u64,
}

impl Probes {
    pub const DEFAULT: Probes =
        Probes { every_ms: PROBE_EVERY_MS, within_ms: PROBE_WITHIN_MS, archived_ms: PROBE_ARCHIVED_MS };
}

/// What probes are counted by.
pub(super) fn counter() -> Counter {
    Counter {
        name: PROBE.into(),
        contract: Contract::Persistent(Persistent),
        measure: Measure::default(),
        dimensions: Box::default(),
        rules: vec![Rule { on: PROBE.into(), op: Direction::Increment }],
        description: None,
        floor_at_zero: false,
        lateness: None,
        durability: Some(Durability::Sync),
        // They have a table of their own.
        is_archived: false,
        rollups: Rollups::default(),
    }
}

impl Counter {
    /// Whether it counts probes, and is nobody's business.
    #[inline]
    pub fn is_probe(&self) -> bool {
        *self.name == *PROBE
    }

    /// What its ids begin with.
    #[inline]
    pub(crate) fn id_name(&self) -> &[u8] {
        id_name(&self.name)
    }
}

/// What the ids of a declared counter begin with, by its name.
#[inline]
pub(super) fn id_name(name: &str) -> &[u8] {
    if name == PROBE { &PROBE_ID } else { name.as_bytes() }
}

impl Declarations {
    /// `None`: none are sent.
    pub fn probes(&self) -> Option<Probes> {
        self.probes
    }

    /// Whether counter `index` counts probes, which is told nobody who follows or looks.
    #[inline]
    pub fn is_probe(&self, index: u16) -> bool {
        self.probe_counter == Some(index)
    }

    /// The counter of probes, if they are sent.
    pub fn probe_counter(&self) -> Option<u16> {
        self.probe_counter
    }

    /// The id of the only cell of that counter.
    pub fn probe_id() -> &'static [u8] {
        &PROBE_ID
    }
}

/// What is said to anybody else who sends an event of that type.
pub fn not_yours() -> EventError {
    EventError::value("type", PROBE, "is sent by the server alone, to see whether it counts; choose another type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Declared;
    use crate::id::CellHasher;

    const YAML: &str = "
counters: [{counterName: bills, mode: persistent, rules: [{on: paid, op: increment}]}]
probes: {every: 5s}
";

    #[test]
    fn the_cell_of_probes_is_pinned() {
        assert_eq!(Declarations::probe_id(), b"\xff\0\xff\xff\xff\xff\xff\xfe$probe");
        assert_eq!(Space::split(Declarations::probe_id()), (Space::PROBES, PROBE.as_bytes()));
    }

    #[test]
    fn probes_are_declared_by_their_setting_alone_and_are_in_no_list() {
        let with = Declarations::parse(YAML).unwrap();
        assert_eq!(with.probes(), Some(Probes { every_ms: 5_000, ..Probes::DEFAULT }));
        assert_eq!(with.counters().len(), 1);
        assert_eq!(with.probe_counter(), Some(1));
        assert_eq!(with.event_types().collect::<Vec<_>>(), ["paid"]);
        assert_eq!(with.listeners(PROBE).len(), 1);
        let without = Declarations::parse("counters: []").unwrap();
        assert_eq!((without.probes(), without.probe_counter()), (None, None));
        assert!(without.listeners(PROBE).is_empty());
    }

    #[test]
    fn nobody_finds_the_counter_of_probes_by_its_name() {
        let declarations = Declarations::parse(YAML).unwrap();
        assert_eq!(declarations.find(PROBE.as_bytes()), None);
        let target = declarations.resolve(&CellHasher::new(1), PROBE.as_bytes()).unwrap();
        assert!(target.is_ad_hoc() && *target.id == *PROBE.as_bytes());
        let of_database_0 = declarations.resolve(&CellHasher::new(1), Declarations::probe_id()).unwrap();
        assert!(of_database_0.is_ad_hoc());
        assert_ne!(*of_database_0.id, *Declarations::probe_id(), "a key is another id than it looks");
        assert_eq!(declarations.declared(Declarations::probe_id()), Declared::Now(1));
    }

    #[test]
    fn whoever_declares_what_is_reserved_is_told_where_it_stands() {
        let refused = |yaml: &str| Declarations::parse(yaml).unwrap_err().to_string();
        let named = refused("counters:\n  - counterName: $probe\n    mode: simple\n");
        assert!(
            named.contains("line 2, column 18") && named.contains("what the server counts its probes by"),
            "{named}"
        );
        let fed = refused("counters: [{counterName: a, mode: simple, rules: [{on: $probe, op: increment}]}]");
        assert!(fed.contains("line 1, column 56") && fed.contains("sent by the server alone"), "{fed}");
        let without = refused("probes: {within: 10s}");
        assert!(without.contains("line 1, column 9") && without.contains("needs the field \"every\""), "{without}");
        let often = refused("probes: {every: 10ms}");
        assert!(often.contains("line 1, column 17") && often.contains("from 1s to 1h"), "{often}");
    }

    #[test]
    fn probes_come_and_go_without_a_removal_that_has_to_be_named() {
        let with = Declarations::parse(YAML).unwrap();
        let without = Declarations::parse(YAML.split("probes").next().unwrap()).unwrap();
        assert_eq!(without.changes_since(&with), crate::counter::DeclaredChanges::default());
        assert_eq!(with.changes_since(&without), crate::counter::DeclaredChanges::default());
        let known = with.meanings().map(|(name, meaning)| (name.into(), meaning)).collect();
        without.check_change(&known).unwrap();
        with.check_change(&known).unwrap();
        let gone = with.counter(1).meaning();
        let after = without.with_removed([(PROBE, &gone)].into_iter());
        assert_eq!(after.declared(Declarations::probe_id()), Declared::Once(1));
        assert_eq!(after.find(PROBE.as_bytes()), None);
    }
}
