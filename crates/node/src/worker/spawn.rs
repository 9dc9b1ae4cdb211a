//! Where background work runs: the only place that starts threads and tasks.

use super::run::run;
use super::{Board, Context, Spec, Work};
use crate::clock::Clock;
use crate::engine::Troubles;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::watch;

/// How things are started that go on beside whoever starts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spawner {
    /// On threads of their own where they may block.
    #[default]
    Threads,
    /// Everything on the thread that starts it, which is inside a `LocalSet`: what blocks is waited for.
    Here,
}

impl Spawner {
    /// A thread for as long as `run` takes.
    #[expect(clippy::disallowed_methods, reason = "this is the spawner")]
    pub fn thread<T: Send + 'static>(
        name: impl Into<String>,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        std::thread::Builder::new().name(name.into()).spawn(run)
    }

    /// A task on this thread, which is inside a `LocalSet`; it ends with that at the latest.
    #[expect(clippy::disallowed_methods, reason = "this is the spawner")]
    pub fn task(task: impl Future<Output = ()> + 'static) {
        drop(tokio::task::spawn_local(task));
    }

    /// Does something that may wait for a disk, where nobody waits for it but the caller; `None` if it is not done because the
    /// process ends.
    #[expect(clippy::disallowed_methods, reason = "this is the spawner")]
    pub async fn blocking<T: Send + 'static>(self, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self {
            Spawner::Threads => tokio::task::spawn_blocking(call).await.ok(),
            Spawner::Here => Some(call()),
        }
    }

    /// The same for a call that tells whoever waits for it itself.
    #[expect(clippy::disallowed_methods, reason = "this is the spawner")]
    pub fn aside(self, call: impl FnOnce() + Send + 'static) {
        match self {
            Spawner::Threads => drop(tokio::task::spawn_blocking(call)),
            Spawner::Here => call(),
        }
    }
}

/// All workers of a node.
#[derive(Debug)]
pub struct Workers {
    spawner: Spawner,
    clock: Clock,
    board: Arc<Board>,
    troubles: Arc<Troubles>,
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    pub fn new(spawner: Spawner, clock: Clock, board: Arc<Board>, troubles: Arc<Troubles>) -> Workers {
        Workers { spawner, clock, board, troubles, stop: watch::Sender::new(false), threads: Mutex::default() }
    }

    pub fn spawner(&self) -> Spawner {
        self.spawner
    }

    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Starts one that may block, on a thread of its own.
    pub fn apart(&self, spec: Spec, work: impl Work + Send + 'static) -> io::Result<()> {
        if self.spawner == Spawner::Here {
            self.beside(spec, work);
            return Ok(());
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time();
        if spec.is_networked {
            runtime.enable_io();
        }
        let runtime = runtime.build()?;
        let name = format!("tally-{}", spec.name);
        let (context, troubles) = (self.context(spec), self.troubles.clone());
        let thread = Spawner::thread(name, move || runtime.block_on(run(work, context, &troubles)))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Starts one that takes turns with everything else on this thread, which is inside a `LocalSet`.
    pub fn beside(&self, spec: Spec, work: impl Work + 'static) {
        let (context, troubles) = (self.context(spec), self.troubles.clone());
        Spawner::task(async move { run(work, context, &troubles).await });
    }

    fn context(&self, spec: Spec) -> Context {
        let (clock, spawner, stop) = (self.clock.clone(), self.spawner, self.stop.subscribe());
        Context { clock, status: self.board.add(spec), spawner, stop }
    }

    /// Wakes everybody who waits; nobody begins another unit.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until all threads have ended, which they do after a stop.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}
