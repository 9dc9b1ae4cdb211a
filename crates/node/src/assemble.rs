//! Puts a node together: opens the seams, starts the threads, and takes it apart again.

mod export;

pub use export::{ExportError, export};

use crate::anomalies::{AnomaliesHandle, AnomalyWatcher};
use crate::archive::{ArchiveHandle, Archiver};
use crate::backup::{BackupHandle, Backups, Place, PlaceError};
use crate::clock::Clock;
use crate::counters::Host;
use crate::data_dir::{DataDir, DataDirError};
use crate::descriptors::{self, Connections};
use crate::engine::{
    self, CommitsOptions, Engine, EngineOptions, EngineThread, NodeDurability, Recovered, RecoveryError, Refusal,
    Trouble,
};
use crate::frontend::Password;
use crate::frontend::budget::Budget;
use crate::frontend::{http, resp};
use crate::house::House;
use crate::memory::{Reclaimer, Shares};
use crate::probe::{Door, KnownFile, ProbeHandle, Prober};
use crate::proof::Signer;
use crate::reconcile::{ReconcileHandle, Reconciler};
use crate::sql::{MakeSql, Sql, SqlParts};
use crate::webhook::{WebhookOptions, Webhooks};
use crate::worker::Spawner;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tally_archive::Sign;
use tally_core::counter::{Archived, ConfigErrors, Declarations};
use tally_core::limits::{MEMORY_BYTES_MIN, SEND_BUFFER_BYTES, WATCH_CONNECTIONS_MAX};
use tally_storage::log::LogError;
use tally_storage::log::local::{self, LocalHandle, LocalLog};
use tally_storage::store::local::LocalStore;
use tokio::sync::watch;

/// What the store's cache is given while it is read from one end to the other.
const LOADING_CACHE_BYTES: u64 = 8 << 20;
/// Commits are kept and freed by so many bytes.
const COMMITS_SEGMENT_BYTES: u64 = 2 << 20;

#[derive(Clone)]
pub struct Options {
    pub data_dir: PathBuf,
    /// `None` leaves a protocol out.
    pub http: Option<SocketAddr>,
    pub resp: Option<SocketAddr>,
    /// Health and metrics on an address of their own.
    pub watch: Option<SocketAddr>,
    pub http_threads: usize,
    /// Declarations, as YAML; `None` keeps those that the data directory has.
    pub config: Option<String>,
    /// Bounds everything that the node holds ([`Shares`]).
    pub memory_bytes: u64,
    /// Memory for the state, if it is not to follow from that.
    pub table_bytes: Option<usize>,
    /// Memory for what all clients together make the node hold, if it is not to follow from that.
    pub client_bytes: Option<u64>,
    pub durability: NodeDurability,
    pub checkpoint_log_bytes: u64,
    /// How long commits are kept, and how many.
    pub commits: CommitsOptions,
    pub log: local::LogOptions,
    pub resp_options: resp::RespOptions,
    pub http_options: http::HttpOptions,
    /// What log time is taken from.
    pub clock: Clock,
    /// Start whatever the clock says: somebody has looked at it.
    pub accept_clock: bool,
    /// Give roll-ups that were added later what was counted before, from the archive.
    pub fill_rollups: bool,
    /// Counters that the configuration may do without although they are declared.
    pub remove: Vec<String>,
    pub watch_access: http::Access,
    /// Where every event is kept in tables that other engines read, if declarations do not say otherwise.
    pub archive: Option<PathBuf>,
    /// Signs the anchors of roots.
    pub signer: Option<Arc<Signer>>,
    /// Makes who answers questions in SQL.
    pub sql: Option<MakeSql>,
    /// Where backups are kept; when they are taken is declared, or asked for.
    pub backup: Option<Place>,
    /// Nobody has said that there shall be none: a start is refused if they are declared and have no place.
    pub needs_backup_place: bool,
    /// Who is told what somebody should look at.
    pub webhooks: WebhookOptions,
    /// Makes the allocator of the process let go of what is free.
    pub give_back: fn(),
}

