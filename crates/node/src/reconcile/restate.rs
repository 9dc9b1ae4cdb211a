//! Restatement: a range of time counted again from the archive, under the rules of its time or under others, beside what counters say.
//!
//! What it comes to is shown key by key and proposed as one correction. Without other rules that brings counters to what was counted, and
//! *restores*. With others it changes what is right, and *adjusts*: its deltas are the difference between two recounts, so what a
//! counter differs by from its own rules is left to reconciliation, which finds nothing new afterwards.

use super::compare::{sliced, widened};
use super::recount::{At, Era, Recount, Slices, Start, takes_back};
use super::report::{Compared, CounterReport, Difference};
use super::restated_before::UNDER_ANOTHER;
use super::scene::{Scene, first_number};
use super::{ReconcileError, Reconciler};
use crate::engine::CorrectionRequest;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tally_core::contract::Contract;
use tally_core::counter::{Counter, Declarations, Unit};
use tally_core::ledger::{Delta, Proposal, Purpose, Remedy};
use tally_core::limits::CORRECTION_DELTAS_MAX;
use tally_core::position::Position;

/// Who proposes what nobody says otherwise of.
const AUTHOR: &str = "restatement";

/// A restatement that somebody asks for.
#[derive(Clone, Debug)]
pub struct RestateWanted {
    pub range_ms: Range<u64>,
    /// Only this counter.
    pub counter: Option<String>,
    /// The configuration that events of the range are judged by; that of their time if it is left out.
    pub config: Option<String>,
    pub reason: Option<String>,
    pub author: Option<String>,
    pub apply: bool,
}

#[derive(Clone, Debug)]
pub struct Restatement {
    /// Where counters and events were seen.
    pub position: Position,
    pub at_ms: u64,
    pub range_ms: Range<u64>,
    pub purpose: Purpose,
    pub counters: Vec<CounterRestated>,
    /// The number of the proposal; `None` if nothing changes.
    pub proposal: Option<u64>,
    /// The generation that it made, if it was applied.
    pub generation: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct CounterRestated {
    pub counter: String,
    pub restated: Restated,
}

#[derive(Clone, Debug)]
pub enum Restated {
    /// Why not.
    Not(String),
    /// What changes.
    Keys {
        /// In which buckets; `None` for a counter that tells no time apart.
        buckets: Option<Unit>,
        keys: Vec<RestatedKey>,
    },
}

/// A key that changes, in a bucket of time if it has any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestatedKey {
    pub id: String,
    pub bucket_ms: Option<u64>,
    pub live: i64,
    pub delta: i64,
}

impl Restated {
    fn keys(&self) -> &[RestatedKey] {
        match self {
            Restated::Keys { keys, .. } => keys,
            Restated::Not(_) => &[],
        }
    }
}

impl Reconciler {
    pub(super) async fn restate(&self, wanted: &RestateWanted) -> Result<Arc<Restatement>, ReconcileError> {
        let (scene, mut restatement) = self.undisturbed(async |scene| self.restate_all(scene, wanted).await).await?;
        self.propose_restated(&mut restatement, wanted, scene.generation).await?;
        Ok(Arc::new(restatement))
    }

    async fn restate_all(&self, scene: &Scene, wanted: &RestateWanted) -> Result<Restatement, ReconcileError> {
        let rules = wanted.config.as_deref().map(|yaml| other_rules(scene, yaml)).transpose()?;
        let mut restatement = Restatement {
            position: scene.snapshot.position(),
            at_ms: scene.now_ms,
            range_ms: wanted.range_ms.clone(),
            purpose: if rules.is_some() { Purpose::Adjust } else { Purpose::Restore },
            counters: Vec::new(),
            proposal: None,
            generation: None,
        };
        let is_wanted = |counter: &&Counter| wanted.counter.as_ref().is_none_or(|name| **name == *counter.name);
        for counter in scene.declarations.counters().iter().filter(is_wanted) {
            let restated = self.restate_counter(scene, counter, rules.as_ref(), &wanted.range_ms).await?;
            restatement.counters.push(CounterRestated { counter: counter.name.to_string(), restated });
        }
        Ok(restatement)
    }

    async fn restate_counter(
        &self,
        scene: &Scene,
        counter: &Counter,
        rules: Option<&Era>,
        range_ms: &Range<u64>,
    ) -> Result<Restated, ReconcileError> {
        if let Some(why) = scene.cannot_compare(counter) {
            return Ok(Restated::Not(why));
        }
        let slices = scene.slices(counter, Some(range_ms));
        if let Some(why) = slices.as_ref().and_then(|slices| is_too_early(slices, range_ms)) {
            return Ok(Restated::Not(why));
        }
        match (rules, slices) {
            (None, None) => {
                let why = "it has no roll-up by time that tells what it came to in a range; tally reconcile compares all of it";
                Ok(Restated::Not(why.to_owned()))
            }
            (None, Some(slices)) => {
                let report = self.compare(scene, counter, Some(range_ms)).await?;
                self.restored(&report, slices.told())
            }
            (Some(rules), slices) => self.adjusted(scene, counter, rules, slices, range_ms).await,
        }
    }

