//! Makes a proof from what is in the archive. It reads every row of the hours concerned, and refuses if they are not what their
//! roots were made of.

use super::check::key;
use super::document::{FORMAT, Link, Proof, ProvenCommit, ProvenCorrection, ProvenEvent, ProvenRule, Start, StartKind};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use tally_archive::{ArchiveError, CommitRows, Declared, Keep, Row, SignedRoot, Tables};
use tally_core::counter::{Counter, Declarations};
use tally_core::limits::{PROOF_EVENTS_MAX, PROOF_ROOTS_MAX};
use tally_core::proof::{CorrectionLeaf, EventLeaf, FateLeaf, Hash, Levels, Root};

const HOUR_MS: i64 = 3_600_000;

/// What is to be proven.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub id: String,
    pub counter: String,
    pub dimensions: Vec<String>,
    /// Roots of this hour and later ones; all of them if it is left out.
    pub from_ms: Option<i64>,
    /// Roots that end by then.
    pub at_ms: Option<i64>,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum CannotProve {
    /// Wait for the end of an hour, or close a root.
    #[error("{0}")]
    NoRoot(String),
    /// Ask for a shorter time.
    #[error("{0}")]
    TooMuch(String),
    /// Ask for a later time.
    #[error("{0}")]
    NotKept(String),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    /// Call the operator.
    #[error("the archive is not as it was: {0}. No proof is made of it; tally verify says what differs")]
    Changed(String),
}

/// Makes a proof. Waits for the disk.
pub fn make(tables: &Tables, wanted: &Wanted) -> Result<Proof, CannotProve> {
    let base = tables.oldest_base(&wanted.id)?;
    let roots = roots(tables, wanted, base.map_or(0, |(offset, _)| offset))?;
    let [first, .., last] = &roots[..] else {
        return match &roots[..] {
            [only] => prove(tables, wanted, base, &roots, &only.root, &only.root),
            _ => Err(no_root(wanted)),
        };
    };
    prove(tables, wanted, base, &roots, &first.root, &last.root)
}

fn no_root(wanted: &Wanted) -> CannotProve {
    let when = if wanted.from_ms.is_some() || wanted.at_ms.is_some() { "between from and at" } else { "yet" };
    CannotProve::NoRoot(format!(
        "there is no root {when}: one is closed when an hour of log time is over. POST /v1/roots closes one now"
    ))
}

fn let_go(base: u64) -> CannotProve {
    CannotProve::NotKept(format!(
        "events from before the base at {base} have been let go of, or there is a gap before it: ask with a later from"
    ))
}

/// The roots to be shown, the oldest first.
fn roots(tables: &Tables, wanted: &Wanted, from_offset: u64) -> Result<Vec<SignedRoot>, CannotProve> {
    let mut roots = Vec::new();
    for found in tables.roots_newest_first() {
        let found = found?;
        let is_before = wanted.from_ms.is_some_and(|from_ms| found.root.hour < from_ms.div_euclid(HOUR_MS));
        let is_gone = found.root.to <= from_offset;
        if is_before || is_gone && wanted.from_ms.is_none() {
            break;
        }
        if wanted.at_ms.is_some_and(|at_ms| found.root.log_time_ms > at_ms) {
            continue;
        }
        if is_gone {
            return Err(let_go(from_offset));
        }
        roots.push(found);
        if roots.len() > PROOF_ROOTS_MAX {
            let what = format!("there are more than {PROOF_ROOTS_MAX} roots; ask with a later from");
            return Err(CannotProve::TooMuch(what));
        }
    }
    roots.reverse();
    Ok(roots)
}

fn prove(
    tables: &Tables,
    wanted: &Wanted,
    base: Option<(u64, i64)>,
    roots: &[SignedRoot],
    first: &Root,
    last: &Root,
) -> Result<Proof, CannotProve> {
    let start = match (wanted.from_ms, base) {
        (None, Some((offset, value))) if offset > 0 => Start { kind: StartKind::Base, offset, value },
        (None, _) if first.from == 0 && first.number == 0 => Start { kind: StartKind::Beginning, offset: 0, value: 0 },
        // Roots begin later than the archive: it is of an earlier version.
        _ => Start { kind: StartKind::Time, offset: first.from, value: 0 },
    };
    let offset = start.offset.max(first.from);
    let start = if offset > start.offset && start.kind == StartKind::Base {
        Start { kind: StartKind::Time, offset, value: 0 }
    } else {
        start
    };
    let eras = eras(tables)?;
    check_archived(&eras, &wanted.counter, start.offset, last.to)?;
    let rules = rules(&eras, &wanted.counter);
    let mut making = Making { wanted, start, rules, commits: Vec::new(), events: 0, total: start.value.into() };
    let mut chain = Vec::with_capacity(roots.len());
    for signed in roots {
        let has_any = making.take_root(tables, &signed.root)?;
        let is_end = [first.number, last.number].contains(&signed.root.number);
        chain.push(if has_any || is_end {
            Link { body: None, root: Some(signed.root.clone()), signature: signed.signature.clone() }
        } else {
            Link { body: Some(signed.root.body()), root: None, signature: None }
        });
    }
    let Making { rules, commits, total, .. } = making;
    let value = i64::try_from(total).map_err(|_| CannotProve::Changed("the sum has more than 64 bits".to_owned()))?;
    let Wanted { id, counter, dimensions, .. } = wanted.clone();
    let before = first.before;
    Ok(Proof { format: FORMAT, id, counter, dimensions, rules, start, to: last.to, value, commits, before, chain })
}

