//! The node's side of a question: a process that answers it, the rows that it asks for, and how much it takes.

mod process;

use crate::live::{self, moment::Moment};
use crate::wire::{Ended, Files, Found, Heard, TableRequest, Task};
use arrow_ipc::writer::StreamWriter;
use datafusion::common::Result as Told;
use futures_util::future::BoxFuture;
use process::Process;
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tally_archive::{Readable, Reader, Table};
use tally_core::limits::{
    SQL_ANSWER_BYTES_MAX, SQL_MEMORY_BYTES_MIN, SQL_QUESTIONS_MAX, SQL_TABLES_MAX, SQL_UNCOUNTED_BYTES_MAX,
};
use tally_node::clock::Stopwatch;
use tally_node::engine::{Engine, Refusal};
use tally_node::sql::{Asker, Form, Question, Sql, SqlError, SqlParts, Written};
use tally_node::worker::Spawner;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// This program, even if its file has been replaced since.
const SELF: &str = "/proc/self/exe";

struct Processes {
    program: PathBuf,
    engine: Engine,
    archive: Option<Arc<Reader>>,
    spill: PathBuf,
    memory_bytes: u64,
    /// Of which clients have been granted so much, and of the disk.
    memory: Arc<Shares>,
    disk: Arc<Shares>,
    /// For questions of clients, and for the one that the node has itself.
    places: Arc<Semaphore>,
    own_place: Arc<Semaphore>,
    /// Each question has a number.
    next: AtomicU64,
    /// Where the node is asked for snapshots; `None` only while it ends.
    runtime: Option<Runtime>,
}

/// Has this program answer questions.
pub fn make(parts: SqlParts) -> io::Result<Arc<dyn Sql>> {
    make_with(Path::new(SELF), parts)
}

/// Has another program answer questions, which calls [`crate::answer`] if its argument is [`tally_node::sql::ANSWER`].
pub fn make_with(program: &Path, parts: SqlParts) -> io::Result<Arc<dyn Sql>> {
    let SqlParts { engine, archive, spill, memory_bytes } = parts;
    begin_spill(&spill)?;
    let archive = archive.map(|root| Arc::new(Reader::of_log(root, engine.log_id())));
    Ok(Arc::new(Processes {
        program: program.to_owned(),
        engine,
        archive,
        spill,
        memory_bytes: memory_bytes as u64,
        memory: Arc::default(),
        disk: Arc::default(),
        places: Arc::new(Semaphore::new(SQL_QUESTIONS_MAX)),
        own_place: Arc::new(Semaphore::new(1)),
        next: AtomicU64::new(0),
        runtime: Some(runtime()?),
    }))
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("tally-sql").enable_time().build()
}

/// What is there was left by a process that ended without its leave.
fn begin_spill(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir_all(directory),
    }
}

/// What was granted of something that questions share.
#[derive(Default)]
struct Shares(Mutex<u64>);

struct Granted {
    bytes: u64,
    of: Arc<Shares>,
}

impl Shares {
    /// Who comes gets half of what is left, so that there is something for the next one, too.
    fn grant(self: &Arc<Shares>, all: u64) -> Granted {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = all.saturating_sub(*granted) / 2;
        *granted += bytes;
        Granted { bytes, of: self.clone() }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        *self.of.0.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
    }
}

/// What may be put on a disk: half of what is free by the node, and half of that by all clients together.
fn spill_bytes(spill: &Path, asker: Asker) -> u64 {
    let free = rustix::fs::statvfs(spill).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if asker == Asker::Node { free / 2 } else { free / 4 }
}

impl Processes {
    async fn place(&self, asker: Asker) -> Result<OwnedSemaphorePermit, SqlError> {
        match asker {
            Asker::Client => self.places.clone().try_acquire_owned().map_err(|_| Refusal::busy().into()),
            // It asks one thing after the other, and whoever told it something before may still be at it.
            Asker::Node => self.own_place.clone().acquire_owned().await.map_err(|_| Refusal::ShuttingDown.into()),
        }
    }
}

/// What there is for who asks: a share if it is a client, while the node has all of it, beside them. A recount sorts all ids there are.
fn share(asker: Asker, shares: &Arc<Shares>, all: u64) -> (u64, Option<Granted>) {
    let granted = (asker == Asker::Client).then(|| shares.grant(all));
    (granted.as_ref().map_or(all, |granted| granted.bytes), granted)
}

