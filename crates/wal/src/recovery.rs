//! Opening a log: find its segments, verify them, cut what a crash left, and make what remains durable for certain.
//!
//! The segment that will be written on is copied, up to its last good batch and then zeros, and the copy takes its place
//! before anything is served. So pages that the last process failed to sync, and that the kernel now shows as clean, are
//! written once more; no torn batch stays behind the end; the new epoch is on disk before a batch carries it; and a crash
//! at any moment finds either the old file or the new one.

use crate::disk::{Disk, DiskFile};
use crate::error::is_full;
use crate::files::{Files, FoundFiles, read_headers, set_aside};
use crate::handle::{KnownSegment, SharedLog};
use crate::pages::Pages;
use crate::retention::Spares;
use crate::scan::{Gap, Reached, SegmentScan, Stop, scan};
use crate::segment::{self, HEADER_BYTES, PAGE_BYTES, SegmentHeader, file_name};
use crate::writer::{Active, WalWriter};
use crate::{Error, LogOptions};
use std::io;

const REWRITE_NAME: &str = "rewrite.tmp";

/// What opening a log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredLog {
    /// The oldest record that is still there.
    pub first_offset: u64,
    /// The offset that the next record gets.
    pub end: u64,
    pub epoch: u32,
    pub log_time_ms: u64,
    /// What a crash left of writes that nobody was told had succeeded.
    pub cut: Option<LostEnd>,
    /// Files set aside because of [`LogOptions::discard_from`], or because they are damaged and nobody needs them.
    pub discarded: Vec<String>,
    /// Damage in what nobody needs, in words.
    pub passed_over: Vec<String>,
    /// The disk has no room for the copy that is written on: everything can be read, and nothing written until there is.
    pub waits_for_room: bool,
}

/// The end of the log that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEnd {
    pub file: String,
    pub at: u64,
    pub bytes: u64,
    /// The first record that is not there.
    pub offset: u64,
    pub what: String,
}

pub(crate) fn open<D: Disk>(disk: D, options: LogOptions) -> Result<(WalWriter<D>, RecoveredLog), Error> {
    options.check()?;
    let files = Files::list(&disk)?;
    if files.segments.is_empty() {
        files.remove_temporaries(&disk)?;
        return create(disk, options, &files);
    }
    let found = read_headers(&disk, &files.segments, options.from_offset)?;
    if let Some(foreign) = found.headers.iter().find(|header| header.log_id != options.log_id) {
        return Err(Error::Foreign { file: file_name(foreign.sequence) });
    }
    recover(disk, options, &files, found)
}

/// Starts a log where there is none: at record 0, or where a log that was given up must go on.
fn create<D: Disk>(disk: D, options: LogOptions, files: &Files) -> Result<(WalWriter<D>, RecoveredLog), Error> {
    let before = files.discarded(&disk);
    let header = SegmentHeader {
        log_id: options.log_id,
        sequence: before.iter().map(|header| header.sequence).max().unwrap_or(0) + 1,
        base_offset: options.from_offset,
        epoch: before.iter().map(|header| header.epoch).max().unwrap_or(0).max(options.epoch_above) + 1,
        segment_bytes: options.segment_bytes,
        log_time_ms: before.iter().map(|header| header.log_time_ms).max().unwrap_or(0),
    };
    let expected = options.from_offset > 0 || !files.spares.is_empty();
    if expected && !options.gives_up(options.from_offset) {
        let what = format!("the log's files are missing, but record {} has been reached", options.from_offset);
        return Err(damaged(&header, 0, 0, what, remedy(0)));
    }
    disk.close(segment::create_zeroed(&disk, REWRITE_NAME, &options)?);
    let file = segment::install(&disk, REWRITE_NAME, &header).map_err(Error::io("start a log"))?;
    let segments = vec![KnownSegment { header, index: Default::default() }];
    let reached = Reached { offset: header.base_offset, epoch: header.epoch, log_time_ms: header.log_time_ms };
    let spares = Spares::new(files.usable_spares(&disk, &options)?);
    Ok(assemble(disk, options, spares, segments, Active::empty(file, header), reached))
}

