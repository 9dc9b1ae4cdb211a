//! Being asked to end: SIGTERM or Ctrl-C.

use crate::failure::{Failure, Result};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tally_node::worker::Spawner;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals are caught from the moment this is made, so that one that comes early is not lost.
pub struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn catch() -> Result<Signals> {
        Signals::install().map_err(|error| Failure::new("signals cannot be caught").why(error))
    }

    fn install() -> io::Result<Signals> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let entered = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        drop(entered);
        Ok(Signals { runtime, terminate, interrupt })
    }

    /// A flag that turns true with the first signal; the second one ends the process.
    pub fn into_flag(mut self) -> Result<Arc<AtomicBool>> {
        let flag = Arc::new(AtomicBool::new(false));
        let raised = flag.clone();
        let wait = move || {
            self.wait_once();
            raised.store(true, Ordering::Release);
            self.wait_once();
            std::process::exit(130);
        };
        let spawned = Spawner::thread("signals", wait);
        spawned.map_err(|error| Failure::new("signals cannot be caught").why(error))?;
        Ok(flag)
    }

    /// Waits until a signal comes.
    pub fn wait(mut self) {
        self.wait_once();
    }

    fn wait_once(&mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
    }
}
