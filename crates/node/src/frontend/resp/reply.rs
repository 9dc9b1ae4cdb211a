//! The replies of one pass, in the order of their commands.
//!
//! A command that knows its answer writes it at once. One that must wait for a commit leaves a *shape* instead: how
//! its reply is made from the answers of its operations. From then on every reply of the pass waits its turn, the
//! finished ones as literal bytes. Shapes are run-length encoded, so 64 pipelined `INCR`s are one entry.

use super::encode::{Encoder, Failed, Protocol};
use super::integer::decimal_len;
use std::collections::VecDeque;
use tally_core::limits;
use tally_core::op::Answer;
use tally_core::position::Position;

/// How a reply is made from one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The new value, or the overflow.
    Incr,
    IncrBy,
    Decr,
    DecrBy,
    /// `DBSIZE`: a number.
    Integer,
    /// `GET`, `GETDEL`: the value as text, or nothing.
    Bulk,
    /// `SET`: OK, or nothing if its condition did not hold.
    Stored,
    /// `GETSET`, `SET … GET`: the value before.
    Previous,
    /// `EXPIRE`, `PERSIST`, `SETNX`: 1 if it was done.
    Done,
    TtlSeconds,
    TtlMilliseconds,
    Type,
    /// `STRLEN`: how long the value is as text.
    Length,
    /// `FLUSHALL`: OK, whatever was there.
    Ok,
    /// `TALLY.INCRBY`: the new value, whether it was counted now or before, and the position behind it.
    Counted,
}

impl Shape {
    #[inline]
    pub fn write(self, encoder: &mut Encoder<'_>, answer: Answer) {
        match (self, answer) {
            (Shape::Incr | Shape::IncrBy | Shape::Decr | Shape::DecrBy | Shape::Integer, Answer::Value(value)) => {
                encoder.integer(value);
            }
            _ => self.write_other(encoder, answer),
        }
    }

    fn write_other(self, encoder: &mut Encoder<'_>, answer: Answer) {
        match (self, answer) {
            (_, Answer::Overflow) => encoder.fail(self.adds(), b"ERR increment or decrement would overflow"),
            (Shape::Bulk, _) => encoder.bulk_or_null(value_of(answer)),
            (Shape::Stored, Answer::Set { applied: false, .. }) => encoder.null(),
            (Shape::Stored | Shape::Ok, _) => encoder.simple("OK"),
            (Shape::Previous, Answer::Set { previous, .. }) => encoder.bulk_or_null(previous),
            (Shape::Done, Answer::Set { applied, .. }) => encoder.integer(applied.into()),
            (Shape::Done, _) => encoder.integer(i64::from(answer == Answer::Yes)),
            // Rounded, also at the end of time, where adding first would be too much.
            (Shape::TtlSeconds, Answer::Value(ms)) => encoder.integer(ms / 1000 + i64::from(ms % 1000 >= 500)),
            (Shape::TtlMilliseconds, Answer::Value(ms)) => encoder.integer(ms),
            (Shape::TtlSeconds | Shape::TtlMilliseconds, Answer::Absent) => encoder.integer(-2),
            (Shape::TtlSeconds | Shape::TtlMilliseconds, _) => encoder.integer(-1),
            (Shape::Type, _) => encoder.simple(if value_of(answer).is_some() { "string" } else { "none" }),
            (Shape::Length, _) => encoder.integer(value_of(answer).map_or(0, decimal_len) as i64),
            _ => unreachable!("{self:?} is not made from {answer:?}"),
        }
    }

    /// The command that adds and has this shape.
    fn adds(self) -> &'static str {
        match self {
            Shape::IncrBy => "incrby",
            Shape::Decr => "decr",
            Shape::DecrBy => "decrby",
            Shape::Counted => "tally.incrby",
            _ => "incr",
        }
    }
}

/// The reply to `TALLY.INCRBY`.
fn write_counted(encoder: &mut Encoder<'_>, answer: Answer, position: Option<Position>) {
    let (value, status) = match answer {
        Answer::Value(value) => (value, "counted"),
        Answer::Repeated(value) => (value, "repeated"),
        Answer::OtherDelta(first) => return encoder.fail(Shape::Counted.adds(), other_delta(first).as_bytes()),
        Answer::Full => return encoder.fail(Shape::Counted.adds(), IDS_FULL),
        refused => return Shape::Counted.write(encoder, refused),
    };
    encoder.array(3);
    encoder.integer(value);
    encoder.simple(status);
    encoder.bulk(position.expect("a write has a position").to_string().as_bytes());
}

fn other_delta(first: i64) -> String {
    format!("CONFLICT this ID has changed the counter by {first} before: use a new ID for another change")
}

const IDS_FULL: &[u8] =
    b"OOM as many IDs are kept as idempotency.maxKeys allows: try again later, or raise it; nothing was counted";