impl Options {
    /// A node in `data_dir` that listens nowhere.
    pub fn new(data_dir: impl Into<PathBuf>) -> Options {
        Options {
            data_dir: data_dir.into(),
            http: None,
            resp: None,
            watch: None,
            http_threads: std::thread::available_parallelism().map_or(1, usize::from),
            config: None,
            memory_bytes: 1 << 30,
            table_bytes: None,
            client_bytes: None,
            durability: NodeDurability::Sync,
            checkpoint_log_bytes: EngineOptions::default().checkpoint_log_bytes,
            commits: CommitsOptions::default(),
            log: local::LogOptions::default(),
            resp_options: resp::RespOptions::default(),
            http_options: http::HttpOptions::default(),
            clock: Clock::system(),
            accept_clock: false,
            fill_rollups: true,
            remove: Vec::new(),
            watch_access: http::Access::default(),
            archive: None,
            signer: None,
            sql: None,
            backup: None,
            needs_backup_place: false,
            webhooks: WebhookOptions::default(),
            give_back: || {},
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("{0}")]
    DataDir(#[from] DataDirError),
    #[error("--memory is {given}: Tally needs at least {} MiB", MEMORY_BYTES_MIN >> 20)]
    TooLittleMemory { given: u64 },
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("--archive {}: {what}", path.display())]
    Archive { path: PathBuf, what: String },
    #[error("{0}")]
    Recovery(#[from] RecoveryError),
    #[error("the configuration asks for backups, and nobody says where they are to be kept")]
    NoBackupPlace,
    #[error("{0}")]
    BackupPlace(#[from] PlaceError),
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// What clients may take of a node.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What all of them together make it hold.
    pub client_bytes: u64,
    pub connections: Connections,
}

/// A running node.
pub struct Node {
    engine: Engine,
    recovered: Recovered,
    archive: Option<ArchiveHandle>,
    reconcile: Option<ReconcileHandle>,
    http: Option<http::HttpServer>,
    watch: Option<http::HttpServer>,
    resp_addr: Option<SocketAddr>,
    bounds: Bounds,
    shutdown: watch::Sender<bool>,
    writer: JoinHandle<io::Result<()>>,
    /// Released last.
    _data_dir: DataDir,
}

impl Node {
    pub fn start(options: Options) -> Result<Node, StartError> {
        if options.memory_bytes < MEMORY_BYTES_MIN {
            return Err(StartError::TooLittleMemory { given: options.memory_bytes });
        }
        let declarations = options.config.as_deref().map(Declarations::parse).transpose()?;
        // Before anything is written: a start that is refused leaves the old configuration in force.
        declarations.as_ref().map_or(Ok(()), |declarations| refuse_backups_without_a_place(declarations, &options))?;
        options.backup.as_ref().map_or(Ok(()), |place| place.check(&options.data_dir))?;
        if declarations.as_ref().is_some_and(|declared| declared.archived() != Archived::No) {
            options.archive.as_deref().map(check_archive).transpose()?;
        }
        let data_dir = DataDir::open(&options.data_dir, random)?;
        let shares = shares(&options);
        let bounds = Bounds::new(&options, shares);
        let budget = Budget::new(bounds.client_bytes as usize);
        let resp_listener = options.resp.map(listen).transpose()?;
        let resp_addr = resp_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let (thread, recovered, log) = open_engine(&options, shares, &data_dir, declarations)?;
        let engine = thread.engine();
        refuse_backups_without_a_place(&engine.declarations(), &options)?;
        engine.metrics().disk.watch(&options.data_dir);
        engine.metrics().memory.set_shares(&shares);
        let webhooks = Webhooks::start(&engine, options.webhooks.clone(), random)?;
        let anomalies = Some(start_anomalies(&engine, &webhooks, &data_dir)?);
        let archive = start_archive(&engine, &options)?;
        let sql = options.sql.map(|make| {
            let archive = archive.as_ref().map(|archive| archive.status().directory);
            let memory_bytes = (shares.clients_bytes - shares.clients_bytes / 4) as usize;
            make(SqlParts { engine: engine.clone(), archive, spill: data_dir.spill(), memory_bytes })
        });
        let sql = sql.transpose()?;
        let reconcile = match (&archive, &sql) {
            (Some(archive), Some(sql)) => {
                Some(start_reconciler(&engine, archive, sql, webhooks, options.fill_rollups)?)
            }
            _ => None,
        };
        let backup = options.backup.clone();
        let backups = backup.map(|backup| start_backups(&engine, backup, &data_dir)).transpose()?;
        let probes = engine.declarations().probes().map(|_| ProbeHandle::new(archive.is_some()));
        let probe_secret = probes.as_ref().map(|_| secret()).transpose()?;
        let host = Host {
            archive: archive.clone(),
            sql,
            reconcile: reconcile.clone(),
            anomalies,
            backups,
            probes: probes.clone(),
            ..engine.host()
        };
        let (shutdown, stopping) = watch::channel(false);
        let serve = |address, threads, http_options| {
            let (counters, host, budget) = (Arc::new(engine.clone()), host.clone(), budget.clone());
            let listening = http::serve(address, threads, counters, host, http_options, budget, stopping.clone());
            listening.map_err(|error| StartError::Listen { address, error })
        };
        let everything = || http::HttpOptions {
            connections_max: bounds.connections.http,
            access: http::Access {
                probe: probe_secret.clone().and_then(Password::new),
                ..options.http_options.access.clone()
            },
            ..options.http_options.clone()
        };
        let http = options.http.map(|address| serve(address, options.http_threads, everything())).transpose()?;
        let only_watch = || http::HttpOptions {
            surface: http::Surface::Watch,
            access: options.watch_access.clone(),
            connections_max: WATCH_CONNECTIONS_MAX,
            ..everything()
        };
        let watch = options.watch.map(|address| serve(address, 1, only_watch())).transpose()?;
        if let (Some(handle), Some(secret)) = (probes, probe_secret) {
            let door = http.as_ref().map_or(Door::Straight, |http| Door::http(http.address(), secret));
            let file = KnownFile::in_data_dir(&options.data_dir);
            let prober = Prober::new(engine.clone(), handle, archive.clone(), door, file, stopping.clone());
            engine.workers().apart(Prober::spec(), prober)?;
        }
        engine.workers().apart(House::<LocalHandle>::spec(), House::new(log, engine.clone()))?;
        engine.workers().apart(Reclaimer::spec(), Reclaimer::new(options.memory_bytes, options.give_back))?;
        engine.start_tending()?;
        let clients_max = bounds.connections.resp;
        let resp_options = resp::RespOptions { durability: options.durability, clients_max, ..options.resp_options };
        let run = move || run_writer(thread, resp_listener, resp_options, budget, stopping);
        let writer = Spawner::thread("tally-writer", run)?;
        let _data_dir = data_dir;
        let node =
            Node { engine, recovered, archive, reconcile, http, watch, resp_addr, bounds, shutdown, writer, _data_dir };
        node.say_started(&options.data_dir);
        Ok(node)
    }

    fn say_started(&self, data: &Path) {
        let shown = |address: Option<SocketAddr>| address.map_or("none".to_owned(), |address| address.to_string());
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            data = %data.display(),
            http = shown(self.http_addr()),
            resp = shown(self.resp_addr()),
            counters = self.recovered.counters,
            replayed = self.recovered.replayed_records,
            "started"
        );
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// `None` if it keeps none.
    pub fn archive(&self) -> Option<&ArchiveHandle> {
        self.archive.as_ref()
    }

    /// `None` without an archive.
    pub fn reconcile(&self) -> Option<&ReconcileHandle> {
        self.reconcile.as_ref()
    }

    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(http::HttpServer::address)
    }

    pub fn resp_addr(&self) -> Option<SocketAddr> {
        self.resp_addr
    }

    /// Where health and metrics are served apart.
    pub fn watch_addr(&self) -> Option<SocketAddr> {
        self.watch.as_ref().map(http::HttpServer::address)
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Stops accepting, finishes what was accepted, takes a checkpoint.
    pub fn stop(self) -> Result<(), Refusal> {
        tracing::info!("stopping");
        self.shutdown.send_replace(true);
        for server in [self.http, self.watch].into_iter().flatten() {
            server.join();
        }
        let stopped = end(&self.engine, self.writer);
        match &stopped {
            Ok(()) => tracing::info!("stopped"),
            Err(refusal) => tracing::error!(%refusal, "stopped without a last checkpoint"),
        }
        stopped
    }
}

/// Finishes what was accepted, takes a checkpoint, and waits for all who use the data directory.
fn end(engine: &Engine, writer: JoinHandle<io::Result<()>>) -> Result<(), Refusal> {
    let stopped = pollster::block_on(engine.stop());
    let _ = writer.join();
    // The writer has said so, unless it has broken.
    engine.workers().stop();
    // The store is free only when those who write to it are gone, too.
    engine.workers().join();
    stopped
}

impl Bounds {
    fn new(options: &Options, shares: Shares) -> Bounds {
        let wanted = Connections {
            http: options.http.map_or(0, |_| options.http_options.connections_max),
            resp: options.resp.map_or(0, |_| options.resp_options.clients_max),
        };
        Bounds { client_bytes: shares.clients_bytes, connections: descriptors::make_room(wanted) }
    }
}

/// What is asked for is done, or refused.
fn refuse_backups_without_a_place(declarations: &Declarations, options: &Options) -> Result<(), StartError> {
    let is_missing = options.needs_backup_place && options.backup.is_none() && declarations.backups().is_some();
    if is_missing { Err(StartError::NoBackupPlace) } else { Ok(()) }
}

/// What `--memory` comes to, but for what was said apart.
fn shares(options: &Options) -> Shares {
    let derived = Shares::of(options.memory_bytes);
    Shares {
        state_bytes: options.table_bytes.map_or(derived.state_bytes, |bytes| bytes as u64),
        clients_bytes: options.client_bytes.unwrap_or(derived.clients_bytes),
        ..derived
    }
}

/// Refuses what no archive can be in. Tables name their files as text.
fn check_archive(directory: &Path) -> Result<(), StartError> {
    let refused = |what: &str| Err(StartError::Archive { path: directory.to_owned(), what: what.to_owned() });
    if directory.exists() && !directory.is_dir() {
        return refused("it is a file; name a directory");
    }
    if directory.to_str().is_none() {
        return refused("its name is not UTF-8, and tables name their files; name another directory");
    }
    Ok(())
}

/// Begins before anything of the log is freed. Tables name their files, so the directory is named in full.
fn start_archive(engine: &Engine, options: &Options) -> Result<Option<ArchiveHandle>, StartError> {
    let wanted = engine.declarations().archived() != Archived::No;
    let Some(directory) = options.archive.as_deref().filter(|_| wanted) else { return Ok(None) };
    check_archive(directory)?;
    let failed = |error: io::Error| StartError::Archive { path: directory.to_owned(), what: error.to_string() };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let directory = directory.canonicalize().map_err(failed)?;
    check_archive(&directory)?;
    let spec = Archiver::spec();
    let signer = options.signer.clone().map(|signer| signer as Arc<dyn Sign>);
    let (archiver, handle) = Archiver::new(engine.clone(), directory, random, signer, &spec);
    engine.workers().apart(spec, archiver)?;
    Ok(Some(handle))
}

fn start_anomalies(engine: &Engine, webhooks: &Webhooks, data_dir: &DataDir) -> io::Result<AnomaliesHandle> {
    let spec = AnomalyWatcher::spec();
    let (watcher, handle) = AnomalyWatcher::new(engine.clone(), webhooks.clone(), data_dir.anomalies(), &spec)?;
    engine.workers().apart(spec, watcher)?;
    Ok(handle)
}

fn start_reconciler(
    engine: &Engine,
    archive: &ArchiveHandle,
    sql: &Arc<dyn Sql>,
    webhooks: Webhooks,
    fills: bool,
) -> io::Result<ReconcileHandle> {
    let spec = Reconciler::spec();
    let (mut reconciler, handle) = Reconciler::new(engine.clone(), archive.clone(), sql.clone(), webhooks, &spec);
    if !fills {
        reconciler.fill_nothing();
    }
    engine.workers().apart(spec, reconciler)?;
    Ok(handle)
}

fn start_backups(engine: &Engine, place: Place, data_dir: &DataDir) -> io::Result<BackupHandle> {
    let spec = Backups::spec();
    let (backups, handle) = Backups::new(engine.clone(), data_dir.identity, place, random, &spec);
    engine.workers().apart(spec, backups)?;
    Ok(handle)
}

/// What only this process knows.
fn secret() -> io::Result<String> {
    Ok(format!("{:016x}{:016x}", random()?, random()?))
}

/// Another number each time.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    #[expect(clippy::disallowed_methods, reason = "this is where randomness comes in")]
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_le_bytes(bytes))
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        socket2::SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER_BYTES)?;
        Ok(listener)
    };
    bind().map_err(|error| StartError::Listen { address, error })
}

