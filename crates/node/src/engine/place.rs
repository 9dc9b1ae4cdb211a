//! Whether a position that somebody holds still stands for what it was given for.
//!
//! Every start of a node is a new epoch. What an earlier epoch had beyond the point where the next one began was lost with an
//! unsynced end, and other records have its offsets since. Which epoch a record is of, its commit says.

use super::commits::CommitsError;
use super::{Engine, Refusal};
use tally_core::position::Position;
use tally_storage::log::LogError;

/// How a position stands to the log of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Everything before it is what it was then.
    Held,
    /// Of this epoch, and not reached yet.
    ToCome,
    /// What stood before it was not durable; others have its place now.
    Lost,
    /// Of an epoch that this node has not come to.
    Unknown,
    OtherLog,
}

impl Engine {
    /// How a position stands to this log. Only one of an earlier epoch makes it read.
    pub async fn place_of(&self, position: Position) -> Result<Place, Refusal> {
        let applied = self.applied();
        if position.log != applied.log {
            return Ok(Place::OtherLog);
        }
        if position.epoch > applied.epoch {
            return Ok(Place::Unknown);
        }
        if position.epoch == applied.epoch {
            return Ok(if position.offset > applied.offset { Place::ToCome } else { Place::Held });
        }
        if position.offset > self.shared.epoch_began {
            return Ok(Place::Lost);
        }
        let engine = self.clone();
        self.shared.blocking(move || engine.place_among_commits(position)).await?
    }

    /// Where commits are not kept any more nobody knows better than who holds the position.
    fn place_among_commits(&self, position: Position) -> Result<Place, Refusal> {
        match self.commits().holding(position.offset) {
            Ok(Some(commit)) if commit.to.epoch > position.epoch => Ok(Place::Lost),
            Ok(_) | Err(CommitsError::Log(LogError::Trimmed { .. })) => Ok(Place::Held),
            Err(error) => Err(Refusal::LogFailed(format!("the commits cannot be read: {error}").into())),
        }
    }
}
