//! Counter declarations: which counters there are, what they count by and which events feed them.
//!
//! Declarations are written in YAML ([`Declarations::parse`]) and never change: a new version is a new value, carried
//! by a record of the log, so that each event is interpreted under the version at its position. From here come the
//! answers to what the rest asks: which counters does an event feed ([`Stager`]), what does an id mean
//! ([`Declarations::resolve`]), what is counter number n ([`Declarations::counter`]), and may these declarations follow
//! earlier ones ([`Declarations::check_change`]).

mod change;
pub(crate) mod declare;
pub mod duration;
mod error;
mod meaning;
mod pattern;
pub(crate) mod plan;
pub mod probes;
mod resolve;
pub mod rollup;
pub(crate) mod schema;
mod settings;
pub(crate) mod stage;
mod syntax;
mod target;
pub(crate) mod yaml;

use crate::head::Group;
use crate::values::KeptRollup;
use hashbrown::HashMap;
use resolve::Beginnings;
use std::collections::BTreeMap;

pub use crate::contract::{Contract, DedupSettings, Display, Mode, Persistent, Simple, Transition};
pub use crate::measure::Measure;
pub use change::{DeclaredChanges, listed};
pub use error::{ConfigError, ConfigErrors};
pub use meaning::Meaning;
pub use pattern::{BadPattern, Pattern};
pub use plan::Plan;
pub use probes::Probes;
pub use resolve::IdError;
pub use rollup::{Retention, Rollup, Rollups, Unit, Zone};
pub use schema::schema;
pub use settings::{Anomalies, Archived, BackupSchedule, Clocks, Durability, Field, Idempotency, Jumps, Lateness};
pub use stage::{Rejection, Staged, Stager};
pub use target::{Declared, Forbidden, Intent, Reach, Target};

/// What a rule does with an event's delta. The numbers stand in [`Meaning`]s on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Increment = 0,
    Decrement = 1,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Direction::Increment => "increment",
            Direction::Decrement => "decrement",
        }
    }

    /// The change that `delta` makes; `None` if it does not fit into 64 bits.
    #[inline]
    pub fn apply(self, delta: i64) -> Option<i64> {
        match self {
            Direction::Increment => Some(delta),
            Direction::Decrement => delta.checked_neg(),
        }
    }
}

/// An event type that feeds a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub on: Box<str>,
    pub op: Direction,
}

/// One declared counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub name: Box<str>,
    /// How the fate of an entry is decided.
    pub contract: Contract,
    /// What the key keeps.
    pub measure: Measure,
    /// The dimensions whose values are the key, in order; without any the counter is a single cell.
    pub dimensions: Box<[Box<str>]>,
    pub rules: Vec<Rule>,
    pub description: Option<Box<str>>,
    /// Whether reads show 0 for a sum below it. The sum itself is kept.
    pub floor_at_zero: bool,
    /// `None`: entries count whenever they come.
    pub lateness: Option<Lateness>,
    /// `None`: as the node. Some contracts need one.
    pub durability: Option<Durability>,
    /// Whether its events are kept in the archive.
    pub is_archived: bool,
    /// Into which parts the values of its keys are split.
    pub rollups: Rollups,
}

impl Counter {
    #[inline]
    pub fn mode(&self) -> Mode {
        self.contract.mode()
    }

    /// Whether it has a key; if not, it is a single cell.
    pub fn has_keys(&self) -> bool {
        !self.dimensions.is_empty()
    }

    /// Every dimension of events that it goes by: key, identity and roll-ups. Some may come more than once.
    pub fn named_dimensions(&self) -> impl Iterator<Item = &str> {
        let identity = self.contract.identity().unwrap_or_default().iter().filter_map(|field| match field {
            Field::Dimension(name) => Some(name),
            _ => None,
        });
        let rolled = self.rollups.all.iter().flat_map(|rollup| &rollup.dimensions);
        self.dimensions.iter().chain(identity).chain(rolled).map(|name| &**name)
    }

