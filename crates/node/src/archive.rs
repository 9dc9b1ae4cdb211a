//! Keeps the archive (`tally-archive`): a worker follows the log, commit by commit, and holds it until the archive has it.
//!
//! The archive is a *binding* holder: what it does not have yet is not freed, neither of the log nor of the commits. A crash at any
//! point loses and repeats nothing, since it goes on where its tables say they are. It never waits for anybody but the disk, and
//! nobody waits for it but who asks for a flush.

mod follow;
mod rejected;

use crate::engine::{CommitsError, Engine, Refusal};
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use flume::{Receiver, Sender};
use follow::Following;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tally_archive::{Archive, ArchiveError, Reached, Reader, Sign, Tables, Writer};
use tally_core::counter::Archived;
use tally_core::limits::{ARCHIVE_COMMITS_MAX, ARCHIVE_FLUSHES_MAX, PROOFS_MAX};
use tally_core::position::Position;
use tally_core::record::DecodeError;
use tally_storage::log::LogError;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// How often what was taken in is made visible, if there is anything.
const COMMIT_EVERY: Duration = Duration::from_secs(5 * 60);
/// Or when there are so many rows.
const COMMIT_ROWS: u64 = 8_000_000;
/// Or when so much of the log would be free, whatever is in it.
const COMMIT_LOG_BYTES: u64 = 256 << 20;
/// How often it is looked for what may go: events that are old enough, and files that no table names any more. By the node's time,
/// as the age of events is.
const TIDY_EVERY_MS: u64 = 60 * 60 * 1000;
/// The same, if what was let go of an hour ago could not be forgotten: a full disk waits for it.
const TIDY_AGAIN_MS: u64 = 60 * 1000;
/// Commits of the log that are taken in at a time.
const UNIT_COMMITS: usize = 16;
const RETRY: Retry = Retry { first: Duration::from_secs(1), most: Duration::from_secs(60) };

/// Why the archive does not get on.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("{0}")]
    Commits(#[from] CommitsError),
    #[error("a record of the log cannot be read: {0}")]
    Record(#[from] DecodeError),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(
        "the archive stands at {archived} and has what this log has not: its end was given up, or lost in a power cut without \
         durability sync. Move the archive's directory away, and a new one begins here"
    )]
    Diverged { archived: Position },
    #[error("the log ends at record {at}, before the commit that ends at {commit}")]
    LogEnds { at: u64, commit: Position },
    #[error("configuration {version} cannot be read any more: {error}")]
    Declared { version: u64, error: String },
    #[error("correction {correction} is in a commit, and nowhere else")]
    Unknown { correction: u64 },
}

/// How far the archive is, for those who ask.
#[derive(Clone, Debug, Default)]
pub struct ArchiveStatus {
    pub directory: PathBuf,
    /// Behind what can be read in it; `None` until it has begun.
    pub reached: Option<Reached>,
    pub events: u64,
    pub files: u64,
    /// On disk, with what versions that are kept for readers have.
    pub bytes: u64,
    /// What of its upkeep failed when it was last tried.
    pub trouble: Option<String>,
}

/// What others hold of the archive.
#[derive(Clone)]
pub struct ArchiveHandle {
    flushes: Sender<Flush>,
    wake: Wake,
    engine: Engine,
    status: Arc<Mutex<ArchiveStatus>>,
    reader: Arc<Reader>,
    proofs: Arc<Semaphore>,
}

/// Somebody waits until everything before an offset can be read.
struct Flush {
    to: u64,
    /// And until a root has it.
    anchored: bool,
    done: oneshot::Sender<Result<Reached, Refusal>>,
}

impl ArchiveHandle {
    /// Who reads its tables. May wait for the disk, and for who holds the catalog.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Its tables as they are now.
    pub async fn tables(&self) -> Result<Result<Tables, ArchiveError>, Refusal> {
        self.read_apart(async |reader| Tables::read(reader).await).await
    }

