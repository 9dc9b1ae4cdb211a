//! The process's side of a question: a session of DataFusion for one statement, bounded in memory, and its rows.

use crate::neighbours::Neighbours;
use crate::pool::Pool;
use crate::scope::{Scope, Tables};
use crate::wire::{Ended, Found, Task, Teller};
use crate::writing;
use crate::yielding::Yielding;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tally_node::worker::Spawner;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How questions call the one database there is, and its one schema.
const CATALOG: &str = "tally";
const SCHEMA: &str = "public";
/// Questions give way to events, reads and checkpoints.
const NICENESS: i32 = 10;
/// Who reads files and what was spilled, for each thread that reckons: a merge asks for hundreds of pieces at once, and every thread that
/// reads one keeps memory of its own.
const READERS: usize = 2;
/// A chain of `or` is as deep as it is long, and who plans it calls itself for each of its parts: so much is enough for as many as fit into
/// a request. Only what is used of it takes memory.
const STACK_BYTES: usize = 256 << 20;
/// What each sort keeps aside of what is shared out, to merge what it has spilled: one part in so many, at most so many bytes.
const MERGE_PARTS: usize = 16;
const MERGE_BYTES_MAX: usize = 10 << 20;

/// Answers the one question that comes over the standard input, which is a socket, and says there what it found.
pub fn answer() -> io::Result<()> {
    give_way();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let task = Task::receive(&socket)?;
    end_with(socket.try_clone()?)?;
    let teller = Arc::new(Teller::new(socket));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = runtime(threads)?;
    // Not on this thread, whose stack is small.
    let mut answering = JoinSet::new();
    answering.spawn_on(found(task, teller.clone(), threads), runtime.handle());
    let ended = runtime.block_on(answering.join_next()).expect("there is one task");
    runtime.shutdown_background();
    // What has panicked has said so, to whoever reads the errors of this process.
    teller.ended(&ended.map_err(io::Error::other)?)
}

/// Behind everybody else, for the processor and for whoever runs out of memory; without leave to do so it runs as everybody else.
fn give_way() {
    let _ = setpriority_process(None, NICENESS);
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Nobody looks at what is left of it.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}

/// Nobody waits for an answer that the node does not wait for, however it went.
fn end_with(mut node: UnixStream) -> io::Result<()> {
    Spawner::thread("tally-sql-node", move || {
        let _ = node.read(&mut [0]);
        std::process::exit(1);
    })?;
    Ok(())
}

fn runtime(threads: usize) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(threads * READERS)
        .thread_name("tally-sql")
        .thread_stack_size(STACK_BYTES)
        .enable_time()
        .build()
}

async fn found(task: Task, teller: Arc<Teller>, threads: usize) -> Ended {
    let scope = Arc::new(Scope::new(teller.clone(), task.has_archive));
    let written = async {
        let session = session(&task, &scope, threads)?;
        let rows = begin(&session, &task.statement).await?;
        let columns = writing::columns(&rows.schema());
        let (row_count, is_truncated) = writing::write(rows, task.form, task.rows_max, &teller).await?;
        Ok(Found { columns, row_count, is_truncated })
    };
    written.await.map_or_else(|error| explained(&error), Ended::Found)
}

fn session(task: &Task, scope: &Arc<Scope>, threads: usize) -> Result<SessionContext> {
    let pool = Pool::new(task.memory_bytes);
    let config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_sort_spill_reservation_bytes((pool.shared_bytes() / MERGE_PARTS).min(MERGE_BYTES_MAX))
        .with_target_partitions(threads);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(bounds(task, pool)?)
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(Neighbours))
        .with_physical_optimizer_rule(Arc::new(Yielding))
        .build();
    let session = SessionContext::new_with_state(state);
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema(SCHEMA, Arc::new(Tables(scope.clone())))?;
    session.register_catalog(CATALOG, Arc::new(catalog));
    Ok(session)
}

fn bounds(task: &Task, pool: Pool) -> Result<Arc<RuntimeEnv>> {
    let spill = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![task.spill.clone()]))
        .with_max_temp_directory_size(task.spill_bytes);
    RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).with_disk_manager_builder(spill).build_arc()
}

/// Nothing but reading is planned.
async fn begin(session: &SessionContext, statement: &str) -> Result<SendableRecordBatchStream> {
    let reading = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    session.sql_with_options(statement, reading).await?.execute_stream().await
}

fn explained(error: &DataFusionError) -> Ended {
    let words = error.strip_backtrace();
    match error.find_root() {
        DataFusionError::SQL(unread, _) => Ended::Wrong(format!("the statement cannot be read: {unread}")),
        // Nobody can set what the engine calls that.
        DataFusionError::ResourcesExhausted(what) if what.contains("max_temp_directory_size") => Ended::TooMuch(
            "it puts more on the disk of the data directory than there is for it; make room there".to_owned(),
        ),
        DataFusionError::ResourcesExhausted(_) => Ended::TooMuch(words),
        DataFusionError::External(_)
        | DataFusionError::IoError(_)
        | DataFusionError::ObjectStore(_)
        | DataFusionError::ParquetError(_) => Ended::Failed(words),
        _ => Ended::Wrong(words),
    }
}
