//! What one connection asks and how it reads the answers; the driver moves the bytes.

use crate::keys::Picker;
use std::ops::ControlFlow;
use std::time::Duration;

/// What a lane does, and so which latencies belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    Increments,
    Reads,
    Events,
}

impl LaneKind {
    pub const ALL: [LaneKind; 3] = [LaneKind::Increments, LaneKind::Reads, LaneKind::Events];

    pub fn name(self) -> &'static str {
        match self {
            LaneKind::Increments => "INCR",
            LaneKind::Reads => "GET",
            LaneKind::Events => "events",
        }
    }
}

/// Answers that were not what was asked for. The first is kept as a sample.
#[derive(Debug, Default)]
pub struct Errors {
    pub count: u64,
    pub first: Option<String>,
}

impl Errors {
    pub fn add(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some(text());
        }
    }
}

/// What a complete answer means for its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is answered, for better or worse.
    Answer,
    /// The server has too much to do: the same question is to be asked again, after so long.
    Refusal(Duration),
}

/// One connection's side of the conversation: a question, its answer, the next question.
pub trait Lane {
    fn group(&self) -> LaneKind;

    /// Writes the next question, of at most `operations_max` operations, in place; answers how many it has.
    fn prepare(&mut self, picker: &mut Picker, operations_max: u64) -> u64;

    /// The bytes of the question.
    fn question(&self) -> &[u8];

    /// Takes in bytes of the answer; breaks when it is complete, and says what is to become of the question.
    fn answer(&mut self, bytes: &[u8], errors: &mut Errors) -> ControlFlow<Heard>;
}