    /// Those of its roots alone.
    pub async fn tables_of_roots(&self) -> Result<Result<Tables, ArchiveError>, Refusal> {
        self.read_apart(async |reader| Tables::roots_only(reader).await).await
    }

    /// Reads where nobody else has to wait for it.
    async fn read_apart<T: Send + 'static>(
        &self,
        read: impl AsyncFnOnce(&Reader) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reader, runtime) = (self.reader.clone(), Handle::current());
        let read = move || runtime.block_on(read(&reader));
        self.engine.workers().spawner().blocking(read).await.ok_or(Refusal::ShuttingDown)
    }

    /// Places for those who make proofs.
    pub fn proofs(&self) -> &Arc<Semaphore> {
        &self.proofs
    }

    pub fn status(&self) -> ArchiveStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that are applied and cannot be read in the archive yet.
    pub fn lag(&self) -> u64 {
        let reached = self.status().reached.map_or(0, |reached| reached.to.offset);
        self.engine.applied().offset.saturating_sub(reached)
    }

    /// Waits until everything that is applied now can be read in the archive. Answers how far it is then.
    pub async fn flush(&self) -> Result<Reached, Refusal> {
        self.bring_up_to_now(false).await
    }

    /// The same, and a root is closed there: everything that was acknowledged before is in it or in one before it.
    pub async fn anchor(&self) -> Result<Reached, Refusal> {
        self.bring_up_to_now(true).await
    }

    async fn bring_up_to_now(&self, anchored: bool) -> Result<Reached, Refusal> {
        let (done, flushed) = oneshot::channel();
        let to = self.engine.applied().offset;
        self.flushes.try_send(Flush { to, anchored, done }).map_err(|_| Refusal::busy())?;
        self.engine.commits().hurry();
        self.wake.wake();
        flushed.await.unwrap_or(Err(Refusal::ShuttingDown))
    }
}

/// Follows the log.
pub struct Archiver {
    engine: Engine,
    root: PathBuf,
    /// Another number each time.
    nonce: fn() -> io::Result<u64>,
    /// Who signs roots, if somebody does.
    signer: Option<Arc<dyn Sign>>,
    asked: Receiver<Flush>,
    flushes: Vec<Flush>,
    following: Option<Following>,
    /// When it last made something visible, by [`crate::clock::Clock::passed`].
    committed: Duration,
    /// When it is looked again for what may go; `None` before it was opened once. An error does not put it off.
    tidy_at_ms: Option<u64>,
    status: Arc<Mutex<ArchiveStatus>>,
}

impl Archiver {
    pub fn spec() -> Spec {
        let does = "puts every event into the tables of the archive, and holds the log until it is there";
        Spec::new("archive", does, RETRY).waits_for("commits of the log")
    }

    /// One that keeps the archive of a log in a directory, and a handle to it. Nothing of the log is freed from here on that it does not
    /// have.
    pub fn new(
        engine: Engine,
        root: PathBuf,
        nonce: fn() -> io::Result<u64>,
        signer: Option<Arc<dyn Sign>>,
        spec: &Spec,
    ) -> (Archiver, ArchiveHandle) {
        engine.hold_for_archive(0);
        let (directory, bytes) = (root.clone(), bytes_below(&root));
        let status = Arc::new(Mutex::new(ArchiveStatus { directory, bytes, ..ArchiveStatus::default() }));
        let (flushes, asked) = flume::bounded(ARCHIVE_FLUSHES_MAX);
        let handle = ArchiveHandle {
            flushes,
            wake: spec.wake.clone(),
            engine: engine.clone(),
            status: status.clone(),
            reader: Arc::new(Reader::of_log(root.clone(), engine.log_id())),
            proofs: Arc::new(Semaphore::new(PROOFS_MAX)),
        };
        let now = engine.clock().passed();
        let archiver = Archiver {
            engine,
            root,
            nonce,
            signer,
            asked,
            flushes: Vec::new(),
            following: None,
            committed: now,
            tidy_at_ms: None,
            status,
        };
        (archiver, handle)
    }

