//! What the tables have: columns, partitions and how each column is written (`docs/formats/archive.md`).
//!
//! Columns are only ever added. Every dimension that was ever declared is a column of `events` under its own name, unless a column
//! is called so already, whatever the case of its letters, or none can be: then it stays in the map `dimensions`, with those that nobody
//! declared.

use crate::bounds::{GROUP_BYTES, GROUP_ROWS};
use iceberg::spec::{
    NestedField, NestedFieldRef, PrimitiveType, Schema, Transform, Type, UnboundPartitionField, UnboundPartitionSpec,
};
use iceberg::{Error, Result};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use std::sync::Arc;

/// A table of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Every copy of every event, once.
    Events,
    /// The entries that were not simply counted.
    Fates,
    /// What corrections changed, counter by counter.
    Corrections,
    /// What counters were worth at some positions.
    Base,
    /// What was declared, version by version.
    Configurations,
    /// The commits, with the hashes of what is in them.
    Chain,
    /// What an hour of commits came to, chained to all before it.
    Roots,
    /// Events that the server has sent itself, to see whether they arrive here: no business of anybody else's.
    Probes,
}

/// Of a column's values in one group; what has more different ones is written as it is.
const DICTIONARY_BYTES: usize = 256 << 10;

/// How a column is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Numbers that grow, or stay close to each other.
    Close,
    /// Texts that come again.
    Again,
    /// Texts that hardly do.
    Once,
}

struct Column {
    name: &'static str,
    kind: PrimitiveType,
    is_required: bool,
    written: Written,
}

const fn always(name: &'static str, kind: PrimitiveType, written: Written) -> Column {
    Column { name, kind, is_required: true, written }
}

const fn sometimes(name: &'static str, kind: PrimitiveType, written: Written) -> Column {
    Column { name, kind, is_required: false, written }
}

use PrimitiveType::{Int, Long, String as Text, Timestamptz};
use Written::{Again, Close, Once};

/// Where a row is from: the same in every table that follows the log.
const PLACE: [Column; 4] = [
    always("log", Int, Close),
    always("epoch", Int, Close),
    always("offset", Long, Close),
    always("log_time", Timestamptz, Close),
];

const EVENT: [Column; 13] = [
    always("stream", Text, Again),
    always("received_at", Timestamptz, Close),
    sometimes("occurred_at", Timestamptz, Close),
    always("type", Text, Again),
    sometimes("event_id", Text, Once),
    sometimes("session", Text, Again),
    sometimes("seq", Long, Close),
    always("delta", Long, Close),
    always("group", Int, Close),
    always("rules", Int, Close),
    always("config_version", Long, Close),
    always("generation", Long, Close),
    sometimes("payload", Text, Once),
];
/// The map of dimensions without a column, behind the others.
pub const DIMENSIONS: &str = "dimensions";

const FATE: [Column; 5] = [
    always("counter", Text, Again),
    always("fate", Text, Again),
    sometimes("event_id", Text, Once),
    sometimes("first_seen", Timestamptz, Close),
    sometimes("reason", Text, Again),
];

const CORRECTION: [Column; 11] = [
    always("number", Long, Close),
    always("generation", Long, Close),
    always("cause", Text, Again),
    sometimes("of", Long, Close),
    always("purpose", Text, Again),
    always("reason", Text, Again),
    always("author", Text, Again),
    always("applied_by", Text, Again),
    always("counter", Text, Once),
    sometimes("bucket", Timestamptz, Close),
    always("delta", Long, Close),
];

const BASE: [Column; 2] = [always("counter", Text, Once), always("value", Long, Close)];

const PROBE: [Column; 1] = [always("event_id", Text, Once)];

const CONFIGURATION: [Column; 2] = [always("version", Long, Close), always("yaml", Text, Once)];

const CHAIN: [Column; 8] = [
    always("from_offset", Long, Close),
    always("events", Long, Close),
    always("fates", Long, Close),
    always("corrections", Long, Close),
    always("head_hash", Text, Once),
    always("events_root", Text, Again),
    always("fates_root", Text, Again),
    always("corrections_root", Text, Again),
];

const ROOT: [Column; 13] = [
    always("number", Long, Close),
    always("log_id", Text, Again),
    always("hour", Long, Close),
    always("from_offset", Long, Close),
    always("digest", Text, Once),
    always("commits", Long, Close),
    always("events", Long, Close),
    always("root", Text, Once),
    always("counts", Text, Once),
    always("before", Text, Once),
    always("anchor", Text, Once),
    sometimes("public_key", Text, Again),
    sometimes("signature", Text, Once),
];

