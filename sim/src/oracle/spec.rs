//! The configurations that worlds run under: the text for Tally, and what it means in the oracle's own words.

use super::Happening;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Simple,
    /// Each (session, seq) once within the current and the previous window.
    Display {
        window_ms: u64,
        lateness: Option<Lateness>,
    },
    /// One state per user and video.
    Transition,
    /// Each event id once.
    Persistent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    pub allowed_ms: u64,
    pub corrected_ms: u64,
    pub every_ms: u64,
    pub restated_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Counter {
    pub name: &'static str,
    pub mode: Mode,
    /// The dimension that is the key.
    pub by: Option<&'static str>,
    /// Kinds of events that feed it, and whether they count up.
    pub on: &'static [(&'static str, bool)],
}

impl Counter {
    /// The key that an event counts for; `None` if it does not say.
    pub fn key(&self, event: &Happening) -> Option<String> {
        let value = match self.by {
            None => return Some(self.name.to_owned()),
            Some("video") => event.video.clone()?,
            Some("country") => event.country.clone(),
            Some("session") => event.session.clone(),
            Some(other) => unreachable!("no counter is by {other}"),
        };
        Some(format!("{}:{value}", self.name))
    }

    /// What it tells events apart by. Counters with the same are judged together.
    pub fn group(&self) -> String {
        match self.mode {
            Mode::Simple => format!("the key of {}", self.name),
            Mode::Display { .. } => "session".to_owned(),
            Mode::Transition => "user and video".to_owned(),
            Mode::Persistent => "event id".to_owned(),
        }
    }

    /// Whether events of a kind feed it, and upwards.
    pub fn listens(&self, kind: &str) -> Option<bool> {
        self.on.iter().find(|(on, _)| *on == kind).map(|(_, up)| *up)
    }
}

#[derive(Clone, Debug)]
pub struct Spec {
    pub counters: Vec<Counter>,
}

/// The versions of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Config {
    First,
    /// Views feed a counter more, of a group of its own, and one more of the same group.
    Second,
}

pub const WINDOW_MS: u64 = 2_000;
pub const LATE: Lateness = Lateness { allowed_ms: 1_000, corrected_ms: 60_000, every_ms: 1_000, restated_ms: 60_000 };

impl Config {
    pub fn yaml(self) -> String {
        let late = "lateness: {allowed: 1s, corrected: 1m, every: 1s, restated: 1m}";
        let dedup = "dedup: {by: [session, seq], window: 2s}";
        let mut yaml = format!(
            "counters:
  - {{counterName: plays, mode: simple, dimensions: [video], rules: [{{on: play, op: increment}}, {{on: mixed, op: increment}}]}}
  - {{counterName: views, mode: display, dimensions: [video], {dedup}, {late}, rules: [{{on: view, op: increment}}]}}
  - {{counterName: reach, mode: display, {dedup}, rules: [{{on: view, op: increment}}]}}
  - {{counterName: likes, mode: transition, dimensions: [video], entity: [user, video], rules: [{{on: like, op: increment}}, {{on: unlike, op: decrement}}, {{on: mixed, op: increment}}]}}
  - {{counterName: fans, mode: transition, dimensions: [country], entity: [user, video], rules: [{{on: like, op: increment}}, {{on: unlike, op: decrement}}]}}
  - {{counterName: sales, mode: persistent, dimensions: [video], rules: [{{on: sale, op: increment}}, {{on: mixed, op: increment}}]}}
  - {{counterName: spend, mode: persistent, dimensions: [country], rules: [{{on: sale, op: increment}}]}}
"
        );
        if self == Config::Second {
            yaml +=
                "  - {counterName: starts, mode: simple, dimensions: [country], rules: [{on: view, op: increment}]}\n";
            yaml +=
                &format!("  - {{counterName: calls, mode: display, {dedup}, rules: [{{on: view, op: increment}}]}}\n");
        }
        yaml
    }

    pub fn spec(self) -> Spec {
        let counter = |name, mode, by, on| Counter { name, mode, by, on };
        let (video, country) = (Some("video"), Some("country"));
        let display = |lateness| Mode::Display { window_ms: WINDOW_MS, lateness };
        let mut counters = vec![
            counter("plays", Mode::Simple, video, &[("play", true), ("mixed", true)]),
            counter("views", display(Some(LATE)), video, &[("view", true)]),
            counter("reach", display(None), None, &[("view", true)]),
            counter("likes", Mode::Transition, video, &[("like", true), ("unlike", false), ("mixed", true)]),
            counter("fans", Mode::Transition, country, &[("like", true), ("unlike", false)]),
            counter("sales", Mode::Persistent, video, &[("sale", true), ("mixed", true)]),
            counter("spend", Mode::Persistent, country, &[("sale", true)]),
        ];
        if self == Config::Second {
            counters.push(counter("starts", Mode::Simple, country, &[("view", true)]));
            counters.push(counter("calls", display(None), None, &[("view", true)]));
        }
        Spec { counters }
    }
}

impl Spec {
    /// The name of the declared counter that a key is of.
    pub fn counter_of(&self, key: &str) -> Option<&'static str> {
        let name = key.split(':').next().unwrap_or(key);
        self.counters.iter().map(|counter| counter.name).find(|known| *known == name)
    }

    /// The groups that an event goes to.
    pub fn groups(&self, kind: &str) -> Vec<String> {
        let mut groups: Vec<String> =
            self.counters.iter().filter(|counter| counter.listens(kind).is_some()).map(Counter::group).collect();
        groups.sort();
        groups.dedup();
        groups
    }
}