    /// What reads show of a sum.
    #[inline]
    pub fn shown(&self, sum: i64) -> i64 {
        target::floored(self.floor_at_zero, sum)
    }
}

/// One entry that events of a type make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Which counter, as an index into [`Declarations::counters`].
    pub counter: u16,
    pub op: Direction,
}

/// All declared counters of a node, of one version. The default declares nothing.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    version: u64,
    yaml: Box<str>,
    /// In the order of the file; behind them what counts probes, if they are sent.
    counters: Vec<Counter>,
    probes: Option<Probes>,
    probe_counter: Option<u16>,
    idempotency: Idempotency,
    clocks: Clocks,
    archived: Archived,
    backups: Option<BackupSchedule>,
    anomalies: Anomalies,
    /// Counters that were declared once and are not any more. Their numbers are behind those of the declared ones.
    removed: Vec<Counter>,
    by_name: HashMap<Box<[u8]>, u16>,
    beginnings: Beginnings,
    /// The identity group of each declared counter.
    groups: Vec<Group>,
    /// By the types of events that fed them.
    removed_by_event_type: HashMap<Box<str>, Vec<u16>>,
    by_event_type: HashMap<Box<str>, Vec<Listener>>,
    /// The roll-ups that counters have, and since when.
    rollups: BTreeMap<Box<str>, Vec<KeptRollup>>,
}

impl Declarations {
    /// Reads a configuration. Its version is 0 until [`Self::with_version`] says otherwise.
    pub fn parse(yaml: &str) -> Result<Declarations, ConfigErrors> {
        let configuration = declare::configuration(yaml)?;
        let mut declarations = Declarations {
            yaml: yaml.into(),
            idempotency: configuration.idempotency,
            clocks: configuration.clocks,
            archived: configuration.archived,
            backups: configuration.backups,
            probes: configuration.probes,
            anomalies: configuration.anomalies,
            ..Declarations::default()
        };
        for counter in configuration.counters {
            declarations.add(counter);
        }
        if declarations.probes.is_some() {
            declarations.probe_counter = Some(declarations.counters.len() as u16);
            declarations.add(probes::counter());
        }
        Ok(declarations)
    }

    fn add(&mut self, counter: Counter) {
        let index = u16::try_from(self.counters.len()).expect("COUNTERS_MAX is below 2^16");
        self.name(&counter.name, index);
        for rule in &counter.rules {
            self.by_event_type.entry(rule.on.clone()).or_default().push(Listener { counter: index, op: rule.op });
        }
        let first = self.counters.iter().position(|other| other.contract.shares_identity(&counter.contract));
        self.groups.push(Group::of_first(first.map_or(index, |first| first as u16)));
        self.counters.push(counter);
    }

    fn name(&mut self, name: &str, index: u16) {
        let name = probes::id_name(name);
        self.beginnings.add(name);
        self.by_name.insert(name.into(), index);
    }

