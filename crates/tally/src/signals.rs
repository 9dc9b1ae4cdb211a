//! Being asked to end: SIGTERM or Ctrl-C.

use crate::failure::{Failure, Result};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
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
        watch(move || {
            self.wait_once();
            raised.store(true, Ordering::Release);
            self.wait_once();
            std::process::exit(130);
        })?;
        Ok(flag)
    }

    /// Ends the process with the first signal, when something has been done about what it would leave behind.
    pub fn and_then_end(mut self, tidy: impl FnOnce() + Send + 'static) -> Result<()> {
        watch(move || {
            self.wait_once();
            tidy();
            std::process::exit(130);
        })
    }

    /// The first signal as something to wait for between other things. More of them change nothing, as for a server: what ends in
    /// order leaves nothing behind, and some who end a process send the same signal twice.
    pub fn into_stop(self) -> Result<Stop> {
        let (held, stop) = sync_channel(0);
        watch(move || {
            self.wait();
            drop(held);
        })?;
        Ok(Stop(stop))
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

/// Waits for signals on a thread of its own.
fn watch(wait: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = Spawner::thread("signals", wait);
    spawned.map(drop).map_err(|error| Failure::new("signals cannot be caught").why(error))
}

/// Says when it is time to end. Nothing is ever sent: the other side goes away with the first signal, and stays away.
pub struct Stop(Receiver<Infallible>);

impl Stop {
    /// Waits for so long at most; true if it is time to end.
    pub fn within(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
    }

    pub fn is_asked(&self) -> bool {
        self.within(Duration::ZERO)
    }

    pub fn wait(&self) {
        let Err(_) = self.0.recv();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_stays_asked_for() {
        let (held, stop) = sync_channel(0);
        let stop = Stop(stop);
        assert!(!stop.is_asked() && !stop.within(Duration::from_millis(1)));
        drop(held);
        stop.wait();
        assert!(stop.is_asked() && stop.within(Duration::from_secs(600)));
    }
}
