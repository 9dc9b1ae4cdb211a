//! Writes all that a stopped node is to another place. Its data directory is opened as a start opens it, and only what a backup needs runs:
//! nothing listens, no archive is written, no part of the log is freed, and no time passes, so nothing is counted or ends behind what is
//! written.

use super::{Options, StartError, end, open_engine, random, run_writer, shares};
use crate::backup::{self, BackupError, ManifestName, Place, Progress};
use crate::clock::{Clock, wall_ms};
use crate::data_dir::DataDir;
use crate::engine::{CommitsOptions, Refusal};
use crate::frontend::budget::Budget;
use crate::frontend::resp::RespOptions;
use crate::worker::Spawner;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Backup(#[from] BackupError),
    #[error("the last checkpoint could not be taken: {0}")]
    Stop(#[from] Refusal),
}

/// Writes a backup of a data directory that no server runs on. There must be one: none is made.
pub fn export(
    data: &Path,
    place: &Place,
    tell: impl FnMut(&Progress),
) -> Result<(ManifestName, Progress), ExportError> {
    drop(DataDir::view(data).map_err(StartError::from)?);
    place.check(data).map_err(StartError::from)?;
    let (clock, hands) = Clock::settable(0);
    let options = still(data, clock.clone());
    let data_dir = DataDir::open(data, random).map_err(StartError::from)?;
    let shares = shares(&options);
    let (thread, _, _) = open_engine(&options, shares, &data_dir, None)?;
    // From the end of the log on time stands.
    hands.set_wall(clock.now_ms());
    let engine = thread.engine();
    let (budget, (_running, stopping)) = (Budget::new(shares.clients_bytes as usize), watch::channel(false));
    let run = move || run_writer(thread, None, RespOptions::default(), budget, stopping);
    let writer = Spawner::thread("tally-writer", run).map_err(StartError::from)?;
    let taken = backup::take_at_once(&engine, data_dir.identity, place, wall_ms(), random, tell);
    let ended = end(&engine, writer);
    let taken = taken?;
    ended?;
    Ok(taken)
}

fn still(data: &Path, clock: Clock) -> Options {
    Options {
        clock,
        // How long it rested is of no matter to who does not count.
        accept_clock: true,
        // The server that goes on has bounds of its own.
        commits: CommitsOptions { keep: Duration::from_millis(u64::MAX), bytes_max: u64::MAX },
        ..Options::new(data)
    }
}