fn open_engine(
    options: &Options,
    shares: Shares,
    data_dir: &DataDir,
    declarations: Option<Declarations>,
) -> Result<(EngineThread, Recovered, LocalHandle), StartError> {
    let engine_options = EngineOptions {
        log_id: data_dir.identity.id,
        durability: options.durability,
        table_bytes: shares.state_bytes as usize,
        checkpoint_names_bytes: shares.names_bytes(),
        checkpoint_log_bytes: options.checkpoint_log_bytes,
        commits: options.commits,
        clock: options.clock.clone(),
        accept_clock: options.accept_clock,
        remove: options.remove.clone(),
        ..EngineOptions::default()
    };
    let hasher = data_dir.identity.hasher();
    // Reading everything once would only fill a large cache with what memory has then anyway.
    let store = open_store(data_dir, LOADING_CACHE_BYTES)?;
    let restored = engine::restore(&*store, hasher, engine_options.table_bytes)?;
    drop(store);
    let store = open_store(data_dir, shares.cached_bytes())?;
    let (mut handle, mut has_room) = (None, true);
    let open_log = |from_offset| {
        // What one checkpoint frees is what the log fills until the next.
        let spares_max = (options.checkpoint_log_bytes / options.log.segment_bytes) as usize + options.log.spares_ahead;
        let log_id = data_dir.identity.id;
        // Nobody reads it back while the node runs.
        let log_options =
            local::LogOptions { from_offset, log_id, spares_max, bypass_cache: true, ..options.log.clone() };
        let (log, recovered) = LocalLog::open(&data_dir.log(), log_options)?;
        if let Some(cut) = &recovered.cut {
            tracing::warn!(
                file = cut.file,
                at = cut.at,
                bytes = cut.bytes,
                "the log ended in an unfinished write, which was cut: {}",
                cut.what
            );
        }
        for damage in &recovered.passed_over {
            tracing::warn!("damage in the log that no restart needs was passed over: {damage}");
        }
        has_room = !recovered.waits_for_room;
        handle = Some(tally_storage::log::Log::handle(&log));
        Ok(log)
    };
    let open_commits = |anew| open_commits(data_dir, anew);
    let (thread, recovered) =
        engine::open(restored, store.clone(), open_log, open_commits, declarations, engine_options)?;
    if !has_room {
        let what =
            "the disk has no room for the log: counters are read, and writes are refused until some space is free";
        thread.engine().troubles().raise(Trouble::DiskFull, what);
    }
    // Only now that all of it has proved to be good.
    if let Err(error) = store.tidy() {
        tracing::warn!(%error, "what the store no longer needs stays for now");
    }
    Ok((thread, recovered, handle.expect("the log was opened")))
}

