//! A log segment for a person: its header, its batches, their records.

use super::moment;
use crate::failure::{Failure, Result};
use crate::output::{Output, readable};
use serde_json::json;
use std::path::{Path, PathBuf};
use tally_core::combined::Additions;
use tally_core::event::Event;
use tally_core::head::{Group, Head};
use tally_core::ledger::{Correction, Fill, FillStep, Grounds, LateRun, Proposal, Remedy, Row};
use tally_core::record::{self, Expiry, Record};
use tally_wal::batch;
use tally_wal::segment::{self, SegmentHeader};

/// The segment files in a directory, in the order of the log.
pub fn list(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut segments: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
    segments.sort();
    segments
}

/// One line about a segment.
pub fn summarise(path: &Path, json: bool, out: &mut Output) -> Result<()> {
    let image = read(path)?;
    let (header, batches) = parse(path, &image)?;
    let records: u64 = batches.iter().map(|(_, batch)| u64::from(batch.count)).sum();
    let used = batches.last().map_or(segment::HEADER_BYTES, |(at, batch)| at + batch.stored_bytes());
    let (from, to, epoch) = (header.base_offset, header.base_offset + records, header.epoch);
    if json {
        return out.json(&json!({
            "segment": path.display().to_string(), "from": from, "to": to, "batches": batches.len(),
            "usedBytes": used, "bytes": image.len(), "epoch": epoch,
        }));
    }
    out.line(format_args!(
        "{}  records {from} to {to}  {} batches  {used} of {} bytes used  epoch {epoch}",
        path.display(),
        batches.len(),
        image.len(),
    ))
}

/// Everything in a segment, up to `limit` records.
pub fn show(path: &Path, limit: usize, json: bool, out: &mut Output) -> Result<()> {
    let image = read(path)?;
    let (header, batches) = parse(path, &image)?;
    if !json {
        show_header(path, &header, image.len(), out)?;
    }
    let mut left = limit;
    for (at, batch) in &batches {
        if left == 0 {
            return if json { Ok(()) } else { out.line("… more batches: raise --limit to see them") };
        }
        if !json {
            show_batch(*at, batch, out)?;
        }
        let records = batch
            .payload(&image[*at..])
            .ok_or_else(|| damaged(path, *at, "the checksum of its records does not match"))?;
        let shown = ShownBatch { path, at: *at, batch, json };
        shown.records(records, &mut left, out)?;
    }
    if json { Ok(()) } else { out.line("end of the segment's batches") }
}

fn show_header(path: &Path, header: &SegmentHeader, bytes: usize, out: &mut Output) -> Result<()> {
    out.line(format_args!("segment {}", path.display()))?;
    out.line(format_args!("  number        {}", header.sequence))?;
    out.line(format_args!("  log           {:016x}", header.log_id))?;
    out.line(format_args!("  first record  {}", header.base_offset))?;
    out.line(format_args!("  epoch         {}", header.epoch))?;
    out.line(format_args!("  bytes         {bytes}"))
}

fn show_batch(at: usize, batch: &batch::BatchHeader, out: &mut Output) -> Result<()> {
    out.line(format_args!(
        "batch at byte {at}: records {} to {}, epoch {}, {}, {} bytes",
        batch.base_offset,
        batch.end(),
        batch.epoch,
        moment(batch.log_time_ms),
        batch.payload_bytes,
    ))
}

/// A batch that is being shown.
struct ShownBatch<'a> {
    path: &'a Path,
    at: usize,
    batch: &'a batch::BatchHeader,
    json: bool,
}

impl ShownBatch<'_> {
    fn records(&self, mut bytes: &[u8], left: &mut usize, out: &mut Output) -> Result<()> {
        let head = Head::take(&mut bytes).map_err(|error| damaged(self.path, self.at, &error.to_string()))?;
        if let Some(head) = head {
            self.head(&head, out)?;
        }
        for offset in self.batch.base_offset..self.batch.end() {
            if *left == 0 {
                return if self.json { Ok(()) } else { out.line("  … more records: raise --limit to see them") };
            }
            *left -= 1;
            let record = Record::decode(&mut bytes).map_err(|error| damaged(self.path, self.at, &error.to_string()))?;
            self.record(offset, &describe(&record), out)?;
        }
        Ok(())
    }

    fn head(&self, head: &Head, out: &mut Output) -> Result<()> {
        if !self.json {
            return out.line(format_args!("  {}", describe_head(head)));
        }
        out.json(&json!({
            "batchAt": self.at, "sender": head.sender, "incarnation": head.incarnation, "seq": head.seq,
            "settled": head.settled, "clock": moment(head.clock_ms), "control": head.control, "rules": head.rules,
            "group": head.group.0, "beginsCommit": head.begins,
        }))
    }

    /// The first word of a description is the kind of the record.
    fn record(&self, offset: u64, text: &str, out: &mut Output) -> Result<()> {
        if !self.json {
            return out.line(format_args!("  {offset}  {text}"));
        }
        let (kind, text) = text.split_once(' ').unwrap_or((text, ""));
        out.json(&json!({
            "offset": offset, "batchAt": self.at, "epoch": self.batch.epoch,
            "logTime": moment(self.batch.log_time_ms), "record": kind, "text": text.trim_start(),
        }))
    }
}