/// Declarations, and under which versions and from which offset on they were in force.
struct Era {
    versions: RangeInclusive<u64>,
    from: u64,
    declarations: Declarations,
}

impl Era {
    /// A counter as it was declared then.
    fn counter(&self, name: &str) -> Option<&Counter> {
        self.declarations.counters().iter().find(|counter| *counter.name == *name)
    }
}

fn eras(tables: &Tables) -> Result<Vec<Era>, CannotProve> {
    let configurations: Vec<(u64, Declared)> = tables.configurations()?.into_iter().collect();
    let ends = configurations.iter().skip(1).map(|(version, _)| version - 1).chain([i64::MAX as u64]);
    let era = |((version, declared), end): (&(u64, Declared), u64)| {
        let declarations = Declarations::parse(&declared.yaml)
            .map_err(|error| CannotProve::Changed(format!("configuration {version}: {error}")))?;
        Ok(Era { versions: *version..=end, from: declared.from, declarations })
    };
    configurations.iter().zip(ends).map(era).collect()
}

/// Refuses a time in which events of a counter were not archived: nobody can tell any more which there were.
fn check_archived(eras: &[Era], counter: &str, from: u64, to: u64) -> Result<(), CannotProve> {
    let ends = eras.iter().skip(1).map(|era| era.from).chain([u64::MAX]);
    for (era, end) in eras.iter().zip(ends) {
        let is_archived = era.counter(counter).is_none_or(|counter| counter.is_archived);
        if !is_archived && era.from < to && end > from {
            return Err(CannotProve::NotKept(format!(
                "the events of {counter} were not archived under configuration {}: its archive was none. Ask with a later from",
                era.versions.start()
            )));
        }
    }
    Ok(())
}

/// Which events counted for a counter under which versions.
fn rules(eras: &[Era], counter: &str) -> Vec<ProvenRule> {
    let mut rules: Vec<ProvenRule> = Vec::new();
    for era in eras {
        let (version, end) = era.versions.clone().into_inner();
        for rule in era.counter(counter).iter().flat_map(|own| &own.rules) {
            let (r#type, op) = (rule.on.to_string(), rule.op.name().to_owned());
            let goes_on =
                |known: &&mut ProvenRule| known.r#type == r#type && known.op == op && known.to_version + 1 == version;
            match rules.iter_mut().find(goes_on) {
                Some(known) => known.to_version = end,
                None => rules.push(ProvenRule { r#type, op, from_version: version, to_version: end }),
            }
        }
    }
    rules
}

struct Making<'w> {
    wanted: &'w Wanted,
    start: Start,
    rules: Vec<ProvenRule>,
    commits: Vec<ProvenCommit>,
    events: usize,
    total: i128,
}

impl Making<'_> {
    /// Answers whether something of the root is for the key.
    fn take_root(&mut self, tables: &Tables, root: &Root) -> Result<bool, CannotProve> {
        let (mut leaves, mut shown, mut refused) = (Vec::new(), Vec::new(), None);
        let keeper = Keeper { wanted: self.wanted, rules: &self.rules, from: self.start.offset };
        let (mut events, mut total) = (self.events, self.total);
        tables.commits(root.from, root.to, &keeper, |rows| {
            leaves.push(rows.leaf.hash());
            if refused.is_none() {
                match keeper.proven(rows, root.number) {
                    Ok(Some((commit, sum))) => {
                        events += commit.events.len() + commit.corrections.len();
                        total += sum;
                        shown.push((leaves.len() - 1, commit));
                    }
                    Ok(None) => {}
                    Err(error) => refused = Some(error),
                }
            }
            if events > PROOF_EVENTS_MAX {
                refused = Some(too_many());
            }
            Ok(())
        })?;
        (self.events, self.total) = (events, total);
        if let Some(refused) = refused {
            return Err(refused);
        }
        let levels = Levels::new(leaves);
        if levels.root() != root.root {
            return Err(CannotProve::Changed(format!("the commits of root {} are others", root.number)));
        }
        let has_any = !shown.is_empty();
        for (index, mut commit) in shown {
            commit.path = levels.path(index);
            self.commits.push(commit);
        }
        Ok(has_any)
    }
}

fn too_many() -> CannotProve {
    CannotProve::TooMuch(format!(
        "the key has more than {PROOF_EVENTS_MAX} events and corrections there; ask for a shorter time, with from and at: what \
         proofs of one time after the other come to adds up"
    ))
}

fn leaves<T>(rows: &[Row<T>]) -> Vec<Hash> {
    rows.iter().map(|row| row.leaf).collect()
}

struct Keeper<'w> {
    wanted: &'w Wanted,
    rules: &'w [ProvenRule],
    from: u64,
}