    /// What brings the keys to what was counted.
    fn restored(&self, report: &CounterReport, unit: Unit) -> Result<Restated, ReconcileError> {
        if let Compared::With { has_more: true, .. } = report.compared {
            return Err(too_many(&report.counter, CORRECTION_DELTAS_MAX + 1));
        }
        let key = |it: &Difference| RestatedKey {
            id: it.id.clone(),
            bucket_ms: it.bucket_ms,
            live: it.live,
            delta: it.recount.saturating_sub(it.live),
        };
        let keys = match &report.compared {
            Compared::Not(why) | Compared::Failed(why) => return Ok(Restated::Not(why.clone())),
            Compared::With { differences, .. } => differences.iter().map(key).collect(),
        };
        Ok(Restated::Keys { buckets: Some(unit), keys })
    }

    /// What the events of the range come to under other rules, less what they came to.
    async fn adjusted(
        &self,
        scene: &Scene,
        counter: &Counter,
        rules: &Era,
        slices: Option<Slices>,
        range_ms: &Range<u64>,
    ) -> Result<Restated, ReconcileError> {
        let others = rules.declarations.counters().iter().find(|other| other.name == counter.name);
        let Some(other) = others else {
            return Ok(Restated::Not("the configuration does not have it".to_owned()));
        };
        let buckets = slices.as_ref().map(Slices::told);
        // What is in force now may have been in force for some of the events only.
        let is_same = |was: &Counter| other.rules == was.rules && other.contract == was.contract;
        let before = self.restated_before(scene, counter).await?;
        if before.is_empty() && scene.eras.iter().all(|era| era.counter(&counter.name).is_some_and(is_same)) {
            return Ok(Restated::Keys { buckets, keys: Vec::new() });
        }
        let unclear = || before.is_unclear(range_ms, slices.is_some());
        if let Some(why) = behind_a_base(scene, [counter, other], range_ms).or_else(unclear) {
            return Ok(Restated::Not(why));
        }
        let recount = scene.recount(counter);
        let under = Recount { counter: other, eras: std::slice::from_ref(rules), ..recount };
        let done = before.done(&recount, slices.as_ref().map(Slices::at), range_ms);
        let statement = under.restated(&recount, slices.as_ref(), range_ms, done);
        let found = self.ask(scene, statement.clone()).await?;
        if found.is_truncated {
            let all = self.ask(scene, format!("SELECT count(*) FROM ({statement}) AS changed")).await?;
            return Err(too_many(&counter.name, first_number(&all) as usize));
        }
        // They are told as live and delta.
        let key = |Difference { id, bucket_ms, live, recount: delta }| RestatedKey {
            id,
            bucket_ms: bucket_ms.filter(|_| buckets.is_some()),
            live,
            delta,
        };
        Ok(Restated::Keys { buckets, keys: sliced(&found).into_iter().map(key).collect() })
    }

    async fn propose_restated(
        &self,
        made: &mut Restatement,
        wanted: &RestateWanted,
        generation: u64,
    ) -> Result<(), ReconcileError> {
        let keys = || made.counters.iter().flat_map(|counter| counter.restated.keys());
        let changes = keys().count();
        if changes > CORRECTION_DELTAS_MAX {
            return Err(too_many("all counters", changes));
        }
        let delta =
            |key: &RestatedKey| Delta { id: key.id.clone().into_bytes(), bucket_ms: key.bucket_ms, delta: key.delta };
        let deltas: Vec<Delta> = keys().map(delta).collect();
        if deltas.is_empty() {
            return Ok(());
        }
        let author = wanted.author.clone().unwrap_or_else(|| AUTHOR.to_owned());
        // What was corrected since is not in what was seen.
        let (if_generation, purpose) = (Some(generation), made.purpose);
        let reason = reason_of(made, wanted.reason.as_deref());
        let proposal = Proposal { number: 0, reason, author: author.clone(), at_ms: 0, deltas, if_generation, purpose };
        let number = self.engine.propose(proposal, None).await?;
        made.proposal = Some(number);
        if wanted.apply {
            let remedy = Remedy::Apply { number, author, if_generation: None };
            made.generation = Some(self.engine.correct(CorrectionRequest { remedy, once: None }).await?.generation);
        }
        Ok(())
    }
}

