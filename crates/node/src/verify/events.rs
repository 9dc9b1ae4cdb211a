//! The log, record by record, and beside it the events of the archive in the same order: what both have must be the same, and neither may lack
//! what the other has.

use super::Tell;
use super::claims::Claims;
use super::commits::CommitsSeen;
use super::files::{Tables, of_fault};
use super::report::{Check, Finding, Fix};
use super::scratch::Scratch;
use super::segments::{self, Damage, SeenBatch, Visit, Walked};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tally_archive::{EventsInOrder, Place, Table};
use tally_core::counter::Declarations;
use tally_core::event::Event;
use tally_core::head::Head;
use tally_core::position::Position;
use tally_core::record::{DecodeError, Record};

/// Events of the archive, beside the log.
pub struct Comparing<'a> {
    rows: EventsInOrder,
    /// What was found of rows.
    seen: SeenRows<'a>,
    /// Every event from the first to the second must be there.
    from: u64,
    to: u64,
    declared: BTreeMap<u64, Arc<Declarations>>,
    /// Events of the log that were compared.
    compared: u64,
}

struct SeenRows<'a> {
    check: Check,
    claims: Option<Claims>,
    scratch: &'a Scratch,
    rows: u64,
    last: Option<u64>,
    /// Records whose rows may be in files that cannot be read.
    unread: Vec<RangeInclusive<u64>>,
}

impl<'a> Comparing<'a> {
    pub fn new(tables: Tables, claims: Option<Claims>, scratch: &'a Scratch) -> Comparing<'a> {
        let (from, to) = (tables.from.unwrap_or(u64::MAX), tables.reached(Table::Events));
        let check = Check::new("events");
        Comparing {
            rows: EventsInOrder::new(tables.events),
            seen: SeenRows { check, claims, scratch, rows: 0, last: None, unread: Vec::new() },
            from,
            to,
            declared: tables.declared,
            compared: 0,
        }
    }

    /// Goes on to a record. Rows before it are of records that the log no longer has, or never had as events (`in_log`).
    fn pass_to(&mut self, offset: u64, in_log: bool) {
        while self.peek().is_some_and(|next| next < offset) {
            let file = self.rows.file().cloned().unwrap_or_default();
            let Some(row) = self.rows.get() else { return };
            let record = row.place.position.offset;
            self.seen.row(&row, &file);
            if in_log {
                let what = format!("the archive has an event for record {record}, and the log has none there");
                self.seen.find(what, record, &file);
            }
            self.rows.pass();
        }
    }

    fn peek(&mut self) -> Option<u64> {
        let next = self.rows.peek();
        self.seen.faults(&mut self.rows);
        next
    }

    /// The log has an event here.
    fn logged(&mut self, place: Place, event: &Event<'_>) {
        let offset = place.position.offset;
        self.pass_to(offset, true);
        if self.peek() != Some(offset) {
            return self.missing(offset, event);
        }
        while self.peek() == Some(offset) {
            let file = self.rows.file().cloned().unwrap_or_default();
            let Some(row) = self.rows.get() else { return };
            self.seen.row(&row, &file);
            if let Some(differing) = row.differs(place, event) {
                let (field, archived, logged) = (differing.field, differing.archived, differing.logged);
                let what =
                    format!("record {offset}: its {field} is {archived:?} in the archive, and {logged:?} in the log");
                self.seen.check.find(self.seen.finding(what, offset, &file).instead_of(archived, logged));
            }
            self.rows.pass();
        }
        self.compared += 1;
    }

    /// It need not be there if it came before or behind what is, or if counters can do without.
    fn missing(&mut self, offset: u64, event: &Event<'_>) {
        let is_within = (self.from..self.to).contains(&offset);
        let is_kept = self.declared.values().all(|declarations| declarations.is_archived(&event.event_type));
        if !is_within || !is_kept || self.seen.unread.iter().any(|unread| unread.contains(&offset)) {
            return;
        }
        let what = format!("the log has an event ({}) in record {offset}, and the archive has not", event.event_type);
        self.seen.check.find(Finding::new(what, Fix::Archive).at_record(offset));
    }

    /// What comes behind all of the log, if all of it was read.
    fn finish(mut self, log_is_whole: bool) -> [Check; 2] {
        self.pass_to(u64::MAX, log_is_whole);
        self.peek();
        let SeenRows { mut check, claims, rows, .. } = self.seen;
        check.said = format!("{rows} in the archive, {} of them compared with the log", self.compared);
        if rows == 0 && self.to == 0 && check.findings.is_empty() {
            check.skipped = Some("there is no archive, or it has not begun".to_owned());
        }
        let mut unknown = Check::new("event ids");
        unknown.skipped = Some("the store cannot be read".to_owned());
        [check, claims.map_or(unknown, Claims::finish)]
    }
}

impl SeenRows<'_> {
    fn row(&mut self, row: &tally_archive::ArchivedEvent<'_>, file: &Path) {
        let offset = row.place.position.offset;
        if let Some(last) = self.last.filter(|last| offset <= *last) {
            let what = match offset == last {
                true => format!("the archive has record {offset} twice"),
                false => format!("the archive has record {offset} once more, or out of order, behind record {last}"),
            };
            self.find(what, offset, file);
        }
        self.last = Some(self.last.map_or(offset, |last| last.max(offset)));
        self.rows += 1;
        if let Some(claims) = &mut self.claims {
            claims.look_at(row);
        }
    }