    async fn open(&mut self) -> Result<Following, Stop> {
        // Until it is known how far it is, nothing is freed.
        self.engine.hold_for_archive(0);
        let now_ms = self.engine.clock().now_ms();
        let writer = Writer { log_id: self.engine.log_id(), nonce: (self.nonce)()?, now_ms };
        let mut archive = Archive::open(&self.root, writer).await?;
        if let Some(signer) = &self.signer {
            archive.sign_with(signer.clone());
        }
        let mut following = Following::begin(&self.engine, archive).await?;
        self.publish(&following);
        let mut upkeep = Upkeep::default();
        // What was left by commits that could not be made goes first: where the disk is full, all else waits for its room.
        upkeep.note(following.archive.sweep().await)?;
        if self.tidy_at_ms.is_none() {
            upkeep.note(self.let_go(&mut following).await)?;
            self.tidy_again_in(TIDY_EVERY_MS);
        }
        self.tell(upkeep, &following);
        Ok(following)
    }

    /// One unit; answers whether another should follow at once.
    async fn advance(&mut self) -> Result<bool, Stop> {
        self.flushes.extend(self.asked.try_iter());
        let mut following = match self.following.take() {
            Some(following) => following,
            None => self.open().await?,
        };
        if following.archive.pending() == 0 && self.is_time_to_tidy() {
            // Before anything is taken in: where the disk is full, the next commit waits for the room.
            if !following.archive.is_at_rest() {
                following.commit().await?;
            }
            self.tidy(&mut following).await?;
        }
        let mut has_more = true;
        for _ in 0..UNIT_COMMITS {
            has_more = following.advance().await?;
            if !has_more || self.is_due(&following) {
                break;
            }
        }
        if !has_more {
            following.close_root_of_before(self.engine.clock().now_ms()).await?;
        }
        if self.flushes.iter().any(|flush| flush.anchored && flush.to <= following.reached.to.offset) {
            following.archive.close_root().await?;
        }
        if self.is_due(&following) {
            following.commit().await?;
            self.committed = self.engine.clock().passed();
            self.publish(&following);
        }
        self.following = Some(following);
        Ok(has_more)
    }

    fn is_due(&self, following: &Following) -> bool {
        let since = self.engine.clock().passed().saturating_sub(self.committed);
        let pending = following.archive.pending();
        pending >= COMMIT_ROWS
            || following.log_bytes >= COMMIT_LOG_BYTES
            || following.archive.pending_commits() >= ARCHIVE_COMMITS_MAX
            || following.archive.pending_roots() > 0
            || pending > 0 && since >= COMMIT_EVERY
            || self.flushes.iter().any(|flush| flush.to <= following.reached.to.offset)
    }

    /// Everything before it can be read in the archive, so the log may go, and whoever waits is told.
    fn publish(&mut self, following: &Following) {
        let reached = following.reached;
        self.engine.hold_for_archive(reached.to.offset);
        self.engine.metrics().archive.offset.set(reached.to.offset as i64);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        (status.events, status.files) = following.archive.visible();
        status.reached = Some(reached);
        drop(status);
        for flush in self.flushes.extract_if(.., |flush| flush.to <= reached.to.offset) {
            let _ = flush.done.send(Ok(reached));
        }
    }

    /// Nobody waits for what may never come.
    fn refuse_all(&mut self, stop: &Stop) {
        for flush in self.flushes.drain(..) {
            let _ = flush.done.send(Err(Refusal::ArchiveFailed(stop.to_string().into())));
        }
    }

