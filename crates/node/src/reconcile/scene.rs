//! What a recount looks at: counters and archive at the same position, and what was declared when.

use super::recount::{Era, Start, WIDE_SUM, can_leave_a_key, text};
use super::{ReconcileError, Reconciler};
use crate::engine::{Refusal, Snapshot};
use crate::sql::{Answer, Asker, Question};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tally_core::contract::Contract;
use tally_core::counter::{Counter, Declarations};
use tally_core::limits::{CORRECTION_DELTAS_MAX, SQL_TIME_MS_MAX};
use tally_core::machine::Machine;
use tally_core::values::Sums;

pub struct Scene {
    pub snapshot: Arc<Snapshot>,
    /// What is known there beside rows.
    pub state: Machine,
    /// Those in force there.
    pub declarations: Arc<Declarations>,
    pub eras: Vec<Era>,
    pub from: Start,
    /// The log time of the base, if counting begins with one.
    pub base_ms: Option<u64>,
    /// Counters of which keys were cleared.
    pub cleared: BTreeSet<String>,
    /// The newest correction there.
    pub generation: u64,
    /// What the keys of each counter have to add up to, where that is known.
    sums: BTreeMap<String, Sums>,
    /// Something may have been counted before anything was declared.
    begins_undeclared: bool,
    pub now_ms: u64,
}

impl Scene {
    /// Why a counter cannot be counted again, if so.
    pub fn cannot_compare(&self, counter: &Counter) -> Option<String> {
        cannot_recount(counter, &self.eras, self.from)
    }

    /// What the keys of a counter have to add up to by what was counted while it was declared, if it was not always.
    fn counted_while_declared(&self, counter: &Counter) -> Option<i128> {
        let mut eras = self.eras.iter().filter(|era| era.is_behind(self.from));
        let is_always = !self.begins_undeclared && eras.all(|era| era.counter(&counter.name).is_some());
        let sums = self.sums.get(&*counter.name).filter(|_| !is_always)?;
        Some(sums.counted + sums.corrected())
    }
}

/// Why the archive does not have what a counter should be worth, if so.
pub fn cannot_recount(counter: &Counter, eras: &[Era], from: Start) -> Option<String> {
    if matches!(counter.contract, Contract::Simple(_)) {
        return Some("it is written by its name as well, and such writes are not in the archive".to_owned());
    }
    if !counter.is_archived {
        return Some("its events are not archived: its archive is none".to_owned());
    }
    if matches!(from, Start::Base(_)) && can_leave_a_key(counter) {
        return Some("an entity that goes on or off takes away from the key that it was counted for, and for which one may be known by an event that is gone; name all dimensions of the key in its entity, or keep all events".to_owned());
    }
    let was_archived = |era: &Era| era.counter(&counter.name).is_none_or(|was| was.is_archived);
    (!eras.iter().filter(|era| era.is_behind(from)).all(was_archived))
        .then(|| "some of its events were not archived: its archive was none before".to_owned())
}

/// How often something is made of the archive that lets go of old events meanwhile.
pub const ATTEMPTS: usize = 2;

/// Why there is nothing after so many attempts.
pub fn let_go() -> Refusal {
    Refusal::ArchiveFailed("the archive has let go of old events while they were counted again; ask once more".into())
}

impl Reconciler {
    /// What somebody finds in a scene, and that. The archive lets go of bases before it lets go of what is before them: if counting still
    /// begins where it did, everything was there to the end. Otherwise all of it is looked at again.
    pub(super) async fn undisturbed<T>(
        &self,
        look: impl AsyncFn(&Scene) -> Result<T, ReconcileError>,
    ) -> Result<(Scene, T), ReconcileError> {
        for _ in 0..ATTEMPTS {
            let scene = self.scene().await?;
            let found = look(&scene).await;
            if self.begins(&scene).await? == (scene.from, scene.base_ms) {
                return Ok((scene, found?));
            }
        }
        Err(let_go().into())
    }

    /// Where counting begins by now.
    async fn begins(&self, scene: &Scene) -> Result<(Start, Option<u64>), ReconcileError> {
        Ok(oldest_base(&self.ask(scene, OLDEST_BASE.to_owned()).await?))
    }

    /// Counters and archive at the same position.
    async fn scene(&self) -> Result<Scene, ReconcileError> {
        let snapshot = Arc::new(self.engine.base().await?);
        self.archive.flush().await?;
        let (eras, from, base_ms, cleared) = (Vec::new(), Start::Beginning, None, BTreeSet::new());
        let (state, now_ms) = (snapshot.state()?, self.engine.clock().now_ms());
        // With the roll-ups that there are in the snapshot, whatever was filled since.
        let declarations = state.declarations().clone();
        let generation = state.values.generations.current;
        let sums = state.balances().into_iter().filter_map(|it| Some((it.name.to_string(), it.sums?))).collect();
        let mut scene = Scene {
            snapshot,
            state,
            declarations,
            eras,
            from,
            base_ms,
            cleared,
            generation,
            sums,
            begins_undeclared: false,
            now_ms,
        };
        (scene.from, scene.base_ms) = self.begins(&scene).await?;
        let versions = self.ask(&scene, VERSIONS.to_owned()).await?;
        scene.eras = eras_of(&versions)?;
        let first = versions.rows.iter().find_map(|batch| numbers(batch, 2).first().copied());
        scene.begins_undeclared = scene.from == Start::Beginning && first != Some(0);
        scene.cleared = names(&self.ask(&scene, CLEARED.to_owned()).await?).collect();
        Ok(scene)
    }

