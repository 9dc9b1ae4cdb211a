//! The server's answer to a request of events.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::ops::AddAssign;

/// What became of entries. The boxes that stay empty in these tests are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boxes {
    pub counted: u64,
    pub duplicate: u64,
    pub conflict: u64,
}

impl AddAssign for Boxes {
    fn add_assign(&mut self, other: Boxes) {
        self.counted += other.counted;
        self.duplicate += other.duplicate;
        self.conflict += other.conflict;
    }
}

#[derive(Debug, PartialEq)]
pub struct Answer {
    pub boxes: Boxes,
    /// The records of the log up to and with those of the request.
    pub log_end: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    events: u64,
    received: u64,
    counted: u64,
    duplicate: u64,
    conflict: u64,
    rejected_count: u64,
    ignored: u64,
    late: u64,
    token: String,
}

impl Answer {
    /// Reads the answer to `events` events, of which each must have made `entries_per_event` entries.
    pub fn parse(text: &str, events: usize, entries_per_event: u64) -> Result<Answer> {
        let read = || -> Result<Answer> {
            let answer: Text = serde_json::from_str(text)?;
            let boxes = Boxes { counted: answer.counted, duplicate: answer.duplicate, conflict: answer.conflict };
            let kept = boxes.counted + boxes.duplicate + boxes.conflict;
            ensure!(answer.events == events as u64, "it is about {} events", answer.events);
            ensure!(answer.received == answer.events * entries_per_event, "an event was fed to too few counters");
            ensure!(answer.rejected_count + answer.ignored + answer.late == 0, "entries were refused");
            ensure!(kept == answer.received, "the boxes do not add up");
            Ok(Answer { boxes, log_end: offset(&answer.token)? })
        };
        read().with_context(|| format!("{events} events were answered {text}"))
    }
}

/// The last number of a position such as `1-0-4711`.
pub fn offset(position: &str) -> Result<u64> {
    let offset = position.rsplit('-').next().and_then(|text| text.parse().ok());
    offset.with_context(|| format!("{position:?} is not a position"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(received: u64, counted: u64, late: u64) -> Result<Answer> {
        let text = format!(
            r#"{{"events":2,"received":{received},"counted":{counted},"duplicate":1,"conflict":0,"invalid":0,
               "rejectedCount":0,"rejected":[],"ignored":0,"late":{late},"token":"3-0-42"}}"#
        );
        Answer::parse(&text, 2, 2)
    }

    #[test]
    fn only_an_answer_that_adds_up_is_taken() {
        let boxes = Boxes { counted: 3, duplicate: 1, conflict: 0 };
        assert_eq!(answer(4, 3, 0).unwrap(), Answer { boxes, log_end: 42 });
        assert!(answer(3, 2, 0).is_err(), "an entry is missing");
        assert!(answer(4, 2, 0).is_err(), "an entry is in no box");
        assert!(answer(4, 2, 1).is_err(), "nothing is late here");
    }
}
