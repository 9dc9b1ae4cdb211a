//! The tables of an archive as a reader finds them, and what counters are worth by them: the rule of `docs/formats/archive.md`, "Counting
//! behind a base".

use crate::support::TestNode;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use futures_util::TryStreamExt;
use std::collections::BTreeMap;
use std::path::Path;
use tally_archive::Table;
use tally_archive::catalog::SqliteCatalog;

pub struct EventRow {
    pub offset: u64,
    pub kind: String,
    video: Option<String>,
    delta: i64,
}

pub struct Tables {
    /// In the order of the log.
    pub events: Vec<EventRow>,
    /// Offset and counter of each entry that was not simply counted, and why if that is known.
    pub fates: BTreeMap<(u64, String), Option<String>>,
    /// Offset, counter and value.
    base: Vec<(u64, String, i64)>,
}

impl Tables {
    pub fn read(node: &TestNode) -> Tables {
        let root = node.path().join("archive");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let base = rows(&root, Table::Base).await;
            let base = base.iter().flat_map(|rows| {
                let (offsets, counters, values) =
                    (numbers(rows, "offset"), texts(rows, "counter"), numbers(rows, "value"));
                let row = move |at: usize| (offsets[at] as u64, counters[at].clone().unwrap(), values[at]);
                (0..rows.num_rows()).map(row)
            });
            let base = base.collect();
            let fates = rows(&root, Table::Fates).await;
            let fates = fates.iter().flat_map(|rows| {
                let offsets = numbers(rows, "offset").into_iter().map(|offset| offset as u64);
                offsets.zip(texts(rows, "counter").into_iter().flatten()).zip(texts(rows, "reason"))
            });
            let fates = fates.collect();
            let events = rows(&root, Table::Events).await;
            let mut events: Vec<EventRow> = events.iter().flat_map(event_rows).collect();
            events.sort_by_key(|event| event.offset);
            Tables { events, fates, base }
        })
    }

    /// Where there are bases, the oldest first.
    pub fn bases(&self) -> Vec<u64> {
        let mut offsets: Vec<u64> = self.base.iter().map(|(offset, ..)| *offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }

    /// What the keys of a counter are worth: the oldest base, and every entry behind it that `fates` does not name.
    pub fn worth(&self, counter: &str) -> BTreeMap<String, i64> {
        let from = self.bases()[0];
        let is_its = |id: &str| id.split(':').next() == Some(counter);
        let base = self.base.iter().filter(|(offset, id, _)| *offset == from && is_its(id));
        let mut worth: BTreeMap<String, i64> = base.map(|(_, id, value)| (id.clone(), *value)).collect();
        for event in self.events.iter().filter(|event| event.offset >= from && event.feeds() == counter) {
            if !self.fates.contains_key(&(event.offset, counter.to_owned())) {
                let key = event.video.as_ref().map_or(counter.to_owned(), |video| format!("{counter}:{video}"));
                *worth.entry(key).or_default() += if event.kind == "unliked" { -event.delta } else { event.delta };
            }
        }
        worth
    }
}

impl EventRow {
    /// The counter that an event of these tests feeds.
    fn feeds(&self) -> &'static str {
        match &*self.kind {
            "viewed" => "views",
            "liked" | "unliked" => "likes",
            "shown" => "impressions",
            _ => "hits",
        }
    }
}

fn event_rows(rows: &RecordBatch) -> Vec<EventRow> {
    let (offsets, deltas, kinds) = (numbers(rows, "offset"), numbers(rows, "delta"), texts(rows, "type"));
    let videos = rows.column_by_name("video").map(|_| texts(rows, "video"));
    let row = |at: usize| EventRow {
        offset: offsets[at] as u64,
        kind: kinds[at].clone().unwrap(),
        video: videos.as_ref().and_then(|videos| videos[at].clone()),
        delta: deltas[at],
    };
    (0..rows.num_rows()).map(row).collect()
}

/// The versions of declarations that are written down.
pub fn versions(node: &TestNode) -> Vec<i64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let rows = runtime.block_on(rows(&node.path().join("archive"), Table::Configurations));
    let mut versions: Vec<i64> = rows.iter().flat_map(|rows| numbers(rows, "version")).collect();
    versions.sort_unstable();
    versions
}

async fn rows(root: &Path, table: Table) -> Vec<RecordBatch> {
    let catalog = SqliteCatalog::open(root).unwrap();
    let table = catalog.open_table(table.name()).await.unwrap().unwrap();
    let rows = table.scan().select_all().build().unwrap().to_arrow().await.unwrap();
    rows.try_collect().await.unwrap()
}

fn numbers(rows: &RecordBatch, column: &str) -> Vec<i64> {
    rows.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = rows.column_by_name(column).unwrap().as_string::<i32>();
    (0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row).to_owned())).collect()
}