impl Table {
    /// Those that are read.
    pub const ALL: [Table; 7] = [
        Table::Events,
        Table::Fates,
        Table::Corrections,
        Table::Base,
        Table::Configurations,
        Table::Chain,
        Table::Roots,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Table::Events => "events",
            Table::Fates => "fates",
            Table::Corrections => "corrections",
            Table::Base => "base",
            Table::Configurations => "configurations",
            Table::Chain => "chain",
            Table::Roots => "roots",
            Table::Probes => "probes",
        }
    }

    fn columns(self) -> impl Iterator<Item = &'static Column> {
        let own: &[Column] = match self {
            Table::Events => &EVENT,
            Table::Fates => &FATE,
            Table::Corrections => &CORRECTION,
            Table::Base => &BASE,
            Table::Configurations => &CONFIGURATION,
            Table::Chain => &CHAIN,
            Table::Roots => &ROOT,
            Table::Probes => &PROBE,
        };
        PLACE.iter().chain(own)
    }

    /// Texts that it is made with and that one of an earlier version has not.
    pub fn missing_texts(self, schema: &Schema) -> Vec<String> {
        let texts = self.columns().filter(|column| column.kind == Text && !column.is_required);
        texts.map(|column| column.name.to_owned()).filter(|name| schema.field_by_name(name).is_none()).collect()
    }

    /// The columns that it is made with.
    pub fn schema(self) -> Result<Schema> {
        let mut id = 0;
        let mut fields: Vec<NestedFieldRef> = Vec::new();
        for column in self.columns() {
            id += 1;
            let kind = Type::Primitive(column.kind.clone());
            fields.push(Arc::new(NestedField::new(id, column.name, kind, column.is_required)));
        }
        if self == Table::Events {
            fields.push(Arc::new(dimensions(id + 1)));
        }
        Schema::builder().with_fields(fields).build()
    }

    /// By the hour of log time; events by their stream before that.
    pub fn partitions(self) -> Result<UnboundPartitionSpec> {
        let schema = self.schema()?;
        let by = |column: &str, name: &str, transform| {
            let source = schema.field_by_name(column).expect("it is one of its columns");
            UnboundPartitionField::builder().source_id(source.id).name(name.to_owned()).transform(transform).build()
        };
        let hour = || by("log_time", HOUR, Transform::Hour);
        let fields = match self {
            Table::Events => vec![by("stream", "stream", Transform::Identity), hour()],
            Table::Fates | Table::Corrections | Table::Chain | Table::Probes => vec![hour()],
            Table::Base | Table::Configurations | Table::Roots => vec![],
        };
        UnboundPartitionSpec::builder().add_partition_fields(fields).map(|builder| builder.build())
    }

    /// How its files are written.
    pub fn properties(self) -> WriterProperties {
        let zstd = ZstdLevel::try_new(1).expect("zstd has a level 1");
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(zstd))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(GROUP_BYTES))
            // Long texts have bounds that are cut, and of several groups of rows Iceberg's library puts together only those that are not: whoever
            // believes them passes over rows.
            .set_statistics_enabled(EnabledStatistics::None)
            .set_dictionary_page_size_limit(DICTIONARY_BYTES);
        for column in self.columns().filter(|column| column.written != Again) {
            let path = ColumnPath::new(vec![column.name.to_owned()]);
            properties = properties.set_column_dictionary_enabled(path.clone(), false);
            if column.written == Close {
                properties = properties
                    .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                    .set_column_statistics_enabled(path, EnabledStatistics::Chunk);
            }
        }
        properties.build()
    }

    /// Whether a column is called so, in any case of its letters: engines differ in what they take for the same name.
    pub fn has_column(self, name: &str) -> bool {
        self.columns().any(|column| column.name.eq_ignore_ascii_case(name)) || DIMENSIONS.eq_ignore_ascii_case(name)
    }
}

/// What the tables are partitioned by, beside columns.
const HOUR: &str = "hour";

/// Whether a dimension of this name stays in the map, whatever else is declared: a column is called so, or Iceberg allows none. It takes
/// a dot for a field within another, and knows no column by the name of a partition.
pub fn stays_in_map(name: &str) -> bool {
    Table::Events.has_column(name) || HOUR.eq_ignore_ascii_case(name) || name.contains('.')
}

fn dimensions(id: i32) -> NestedField {
    let text = || Type::Primitive(Text);
    let key = NestedField::map_key_element(id + 1, text());
    let value = NestedField::map_value_element(id + 2, text(), true);
    let map = iceberg::spec::MapType::new(Arc::new(key), Arc::new(value));
    NestedField::optional(id, DIMENSIONS, Type::Map(map))
}

/// The dimensions that have a column of their own in a table of events, in its order, which is the order of their declaration.
pub fn dimension_columns(schema: &Schema) -> impl Iterator<Item = &str> {
    schema.as_struct().fields().iter().map(|field| field.name.as_str()).filter(|name| !Table::Events.has_column(name))
}

pub fn arrow(schema: &Schema) -> Result<arrow_schema::SchemaRef> {
    iceberg::arrow::schema_to_arrow_schema(schema).map(Arc::new)
}

/// An error of Arrow that says something of our own code.
pub fn arrow_error(error: arrow_schema::ArrowError) -> Error {
    Error::new(iceberg::ErrorKind::Unexpected, error.to_string())
}