    fn finding(&self, what: String, record: u64, file: &Path) -> Finding {
        let file = self.scratch.meant(&file.display().to_string());
        Finding::new(format!("{what} ({file})"), Fix::Archive).at_record(record).in_file(&file)
    }

    fn find(&mut self, what: String, record: u64, file: &Path) {
        let finding = self.finding(what, record, file);
        self.check.find(finding);
    }

    fn faults(&mut self, rows: &mut EventsInOrder) {
        for fault in rows.take_faults() {
            self.unread.extend(fault.unread.clone());
            self.check.find(of_fault(fault, self.scratch));
        }
    }
}

/// Reads the log.
struct Reading<'a> {
    check: Check,
    comparing: Comparing<'a>,
    commits: &'a CommitsSeen,
    /// The record that comes next.
    next: Option<u64>,
    records: u64,
    events: u64,
}

/// Reads all of the log, and the archive beside it; `checkpoint` is where the store stands.
pub fn look(
    directory: &Path,
    id: Option<u64>,
    commits: &CommitsSeen,
    checkpoint: Option<Position>,
    comparing: Comparing<'_>,
    tell: Tell<'_>,
) -> Vec<Check> {
    let mut reading = Reading { check: Check::new("log"), comparing, commits, next: None, records: 0, events: 0 };
    let walked = segments::walk(directory, id, &mut reading, &mut |done, of| tell("log and archive", done, of));
    reading.end(walked, checkpoint);
    let Reading { mut check, comparing, next, records, events, .. } = reading;
    check.said = format!("{} segments, {records} records, {events} of them events", walked.segments);
    let mut checks = vec![check];
    checks.extend(comparing.finish(next.is_some()));
    checks
}

impl Reading<'_> {
    fn records(&mut self, batch: &SeenBatch<'_>) -> Result<(), DecodeError> {
        let mut bytes = batch.records;
        Head::take(&mut bytes)?;
        let is_void = self.commits.voids.contains(&batch.header.base_offset);
        for offset in batch.header.base_offset..batch.header.end() {
            if let Record::Event(event) = Record::decode(&mut bytes)? {
                self.events += 1;
                let position = Position { epoch: batch.header.epoch, log: 0, offset };
                if !is_void {
                    self.comparing.logged(Place { position, log_time_ms: batch.header.log_time_ms }, &event);
                }
            }
        }
        self.records += u64::from(batch.header.count);
        match bytes.len() as u64 {
            0 => Ok(()),
            value => Err(DecodeError::BadValue { field: "bytes behind the records of a batch", value }),
        }
    }

    /// Whoever was told that something is in the log finds it there.
    fn end(&mut self, walked: Walked, checkpoint: Option<Position>) {
        if !self.check.findings.is_empty() || walked.segments == 0 && checkpoint.is_none() {
            return;
        }
        let archived = Some(self.comparing.to).filter(|to| *to > 0);
        let known = [
            ("the commits end at", self.commits.to.map(|to| to.offset)),
            ("the store stands at", checkpoint.map(|checkpoint| checkpoint.offset)),
            ("the archive is at", archived),
        ];
        for (who, offset) in known {
            if let Some(offset) = offset.filter(|offset| *offset > walked.end) {
                let what =
                    format!("the log ends at record {}, but {who} record {offset}: its end is missing", walked.end);
                let finding = Finding::new(what, Fix::Log).at_record(walked.end).instead_of(walked.end, offset);
                self.check.find(finding);
            }
        }
    }
}

impl Visit for Reading<'_> {
    fn batch(&mut self, batch: &SeenBatch<'_>) {
        let base = batch.header.base_offset;
        // What lies between cannot be compared: the log no longer has it, or it is told elsewhere what is wrong with it.
        if self.next != Some(base) {
            self.comparing.pass_to(base, false);
        }
        if let Err(error) = self.records(batch) {
            let what = format!(
                "{} at byte {}: the records of the batch that begins with {base} cannot be read: {error}",
                batch.file.display(),
                batch.at
            );
            let finding = Finding { at: Some(batch.at as u64), ..Finding::new(what, Fix::Log) };
            self.check.find(finding.in_file(batch.file).at_record(base));
        }
        self.next = Some(batch.header.end());
    }

    fn damage(&mut self, damage: Damage) {
        self.next = None;
        let Damage { file, at, record, what } = damage;
        let what = format!("{} at byte {at}, record {record}: {what}", file.display());
        let finding = Finding { at: Some(at), ..Finding::new(what, Fix::Log) };
        self.check.find(finding.in_file(&file).at_record(record));
    }
}