impl Keep for Keeper<'_> {
    type Event = ProvenEvent;
    /// Where an entry of the counter was not simply counted.
    type Fate = u64;
    type Correction = ProvenCorrection;

    fn event(&self, row: &EventLeaf<'_>) -> Option<ProvenEvent> {
        let its = |rule: &ProvenRule| {
            rule.r#type == row.event_type
                && (rule.from_version..=rule.to_version).contains(&(row.config_version as u64))
        };
        if row.position.offset < self.from || !self.rules.iter().any(its) {
            return None;
        }
        let value = |name: &String| row.dimensions.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let id = key(&self.wanted.counter, self.wanted.dimensions.iter().map(value))?;
        (id == self.wanted.id).then(|| ProvenEvent::new(row))
    }

    fn fate(&self, row: &FateLeaf<'_>) -> Option<u64> {
        (row.counter == self.wanted.counter).then_some(row.position.offset)
    }

    fn correction(&self, row: &CorrectionLeaf<'_>) -> Option<ProvenCorrection> {
        (row.counter == self.wanted.id && row.position.offset > self.from).then(|| ProvenCorrection::new(row))
    }
}

impl<'w> Keeper<'w> {
    /// What of a commit is for the key, and what that comes to.
    fn proven(&self, rows: CommitRows<Keeper<'w>>, root: u64) -> Result<Option<(ProvenCommit, i128)>, CannotProve> {
        let CommitRows { leaf: commit, events, fates, corrections } = rows;
        let [event_levels, fate_levels, correction_levels] =
            [leaves(&events), leaves(&fates), leaves(&corrections)].map(Levels::new);
        // Before it is asked what is for the key: of what was changed or is gone nobody can tell for which key it was.
        for (table, levels, root) in [
            ("events", &event_levels, commit.events_root),
            ("fates", &fate_levels, commit.fates_root),
            ("corrections", &correction_levels, commit.corrections_root),
        ] {
            if levels.root() != root {
                let what = format!("{table} from {} to {} are others", commit.from, commit.to);
                return Err(CannotProve::Changed(what));
            }
        }
        let elsewhere: HashSet<u64> = fates.iter().filter_map(|row| row.kept).collect();
        let mut total = 0;
        let mut proven =
            ProvenCommit { root, commit: commit.clone(), path: vec![], events: vec![], corrections: vec![] };
        for (index, row) in events.into_iter().enumerate() {
            let Some(mut event) = row.kept.filter(|event| !elsewhere.contains(&event.offset)) else { continue };
            event.path = event_levels.path(index);
            total += self.change(&event);
            proven.events.push(event);
        }
        for (index, row) in corrections.into_iter().enumerate() {
            let Some(mut correction) = row.kept else { continue };
            correction.path = correction_levels.path(index);
            total += i128::from(correction.delta);
            proven.corrections.push(correction);
        }
        let is_empty = proven.events.is_empty() && proven.corrections.is_empty();
        Ok((!is_empty).then_some((proven, total)))
    }

    fn change(&self, event: &ProvenEvent) -> i128 {
        let version = event.config_version as u64;
        let its = |rule: &&ProvenRule| {
            rule.r#type == event.r#type && (rule.from_version..=rule.to_version).contains(&version)
        };
        let is_taken = self.rules.iter().find(its).is_some_and(|rule| rule.op == "decrement");
        if is_taken { -i128::from(event.delta) } else { event.delta.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::proof::CommitLeaf;

    #[test]
    fn a_commit_whose_rows_are_others_is_refused_also_where_none_of_them_is_for_the_key() {
        let wanted =
            Wanted { id: "c:a".into(), counter: "c".into(), dimensions: vec!["d".into()], from_ms: None, at_ms: None };
        let keeper = Keeper { wanted: &wanted, rules: &[], from: 0 };
        let none = Levels::new(vec![]).root();
        let leaf = CommitLeaf {
            log: 0,
            epoch: 1,
            from: 0,
            to: 1,
            log_time_ms: 0,
            head: Hash::default(),
            events: 0,
            events_root: none,
            fates: 0,
            fates_root: none,
            corrections: 0,
            corrections_root: none,
        };
        let proven = |leaf| {
            let rows = CommitRows { leaf, events: vec![], fates: vec![], corrections: vec![] };
            keeper.proven(rows, 0).map(|proven| proven.is_some())
        };
        assert!(matches!(proven(leaf.clone()), Ok(false)));
        let gone = Hash::of(b"a row that is not there any more");
        for changed in [
            CommitLeaf { events_root: gone, ..leaf.clone() },
            CommitLeaf { fates_root: gone, ..leaf.clone() },
            CommitLeaf { corrections_root: gone, ..leaf },
        ] {
            assert!(matches!(proven(changed), Err(CannotProve::Changed(_))));
        }
    }
}