fn value_of(answer: Answer) -> Option<i64> {
    match answer {
        Answer::Value(value) => Some(value),
        _ => None,
    }
}

/// A run of replies that are made alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyRun {
    /// That many bytes, ready.
    Literal(usize),
    /// That many replies, one answer each.
    Each(Shape, usize),
    /// One reply, an array of the values, from that many answers.
    Values(usize),
    /// One reply, the number of counters that were there, from that many answers.
    Present(usize),
    /// One reply, made from that many answers by the next of [`Replies::makers`].
    Made(usize),
    /// From here on they are written in this version of the protocol.
    Speak(Protocol),
    /// From here on nobody wants to hear them, or somebody does.
    Mute(bool),
}

impl ReplyRun {
    fn answers(self) -> usize {
        match self {
            ReplyRun::Literal(_) | ReplyRun::Speak(_) | ReplyRun::Mute(_) => 0,
            ReplyRun::Each(_, answers)
            | ReplyRun::Values(answers)
            | ReplyRun::Present(answers)
            | ReplyRun::Made(answers) => answers,
        }
    }
}

/// Writes a reply from its answers.
type ReplyMaker = Box<dyn FnOnce(&mut Encoder<'_>, &[Answer])>;

/// How replies are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    pub protocol: Protocol,
    /// Nobody wants to hear them (`CLIENT REPLY OFF`).
    pub muted: bool,
}

/// How much there was at some point, to go back to.
pub struct ReplyMark {
    out: usize,
    manner: Manner,
}

#[derive(Default)]
pub struct Replies {
    /// What goes to the client.
    out: Vec<u8>,
    /// What comes behind it once the answers are there.
    runs: Vec<ReplyRun>,
    literals: Vec<u8>,
    makers: VecDeque<ReplyMaker>,
    /// That of the next reply.
    manner: Manner,
    /// That of the first one that waits.
    first_manner: Manner,
    /// What failed when its answers came.
    pub failed: Vec<Failed>,
}

