//! Events in protobuf in the body of a request: read when all of it is there.

use bytes::Bytes;
use tally_core::event::Arrival;
use tally_core::event::proto::{self, ProtoError};

use super::{EventsBatch, check};
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Reads all events of a body.
pub async fn read(pieces: &mut Pieces, arrival: Arrival, events: &mut EventsBatch) -> Result<(), Problem> {
    let body = whole(pieces).await?;
    proto::read(&body, arrival, events)?;
    check(events)?;
    Ok(pieces.charge.grow_to(body.len() + events.bytes())?)
}

/// The body in one piece; one that came so is not copied.
async fn whole(pieces: &mut Pieces) -> Result<Bytes, Problem> {
    let Some(first) = pieces.next().await? else { return Ok(Bytes::new()) };
    pieces.charge.grow_to(first.len())?;
    let Some(mut piece) = pieces.next().await? else { return Ok(first) };
    let mut joined = Vec::from(first);
    loop {
        joined.extend_from_slice(&piece);
        pieces.charge.grow_to(joined.capacity())?;
        match pieces.next().await? {
            Some(next) => piece = next,
            None => return Ok(joined.into()),
        }
    }
}

impl From<ProtoError> for Problem {
    fn from(error: ProtoError) -> Problem {
        match error {
            ProtoError::Body(error) => error.into(),
            ProtoError::Broken { .. } => {
                Problem::new(ProblemKind::InvalidBody, format!("{error}; nothing of it was counted"))
            }
        }
    }
}
