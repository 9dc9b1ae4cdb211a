//! Pipelined `INCR` or `GET` over the Redis protocol.
//!
//! All commands of a lane have the same length, so the whole pipeline is built once and only digits change.

use crate::keys::{KeyPattern, Picker, write_digits};
use crate::lane::{Errors, Heard, Lane, LaneKind};
use std::ops::{ControlFlow, Range};

pub struct RespLane {
    group: LaneKind,
    pipeline: Vec<u8>,
    command_bytes: usize,
    /// Where the digits stand in each command.
    digits: Range<usize>,
    asked: usize,
    answered: usize,
    answers: AnswerScanner,
}

impl RespLane {
    pub fn new(group: LaneKind, key: &KeyPattern, pipeline: usize) -> RespLane {
        let verb = group.name();
        let head = format!("*2\r\n${}\r\n{verb}\r\n${}\r\n", verb.len(), key.bytes());
        let digits_at = head.len() + key.prefix.len();
        let command = format!("{head}{}\r\n", key.zero());
        RespLane {
            group,
            pipeline: command.repeat(pipeline).into_bytes(),
            command_bytes: command.len(),
            digits: digits_at..digits_at + key.digits,
            asked: 0,
            answered: 0,
            answers: AnswerScanner::new(if group == LaneKind::Reads { b'$' } else { b':' }),
        }
    }
}

impl Lane for RespLane {
    fn group(&self) -> LaneKind {
        self.group
    }

    fn prepare(&mut self, picker: &mut Picker, operations_max: u64) -> u64 {
        self.answered = 0;
        self.asked = operations_max.min((self.pipeline.len() / self.command_bytes) as u64) as usize;
        for command in self.pipeline.chunks_exact_mut(self.command_bytes).take(self.asked) {
            write_digits(&mut command[self.digits.clone()], picker.next());
        }
        self.asked as u64
    }

    fn question(&self) -> &[u8] {
        &self.pipeline[..self.asked * self.command_bytes]
    }

    fn answer(&mut self, bytes: &[u8], errors: &mut Errors) -> ControlFlow<Heard> {
        self.answered += self.answers.feed(bytes, errors);
        if self.answered < self.asked {
            return ControlFlow::Continue(());
        }
        if self.answered > self.asked {
            errors.add(|| format!("{} answers to {} commands", self.answered, self.asked));
        }
        ControlFlow::Break(Heard::Answer)
    }
}

/// Counts answers in a stream that may be cut anywhere.
struct AnswerScanner {
    /// The first byte of an answer that is none of an error's.
    expected: u8,
    state: AnswerPart,
    error: String,
}

#[derive(Clone, Copy)]
enum AnswerPart {
    Kind,
    Line {
        kind: u8,
        /// The number on the line so far; that of a `$` line is the length of what follows.
        number: i64,
        negative: bool,
    },
    Bulk {
        left: usize,
    },
}

const ERROR_TEXT_MAX: usize = 200;

impl AnswerScanner {
    fn new(expected: u8) -> AnswerScanner {
        AnswerScanner { expected, state: AnswerPart::Kind, error: String::new() }
    }

    /// Answers how many answers ended within `bytes`.
    fn feed(&mut self, mut bytes: &[u8], errors: &mut Errors) -> usize {
        let mut ended = 0;
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = rest;
            match &mut self.state {
                AnswerPart::Kind => self.state = AnswerPart::Line { kind: byte, number: 0, negative: false },
                AnswerPart::Line { kind: b'$', number, negative: false } if byte == b'\n' => {
                    self.state = AnswerPart::Bulk { left: *number as usize + 2 };
                }
                AnswerPart::Line { kind, .. } if byte == b'\n' => {
                    let kind = *kind;
                    self.end_of_line(kind, errors);
                    ended += 1;
                }
                AnswerPart::Line { kind: b'$', number, negative } => match byte {
                    b'-' => *negative = true,
                    b'0'..=b'9' => *number = (*number * 10 + i64::from(byte - b'0')).min(1 << 40),
                    _ => {}
                },
                AnswerPart::Line { kind, .. } => {
                    if *kind != self.expected && self.error.len() < ERROR_TEXT_MAX && byte != b'\r' {
                        self.error.push(byte.into());
                    }
                }
                AnswerPart::Bulk { left } => {
                    let skip = (*left - 1).min(bytes.len());
                    bytes = &bytes[skip..];
                    *left -= skip + 1;
                    if *left == 0 {
                        self.state = AnswerPart::Kind;
                        ended += 1;
                    }
                }
            }
        }
        ended
    }

    fn end_of_line(&mut self, kind: u8, errors: &mut Errors) {
        if kind != self.expected {
            errors.add(|| format!("{}{}", char::from(kind), self.error));
            self.error.clear();
        }
        self.state = AnswerPart::Kind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` whole and cut at every byte; both must see the same.
    fn check(expected: u8, stream: &str, answers: usize, first_error: Option<&str>) {
        for chunk in [stream.len(), 1, 2, 3, 7] {
            let (mut scanner, mut errors) = (AnswerScanner::new(expected), Errors::default());
            let ended: usize = stream.as_bytes().chunks(chunk).map(|bytes| scanner.feed(bytes, &mut errors)).sum();
            assert_eq!((ended, errors.first.as_deref()), (answers, first_error), "{stream:?} in pieces of {chunk}");
        }
    }

    #[test]
    fn answers_are_counted_wherever_the_stream_is_cut() {
        check(b':', ":1\r\n:23\r\n:-4\r\n", 3, None);
        check(b'$', "$1\r\n7\r\n$-1\r\n$12\r\n123456\r\n8901\r\n$0\r\n\r\n", 4, None);
        check(b':', ":1\r\n:2", 1, None);
    }

    #[test]
    fn an_answer_of_another_kind_is_an_error() {
        check(b':', ":1\r\n-BUSY try again\r\n:2\r\n", 3, Some("-BUSY try again"));
        check(b'$', ":1\r\n", 1, Some(":1"));
    }

    #[test]
    fn a_short_question_has_only_the_first_commands() {
        let mut lane = RespLane::new(LaneKind::Increments, &"v:%04d".parse().unwrap(), 8);
        assert_eq!(lane.prepare(&mut Picker::in_order(100), 2), 2);
        assert_eq!(lane.question(), b"*2\r\n$4\r\nINCR\r\n$6\r\nv:0000\r\n*2\r\n$4\r\nINCR\r\n$6\r\nv:0001\r\n");
        let mut errors = Errors::default();
        assert!(lane.answer(b":1\r\n", &mut errors).is_continue());
        assert!(lane.answer(b":1\r\n", &mut errors).is_break());
        assert_eq!(errors.count, 0);
    }
}