    /// Why keys differ from what was counted, if they were counted by their names while they were not declared.
    pub(super) async fn counted_by_name(
        &self,
        scene: &Scene,
        counter: &Counter,
    ) -> Result<Option<String>, ReconcileError> {
        let Some(counted) = scene.counted_while_declared(counter) else { return Ok(None) };
        let live = format!("SELECT \"sum\" AS value FROM counters WHERE counter = {}", text(&counter.name));
        let live = self.ask(scene, format!("SELECT {WIDE_SUM} FROM ({live}) AS live")).await?;
        let live = live.rows.first().and_then(|row| wide_numbers(row, 0).first().copied()).unwrap_or(0);
        let by_name = live - counted;
        Ok((by_name != 0).then(|| {
            format!("its keys were counted by name while it was not declared, to {by_name} together, and such writes are not in the archive")
        }))
    }

    pub(super) async fn ask(&self, scene: &Scene, statement: String) -> Result<Answer, ReconcileError> {
        self.ask_for(scene, statement, CORRECTION_DELTAS_MAX).await
    }

    /// The same for so many rows at most.
    pub(super) async fn ask_for(
        &self,
        scene: &Scene,
        statement: String,
        rows_max: usize,
    ) -> Result<Answer, ReconcileError> {
        let time = Duration::from_millis(SQL_TIME_MS_MAX);
        let snapshot = Some(scene.snapshot.clone());
        Ok(self.sql.ask(Question { statement, rows_max, time, snapshot, asker: Asker::Node }).await?)
    }
}

pub const VERSIONS: &str =
    "SELECT version, max(yaml), min(\"offset\") FROM configurations GROUP BY version ORDER BY version";
pub const OLDEST_BASE: &str =
    "SELECT \"offset\", CAST(log_time AS BIGINT) / 1000 FROM base ORDER BY \"offset\" LIMIT 1";

/// The names of counters of which keys were cleared.
pub const CLEARED: &str = "SELECT DISTINCT split_part(counter, ':', 1) FROM corrections WHERE cause = 'clear'";

/// The first column of an answer.
pub fn names(answer: &Answer) -> impl Iterator<Item = String> {
    answer.rows.iter().flat_map(|batch| texts(batch, 0))
}

/// Where counting begins, and at which log time if that is not the beginning.
pub fn oldest_base(answer: &Answer) -> (Start, Option<u64>) {
    let oldest = answer.rows.iter().find_map(|batch| numbers(batch, 0).into_iter().zip(numbers(batch, 1)).next());
    // Where all of the log is in the archive, nothing has to be taken on trust.
    match oldest.filter(|(offset, _)| *offset > 0) {
        Some((offset, log_time_ms)) => (Start::Base(offset as u64), Some(log_time_ms as u64)),
        None => (Start::Beginning, None),
    }
}

/// The declarations by their versions, each in force until the next.
pub fn eras_of(answer: &Answer) -> Result<Vec<Era>, ReconcileError> {
    if answer.is_truncated {
        return Err(ReconcileError::Sql("all configurations there ever were are more than an answer may have".into()));
    }
    let mut versions = Vec::new();
    for batch in &answer.rows {
        let told = numbers(batch, 0).into_iter().zip(texts(batch, 1)).zip(numbers(batch, 2));
        versions.extend(told.map(|((version, yaml), offset)| (version as u64, yaml, offset as u64)));
    }
    let ends = versions.iter().skip(1).map(|(version, _, offset)| (version - 1, *offset));
    let ends: Vec<(u64, u64)> = ends.chain([(i64::MAX as u64, u64::MAX)]).collect();
    versions
        .iter()
        .zip(ends)
        .map(|((version, yaml, _), (last, until))| {
            let declarations = Declarations::parse(yaml)
                .map_err(|error| ReconcileError::Sql(format!("configuration {version}: {error}").into()))?;
            Ok(Era { versions: *version..=last, until, declarations: Arc::new(declarations) })
        })
        .collect()
}

/// By how much an event may have been ahead of the log, as the node was told to allow.
pub fn ahead_ms(eras: &[Era]) -> u64 {
    eras.iter().map(|era| era.declarations.clocks().ahead_ms).max().unwrap_or(0)
}

/// The only number of an answer.
pub fn first_number(answer: &Answer) -> i64 {
    answer.rows.first().and_then(|row| numbers(row, 0).first().copied()).unwrap_or(0)
}

/// A column of whole numbers, of which every row has one.
pub fn numbers(batch: &arrow_array::RecordBatch, column: usize) -> Vec<i64> {
    batch.column(column).as_primitive::<Int64Type>().iter().flatten().collect()
}

/// A column of sums that need not fit into those.
pub fn wide_numbers(batch: &arrow_array::RecordBatch, column: usize) -> Vec<i128> {
    batch.column(column).as_primitive::<Decimal128Type>().iter().flatten().collect()
}

pub fn texts(batch: &arrow_array::RecordBatch, column: usize) -> Vec<String> {
    let column = batch.column(column);
    match column.as_string_view_opt() {
        Some(texts) => texts.iter().map(|text| text.unwrap_or_default().to_owned()).collect(),
        None => column.as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned()).collect(),
    }
}

/// The same of which a row may have none.
pub fn optional_texts(batch: &arrow_array::RecordBatch, column: usize) -> Vec<Option<String>> {
    let is_null = |row| batch.column(column).is_null(row);
    texts(batch, column).into_iter().enumerate().map(|(row, text)| (!is_null(row)).then_some(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_of_which_some_are_missing_are_no_eras() {
        let answer = |is_truncated| Answer { rows: vec![], is_truncated, archive: None, live: None };
        assert!(eras_of(&answer(false)).is_ok_and(|eras| eras.is_empty()));
        assert!(matches!(eras_of(&answer(true)), Err(ReconcileError::Sql(_))));
    }
}
