//! The second log for a person: its commits, each on a line, and whether they are whole.
//!
//! Every commit must begin where the one before ends and be chained to it by its digest. What is not so is said where it stands, and
//! the command ends as a failure; also if it stands behind what `--limit` lets be shown.

use super::{moment, segment};
use crate::failure::{Failure, Result};
use crate::output::Output;
use serde_json::json;
use std::path::Path;
use tally_core::commit::{Commit, Parts, Taken};
use tally_wal::segment::{batches, damage_behind};

/// What the directory of the second log is called; one that was set aside is called `commits.discarded`.
const DIRECTORY: &str = "commits";

/// Whether a path is the directory of a second log, or a segment in one: the segments of both logs look alike.
pub fn are_in(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let directory = if path.is_file() { path.parent() } else { Some(&*path) };
    let is_called_so = directory.and_then(Path::file_stem).is_some_and(|name| name == DIRECTORY);
    is_called_so && (path.is_file() || !segment::list(&path).is_empty())
}

/// Shows up to `limit` commits, and checks all of them.
pub fn show(path: &Path, limit: usize, json: bool, out: &mut Output) -> Result<()> {
    let segments = if path.is_file() { vec![path.to_owned()] } else { segment::list(path) };
    let mut reading = Showing { left: limit, json, parts: Parts::default(), next: None, last: None, damages: 0 };
    for path in &segments {
        reading.segment(path, out)?;
    }
    reading.finish(path, out)
}

/// The commits up to some record.
struct Showing {
    /// So many more are shown.
    left: usize,
    json: bool,
    parts: Parts,
    /// The record that comes next, once there was one.
    next: Option<u64>,
    last: Option<Commit>,
    damages: u64,
}

impl Showing {
    fn segment(&mut self, path: &Path, out: &mut Output) -> Result<()> {
        let image = segment::read(path)?;
        let (header, found) = match batches(&image) {
            Ok(found) => found,
            Err(why) => return self.damaged(&format!("{} is no segment of a log: {why}", path.display()), out),
        };
        if let Some(next) = self.next.filter(|next| *next != header.base_offset) {
            let gap = format!("records {next} to {} before {} cannot be read", header.base_offset, path.display());
            self.damaged(&gap, out)?;
        }
        self.next = Some(found.last().map_or(header.base_offset, |(_, batch)| batch.end()));
        for (at, batch) in &found {
            match batch.payload(&image[*at..]) {
                Some(record) => self.record(batch.base_offset, record, out)?,
                None => self.damaged(&format!("record {} cannot be read", batch.base_offset), out)?,
            }
        }
        let Some(damage) = damage_behind(&image, &header, &found) else { return Ok(()) };
        // What comes next is not known any more.
        self.next = None;
        self.damaged(&format!("{} {damage}", path.display()), out)
    }

    fn record(&mut self, ordinal: u64, record: &[u8], out: &mut Output) -> Result<()> {
        match self.parts.take(ordinal, record) {
            Taken::Part => Ok(()),
            Taken::Followed if self.left == 0 => Ok(()),
            Taken::Followed if self.json => out.json(&json!({"record": ordinal, "followed": true})),
            Taken::Followed => out.line("deltas are recorded from here on"),
            Taken::Commit(Ok(commit)) => self.commit(*commit, out),
            Taken::Commit(Err(error)) => {
                // Nobody knows what it said, so nothing is chained to it.
                self.last = None;
                self.damaged(&format!("the commit in record {} cannot be read: {error}", self.parts.ordinal()), out)
            }
        }
    }

    fn commit(&mut self, commit: Commit, out: &mut Output) -> Result<()> {
        if let Some(damage) = self.last.as_ref().and_then(|last| commit.unchained(last)) {
            self.damaged(&damage, out)?;
        }
        if self.left > 0 {
            self.left -= 1;
            let ordinal = self.parts.ordinal();
            if self.json {
                out.json(&as_json(ordinal, &commit))?
            } else {
                out.line(describe(&commit))?
            }
            if self.left == 0 && !self.json {
                out.line("… there may be more: raise --limit to see them")?;
            }
        }
        self.last = Some(commit);
        Ok(())
    }

    fn damaged(&mut self, what: &str, out: &mut Output) -> Result<()> {
        self.damages += 1;
        if self.json { out.json(&json!({"damaged": what})) } else { out.line(format_args!("DAMAGED: {what}")) }
    }

    fn finish(self, path: &Path, out: &mut Output) -> Result<()> {
        match self.damages {
            0 if self.json => Ok(()),
            0 => out.line("every commit that is here begins where the one before ends, and is chained to it"),
            damages => Err(Failure::new(format!("the commits in {} are damaged", path.display()))
                .why(format!("in {damages} places, which are named where they stand"))
                .remedy("Restore the data directory from a copy; or remove its directory commits/ while no server runs, and whoever follows begins anew from a snapshot.")),
        }
    }
}

fn describe(commit: &Commit) -> String {
    let Commit { from, to, log_time_ms, generation, rules, digest, .. } = commit;
    let deltas = match &commit.deltas {
        Some(deltas) => format!("{} deltas", deltas.counters.len()),
        None => "nobody followed".to_owned(),
    };
    let mut text =
        format!("{from} to {to}  {}  generation {generation}, rules {rules}, {deltas}", moment(*log_time_ms));
    let noted = [
        (commit.exceptions.len() as u64, "exceptions"),
        (commit.audit.count(), "ids that came again"),
        (commit.corrections.len() as u64, "corrections"),
        (commit.voids.len() as u64, "void batches"),
    ];
    for (count, what) in noted.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    text + &format!("  {digest}")
}

fn as_json(ordinal: u64, commit: &Commit) -> serde_json::Value {
    json!({
        "record": ordinal, "from": commit.from.to_string(), "to": commit.to.to_string(), "logTime": moment(commit.log_time_ms),
        "generation": commit.generation, "rules": commit.rules, "exceptions": commit.exceptions.len(),
        "audited": commit.audit.count(), "corrections": commit.corrections.len(), "void": commit.voids.len(),
        "deltas": commit.deltas.as_ref().map(|deltas| deltas.counters.len()), "digest": commit.digest.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tally_core::commit::{Digest, Slots};
    use tally_core::position::Position;

    fn commit(slots: &mut Slots, to: u64, before: Digest) -> Commit {
        slots.enter(Position { epoch: 1, log: 0, offset: to }, 5, false, &Arc::default());
        Commit::new(slots.close().expect("a batch came"), before, None)
    }

    #[test]
    fn a_commit_that_does_not_follow_the_one_before_is_named() {
        let mut slots = Slots::new(Position { epoch: 1, log: 0, offset: 0 });
        let first = commit(&mut slots, 3, Digest::default());
        let second = commit(&mut slots, 5, first.digest);
        let third = commit(&mut slots, 6, second.digest);
        assert_eq!((second.unchained(&first), third.unchained(&second)), (None, None));
        assert!(third.unchained(&first).is_some_and(|what| what.contains("begins at 1-0-5 and not at 1-0-3")));
        let changed = Commit { generation: 9, ..second };
        assert!(changed.unchained(&first).is_some_and(|what| what.contains("the commit 1-0-3 to 1-0-5 is another")));
        let digest = first.digest;
        let text =
            format!("1-0-0 to 1-0-3  1970-01-01T00:00:00.005Z  generation 0, rules 0, nobody followed  {digest}");
        assert_eq!(describe(&first), text);
    }
}
