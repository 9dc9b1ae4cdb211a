//! Being asked to end: SIGTERM or Ctrl-C.

use crate::failure::{Failure, Result};
use std::io;
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

    /// Waits until a signal comes.
    pub fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
    }
}