    /// The same declarations beside counters that were declared before and are not any more: their names stay theirs.
    pub fn with_removed<'n>(mut self, removed: impl Iterator<Item = (&'n str, &'n Meaning)>) -> Declarations {
        for (name, meaning) in removed {
            let index = u16::try_from(self.counters.len() + self.removed.len());
            let index = index.expect("NAMES_EVER_MAX is below 2^16");
            self.name(name, index);
            for rule in &meaning.rules {
                self.removed_by_event_type.entry(rule.on.clone()).or_default().push(index);
            }
            self.removed.push(meaning.counter(name));
        }
        self
    }

    /// The same declarations with the roll-ups that counters have by now.
    pub(crate) fn with_rollups(mut self, rollups: BTreeMap<Box<str>, Vec<KeptRollup>>) -> Declarations {
        self.rollups = rollups;
        self
    }

    /// The roll-ups that a counter has, where declarations are in force.
    pub fn rollups_of(&self, name: &str) -> &[KeptRollup] {
        self.rollups.get(name).map_or(&[], Vec::as_slice)
    }

    /// The same declarations under the version that the log knows them by.
    pub fn with_version(mut self, version: u64) -> Declarations {
        self.version = version;
        self
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// The text that was parsed.
    pub fn yaml(&self) -> &str {
        &self.yaml
    }

    /// Whether there is no declared counter and never was one.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether the text says nothing at all.
    pub fn is_blank(&self) -> bool {
        let says_nothing = |line: &str| line.is_empty() || line.starts_with('#') || line == "---";
        self.yaml.lines().all(|line| says_nothing(line.trim()))
    }

    /// Those that somebody has declared, in the order of the file.
    pub fn counters(&self) -> &[Counter] {
        &self.counters[..self.probe_counter.map_or(self.counters.len(), usize::from)]
    }

    /// All that entries may be for, by their numbers: what counts probes is one of them.
    pub(crate) fn all_counters(&self) -> &[Counter] {
        &self.counters
    }

    pub fn idempotency(&self) -> Idempotency {
        self.idempotency
    }

    pub fn clocks(&self) -> Clocks {
        self.clocks
    }

    /// Whether events are kept in the archive: not without a declared counter, whatever else is said.
    pub fn archived(&self) -> Archived {
        if self.counters().is_empty() { Archived::No } else { self.archived }
    }

    /// When backups are taken by themselves, if they are.
    pub fn backups(&self) -> Option<BackupSchedule> {
        self.backups
    }

    /// Which rates of keys are anomalies.
    pub fn anomalies(&self) -> Anomalies {
        self.anomalies
    }

    /// Whether events of a type are kept in it: not if all counters that they feed can do without.
    pub fn is_archived(&self, event_type: &str) -> bool {
        let listeners = self.listeners(event_type);
        listeners.is_empty() || listeners.iter().any(|listener| self.counter(listener.counter).is_archived)
    }

    /// Counter `index`, as operations and [`Declared::Now`] name it.
    pub fn counter(&self, index: u16) -> &Counter {
        let index = usize::from(index);
        self.counters.get(index).unwrap_or_else(|| &self.removed[index - self.counters.len()])
    }

    /// Whether counter `index` was declared once and is not any more: it can be read and corrected, and counts nothing.
    pub fn is_removed(&self, index: u16) -> bool {
        usize::from(index) >= self.counters.len()
    }

    /// The counters that events of a type fed when they were still declared.
    pub fn removed_listeners(&self, event_type: &str) -> impl Iterator<Item = &Counter> {
        let indices = self.removed_by_event_type.get(event_type).into_iter().flatten();
        indices.map(|index| self.counter(*index))
    }

    pub fn find(&self, name: &[u8]) -> Option<u16> {
        self.by_name.get(name).copied()
    }

    /// The counter that an id is a cell of, declared or not any more; `None` if it is ad hoc.
    pub fn counter_of(&self, id: &[u8]) -> Option<&Counter> {
        self.declared(id).counter().map(|index| self.counter(index))
    }

    /// What reads show of the sum of a counter.
    pub fn shown(&self, id: &[u8], sum: i64) -> i64 {
        // A floor is never above zero.
        if sum >= 0 {
            return sum;
        }
        self.counter_of(id).map_or(sum, |counter| counter.shown(sum))
    }

    /// The identity group of a declared counter: a copy of an event that was routed by it is judged for the counters of this
    /// group alone.
    pub fn group_of(&self, index: u16) -> Group {
        self.groups[usize::from(index)]
    }

    pub fn has_group(&self, group: Group) -> bool {
        group == Group::ALL || self.groups.contains(&group)
    }

    /// The types of events that feed a counter, in the order of the file; one that feeds several comes again.
    pub fn event_types(&self) -> impl Iterator<Item = &str> {
        self.counters().iter().flat_map(|counter| &counter.rules).map(|rule| &*rule.on)
    }

    /// The counters that events of a type feed, in the order of the file.
    #[inline]
    pub fn listeners(&self, event_type: &str) -> &[Listener] {
        self.by_event_type.get(event_type).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests;