/// The second log. One that is of no use is set aside.
fn open_commits(data_dir: &DataDir, anew: bool) -> Result<LocalLog, LogError> {
    let path = data_dir.commits();
    if anew {
        let aside = path.with_extension("discarded");
        let moved = std::fs::remove_dir_all(&aside).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        let moved = moved.and_then(|()| std::fs::rename(&path, &aside));
        moved.map_err(|error| LogError::Failed(format!("cannot set {} aside: {error}", path.display())))?;
    }
    let (log_id, segment_bytes) = (data_dir.identity.id, COMMITS_SEGMENT_BYTES);
    let options = local::LogOptions {
        log_id,
        segment_bytes,
        tail_only: true,
        spares_ahead: 1,
        spares_max: 2,
        ..local::LogOptions::default()
    };
    Ok(LocalLog::open(&path, options)?.0)
}

fn open_store(data_dir: &DataDir, cache_bytes: u64) -> Result<Arc<LocalStore>, RecoveryError> {
    Ok(Arc::new(LocalStore::open(&data_dir.store(), data_dir.identity.of_store(), cache_bytes)?))
}

/// The writer's thread: the engine and, beside it, the RESP connections.
fn run_writer(
    thread: EngineThread,
    resp_listener: Option<TcpListener>,
    resp_options: resp::RespOptions,
    budget: Arc<Budget>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connections = async move |local| {
        let Some(listener) = resp_listener else { return };
        let stopped = async {
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let served = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => resp::serve(listener, local, resp_options, budget, stopped).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::error!(%error, "the Redis protocol is not served any more");
        }
    };
    tokio::task::LocalSet::new().block_on(&runtime, thread.run(connections));
    Ok(())
}
