//! One subscriber's place in the log.
//!
//! A batch may be large, and there are many subscribers. So they read one after the other, each a turn, and keep nothing of
//! the log between turns.

use std::sync::Arc;

use bytes::Bytes;
use tally_core::position::Position;
use tally_storage::log::{LogError, LogReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::problem::{Kind, Problem};
use super::render;
use crate::engine::{Engine, Refusal};

/// One turn ends when it has made this much text.
const TURN_BYTES: usize = 64 * 1024;

pub struct Follower {
    engine: Engine,
    turn: Arc<Semaphore>,
    reader: Box<dyn LogReader>,
    /// Everything before this offset was told.
    reached: u64,
}

impl Follower {
    /// Takes a place, if it is one of this log that can still be read from.
    pub async fn open(engine: &Engine, turn: Arc<Semaphore>, from: Position) -> Result<Follower, Problem> {
        let engine = engine.clone();
        let mine = my(&turn).await;
        let spawner = engine.workers().spawner();
        let opened = spawner.blocking(move || {
            let _mine = mine;
            check(&engine, from)?;
            let reader = engine.log().reader(from).map_err(|error| failed(&engine, from.offset, error))?;
            Ok(Follower { engine, turn, reader, reached: from.offset })
        });
        opened.await.ok_or(Refusal::ShuttingDown)?
    }

    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// Goes on by some commits and tells them; none at the synced end.
    pub async fn read(mut self) -> Result<(Follower, Bytes), Problem> {
        let mine = my(&self.turn).await;
        let spawner = self.engine.workers().spawner();
        let read = spawner.blocking(move || {
            let text = self.read_turn();
            self.reader.rest();
            drop(mine);
            Ok((self, text?))
        });
        read.await.ok_or(Refusal::ShuttingDown)?
    }

    fn read_turn(&mut self) -> Result<Bytes, Problem> {
        let Follower { engine, reader, reached, .. } = self;
        let mut text = Vec::new();
        while text.len() < TURN_BYTES
            && let Some(batch) = reader.next().map_err(|error| failed(engine, *reached, error))?
        {
            let damaged = |error| Problem::new(Kind::LogFailed, format!("record {} of the log: {error}", *reached));
            render::commit(&batch, *reached, &mut text).map_err(damaged)?;
            *reached = batch.end_offset();
        }
        Ok(text.into())
    }
}

async fn my(turn: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(turn).acquire_owned().await.expect("nobody closes it")
}

/// Refuses a position that is not one of this log, or not any more.
fn check(engine: &Engine, from: Position) -> Result<(), Problem> {
    let (start, end) = (engine.log().start(), engine.applied());
    if from.log != end.log {
        let detail =
            format!("position {from} is of log {}; this node has log {} only, and ends at {end}", from.log, end.log);
        return Err(Problem::new(Kind::InvalidParameter, detail).with("value", from.to_string()));
    }
    if from.epoch > end.epoch || from.offset > end.offset {
        let reason = "another node gave it, or this one went back to an older copy of its data";
        return Err(unknown(from, &format!("is beyond the end of the log, {end}: {reason}"), end));
    }
    if from.offset < start.offset {
        return Err(gone(from.offset, start));
    }
    if from.epoch < end.epoch && from.offset > start.offset && epoch_before(engine, from)? > from.epoch {
        return Err(unknown(
            from,
            "was lost with a tail of the log that was not durable; others have its place now",
            end,
        ));
    }
    Ok(())
}

/// When the record before a position was appended.
fn epoch_before(engine: &Engine, position: Position) -> Result<u32, Problem> {
    let before = Position { offset: position.offset - 1, ..position };
    let epoch = || Ok(engine.log().reader(before)?.next()?.map_or(0, |batch| batch.position.epoch));
    epoch().map_err(|error| failed(engine, before.offset, error))
}

fn unknown(position: Position, why: &str, end: Position) -> Problem {
    let detail =
        format!("position {position} {why}; GET /v1/corrections has every correction, {end} is where to go on");
    Problem::new(Kind::PositionUnknown, detail).with("value", position.to_string()).with("end", end.to_string())
}

fn gone(offset: u64, oldest: Position) -> Problem {
    let detail = format!(
        "record {offset} is not in the log any more, which begins at {oldest}; GET /v1/corrections has every correction, then go on from {oldest}"
    );
    Problem::new(Kind::PositionGone, detail).with("oldest", oldest.to_string())
}

fn failed(engine: &Engine, offset: u64, error: LogError) -> Problem {
    match error {
        LogError::Trimmed { .. } => gone(offset, engine.log().start()),
        error => Problem::new(Kind::LogFailed, format!("the log cannot be read: {error}")),
    }
}
