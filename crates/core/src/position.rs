//! A place in a log: which record comes next.

use std::fmt;
use std::str::FromStr;

/// The position *before* record `offset` of a log.
///
/// Offsets count records and never go backwards. Each opening of a log starts a new epoch, so a position that was
/// handed out and then lost with an unsynced tail is never given to another record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    pub epoch: u32,
    /// Which log of the node; the embedded node has one, number 0.
    pub log: u32,
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.epoch, self.log, self.offset)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a position: expected three numbers, epoch-log-offset, such as 1-0-4711")]
pub struct ParsePositionError(String);

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split('-');
            let position = Position {
                epoch: parts.next()?.parse().ok()?,
                log: parts.next()?.parse().ok()?,
                offset: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(position)
        };
        parse().ok_or_else(|| ParsePositionError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text_form() {
        let position = Position { epoch: 3, log: 0, offset: u64::MAX };
        assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
    }

    #[test]
    fn what_is_not_a_position_is_refused() {
        for text in ["", "1", "1-2", "1-2-3-4", "a-0-1", "1-0--1"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }
}
