//! Walks through all segments of a log that are there, also those that a start passes over. Each batch that is whole is handed on; what is
//! not is told where it stands. One segment is in memory at a time.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tally_wal::batch::BatchHeader;
use tally_wal::segment::{self, HEADER_BYTES, SegmentHeader};

/// A batch, and where it is.
pub struct SeenBatch<'a> {
    pub file: &'a Path,
    /// The byte at which it begins.
    pub at: usize,
    pub header: BatchHeader,
    pub records: &'a [u8],
}

/// Records that are not there, or not as they were written.
#[derive(Clone, Debug)]
pub struct Damage {
    pub file: PathBuf,
    pub at: u64,
    /// The first record that is concerned.
    pub record: u64,
    pub what: String,
}

/// Is handed what is found.
pub trait Visit {
    fn batch(&mut self, batch: &SeenBatch<'_>);
    fn damage(&mut self, damage: Damage);
}

/// What there was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Walked {
    pub segments: u64,
    pub bytes: u64,
    /// The first record, if there is a segment.
    pub first: Option<u64>,
    /// Behind the last batch that is whole.
    pub end: u64,
}

/// Walks a log in a directory; `log_id` is whose it must be.
pub fn walk(directory: &Path, log_id: Option<u64>, visit: &mut impl Visit, tell: &mut dyn FnMut(u64, u64)) -> Walked {
    let files = list(directory);
    let all: u64 = files.iter().filter_map(|(_, file)| fs::metadata(file).ok()).map(|metadata| metadata.len()).sum();
    let mut walk = Walk { log_id, expected: None, log_time_ms: 0, walked: Walked::default() };
    for (index, (sequence, file)) in files.iter().enumerate() {
        let next = files.get(index + 1).map(|(_, next)| next.as_path());
        walk.segment(*sequence, file, next, visit);
        tell(walk.walked.bytes, all);
    }
    walk.walked
}

/// The segments of a directory, in the order of the log.
fn list(directory: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let sequence = |path: &PathBuf| segment::parse_file_name(path.file_name()?.to_str()?);
    let mut files: Vec<_> = entries.filter_map(|path| Some((sequence(&path)?, path))).collect();
    files.sort_unstable();
    files
}

struct Walk {
    log_id: Option<u64>,
    /// Number and first record of the segment that comes next, if those before it were whole.
    expected: Option<(u64, u64)>,
    log_time_ms: u64,
    walked: Walked,
}

impl Walk {
    fn segment(&mut self, sequence: u64, file: &Path, next: Option<&Path>, visit: &mut impl Visit) {
        let expected = self.expected.take();
        let damage =
            |at: usize, record: u64, what: String| Damage { file: file.to_owned(), at: at as u64, record, what };
        let record = expected.map_or(self.walked.end, |(_, record)| record);
        let image = match fs::read(file) {
            Ok(image) => image,
            Err(error) => return visit.damage(damage(0, record, format!("it cannot be read: {error}"))),
        };
        self.walked.segments += 1;
        self.walked.bytes += image.len() as u64;
        let (header, found) = match segment::batches(&image) {
            Ok(found) => found,
            Err(what) => return visit.damage(damage(0, record, what)),
        };
        let wrong = self.misplaced(&header, sequence, image.len(), expected);
        if let Some(what) = wrong {
            visit.damage(damage(0, header.base_offset, what));
        }
        self.walked.first.get_or_insert(header.base_offset);
        let mut epoch = 0;
        for (at, batch) in &found {
            let records = batch.payload(&image[*at..]).expect("only batches that are whole were found");
            if batch.epoch < epoch || batch.epoch > header.epoch || batch.log_time_ms < self.log_time_ms {
                visit.damage(damage(*at, batch.base_offset, "its epoch or its log time runs backwards".to_owned()));
            }
            (epoch, self.log_time_ms) = (batch.epoch, batch.log_time_ms);
            visit.batch(&SeenBatch { file, at: *at, header: *batch, records });
        }
        let end = found.last().map_or(header.base_offset, |(_, last)| last.end());
        self.walked.end = end;
        let at = found.last().map_or(HEADER_BYTES, |(at, last)| at + last.stored_bytes());
        match next {
            None => {
                if let Some(what) = segment::damage_behind(&image, &header, &found) {
                    visit.damage(damage(at, end, what));
                }
            }
            Some(next) => match first_record_of(next) {
                Some(begins) if begins != end => {
                    let what =
                        format!("the next segment begins with record {begins}, but here is no batch for record {end}");
                    visit.damage(damage(at, end, what));
                }
                Some(begins) => self.expected = Some((sequence + 1, begins)),
                // It is told what is wrong with that one.
                None => {}
            },
        }
    }

    fn misplaced(
        &self,
        header: &SegmentHeader,
        sequence: u64,
        bytes: usize,
        expected: Option<(u64, u64)>,
    ) -> Option<String> {
        if let Some(id) = self.log_id.filter(|id| *id != header.log_id) {
            return Some(format!("it belongs to the log {:016x}, and this one is {id:016x}", header.log_id));
        }
        if header.sequence != sequence || expected.is_some_and(|(number, _)| number != sequence) {
            return Some(format!("it is segment {} of its log, and another one is expected here", header.sequence));
        }
        if header.segment_bytes != bytes as u64 {
            return Some(format!("it has {bytes} bytes, but was made with {}", header.segment_bytes));
        }
        None
    }
}

fn first_record_of(file: &Path) -> Option<u64> {
    let mut block = [0; HEADER_BYTES];
    fs::File::open(file).and_then(|file| file.read_exact_at(&mut block, 0)).ok()?;
    SegmentHeader::decode(&block).ok().map(|header| header.base_offset)
}