fn describe_head(head: &Head) -> String {
    let Head { begins, rules, group, control, sender, incarnation, seq, settled, clock_ms } = *head;
    let group = if group == Group::ALL { String::new() } else { format!(", group {}", group.0) };
    let begins = if begins { ", begins a commit" } else { "" };
    format!(
        "head     sender {sender}, life {incarnation}, batch {seq} (settled before {settled}), clock {}, declarations from \
         record {control} on, rules {rules}{group}{begins}",
        moment(clock_ms)
    )
}

fn describe(record: &Record<'_>) -> String {
    match record {
        Record::Add { name, delta } => format!("add      {} {delta:+}", readable(name)),
        Record::Set { name, value, condition, expiry } => {
            let expiry = match expiry {
                Expiry::Clear => String::new(),
                Expiry::Keep => ", keeping its expiry".to_owned(),
                Expiry::At(at_ms) => format!(", expires {}", moment(*at_ms)),
            };
            format!("set      {} = {value} ({condition:?}{expiry})", readable(name))
        }
        Record::Delete { name } => format!("delete   {}", readable(name)),
        Record::Expire { name, at_ms, condition } => {
            format!("expire   {} at {} ({condition:?})", readable(name), moment(*at_ms))
        }
        Record::Persist { name } => format!("persist  {}", readable(name)),
        Record::Flush => "flush    all counters are forgotten".to_owned(),
        Record::FlushDatabase { database, space } => {
            format!("flush    database {database} is empty: from here on space {space}")
        }
        Record::RepeatsFull => "full     the memory of repeats is full".to_owned(),
        Record::Copy { from, to, manner } => {
            let verb = if manner.moves() { "move    " } else { "copy    " };
            format!("{verb} {} to {} ({manner:?})", readable(from), readable(to))
        }
        Record::SetNew(pairs) => {
            let set = record::pairs(pairs).map(|(name, value)| format!(" {} = {value}", readable(name)));
            format!("set     {} (if there is none of them)", set.collect::<Vec<_>>().join(","))
        }
        Record::AddMany { name, deltas: Additions::Same { delta, times } } => {
            format!("adds     {} {times} × {delta:+}", readable(name))
        }
        Record::AddMany { name, deltas } => {
            let each = deltas.iter().map(|delta| format!(" {delta:+}"));
            format!("adds     {}{}", readable(name), each.collect::<String>())
        }
        Record::Tick => "tick     time passed".to_owned(),
        Record::Config { version, yaml } => {
            format!("config   version {version}, {} bytes of YAML", yaml.len())
        }
        Record::Event(event) => format!("event    {}", describe_event(event)),
        Record::AddOnce { name, id, delta } => format!("once     {} {delta:+} id {}", readable(name), readable(id)),
        Record::Propose(proposal) => match Proposal::decode(proposal) {
            Ok(Proposal { reason, author, deltas, .. }) => {
                format!("propose  {} deltas: {reason} ({author})", deltas.len())
            }
            Err(error) => format!("propose  {error}"),
        },
        Record::Fill(fill) => match Fill::decode(fill) {
            Ok(Fill { counter, rollup, step }) => {
                format!("fill     roll-up {rollup} of {counter}: {}", describe_step(&step))
            }
            Err(error) => format!("fill     {error}"),
        },
        Record::Part(bytes) => format!("part     {} bytes of what follows", bytes.len()),
        Record::Remedy(bytes) => match Remedy::decode(bytes) {
            Ok((remedy, once)) => format!("{}{}", describe_remedy(&remedy), describe_once(once.as_ref())),
            Err(_) => format!("remedy   the last {} bytes of what is in parts", bytes.len()),
        },
        Record::Once { id, number, .. } => format!("asked    id {}, came to {number}", readable(id)),
        Record::Withdraw { number } => format!("withdraw proposal {number}"),
        Record::Correct(correction) => match Correction::decode(correction) {
            Ok(Correction { generation, number, reason, author, deltas, .. }) => {
                format!(
                    "correct  generation {generation}, number {number}, {} deltas: {reason} ({author})",
                    deltas.len()
                )
            }
            Err(error) => format!("correct  {error}"),
        },
    }
}