fn recover<D: Disk>(
    disk: D,
    options: LogOptions,
    files: &Files,
    found: FoundFiles,
) -> Result<(WalWriter<D>, RecoveredLog), Error> {
    let FoundFiles { headers, unneeded, mut passed_over } = found;
    let Verified { mut segments, image, at, reached, cut, gaps } = verify(&disk, &options, &headers)?;
    passed_over.extend(gaps);
    if reached.offset < options.from_offset {
        return start_over(disk, options, &headers, &segments[segments.len() - 1].header, at, reached);
    }
    // Everything was looked at: from here on files are changed.
    files.remove_temporaries(&disk)?;
    let mut spares = files.usable_spares(&disk, &options)?;
    let mut discarded =
        set_aside(&disk, headers[segments.len()..].iter().rev().map(|header| file_name(header.sequence)))?;
    discarded.extend(set_aside(&disk, unneeded.into_iter())?);
    let known = headers.iter().chain(&files.discarded(&disk)).map(|header| header.epoch).max();
    let epoch = known.expect("there is at least one segment") + 1;
    let active = segments.last_mut().expect("verify answers at least one segment");
    active.header.epoch = epoch;
    let spare = if active.header.segment_bytes == options.segment_bytes { spares.pop() } else { None };
    let (file, waits_for_room) = match rewrite(&disk, &active.header, &image[..at], spare) {
        Ok(file) => (file, false),
        Err(Error::Full { .. }) => (refresh(&disk, &active.header, &image[..at])?, true),
        Err(error) => return Err(error),
    };
    let active = reopen(file, active.header, &image[..at], waits_for_room);
    let reached = Reached { epoch, ..reached };
    let (log, recovered) = assemble(disk, options, Spares::new(spares), segments, active, reached);
    Ok((log, RecoveredLog { cut, discarded, passed_over, waits_for_room, ..recovered }))
}

/// The log ends before the record where reading will start. If that was ordered, all of it is set aside and a new one
/// begins at that record, before which everything is in some base.
fn start_over<D: Disk>(
    disk: D,
    options: LogOptions,
    headers: &[SegmentHeader],
    last: &SegmentHeader,
    at: usize,
    reached: Reached,
) -> Result<(WalWriter<D>, RecoveredLog), Error> {
    if !options.gives_up(reached.offset) {
        let what = format!("the log ends here, but record {} has been reached", options.from_offset);
        return Err(damaged(last, at as u64, reached.offset, what, remedy(reached.offset)));
    }
    let discarded = set_aside(&disk, headers.iter().rev().map(|header| file_name(header.sequence)))?;
    let (log, recovered) = create(disk.clone(), options, &Files::list(&disk)?)?;
    Ok((log, RecoveredLog { discarded, ..recovered }))
}

/// The segments that are kept, and how far the last of them is good.
struct Verified {
    segments: Vec<KnownSegment>,
    image: Vec<u8>,
    at: usize,
    reached: Reached,
    cut: Option<LostEnd>,
    /// Damage that was passed over, in words.
    gaps: Vec<String>,
}

/// Reads everything from the segment with `from_offset` on; of those before, only the headers have been looked at.
fn verify<D: Disk>(disk: &D, options: &LogOptions, headers: &[SegmentHeader]) -> Result<Verified, Error> {
    let start = match options.tail_only {
        true => headers.len().saturating_sub(2),
        false => headers.partition_point(|header| header.base_offset <= options.from_offset).saturating_sub(1),
    };
    let unread = headers[..start].iter().map(|header| KnownSegment { header: *header, index: Default::default() });
    let mut segments: Vec<KnownSegment> = unread.collect();
    let epoch = start.checked_sub(1).map_or(0, |before| headers[before].epoch);
    let mut reached = Reached { offset: headers[start].base_offset, epoch, log_time_ms: headers[start].log_time_ms };
    let (mut image, mut gaps) = (Vec::new(), Vec::new());
    for (number, header) in headers.iter().enumerate().skip(start) {
        read_segment(disk, header, &mut image)?;
        let until = headers.get(number + 1).map(|next| next.base_offset);
        let scanned = scan(&image, header, reached, until, options.from_offset);
        reached = scanned.reached;
        gaps.extend(scanned.passed_over.iter().map(|gap| describe(header, gap)));
        let cut = cut(options, header, &scanned)?;
        segments.push(KnownSegment { header: *header, index: scanned.index });
        if cut.is_some() || number + 1 == headers.len() {
            return Ok(Verified { segments, image, at: scanned.at, reached, cut, gaps });
        }
    }
    unreachable!("the last segment ends the loop")
}

fn describe(header: &SegmentHeader, gap: &Gap) -> String {
    let Gap { at, bytes, offset, records } = gap;
    let file = file_name(header.sequence);
    format!(
        "log file {file} is damaged at byte {at}: {records} records from {offset} on, {bytes} bytes, cannot be read"
    )
}

