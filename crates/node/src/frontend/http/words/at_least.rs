//! Read your writes: `at_least=token` on a read waits until the write that answered with this token is in it.
//!
//! A token is a position of the log. One whose write was lost with an unsynced end is told from one that is still to come
//! ([`Place`]).

use std::time::Duration;

use axum::http::Uri;
use tally_core::limits::AT_LEAST_WAIT_MS_MAX;
use tally_core::position::Position;

use super::parameters::{Parameters, refused};
use super::problem::{Problem, ProblemKind};
use crate::counters::{Counters, Place, RETRY_AFTER};

pub const TOKEN: &str = "Waits until the write that was answered with this token is in the read";
pub const WAIT: &str = "How long to wait for it at most; 5000 if left out";

/// What a read waits for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtLeast {
    token: Position,
    wait: Duration,
}

impl AtLeast {
    pub const PARAMETERS: [&str; 2] = ["at_least", "wait_ms"];

    /// What a query with no other parameters than these asks for.
    pub fn query(uri: &Uri) -> Result<Option<AtLeast>, Problem> {
        AtLeast::of(&Parameters::read(uri, &AtLeast::PARAMETERS)?)
    }

    pub fn of(parameters: &Parameters) -> Result<Option<AtLeast>, Problem> {
        AtLeast::new(parameters.text("at_least"), parameters.number("wait_ms")?)
    }

    pub fn new(token: Option<&str>, wait_ms: Option<u64>) -> Result<Option<AtLeast>, Problem> {
        let Some(token) = token else {
            let Some(wait_ms) = wait_ms else { return Ok(None) };
            return Err(refused("wait_ms", &wait_ms.to_string(), "send at_least as well: the token to wait for"));
        };
        let fix = "send the token of a write as it was answered, such as 1-0-4711";
        let parsed: Position = token.parse().map_err(|_| refused("at_least", token, fix))?;
        let wait_ms = wait_ms.unwrap_or(AT_LEAST_WAIT_MS_MAX);
        if wait_ms > AT_LEAST_WAIT_MS_MAX {
            return Err(refused("wait_ms", &wait_ms.to_string(), &format!("send 0 to {AT_LEAST_WAIT_MS_MAX}")));
        }
        Ok(Some(AtLeast { token: parsed, wait: Duration::from_millis(wait_ms) }))
    }

    /// Waits until everything before the token is applied.
    pub async fn reached(self, counters: &dyn Counters) -> Result<(), Problem> {
        let AtLeast { token, wait } = self;
        check_not_lost(token, counters.place_of(token).await?, counters.applied())?;
        // Most often it is there already, and then nobody needs a timer.
        if counters.applied().offset < token.offset
            && tokio::time::timeout(wait, counters.wait_for(token.offset)).await.is_err()
        {
            return Err(not_reached(token, counters.applied(), wait));
        }
        Ok(())
    }
}

/// A token stands for a write of this log that is there or to come.
fn check_not_lost(token: Position, place: Place, applied: Position) -> Result<(), Problem> {
    let why = match place {
        Place::Held | Place::ToCome => return Ok(()),
        Place::OtherLog => format!("which is of log {}, and this node has log {}", token.log, applied.log),
        Place::Unknown => format!("but this node is in epoch {}: it has never written that", applied.epoch),
        Place::Lost => format!("but that end of epoch {} was not durable, and is lost", token.epoch),
    };
    let detail = format!("at_least is {token}, {why}; write again, or read without at_least");
    Err(Problem::new(ProblemKind::TokenLost, detail)
        .with("token", token.to_string())
        .with("applied", applied.to_string()))
}

fn not_reached(token: Position, applied: Position, wait: Duration) -> Problem {
    let waited_ms = wait.as_millis() as u64;
    let detail = format!("at_least is {token}, but after {waited_ms} ms this node has come to {applied}; try again");
    Problem::new(ProblemKind::TokenNotReached, detail)
        .with("token", token.to_string())
        .with("applied", applied.to_string())
        .with("waitedMs", waited_ms)
        .retry_after(RETRY_AFTER.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str) -> Position {
        text.parse().unwrap()
    }

    #[test]
    fn a_query_says_what_to_wait_for_and_how_long() {
        let read = |query: &str| AtLeast::query(&format!("/v1/counters/a{query}").parse().unwrap());
        let at_least = |wait| Some(AtLeast { token: position("1-0-7"), wait: Duration::from_millis(wait) });
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("?at_least=1-0-7").unwrap(), at_least(AT_LEAST_WAIT_MS_MAX));
        assert_eq!(read("?wait_ms=20&at_least=1-0-7").unwrap(), at_least(20));
        for (query, named) in [
            ("?at_least=", "at_least is empty; send the token"),
            ("?at_least=7", "at_least is 7; send the token"),
            ("?at_least=1-0-7&wait_ms=5001", "wait_ms is 5001; send 0 to 5000"),
            ("?at_least=1-0-7&wait_ms=-1", "wait_ms is -1; send a whole number"),
            ("?wait_ms=5", "wait_ms is 5; send at_least as well"),
        ] {
            let problem = read(query).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::InvalidParameter, "{query}");
            assert!(problem.detail.starts_with(named), "{query}: {}", problem.detail);
        }
    }
}