    /// Removes what was let go of an hour ago, lets go of what is old enough, and puts small files together. Nothing is on its way.
    async fn tidy(&mut self, following: &mut Following) -> Result<(), Stop> {
        let mut upkeep = Upkeep::default();
        upkeep.note(following.archive.forget_what_was_let_go().await)?;
        let is_forgotten = upkeep.trouble.is_none();
        // What frees room comes before what takes some.
        upkeep.note(following.archive.sweep().await)?;
        if is_forgotten {
            upkeep.note(self.let_go(following).await)?;
            upkeep.note(following.archive.merge().await)?;
        }
        // Whoever reads what it was before has as long as anybody.
        self.tidy_again_in(if is_forgotten { TIDY_EVERY_MS } else { TIDY_AGAIN_MS });
        self.tell(upkeep, following);
        Ok(())
    }

    fn is_time_to_tidy(&self) -> bool {
        self.tidy_at_ms.is_some_and(|at_ms| self.engine.clock().now_ms() >= at_ms)
    }

    fn tidy_again_in(&mut self, time_ms: u64) {
        self.tidy_at_ms = Some(self.engine.clock().now_ms() + time_ms);
    }

    async fn let_go(&self, following: &mut Following) -> Result<(), Stop> {
        match self.engine.declarations().archived() {
            Archived::For { keep_ms: Some(keep_ms) } => following.let_go(self.engine.clock().now_ms(), keep_ms).await,
            _ => Ok(()),
        }
    }

    /// What the archive has come to, and what stays undone.
    fn tell(&mut self, upkeep: Upkeep, following: &Following) {
        self.publish(following);
        let ((events, files), bytes) = (following.archive.visible(), bytes_below(&self.root));
        self.engine.metrics().archive.bytes.set(bytes as i64);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        (status.bytes, status.trouble) = (bytes, upkeep.trouble);
        tracing::info!(directory = %self.root.display(), events, files, bytes, "the archive");
    }
}

/// What keeps the archive in order. Nothing that is to be archived waits for it: a damaged manifest of last month, or a file that cannot be
/// removed, would let the log grow.
#[derive(Default)]
struct Upkeep {
    trouble: Option<String>,
}

impl Upkeep {
    /// What failed is told and tried again later, unless somebody else writes, too.
    fn note(&mut self, done: Result<(), impl Into<Stop>>) -> Result<(), Stop> {
        match done.map_err(Into::into) {
            Err(stop) if !matches!(stop, Stop::Archive(ArchiveError::Fenced { .. })) => {
                tracing::warn!(%stop, "the archive goes on, and something of its upkeep stays undone");
                self.trouble.get_or_insert(stop.to_string());
                Ok(())
            }
            done => done,
        }
    }
}

impl Work for Archiver {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let advanced = self.advance().await;
        if let Err(stop) = &advanced {
            self.refuse_all(stop);
        }
        let has_more = advanced?;
        if let Some(following) = &self.following {
            let behind = self.engine.applied().offset.saturating_sub(following.reached.to.offset);
            context.queue(behind as usize);
        }
        let flushing = !self.flushes.is_empty();
        if flushing {
            // Whoever asked did so when the last commit was not made yet, maybe.
            self.engine.commits().hurry();
        }
        Ok(if has_more {
            Next::Again
        } else if flushing {
            Next::After(FLUSH_LOOK)
        } else {
            Next::After(LOOK)
        })
    }

    async fn wait(&mut self) -> ControlFlow<()> {
        let reached = self.following.as_ref().map_or(0, |following| following.reached.to.offset);
        self.engine.commits().wait_behind(reached).await;
        ControlFlow::Continue(())
    }
}

/// What a directory takes on disk, as far as it can be read.
fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        metadata => metadata.map_or(0, |metadata| metadata.len()),
    });
    bytes.sum()
}

/// How often it looks whether something is due.
const LOOK: Duration = Duration::from_secs(5);
/// The same, while somebody waits.
const FLUSH_LOOK: Duration = Duration::from_millis(50);
