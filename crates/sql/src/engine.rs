//! Runs questions, a few at a time, on threads of their own.

use crate::neighbours::Neighbours;
use crate::pool::Pool;
use crate::scope::{Scope, Source, Tables};
use crate::yielding::Yielding;
use arrow_array::RecordBatch;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::common::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tally_core::limits::{SQL_ANSWER_BYTES_MAX, SQL_QUESTIONS_MAX};
use tally_node::engine::Refusal;
use tally_node::sql::{Answer, Question, Sql, SqlError, SqlParts};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How questions call the one database there is, and its one schema.
const CATALOG: &str = "tally";
const SCHEMA: &str = "public";
/// Questions give way to events, reads and checkpoints.
const NICENESS: i32 = 10;
/// Who reads files and what was spilled, for each thread that reckons: a merge asks for hundreds of pieces at once, and every thread that
/// reads one keeps memory of its own.
const READERS: usize = 2;
/// What a question may put on the disk: one part in so many of what is free at the start.
const SPILL_PARTS: u64 = 2;
/// What each sort keeps aside of what is shared out, to merge what it has spilled: one part in so many, at most so many bytes.
const MERGE_PARTS: usize = 16;
const MERGE_BYTES_MAX: usize = 10 << 20;

struct Engine {
    /// `None` only while it ends.
    runtime: Option<Runtime>,
    source: Arc<Source>,
    bounds: Arc<RuntimeEnv>,
    threads: usize,
    /// What a sort keeps aside for putting together what it has spilled.
    merge_bytes: usize,
    places: Arc<Semaphore>,
}

/// An engine for a node.
pub fn make(parts: SqlParts) -> io::Result<Arc<dyn Sql>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(threads * READERS)
        .thread_name("tally-sql")
        .on_thread_start(give_way)
        .enable_time()
        .build()?;
    let pool = Pool::new(&parts.budget);
    let merge_bytes = (pool.shared_bytes() / MERGE_PARTS).min(MERGE_BYTES_MAX);
    let bounds = bounds(&parts, pool).map_err(io::Error::other)?;
    let source = Arc::new(Source::new(parts.engine, parts.archive));
    let places = Arc::new(Semaphore::new(SQL_QUESTIONS_MAX));
    Ok(Arc::new(Engine { runtime: Some(runtime), source, bounds, threads, merge_bytes, places }))
}

fn give_way() {
    // Without leave to do so it runs as everybody else.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
}

fn bounds(parts: &SqlParts, pool: Pool) -> datafusion::common::Result<Arc<RuntimeEnv>> {
    begin_spill(&parts.spill)?;
    let free = rustix::fs::statvfs(&parts.spill).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    let spill = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![parts.spill.clone()]))
        .with_max_temp_directory_size(free / SPILL_PARTS);
    RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).with_disk_manager_builder(spill).build_arc()
}

/// What is there was left by a process that ended without its leave.
fn begin_spill(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(directory),
    }
}

impl Sql for Engine {
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, SqlError>> {
        Box::pin(async move {
            let place = self.places.clone().try_acquire_owned().map_err(|_| Refusal::busy())?;
            let runtime = self.runtime.as_ref().expect("it is there until the end");
            let scope = Arc::new(Scope::new(self.source.clone(), question.snapshot.clone()));
            let session = self.session(&scope);
            // Dropped with this future, and the question with it.
            let mut task = JoinSet::new();
            let found = async move {
                // Given back when it has really ended.
                let _place = place;
                answer(session, scope, question).await
            };
            task.spawn_on(found, runtime.handle());
            task.join_next().await.and_then(Result::ok).unwrap_or_else(|| Err(Refusal::ShuttingDown.into()))
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    fn session(&self, scope: &Arc<Scope>) -> SessionContext {
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_sort_spill_reservation_bytes(self.merge_bytes)
            .with_target_partitions(self.threads);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(self.bounds.clone())
            .with_default_features()
            .with_physical_optimizer_rule(Arc::new(Neighbours))
            .with_physical_optimizer_rule(Arc::new(Yielding))
            .build();
        let session = SessionContext::new_with_state(state);
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(SCHEMA, Arc::new(Tables(scope.clone()))).expect("a new catalog takes schemas");
        session.register_catalog(CATALOG, Arc::new(catalog));
        session
    }
}

async fn answer(session: SessionContext, scope: Arc<Scope>, question: Question) -> Result<Answer, SqlError> {
    let Question { statement, rows_max, time, snapshot: _ } = question;
    let found = async {
        let stream = begin(&session, &statement).await?;
        let schema = stream.schema();
        let (rows, is_truncated) = take(stream, rows_max).await?;
        Ok(Answer { schema, rows, is_truncated, archive: scope.archived(), live: scope.live() })
    };
    match tokio::time::timeout(time, found).await {
        Ok(found) => found.map_err(explained),
        Err(_) => Err(SqlError::TooLong(time)),
    }
}

/// Nothing but reading is planned.
async fn begin(session: &SessionContext, statement: &str) -> Result<SendableRecordBatchStream, DataFusionError> {
    let reading = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    session.sql_with_options(statement, reading).await?.execute_stream().await
}

/// Up to so many rows, and whether there are more.
async fn take(
    mut stream: SendableRecordBatchStream,
    rows_max: usize,
) -> Result<(Vec<RecordBatch>, bool), DataFusionError> {
    let (mut rows, mut room, mut bytes) = (Vec::new(), rows_max, 0);
    while let Some(batch) = stream.next().await.transpose()? {
        if batch.num_rows() == 0 {
            continue;
        }
        if room == 0 || bytes >= SQL_ANSWER_BYTES_MAX {
            return Ok((rows, true));
        }
        let taken = batch.slice(0, batch.num_rows().min(room));
        room -= taken.num_rows();
        bytes += taken.get_array_memory_size();
        let is_cut = taken.num_rows() < batch.num_rows();
        rows.push(taken);
        if is_cut {
            return Ok((rows, true));
        }
    }
    Ok((rows, false))
}

fn explained(error: DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => SqlError::TooMuch(words(&error)),
        DataFusionError::External(inner) => match inner.downcast_ref::<Refusal>() {
            Some(refusal) => SqlError::Refused(refusal.clone()),
            None => SqlError::Wrong(words(&error)),
        },
        DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) | DataFusionError::ParquetError(_) => {
            SqlError::Refused(Refusal::StoreFailed(words(&error).into()))
        }
        _ => SqlError::Wrong(words(&error)),
    }
}

fn words(error: &DataFusionError) -> String {
    error.strip_backtrace()
}