impl Sql for Processes {
    fn write(&self, question: Question, form: Form) -> BoxFuture<'_, Result<Written, SqlError>> {
        Box::pin(async move {
            let Question { statement, rows_max, time, snapshot, asker } = question;
            let place = self.place(asker).await?;
            let (memory_bytes, memory) = share(asker, &self.memory, self.memory_bytes);
            let memory_bytes = (memory_bytes as usize).max(SQL_MEMORY_BYTES_MIN);
            let (spill_bytes, disk) = share(asker, &self.disk, spill_bytes(&self.spill, asker));
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let (has_archive, spill) = (self.archive.is_some(), self.spill.join(number.to_string()));
            let task = Task { statement, form, rows_max, memory_bytes, has_archive, spill, spill_bytes };
            let runtime = self.runtime.as_ref().expect("it is there until the end").handle().clone();
            let moment = Arc::new(Moment::new(self.engine.clone(), snapshot, self.archive.clone(), place, runtime));
            let (answered, answer) = oneshot::channel();
            let program = self.program.clone();
            let attended = Spawner::thread("tally-sql-ask", move || {
                let found = attend(&program, &task, &moment, time, || answered.is_closed());
                // Given back when it has really ended; its place, when nobody tells it anything any more.
                drop((moment, memory, disk));
                let _ = answered.send(found);
            });
            attended.map_err(failed)?;
            answer.await.unwrap_or_else(|_| Err(Refusal::ShuttingDown.into()))
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Starts a process and hears what it says, until it has answered, is over its bounds or nobody waits for it any more.
fn attend(
    program: &Path,
    task: &Task,
    moment: &Arc<Moment>,
    time: Duration,
    is_over: impl Fn() -> bool,
) -> Result<Written, SqlError> {
    let watch = Stopwatch::start();
    let mut process = Process::start(program, task).map_err(failed)?;
    let (mut bytes, mut found) = (Vec::new(), None);
    loop {
        match process.hear().map_err(failed)? {
            Heard::Nothing => {}
            Heard::Rows(more) => bytes.extend(more),
            Heard::Table(..) if told_at_once(moment) >= SQL_TABLES_MAX => {
                return Err(SqlError::TooMuch(format!("it reads tables at more than {SQL_TABLES_MAX} places at once")));
            }
            Heard::Table(request, to) => tell(moment, request, to).map_err(failed)?,
            Heard::Ended(ended) => found = Some(ended),
            Heard::End => break,
        }
        if is_over() {
            return Err(Refusal::ShuttingDown.into());
        }
        if watch.elapsed() >= time {
            return Err(SqlError::TooLong(time));
        }
        let most = task.memory_bytes + SQL_UNCOUNTED_BYTES_MAX;
        if bytes.len() > 3 * SQL_ANSWER_BYTES_MAX || process.memory_bytes() > most {
            return Err(SqlError::TooMuch(format!(
                "it takes more than the {} MiB of memory that there are for it",
                most >> 20
            )));
        }
    }
    if let Some(refusal) = moment.failure() {
        return Err(refusal.into());
    }
    match found {
        Some(Ended::Found(found)) => Ok(written(found, bytes, moment)),
        Some(Ended::Wrong(words)) => Err(SqlError::Wrong(words)),
        Some(Ended::TooMuch(words)) => Err(SqlError::TooMuch(words)),
        Some(Ended::Failed(words)) => Err(Refusal::StoreFailed(words.into()).into()),
        None => Err(broken(process)),
    }
}

/// How many tables are being told, each by a thread that holds the moment for so long.
fn told_at_once(moment: &Arc<Moment>) -> usize {
    Arc::strong_count(moment) - 1
}

fn written(found: Found, bytes: Vec<u8>, moment: &Moment) -> Written {
    let Found { columns, row_count, is_truncated } = found;
    Written { columns, bytes, row_count, is_truncated, archive: moment.archived(), live: moment.position() }
}

/// It ended without an answer.
fn broken(process: Process) -> SqlError {
    let said = process.last_words();
    tracing::warn!(said, "a question in SQL has ended the process that was to answer it");
    SqlError::Broke(format!(
        "the engine for SQL broke on this statement ({said}); nothing else is affected. Ask in another way"
    ))
}

fn failed(error: io::Error) -> SqlError {
    Refusal::StoreFailed(format!("questions in SQL: {error}").into()).into()
}

/// Writes a table to who asks for it, on a thread of its own.
fn tell(moment: &Arc<Moment>, request: TableRequest, to: UnixStream) -> io::Result<()> {
    // Held until a failure is known: who hears the end before that would take what came for all there is.
    let (moment, held) = (moment.clone(), to.try_clone()?);
    Spawner::thread("tally-sql-live", move || {
        let told = match Table::ALL.into_iter().find(|kind| kind.name() == request.table) {
            Some(kind) => tell_files(&moment, kind, &to),
            None => tell_rows(&moment, &request, to),
        };
        if let Err(error) = told {
            moment.fail(&error);
        }
        drop(held);
    })?;
    Ok(())
}

fn tell_files(moment: &Moment, kind: Table, to: &UnixStream) -> Told<()> {
    let files = match moment.wait_for(moment.files(kind))? {
        Some(Readable { schema, files, .. }) => {
            Some(Files { schema: StreamWriter::try_new(Vec::new(), &schema)?.into_inner()?, files })
        }
        None => None,
    };
    // Whoever does not listen any more is told nothing.
    let _ = serde_json::to_writer(BufWriter::new(to), &files);
    Ok(())
}

fn tell_rows(moment: &Arc<Moment>, request: &TableRequest, to: UnixStream) -> Told<()> {
    let produce = moment.wait_for(live::rows(moment, request))?;
    let schema = live::schema(&request.table).expect("it has rows");
    let mut writer = StreamWriter::try_new(BufWriter::new(to), &schema)?;
    let mut told = Ok(());
    produce(&mut |batch| match batch.map(|batch| writer.write(&batch)) {
        Ok(Ok(())) => ControlFlow::Continue(()),
        // Nobody wants more.
        Ok(Err(_)) => ControlFlow::Break(()),
        Err(error) => {
            told = Err(error);
            ControlFlow::Break(())
        }
    })?;
    // Whoever has enough does not hear that this was all, and nobody does if it was not.
    if told.is_ok() {
        let _ = writer.finish();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_gets_half_of_what_is_left_and_all_together_no_more_than_there_is() {
        let shares = Arc::<Shares>::default();
        let first = shares.grant(1000);
        let second = shares.grant(1000);
        assert_eq!((first.bytes, second.bytes), (500, 250));
        assert_eq!(shares.grant(600).bytes, 0, "what there was is granted, though there is less now");
        drop(first);
        assert_eq!(shares.grant(1000).bytes, 375);
        drop(second);
        assert_eq!(shares.grant(1000).bytes, 500);
    }
}
