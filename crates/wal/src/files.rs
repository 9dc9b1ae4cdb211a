//! Which files a log has: by their names, and by what the headers of its segments say.

use crate::disk::{Disk, DiskFile};
use crate::retention::{SPARE_SUFFIX, TEMPORARY_SUFFIX};
use crate::segment::{self, HEADER_BYTES, SegmentHeader, file_name};
use crate::{Error, LogOptions};
use std::collections::VecDeque;

const DISCARDED_SUFFIX: &str = ".discarded";

/// The identity of the log on `disk`, as its newest readable segment has it; `None` if there is no such segment.
pub fn identity<D: Disk>(disk: &D) -> Result<Option<u64>, Error> {
    let segments = Files::list(disk)?.segments;
    Ok(segments.iter().rev().find_map(|sequence| Some(read_header_of(disk, &file_name(*sequence))?.log_id)))
}

/// The log's files by what their names say.
pub(crate) struct Files {
    /// Sequences, ascending.
    pub segments: Vec<u64>,
    pub spares: Vec<String>,
    temporaries: Vec<String>,
    discarded: Vec<String>,
}

impl Files {
    pub fn list<D: Disk>(disk: &D) -> Result<Files, Error> {
        let names = disk.list().map_err(Error::io("list the log's directory"))?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| segment::parse_file_name(name)).collect();
        segments.sort_unstable();
        let with = |suffix| names.iter().filter(move |name| name.ends_with(suffix)).cloned().collect();
        let (temporaries, discarded) = (with(TEMPORARY_SUFFIX), with(DISCARDED_SUFFIX));
        Ok(Files { segments, spares: with(SPARE_SUFFIX), temporaries, discarded })
    }

    pub fn remove_temporaries<D: Disk>(&self, disk: &D) -> Result<(), Error> {
        self.temporaries.iter().try_for_each(|name| disk.remove(name).map_err(Error::io(format!("remove {name}"))))
    }

    /// The headers of segments that were set aside, as far as they can be read: no position in them may be given again.
    pub fn discarded<D: Disk>(&self, disk: &D) -> Vec<SegmentHeader> {
        self.discarded.iter().filter_map(|name| read_header_of(disk, name)).collect()
    }

    /// Spares of the size that new segments have; the others are removed.
    pub fn usable_spares<D: Disk>(&self, disk: &D, options: &LogOptions) -> Result<Vec<String>, Error> {
        let mut usable = Vec::new();
        for name in &self.spares {
            let bytes =
                disk.open_to_read(name).and_then(|file| file.bytes()).map_err(Error::io(format!("open {name}")))?;
            if bytes == options.segment_bytes && usable.len() < options.spares_max {
                usable.push(name.clone());
            } else {
                disk.remove(name).map_err(Error::io(format!("remove {name}")))?;
            }
        }
        Ok(usable)
    }
}

/// The header of a file, if it can be read.
fn read_header_of<D: Disk>(disk: &D, name: &str) -> Option<SegmentHeader> {
    let mut block = [0; HEADER_BYTES];
    disk.open_to_read(name).and_then(|file| file.read_at(&mut block, 0)).ok()?;
    SegmentHeader::decode(&block).ok()
}

/// The segments that follow each other up to the newest, and what is wrong with those before, which nobody needs.
pub(crate) struct FoundFiles {
    pub headers: Vec<SegmentHeader>,
    /// Oldest first.
    pub unneeded: Vec<String>,
    pub passed_over: Vec<String>,
}

/// Reads the headers from the newest back. Where one is wrong, that is damage, unless nobody needs it: then it and those
/// before it are passed over.
pub(crate) fn read_headers<D: Disk>(disk: &D, sequences: &[u64], from_offset: u64) -> Result<FoundFiles, Error> {
    let mut headers: VecDeque<SegmentHeader> = VecDeque::new();
    for (number, sequence) in sequences.iter().enumerate().rev() {
        let read = read_header(disk, *sequence).and_then(|header| follow(header, headers.front()));
        match read {
            Ok(header) => headers.push_front(header),
            Err(error) if headers.front().is_some_and(|first| first.base_offset <= from_offset) => {
                let unneeded = sequences[..=number].iter().map(|sequence| file_name(*sequence)).collect();
                return Ok(FoundFiles { headers: headers.into(), unneeded, passed_over: vec![error.to_string()] });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(FoundFiles { headers: headers.into(), unneeded: Vec::new(), passed_over: Vec::new() })
}

fn read_header<D: Disk>(disk: &D, sequence: u64) -> Result<SegmentHeader, Error> {
    let name = file_name(sequence);
    let file = disk.open_to_read(&name).map_err(Error::io(format!("open log file {name}")))?;
    let bytes = file.bytes().map_err(Error::io(format!("open log file {name}")))?;
    if bytes < HEADER_BYTES as u64 {
        return Err(misplaced(sequence, bytes, 0, format!("it was truncated to {bytes} bytes, less than its header")));
    }
    let mut block = [0; HEADER_BYTES];
    file.read_at(&mut block, 0).map_err(Error::io(format!("read log file {name}")))?;
    let header = SegmentHeader::decode(&block).map_err(|what| misplaced(sequence, 0, 0, what))?;
    if header.segment_bytes != bytes {
        let what = format!("it has {bytes} bytes, but was made with {}", header.segment_bytes);
        return Err(misplaced(sequence, bytes.min(header.segment_bytes), header.base_offset, what));
    }
    if header.sequence != sequence {
        let what = format!("it is segment {} of its log, and segment {sequence} is expected here", header.sequence);
        return Err(misplaced(sequence, 0, header.base_offset, what));
    }
    Ok(header)
}

/// The header, if the segment `next` can follow it.
fn follow(header: SegmentHeader, next: Option<&SegmentHeader>) -> Result<SegmentHeader, Error> {
    let Some(next) = next else { return Ok(header) };
    let refuse = |what: String| Err(misplaced(next.sequence, 0, header.base_offset, what));
    let expected = header.sequence + 1;
    if next.sequence != expected {
        return refuse(format!("it is segment {} of its log, and segment {expected} is expected here", next.sequence));
    }
    if next.log_id != header.log_id {
        return refuse("it belongs to another log than the segment before it".to_owned());
    }
    if header.base_offset >= next.base_offset || header.epoch > next.epoch {
        return refuse("it is older than the segment before it".to_owned());
    }
    Ok(header)
}

fn misplaced(sequence: u64, at: u64, offset: u64, what: String) -> Error {
    let remedy =
        "Restore the log's files from a copy, or move this one and all later ones away to give up their records";
    Error::Damaged { file: file_name(sequence), at, offset, what, remedy: remedy.to_owned() }
}

/// Takes segments that were given up out of the log, one by one: those at the end last first and those at the beginning first
/// first, so that a crash in between leaves no gap.
pub(crate) fn set_aside<D: Disk>(disk: &D, names: impl Iterator<Item = String>) -> Result<Vec<String>, Error> {
    let mut aside = Vec::new();
    for name in names {
        let new = format!("{name}{DISCARDED_SUFFIX}");
        disk.rename(&name, &new).and_then(|()| disk.sync_dir()).map_err(Error::io(format!("set {name} aside")))?;
        aside.push(new);
    }
    Ok(aside)
}
