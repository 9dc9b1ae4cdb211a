//! A table of the archive: the files that its last commit names, read where they are.

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::object_store::path::Path;
use datafusion::physical_plan::ExecutionPlan;
use std::any::Any;
use std::sync::Arc;
use tally_archive::{Bounds, ReadableFile};

#[derive(Debug)]
pub struct ArchiveTable {
    schema: SchemaRef,
    files: Vec<ReadableFile>,
}

impl ArchiveTable {
    pub fn new(schema: &Schema, files: Vec<ReadableFile>) -> ArchiveTable {
        ArchiveTable { schema: seen(schema), files }
    }

    fn group(&self) -> Result<FileGroup> {
        self.files.iter().map(|file| self.partitioned(file)).collect::<Result<Vec<_>>>().map(FileGroup::new)
    }

    fn partitioned(&self, file: &ReadableFile) -> Result<PartitionedFile> {
        let mut partitioned = PartitionedFile::new("", file.bytes);
        partitioned.object_meta.location = Path::from_absolute_path(&file.path)?;
        Ok(partitioned.with_statistics(Arc::new(self.statistics_of(file))))
    }

    /// What is known of a file before it is opened.
    fn statistics_of(&self, file: &ReadableFile) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(file.rows as usize);
        for bounds in &file.bounds {
            if let Ok(at) = self.schema.index_of(&bounds.column) {
                statistics.column_statistics[at] = column(bounds, self.schema.field(at).data_type());
            }
        }
        statistics
    }

    fn all_rows(&self) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.schema);
        statistics.num_rows = Precision::Exact(self.files.iter().map(|file| file.rows as usize).sum());
        statistics.total_byte_size = Precision::Inexact(self.files.iter().map(|file| file.bytes as usize).sum());
        statistics
    }
}

fn column(bounds: &Bounds, kind: &DataType) -> ColumnStatistics {
    let scalar = |value: i64| match kind {
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(value), zone.clone())
        }
        _ => ScalarValue::Int64(Some(value)),
    };
    ColumnStatistics {
        null_count: Precision::Exact(0),
        min_value: Precision::Exact(scalar(bounds.least)),
        max_value: Precision::Exact(scalar(bounds.greatest)),
        ..ColumnStatistics::new_unknown()
    }
}

/// The columns as questions see them: texts as views, which are read without being copied; but not what is another with each event. That is
/// sorted, and a few rows of a view hold all of the pages that they point into.
fn seen(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        let kind = match field.data_type() {
            DataType::Utf8 if !matches!(field.name().as_str(), "event_id" | "session") => DataType::Utf8View,
            kind => kind.clone(),
        };
        Field::new(field.name(), kind, field.is_nullable())
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

#[async_trait::async_trait]
impl TableProvider for ArchiveTable {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.all_rows())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let source = Arc::new(ParquetSource::new(self.schema.clone()));
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_file_group(self.group()?)
            .with_statistics(self.all_rows())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
}