/// What is cut from a segment, if anything. Damage is refused, unless an operator gave up what is damaged.
fn cut(options: &LogOptions, header: &SegmentHeader, scan: &SegmentScan) -> Result<Option<LostEnd>, Error> {
    let (at, offset) = (scan.at as u64, scan.reached.offset);
    let (bytes, what) = match &scan.stop {
        Stop::End => return Ok(None),
        Stop::Torn { bytes, what } => (*bytes as u64, what.clone()),
        Stop::Damaged { what } if options.gives_up(offset) => (header.segment_bytes - at, what.clone()),
        Stop::Damaged { what } => return Err(damaged(header, at, offset, what.clone(), remedy(offset))),
    };
    Ok(Some(LostEnd { file: file_name(header.sequence), at, bytes, offset, what }))
}

fn read_segment<D: Disk>(disk: &D, header: &SegmentHeader, image: &mut Vec<u8>) -> Result<(), Error> {
    let name = file_name(header.sequence);
    image.resize(header.segment_bytes as usize, 0);
    disk.open_to_read(&name).and_then(|file| file.read_at(image, 0)).map_err(Error::io(format!("read log file {name}")))
}

/// Replaces the segment's file by a durable copy: the header, the batches in `prefix`, and zeros.
pub(crate) fn rewrite<D: Disk>(
    disk: &D,
    header: &SegmentHeader,
    prefix: &[u8],
    spare: Option<String>,
) -> Result<D::File, Error> {
    write_copy(disk, header, prefix, spare).map_err(|error| {
        // If even this fails, the next opening removes the file.
        let _ = disk.remove(REWRITE_NAME);
        match is_full(&error) {
            true => Error::Full { bytes: header.segment_bytes },
            false => Error::io(format!("rewrite log file {}", file_name(header.sequence)))(error),
        }
    })
}

/// Makes durable for certain what a segment holds, where there is no room for a copy: the same bytes are written once more.
fn refresh<D: Disk>(disk: &D, header: &SegmentHeader, prefix: &[u8]) -> Result<D::File, Error> {
    let name = file_name(header.sequence);
    let refreshed = disk.open(&name).and_then(|file| {
        file.write_at(prefix, 0)?;
        file.sync()?;
        Ok(file)
    });
    refreshed.map_err(|error| match is_full(&error) {
        true => Error::Full { bytes: header.segment_bytes },
        false => Error::io(format!("refresh log file {name}"))(error),
    })
}

fn write_copy<D: Disk>(disk: &D, header: &SegmentHeader, prefix: &[u8], spare: Option<String>) -> io::Result<D::File> {
    let file = match spare {
        // Before it gets batches of the present it must stop being a spare for good.
        Some(spare) => {
            disk.rename(&spare, REWRITE_NAME)?;
            disk.sync_dir()?;
            disk.open(REWRITE_NAME)?
        }
        None => {
            let file = disk.create(REWRITE_NAME)?;
            file.allocate(header.segment_bytes)?;
            file
        }
    };
    file.write_at(&header.encode(), 0)?;
    file.write_at(&prefix[HEADER_BYTES..], HEADER_BYTES as u64)?;
    file.write_zeros(prefix.len() as u64, header.segment_bytes)?;
    file.sync()?;
    disk.rename(REWRITE_NAME, &file_name(header.sequence))?;
    disk.sync_dir()?;
    Ok(file)
}

/// The writer's view of a segment that ends behind `prefix`.
fn reopen<F>(file: F, header: SegmentHeader, prefix: &[u8], waits_for_copy: bool) -> Active<F> {
    let pages_at = prefix.len() / PAGE_BYTES * PAGE_BYTES;
    let mut pages = Pages::new();
    pages.push(&prefix[pages_at..]);
    Active { file, header, pages, pages_at: pages_at as u64, waits_for_copy }
}

fn assemble<D: Disk>(
    disk: D,
    options: LogOptions,
    spares: Spares,
    segments: Vec<KnownSegment>,
    active: Active<D::File>,
    reached: Reached,
) -> (WalWriter<D>, RecoveredLog) {
    let Reached { offset: end, epoch, log_time_ms } = reached;
    let shared = SharedLog::new(disk, options, epoch, spares, segments, end);
    let first_offset = shared.first();
    let recovered = RecoveredLog {
        first_offset,
        end,
        epoch,
        log_time_ms,
        cut: None,
        discarded: Vec::new(),
        passed_over: Vec::new(),
        waits_for_room: false,
    };
    (WalWriter::new(shared, active, end, log_time_ms), recovered)
}

fn damaged(header: &SegmentHeader, at: u64, offset: u64, what: String, remedy: String) -> Error {
    Error::Damaged { file: file_name(header.sequence), at, offset, what, remedy }
}

/// What an operator can do about damage at `offset`.
pub(crate) fn remedy(offset: u64) -> String {
    format!(
        "Restore the log's files from a copy, or give up record {offset} and all behind it by starting once with --discard-from {offset}"
    )
}
