//! What an event takes on disk.

use super::*;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::collections::BTreeMap;
use tally_core::record::Record;

const EVENTS: u64 = 100_000;
const VISITORS: u64 = 2_000;
const EVENTS_OF_A_VISITOR: u64 = 8;
/// What one may take that has no payload and is 250 bytes in the log.
const EVENT_BYTES_MAX: u64 = 45;

const ADS: &str = "\
counters:
  - counterName: impressions
    mode: persistent
    dimensions: [campaign, ad]
    rollups: [[country, page]]
    rules: [{on: ad.impression.shown, op: increment}]
";

/// Numbers that look random, and are the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// As clients make ids: 122 bits that nobody can foresee.
    fn uuid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
        format!("{a:08x}-{b:04x}-4{c:03x}-{:04x}-{:012x}", 0x8000 | (low >> 48) & 0x3fff, low & 0xffff_ffff_ffff)
    }
}

/// A visitor among many at a time.
struct Visitor {
    session: String,
    seq: u64,
    country: &'static str,
}

impl Visitor {
    fn new(random: &mut Random) -> Visitor {
        let country = ["DE", "US", "FR", "GB", "BR", "IN", "JP", "MX"][random.below(8).min(random.below(8)) as usize];
        Visitor { session: random.uuid(), seq: 0, country }
    }
}

/// Writes events as a busy site sends them; answers what they take in the log.
async fn write_busy_hour(archive: &mut Archive) -> Result<u64, ArchiveError> {
    let mut random = Random(1);
    let mut visitors: Vec<Visitor> = (0..VISITORS).map(|_| Visitor::new(&mut random)).collect();
    let (mut log_bytes, mut encoded) = (0, Vec::new());
    for offset in 0..EVENTS {
        let visitor = &mut visitors[random.below(VISITORS) as usize];
        if random.below(EVENTS_OF_A_VISITOR) == 0 {
            *visitor = Visitor::new(&mut random);
        }
        visitor.seq += 1;
        // Hundreds in a second, some dozens of which are one batch of the log.
        let now_ms = START_MS + offset * 3 + random.below(20);
        let (ad, page) = (random.below(2_000).min(random.below(2_000)), random.below(20_000).min(random.below(20_000)));
        let mut event = Event::new("ad.impression.shown", now_ms);
        event.occurred_at_ms = Some(now_ms as i64 - 20 - random.below(400) as i64);
        event.event_id = Some(random.uuid().into());
        event.session = Some(visitor.session.clone().into());
        event.seq = Some(visitor.seq);
        event.dimensions = vec![
            ("campaign".into(), format!("campaign-2026-q4-autumn-{:03}", ad / 20).into()),
            ("ad".into(), format!("creative-970x250-{ad:06}").into()),
            ("page".into(), format!("/articles/2026/11/a-title-of-some-length-{page:06}").into()),
            ("country".into(), visitor.country.into()),
        ];
        encoded.clear();
        Record::Event(event.clone()).encode(&mut encoded);
        log_bytes += encoded.len() as u64;
        let place = Place { position: at(offset), log_time_ms: START_MS + offset / 40 * 120 };
        archive
            .event(Stream::Persistent, place, Under { rules: 2, config_version: 1, ..Under::default() }, &event)
            .await?;
    }
    Ok(log_bytes)
}

/// What all columns and the rest of a file come to.
const ALL: &str = "all of it";

/// Bytes of each column in all files below a directory, and of the files.
fn columns(directory: &Path, found: &mut BTreeMap<String, i64>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            columns(&path, found);
        } else {
            *found.entry(ALL.to_owned()).or_default() += path.metadata().unwrap().len() as i64;
            let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
            for column in file.metadata().row_groups().iter().flat_map(|group| group.columns()) {
                *found.entry(column.column_path().string()).or_default() += column.compressed_size();
            }
        }
    }
}

#[test]
fn an_event_without_a_payload_takes_45_bytes_at_most() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let mut archive = opened(directory.path()).await?;
        archive.begin(&reached(0)).await?;
        archive.declare(&Declarations::parse(ADS).unwrap()).await?;
        let log_bytes = write_busy_hour(&mut archive).await?;
        archive.commit(&reached(EVENTS)).await?;
        let mut found = BTreeMap::new();
        columns(&directory.path().join("events/data"), &mut found);
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|(_, bytes)| -bytes);
        let archived = found[0].1 as u64;
        let of_one = |bytes: u64| bytes as f64 / EVENTS as f64;
        println!("{:.1} bytes of an event that is {:.1} in the log", of_one(archived), of_one(log_bytes));
        found.iter().for_each(|(column, bytes)| println!("  {column:20} {:6.2}", of_one(*bytes as u64)));
        assert!(archived <= EVENT_BYTES_MAX * EVENTS, "{} bytes", of_one(archived));
        Ok(())
    });
}