impl Replies {
    /// Whether nothing waits for an answer.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.runs.is_empty()
    }

    /// How the next replies are written.
    pub fn set_manner(&mut self, manner: Manner) {
        if self.runs.is_empty() {
            self.first_manner = manner;
        } else {
            self.runs.extend([ReplyRun::Speak(manner.protocol), ReplyRun::Mute(manner.muted)]);
        }
        self.manner = manner;
    }

    /// Only while everything is settled.
    pub fn mark(&self) -> ReplyMark {
        assert!(self.is_settled(), "what waits cannot be marked");
        ReplyMark { out: self.out.len(), manner: self.manner }
    }

    /// Forgets every reply since the mark.
    pub fn go_back(&mut self, mark: &ReplyMark) {
        self.out.truncate(mark.out);
        self.forget_waiting();
        self.set_manner(mark.manner);
    }

    fn forget_waiting(&mut self) {
        self.runs.clear();
        self.literals.clear();
        self.makers.clear();
        self.first_manner = self.manner;
    }

    /// Adds a reply that is known now.
    #[inline]
    pub fn say(&mut self, write: impl FnOnce(&mut Encoder<'_>)) {
        if self.manner.muted {
            return;
        }
        if self.runs.is_empty() {
            return write(&mut Encoder::new(&mut self.out, self.manner.protocol));
        }
        let before = self.literals.len();
        write(&mut Encoder::new(&mut self.literals, self.manner.protocol));
        let len = self.literals.len() - before;
        match self.runs.last_mut() {
            Some(ReplyRun::Literal(run)) => *run += len,
            _ => self.runs.push(ReplyRun::Literal(len)),
        }
    }

    /// Adds a reply that is made from the next answer.
    #[inline]
    pub fn expect(&mut self, shape: Shape) {
        match self.runs.last_mut() {
            Some(ReplyRun::Each(last, replies)) if *last == shape => *replies += 1,
            _ => self.runs.push(ReplyRun::Each(shape, 1)),
        }
    }

    /// Adds a reply that lists the next `count` answers.
    pub fn expect_values(&mut self, count: usize) {
        self.runs.push(ReplyRun::Values(count));
    }

    /// Adds a reply that says how many of the next `count` answers found a counter.
    pub fn expect_present(&mut self, count: usize) {
        self.runs.push(ReplyRun::Present(count));
    }

    /// Adds a reply that `make` writes from the next `count` answers.
    pub fn expect_made(&mut self, count: usize, make: impl FnOnce(&mut Encoder<'_>, &[Answer]) + 'static) {
        self.runs.push(ReplyRun::Made(count));
        self.makers.push_back(Box::new(make));
    }

    /// Writes the replies that waited. `position` is that of the commit; reads have none.
    pub fn settle(&mut self, answers: &[Answer], position: Option<Position>) {
        let mut answers = answers;
        let mut literals = self.literals.as_slice();
        let Manner { protocol, mut muted } = self.first_manner;
        let mut encoder = Encoder::noting(&mut self.out, protocol, &mut self.failed);
        for &run in &self.runs {
            let mine = take(&mut answers, run.answers());
            match run {
                ReplyRun::Speak(protocol) => encoder.speak(protocol),
                ReplyRun::Mute(mute) => muted = mute,
                ReplyRun::Made(_) => {
                    let make = self.makers.pop_front().expect("each such run has its maker");
                    if !muted {
                        make(&mut encoder, mine);
                    }
                }
                _ if muted => {}
                ReplyRun::Literal(len) => encoder.raw(take(&mut literals, len)),
                ReplyRun::Each(Shape::Incr, _) => {
                    for &answer in mine {
                        Shape::Incr.write(&mut encoder, answer);
                    }
                }
                ReplyRun::Each(Shape::Counted, _) => {
                    mine.iter().for_each(|&answer| write_counted(&mut encoder, answer, position));
                }
                ReplyRun::Each(shape, _) => mine.iter().for_each(|&answer| shape.write(&mut encoder, answer)),
                ReplyRun::Values(count) => {
                    encoder.array(count);
                    mine.iter().for_each(|&answer| Shape::Bulk.write(&mut encoder, answer));
                }
                ReplyRun::Present(_) => encoder.integer(mine.iter().filter_map(|&a| value_of(a)).count() as i64),
            }
        }
        assert!(answers.is_empty(), "{} answers that no reply asked for", answers.len());
        self.forget_waiting();
    }

    /// Writes the replies that waited, when none of their operations has happened. Answers how many commands that were.
    pub fn refuse(&mut self, error: &[u8]) -> u64 {
        let mut refused = 0;
        let mut literals = self.literals.as_slice();
        let Manner { protocol, mut muted } = self.first_manner;
        let mut encoder = Encoder::new(&mut self.out, protocol);
        for &run in &self.runs {
            match run {
                ReplyRun::Speak(protocol) => encoder.speak(protocol),
                ReplyRun::Mute(mute) => muted = mute,
                _ if muted => {}
                ReplyRun::Literal(len) => encoder.raw(take(&mut literals, len)),
                ReplyRun::Each(_, replies) => {
                    (0..replies).for_each(|_| encoder.error(error));
                    refused += replies as u64;
                }
                ReplyRun::Values(_) | ReplyRun::Present(_) | ReplyRun::Made(_) => {
                    encoder.error(error);
                    refused += 1;
                }
            }
        }
        self.forget_waiting();
        refused
    }

    /// The bytes for the client. Whatever is sent is drained from its front.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes that are on their way to the client or will be.
    pub fn len(&self) -> usize {
        self.out.len() + self.literals.len()
    }

    /// What it takes of the memory.
    pub fn held_bytes(&self) -> usize {
        self.out.capacity() + self.literals.capacity() + self.runs.capacity() * size_of::<ReplyRun>()
    }

    /// Gives back memory that only an unusually large reply needed.
    pub fn shrink(&mut self) {
        debug_assert!(self.is_settled());
        self.out.shrink_to(limits::RESP_BUFFER_BYTES_KEPT);
        self.literals.shrink_to(limits::RESP_BUFFER_BYTES_KEPT);
        self.runs.shrink_to(limits::RESP_ARGUMENTS_KEPT);
    }
}

/// Splits `count` items off the front.
#[inline]
fn take<'a, T>(items: &mut &'a [T], count: usize) -> &'a [T] {
    let (front, rest) = items.split_at(count);
    *items = rest;
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(replies: &mut Replies) -> String {
        String::from_utf8(std::mem::take(replies.out())).unwrap()
    }

    #[test]
    fn replies_keep_the_order_of_their_commands_whatever_they_wait_for() {
        let mut replies = Replies::default();
        replies.say(|e| e.simple("first"));
        replies.expect(Shape::Incr);
        replies.expect(Shape::Incr);
        replies.say(|e| e.simple("PONG"));
        replies.say(|e| e.null());
        replies.expect(Shape::Incr);
        replies.expect_present(3);
        replies.expect_values(2);
        replies.say(|e| e.simple("last"));
        assert_eq!(text(&mut replies), "+first\r\n");
        use Answer::*;
        replies.settle(&[Value(1), Overflow, Value(-3), Value(9), Absent, Value(9), Value(42), Absent], None);
        assert_eq!(
            text(&mut replies),
            ":1\r\n-ERR increment or decrement would overflow\r\n+PONG\r\n$-1\r\n:-3\r\n:2\r\n*2\r\n$2\r\n42\r\n$-1\r\n+last\r\n"
        );
        assert!(replies.is_settled());
    }

    #[test]
    fn a_refused_commit_is_one_error_for_each_command_that_took_part() {
        let mut replies = Replies::default();
        replies.expect(Shape::Incr);
        replies.expect(Shape::Incr);
        replies.say(|e| e.simple("PONG"));
        replies.expect_values(1000);
        replies.expect_present(1000);
        replies.refuse(b"BUSY");
        assert_eq!(text(&mut replies), "-BUSY\r\n-BUSY\r\n+PONG\r\n-BUSY\r\n-BUSY\r\n");
    }

    #[test]
    fn muted_replies_are_not_written() {
        let mut replies = Replies::default();
        replies.set_manner(Manner { muted: true, ..Manner::default() });
        replies.say(|e| e.simple("PONG"));
        replies.expect(Shape::Incr);
        replies.say(|e| e.simple("PONG"));
        replies.settle(&[Answer::Value(1)], None);
        replies.expect(Shape::Bulk);
        replies.refuse(b"BUSY");
        assert_eq!(text(&mut replies), "");
        assert!(replies.is_settled());
    }

    #[test]
    fn replies_are_written_in_the_manner_of_their_own_time() {
        let mut replies = Replies::default();
        replies.expect(Shape::Bulk);
        replies.set_manner(Manner { protocol: Protocol::Resp3, muted: false });
        replies.expect(Shape::Bulk);
        replies.set_manner(Manner { protocol: Protocol::Resp3, muted: true });
        replies.expect(Shape::Bulk);
        replies.say(|e| e.simple("unheard"));
        replies.expect_made(1, |e, _| e.simple("unheard"));
        replies.set_manner(Manner { protocol: Protocol::Resp3, muted: false });
        replies.expect_made(2, |e, answers| e.integer(answers.len() as i64));
        replies.settle(&[Answer::Absent; 6], None);
        assert_eq!(text(&mut replies), "$-1\r\n_\r\n:2\r\n");
    }

    #[test]
    fn what_was_marked_is_what_one_comes_back_to() {
        let mut replies = Replies::default();
        replies.say(|e| e.simple("kept"));
        let mark = replies.mark();
        replies.say(|e| e.array(2));
        replies.set_manner(Manner { protocol: Protocol::Resp3, muted: false });
        replies.expect(Shape::Bulk);
        replies.say(|e| e.null());
        replies.go_back(&mark);
        replies.say(|e| e.null());
        assert_eq!(text(&mut replies), "+kept\r\n$-1\r\n");
    }

    #[test]
    fn every_shape_reads_its_answers_as_redis_words_them() {
        use Answer::*;
        let check = |shape: Shape, answer, expected: &str| {
            let mut replies = Replies::default();
            replies.expect(shape);
            replies.settle(&[answer], Some(Position { epoch: 1, log: 0, offset: 7 }));
            assert_eq!(text(&mut replies), expected, "{shape:?} {answer:?}");
        };
        check(Shape::Incr, Value(i64::MIN), ":-9223372036854775808\r\n");
        check(Shape::Bulk, Value(-5), "$2\r\n-5\r\n");
        check(Shape::Bulk, Absent, "$-1\r\n");
        check(Shape::Stored, Set { previous: None, applied: true }, "+OK\r\n");
        check(Shape::Stored, Set { previous: Some(1), applied: false }, "$-1\r\n");
        check(Shape::Previous, Set { previous: Some(1), applied: false }, "$1\r\n1\r\n");
        check(Shape::Previous, Set { previous: None, applied: true }, "$-1\r\n");
        check(Shape::Done, Yes, ":1\r\n");
        check(Shape::Done, No, ":0\r\n");
        check(Shape::Done, Absent, ":0\r\n");
        check(Shape::TtlSeconds, Value(1499), ":1\r\n");
        check(Shape::TtlSeconds, Value(1500), ":2\r\n");
        check(Shape::TtlMilliseconds, Value(1500), ":1500\r\n");
        check(Shape::TtlSeconds, No, ":-1\r\n");
        check(Shape::TtlMilliseconds, Absent, ":-2\r\n");
        check(Shape::Type, Value(0), "+string\r\n");
        check(Shape::Type, Absent, "+none\r\n");
        check(Shape::Length, Value(-10), ":3\r\n");
        check(Shape::Length, Absent, ":0\r\n");
        check(Shape::Ok, Yes, "+OK\r\n");
        check(Shape::Counted, Value(-5), "*3\r\n:-5\r\n+counted\r\n$5\r\n1-0-7\r\n");
        check(Shape::Counted, Repeated(4), "*3\r\n:4\r\n+repeated\r\n$5\r\n1-0-7\r\n");
        check(Shape::Counted, Overflow, "-ERR increment or decrement would overflow\r\n");
        check(
            Shape::Counted,
            OtherDelta(3),
            "-CONFLICT this ID has changed the counter by 3 before: use a new ID for another change\r\n",
        );
    }
}
