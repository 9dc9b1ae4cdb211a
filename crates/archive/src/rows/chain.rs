//! Rows of `chain` and `roots`.

use super::{Place, Places, taken, texts};
use crate::schema::{Table, arrow, arrow_error};
use arrow_array::RecordBatch;
use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_schema::SchemaRef;
use iceberg::Result;
use tally_core::position::Position;
use tally_core::proof::{CommitLeaf, Root, Signature};

/// Commits of one hour.
pub struct ChainRows {
    schema: SchemaRef,
    pub hour: i32,
    places: Places,
    numbers: [Int64Builder; 4],
    hashes: [StringBuilder; 4],
}

impl ChainRows {
    pub fn new() -> Result<ChainRows> {
        let schema = arrow(&Table::Chain.schema()?)?;
        let (numbers, hashes) = (std::array::from_fn(|_| Int64Builder::new()), std::array::from_fn(|_| texts()));
        Ok(ChainRows { schema, hour: 0, places: Places::new(), numbers, hashes })
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn push(&mut self, place: Place, leaf: &CommitLeaf) {
        self.hour = place.hour();
        self.places.push(place);
        let numbers = [leaf.from, leaf.events, leaf.fates, leaf.corrections];
        for (column, number) in self.numbers.iter_mut().zip(numbers) {
            column.append_value(number as i64);
        }
        let hashes = [leaf.head, leaf.events_root, leaf.fates_root, leaf.corrections_root];
        for (column, hash) in self.hashes.iter_mut().zip(hashes) {
            column.append_value(hash.to_string());
        }
    }

    pub fn take(&mut self) -> Result<RecordBatch> {
        let mut columns = self.places.take();
        columns.extend(self.numbers.iter_mut().map(|column| taken(column)));
        columns.extend(self.hashes.iter_mut().map(|column| taken(column)));
        RecordBatch::try_new(self.schema.clone(), columns).map_err(arrow_error)
    }
}

/// A root as a batch.
pub fn root_row(root: &Root, signature: Option<&Signature>) -> Result<RecordBatch> {
    let mut places = Places::new();
    let position = Position { epoch: root.epoch, log: root.log, offset: root.to };
    places.push(Place { position, log_time_ms: root.log_time_ms as u64 });
    let number = |number: i64| {
        let mut column = Int64Builder::new();
        column.append_value(number);
        taken(&mut column)
    };
    let text = |text: Option<&str>| {
        let mut column = texts();
        column.append_option(text);
        taken(&mut column)
    };
    let counts = serde_json::to_string(&root.counts).expect("they are texts and numbers");
    let mut columns = places.take();
    columns.extend([
        number(root.number as i64),
        text(Some(&root.log_id)),
        number(root.hour),
        number(root.from as i64),
        text(Some(&root.digest)),
        number(root.commits as i64),
        number(root.events as i64),
        text(Some(&root.root.to_string())),
        text(Some(&counts)),
        text(Some(&root.before.to_string())),
        text(Some(&root.anchor().to_string())),
        text(signature.map(|signature| signature.public_key.as_str())),
        text(signature.map(|signature| signature.signature.as_str())),
    ]);
    RecordBatch::try_new(arrow(&Table::Roots.schema()?)?, columns).map_err(arrow_error)
}