fn describe_step(step: &FillStep) -> String {
    match step {
        FillStep::Begin => "a stand-in begins".to_owned(),
        FillStep::Add { keys, .. } => {
            let parts: usize = keys.iter().map(|key| key.parts.len()).sum();
            format!("{parts} parts that it lacks")
        }
        FillStep::End { .. } => "it takes its place".to_owned(),
        FillStep::Drop => "it is given up".to_owned(),
        FillStep::Describe { events, .. } => format!("what {} entities were counted for", events.len()),
    }
}

fn describe_remedy(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Propose(Proposal { reason, author, deltas, .. }) => {
            format!("propose  {} deltas: {reason} ({author})", deltas.len())
        }
        Remedy::Apply { number, author, .. } => format!("apply    proposal {number} ({author})"),
        Remedy::Revert { number, grounds: Grounds { reason, author }, .. } => {
            format!("revert   correction {number}: {reason} ({author})")
        }
        Remedy::Clear { ids, grounds: Grounds { reason, author }, .. } => {
            format!("clear    {} counters: {reason} ({author})", ids.len())
        }
        Remedy::Late(LateRun { due_by_ms, sums_max, .. }) => {
            format!("late     what is due by {due_by_ms}, at most {sums_max} sums")
        }
    }
}

fn describe_once(once: Option<&(Box<[u8]>, u64)>) -> String {
    once.map(|(id, _)| format!(" id {}", readable(id))).unwrap_or_default()
}

fn describe_event(event: &Event<'_>) -> String {
    let mut text = event.event_type.to_string();
    if event.delta != 1 {
        text += &format!(" {:+}", event.delta);
    }
    for (name, value) in &event.dimensions {
        text += &format!(" {name}={}", readable(value.as_bytes()));
    }
    let labels = [("id", &event.event_id), ("session", &event.session)];
    for (label, value) in labels.into_iter().filter_map(|(label, value)| Some((label, value.as_ref()?))) {
        text += &format!(" {label} {}", readable(value.as_bytes()));
    }
    if let Some(seq) = event.seq {
        text += &format!(" seq {seq}");
    }
    text
}

pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Failure::new(format!("{} cannot be read", path.display())).why(error))
}

fn parse(path: &Path, image: &[u8]) -> Result<(SegmentHeader, Vec<(usize, batch::BatchHeader)>)> {
    segment::batches(image).map_err(|why| {
        Failure::new(format!("{} is not a segment of a log", path.display()))
            .why(why)
            .remedy("Name a file that ends in .seg in the log directory of a data directory.")
    })
}

fn damaged(path: &Path, at: usize, why: &str) -> Failure {
    Failure::new(format!("the batch at byte {at} of {} is damaged", path.display())).why(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_who_sent_its_batch() {
        let head = Head { rules: 1, sender: 2, incarnation: 3, seq: 4, settled: 5, control: 6, ..Head::default() };
        let text = "head     sender 2, life 3, batch 4 (settled before 5), clock 1970-01-01T00:00:00.000Z, declarations from \
                    record 6 on, rules 1";
        assert_eq!(describe_head(&head), text);
        let more = describe_head(&Head { group: Group(7), begins: true, ..head });
        assert_eq!(more, format!("{text}, group 7, begins a commit"));
    }

    #[test]
    fn every_record_says_what_it_does() {
        let check = |record: Record<'_>, text: &str| assert_eq!(describe(&record), text);
        check(Record::Add { name: b"visits", delta: 1 }, "add      visits +1");
        check(Record::Add { name: b"a\xff", delta: -2 }, "add      a\\xff -2");
        check(Record::Delete { name: "größe".as_bytes() }, "delete   größe");
        let deltas = Additions::Same { delta: 2, times: 300 };
        check(Record::AddMany { name: b"visits", deltas }, "adds     visits 300 × +2");
        check(Record::AddMany { name: b"visits", deltas: Additions::Each(b"\x02\x03") }, "adds     visits +1 -2");
        let mut event = Event::new("video.viewed", 0);
        event.dimensions.push(("video".into(), "v1".into()));
        event.session = Some("s".into());
        event.seq = Some(7);
        check(Record::Event(event), "event    video.viewed video=v1 session s seq 7");
    }
}
