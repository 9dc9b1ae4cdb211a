//! A log segment for a person: its header, its batches, their records.

use super::{moment, readable};
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use tally_core::event::Event;
use tally_core::ledger::{Correction, Proposal, Row};
use tally_core::record::{Expiry, Record};
use tally_wal::batch;
use tally_wal::segment::{self, Header};

/// The segment files in a directory, in the order of the log.
pub fn list(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut segments: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
    segments.sort();
    segments
}

/// One line about a segment.
pub fn summarise(path: &Path) -> Result<()> {
    let image = read(path)?;
    let (header, batches) = parse(path, &image)?;
    let records: u64 = batches.iter().map(|(_, batch)| u64::from(batch.count)).sum();
    let used = batches.last().map_or(segment::HEADER_BYTES, |(at, batch)| at + batch.stored_bytes());
    println!(
        "{}  records {} to {}  {} batches  {used} of {} bytes used  epoch {}",
        path.display(),
        header.base_offset,
        header.base_offset + records,
        batches.len(),
        image.len(),
        header.epoch,
    );
    Ok(())
}

/// Everything in a segment, up to `limit` records.
pub fn show(path: &Path, limit: usize) -> Result<()> {
    let image = read(path)?;
    let (header, batches) = parse(path, &image)?;
    show_header(path, &header, image.len());
    let mut left = limit;
    for (at, batch) in &batches {
        if left == 0 {
            println!("… more batches: raise --limit to see them");
            return Ok(());
        }
        show_batch(*at, batch);
        let records =
            batch.records(&image[*at..]).ok_or_else(|| damaged(path, *at, "its records cannot be unpacked"))?;
        show_records(path, *at, batch, &records, &mut left)?;
    }
    println!("end of the segment's batches");
    Ok(())
}

fn show_header(path: &Path, header: &Header, bytes: usize) {
    println!("segment {}", path.display());
    println!("  number        {}", header.sequence);
    println!("  log           {:016x}", header.log_id);
    println!("  first record  {}", header.base_offset);
    println!("  epoch         {}", header.epoch);
    println!("  bytes         {bytes}");
}

fn show_batch(at: usize, batch: &batch::Header) {
    let packed = if batch.lz4 { format!(", unpacked {}", batch.records_bytes) } else { String::new() };
    println!(
        "batch at byte {at}: records {} to {}, epoch {}, {}, {} bytes{packed}",
        batch.base_offset,
        batch.end(),
        batch.epoch,
        moment(batch.log_time_ms),
        batch.payload_bytes,
    );
}

fn show_records(path: &Path, at: usize, batch: &batch::Header, mut bytes: &[u8], left: &mut usize) -> Result<()> {
    for offset in batch.base_offset..batch.end() {
        if *left == 0 {
            println!("  … more records: raise --limit to see them");
            return Ok(());
        }
        *left -= 1;
        let record = Record::decode(&mut bytes).map_err(|error| damaged(path, at, &error.to_string()))?;
        println!("  {offset}  {}", describe(&record));
    }
    Ok(())
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

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Failure::new(format!("{} cannot be read", path.display())).why(error))
}

fn parse(path: &Path, image: &[u8]) -> Result<(Header, Vec<(usize, batch::Header)>)> {
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
    fn every_record_says_what_it_does() {
        let check = |record: Record<'_>, text: &str| assert_eq!(describe(&record), text);
        check(Record::Add { name: b"visits", delta: 1 }, "add      visits +1");
        check(Record::Add { name: b"a\xff", delta: -2 }, "add      a\\xff -2");
        check(Record::Delete { name: "größe".as_bytes() }, "delete   größe");
        let mut event = Event::new("video.viewed", 0);
        event.dimensions.push(("video".into(), "v1".into()));
        event.session = Some("s".into());
        event.seq = Some(7);
        check(Record::Event(event), "event    video.viewed video=v1 session s seq 7");
    }
}
