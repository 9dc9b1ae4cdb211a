//! One subscriber's place among the commits.
//!
//! A commit may be large, and there are many subscribers. So they read one after the other, each a turn, and keep nothing
//! between turns but the commit that they are in the middle of.

use std::sync::Arc;

use bytes::Bytes;
use tally_core::commit::Commit;
use tally_core::counter::Pattern;
use tally_core::position::Position;
use tally_storage::log::LogError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::render::Telling;
use crate::counters::{CommitReader, CommitsError, Counters, Place, Refusal};
use crate::frontend::http::Api;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::worker::Spawner;

/// One turn ends when it has made this much text.
const TURN_BYTES: usize = 256 * 1024;

pub struct Follower {
    counters: Arc<dyn Counters>,
    spawner: Spawner,
    turn: Arc<Semaphore>,
    /// `None` until there is a commit to begin with.
    reader: Option<CommitReader>,
    /// The commit that is told in part.
    telling: Option<Telling>,
    /// Everything before this offset was told.
    reached: u64,
    /// From here on deltas are recorded for certain.
    recorded_from: Position,
    pattern: Option<Pattern>,
}

impl Follower {
    /// Takes a place, if it is one of this log that can still be followed from.
    pub async fn open(
        api: &Api,
        from: Position,
        recorded_from: Position,
        pattern: Option<Pattern>,
    ) -> Result<Follower, Problem> {
        check(&*api.counters, from).await?;
        let (counters, spawner, turn) = (api.counters.clone(), api.host.spawner, api.turn.clone());
        let mine = my(&turn).await;
        let opened = spawner.blocking(move || {
            let _mine = mine;
            let mut follower = Follower {
                counters,
                spawner,
                turn,
                reader: None,
                telling: None,
                reached: from.offset,
                recorded_from,
                pattern,
            };
            follower.begin()?;
            Ok(follower)
        });
        opened.await.ok_or(Refusal::ShuttingDown)?
    }

    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// What it keeps in memory between turns.
    pub fn bytes(&self) -> usize {
        self.telling.as_ref().map_or(0, Telling::bytes)
    }

    /// Goes on by some commits and tells them; none at the end.
    pub async fn read(mut self) -> Result<(Follower, Bytes), Problem> {
        let mine = my(&self.turn).await;
        let spawner = self.spawner;
        let read = spawner.blocking(move || {
            let text = self.read_turn();
            if let Some(reader) = &mut self.reader {
                reader.rest();
            }
            drop(mine);
            Ok((self, text?))
        });
        read.await.ok_or(Refusal::ShuttingDown)?
    }

    fn read_turn(&mut self) -> Result<Bytes, Problem> {
        self.begin()?;
        let declarations = self.counters.declarations();
        let mut text = Vec::new();
        while text.len() < TURN_BYTES
            && let Some(mut telling) = self.telling()?
        {
            text.reserve(TURN_BYTES);
            if telling.go_on(&declarations, self.pattern.as_ref(), TURN_BYTES, &mut text) {
                self.reached = telling.commit().to.offset;
            } else {
                self.telling = Some(telling);
            }
        }
        Ok(text.into())
    }

    /// The commit that is told in part, or the next one.
    fn telling(&mut self) -> Result<Option<Telling>, Problem> {
        if self.telling.is_some() {
            return Ok(self.telling.take());
        }
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let Some(commit) = reader.read().map_err(|error| self.failed(&error))? else { return Ok(None) };
        self.check_recorded(&commit)?;
        Ok(Some(Telling::new(commit)))
    }

    /// Finds the commit to begin with, once it is there.
    fn begin(&mut self) -> Result<(), Problem> {
        if self.reader.is_none()
            && let Some((first, reader)) =
                self.counters.commits().find(self.reached).map_err(|error| self.failed(&error))?
        {
            if first.from.offset > self.reached {
                return Err(self.gone(self.reached));
            }
            self.check_recorded(&first)?;
            self.reader = Some(reader);
        }
        Ok(())
    }

    /// What nobody listened to was not written down.
    fn check_recorded(&self, commit: &Commit) -> Result<(), Problem> {
        if commit.deltas.is_some() { Ok(()) } else { Err(self.gone(commit.from.offset)) }
    }

    fn gone(&self, offset: u64) -> Problem {
        let oldest = self.recorded_from;
        let detail = format!(
            "what became of counters from record {offset} on is not kept, or was not written down because nobody listened; begin with \
             GET /v1/snapshot and follow from its position, or go on from {oldest}. GET /v1/corrections has every correction"
        );
        Problem::new(ProblemKind::PositionGone, detail).with("oldest", oldest.to_string())
    }

    fn failed(&self, error: &CommitsError) -> Problem {
        match error {
            CommitsError::Log(LogError::Trimmed { .. }) => self.gone(self.reached),
            error => Problem::new(ProblemKind::LogFailed, format!("the commits cannot be read: {error}")),
        }
    }
}

/// Refuses a position that nothing can be followed from.
async fn check(counters: &dyn Counters, from: Position) -> Result<(), Problem> {
    let end = counters.applied();
    let why = match counters.place_of(from).await? {
        Place::Held => return Ok(()),
        Place::OtherLog => {
            let (log, own) = (from.log, end.log);
            let detail = format!("position {from} is of log {log}; this node has log {own} only, and ends at {end}");
            return Err(Problem::new(ProblemKind::InvalidParameter, detail).with("value", from.to_string()));
        }
        Place::ToCome | Place::Unknown => format!(
            "is beyond the end of the log, {end}: another node gave it, or this one went back to an older copy of its data"
        ),
        Place::Lost => "was lost with a tail of the log that was not durable; others have its place now".to_owned(),
    };
    let detail = format!("position {from} {why}; begin with GET /v1/snapshot, or go on from {end}");
    Err(Problem::new(ProblemKind::PositionUnknown, detail).with("value", from.to_string()).with("end", end.to_string()))
}

async fn my(turn: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(turn).acquire_owned().await.expect("nobody closes it")
}