/// Why a correction was made. One that adjusts always says what was counted again: that is how it is known later.
fn reason_of(made: &Restatement, reason: Option<&str>) -> String {
    let [from, to] = [made.range_ms.start, made.range_ms.end].map(shown);
    match (made.purpose, reason) {
        (Purpose::Adjust, reason) => {
            let reason = reason.map_or(String::new(), |reason| format!("{reason}: "));
            format!("{reason}{from} to {to} {UNDER_ANOTHER} {}", made.position)
        }
        (_, Some(reason)) => reason.to_owned(),
        (_, None) => format!("{from} to {to} was counted again at {}", made.position),
    }
}

impl Recount<'_> {
    /// Rows (`id`, `bucket`, `live`, `delta`): what keys are worth, and what this recount has more for events of a range than another one,
    /// without what was `done` of that before. Without buckets there is one row for each key.
    fn restated(
        &self,
        than: &Recount<'_>,
        slices: Option<&Slices>,
        range_ms: &Range<u64>,
        done: Option<String>,
    ) -> String {
        let (at, ms) = slices.map_or((At::Moment, range_ms), |slices| (slices.at(), &slices.ms));
        let more = self.by_the_rules_at(at);
        let less = than.counted_in_the_end_at(at);
        let live = match slices {
            Some(slices) => than.live_by(slices, slices.at()),
            // What was counted when is not told apart, so all of it is shown.
            None => format!("SELECT id, {} AS bucket, value FROM ({}) AS whole", ms.start, than.live()),
        };
        let done = done.map_or(String::new(), |done| {
            format!("\n      UNION ALL\n      SELECT id, bucket, 0 AS live, -value AS delta FROM ({done}) AS done")
        });
        let bucket = if slices.is_some() { "bucket" } else { "0" };
        format!(
            "SELECT id, bucket, live, delta FROM (
  SELECT id, bucket, sum(live) AS live, sum(delta) AS delta FROM (
    SELECT id, {bucket} AS bucket, live, delta FROM (
      SELECT id, bucket, value AS live, 0 AS delta FROM ({live}) AS live
      UNION ALL
      SELECT id, bucket, 0 AS live, value AS delta FROM ({more}) AS more
      UNION ALL
      SELECT id, bucket, 0 AS live, -value AS delta FROM ({less}) AS less{done}
    ) AS all_of_it WHERE bucket >= {from} AND bucket < {to}
  ) AS in_range WHERE {not_cleared} GROUP BY id, bucket
) AS compared WHERE delta <> 0 ORDER BY abs(delta) DESC, id, bucket",
            from = ms.start,
            to = ms.end,
            not_cleared = than.not_cleared(),
        )
    }
}

/// Other rules for counters that there are, as if they had always been in force.
fn other_rules(scene: &Scene, yaml: &str) -> Result<Era, ReconcileError> {
    let wrong = |error: &dyn std::fmt::Display| ReconcileError::Wrong(format!("config: {error}").into());
    let declarations = Declarations::parse(yaml).map_err(|error| wrong(&error))?;
    let known: BTreeMap<Box<str>, _> =
        scene.declarations.meanings().map(|(name, meaning)| (name.into(), meaning)).collect();
    declarations.check_change(&known).map_err(|error| wrong(&error))?;
    Ok(Era { versions: 0..=i64::MAX as u64, until: u64::MAX, declarations: Arc::new(declarations) })
}

/// Why a range that begins before what the archive has whole cannot be judged by other rules.
fn behind_a_base(scene: &Scene, counters: [&Counter; 2], range_ms: &Range<u64>) -> Option<String> {
    let (Start::Base(_), Some(base_ms)) = (scene.from, scene.base_ms) else { return None };
    if takes_back(counters[0]) {
        return Some(
            "the first events of its entities may be gone from the archive; with archive: {keep: forever} none are"
                .to_owned(),
        );
    }
    let window_ms = |counter: &&Counter| match &counter.contract {
        Contract::Display(display) => display.dedup.as_ref().map_or(0, |dedup| dedup.window_ms),
        _ => 0,
    };
    // What is a repeat of what is gone is not known.
    let from_ms = base_ms + 2 * counters.iter().map(window_ms).max().unwrap_or(0);
    let from = shown(from_ms);
    (range_ms.start < from_ms)
        .then(|| format!("events before {from} may be gone from the archive; begin there or later"))
}

/// Why a range cannot be restated as a whole, if it begins before buckets can be told apart.
fn is_too_early(slices: &Slices, range_ms: &Range<u64>) -> Option<String> {
    let wanted = widened(range_ms, slices.told(), &slices.zone);
    let from = shown(slices.ms.start);
    (slices.ms.start > wanted.start).then(|| format!("it tells time apart from {from} on; begin there or later"))
}

fn too_many(counter: &str, changes: usize) -> ReconcileError {
    ReconcileError::TooMany { counter: counter.into(), changes }
}

fn shown(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms as i64).unwrap_or_default()
}
