//! The buffers that a connection needs while it has something to do.
//!
//! An idle connection holds none of them: it takes a set when bytes arrive and gives it back when everything is
//! answered. So ten thousand idle connections cost next to nothing, those at work share buffers that are still in the
//! cache, and a buffer that one burst made large does not stay.

use super::command;
use super::fault::ErrorReply;
use super::parse::Parser;
use super::reply::Replies;
use super::server::Server;
use super::stats::Ran;
use crate::counters::local::LocalCounters;
use crate::counters::{Terms, Transacted};
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tally_core::limits;
use tally_core::op::{Answer, Op, Submission};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

#[derive(Default)]
pub struct ConnectionWork {
    pub input: Input,
    pub parser: Parser,
    pub pending: Submission,
    /// Which of the pending operations are answered with 0 for a sum below it.
    pub floored: Vec<usize>,
    pub answers: Vec<Answer>,
    pub replies: Replies,
    /// What the slice under way has run.
    pub ran: Vec<Ran>,
}

impl ConnectionWork {
    /// Whether nothing of the connection is in it.
    pub fn is_blank(&mut self) -> bool {
        self.input.unread().is_empty()
            && self.parser.is_idle()
            && self.replies.is_settled()
            && self.replies.out().is_empty()
    }

    /// What it takes of the memory: the buffers with an unfinished command, and replies that the client has not taken.
    pub fn held_bytes(&self) -> usize {
        self.input.bytes.len()
            + self.parser.held_bytes()
            + self.replies.held_bytes()
            + self.pending.records.capacity()
            + self.pending.ops.capacity() * size_of::<Op>()
    }

    /// Forgets the unfinished command in it.
    pub fn forget(&mut self) {
        self.input.forget();
        self.parser.forget();
    }

    /// Forgets what is pending, as if it had never been.
    pub fn abandon(&mut self) {
        self.pending.clear();
        self.floored.clear();
    }

    /// Carries out what is pending and writes the replies that waited for it. With terms it is one transaction; if they
    /// do not hold, nothing has happened and nothing is written, and neither if it is refused.
    pub async fn carry_out(
        &mut self,
        server: &Server,
        local: &impl LocalCounters,
        terms: Option<&Terms<'_>>,
    ) -> Result<Transacted, ErrorReply> {
        let ConnectionWork { pending, floored, answers, replies, .. } = self;
        let has_terms = terms.is_some_and(|terms| !terms.is_empty());
        let position = if pending.record_count == 0 && !has_terms && local.read(&pending.ops, answers) {
            None
        } else if let Some(terms) = terms {
            match local.transact(pending, answers, terms).await? {
                Transacted::At(position) => Some(position),
                other => return Ok(other),
            }
        } else {
            Some(local.submit(pending, answers).await?)
        };
        pending.clear();
        floored.drain(..).for_each(|at| answers[at] = answers[at].floored());
        replies.settle(answers, position);
        server.stats.note(&mut replies.failed);
        Ok(Transacted::At(position.unwrap_or_default()))
    }

    /// Answers that a command has failed, of which nothing else was said.
    pub fn fail(&mut self, server: &Server, command: &str, fault: &ErrorReply) {
        server.stats.fail(command::slot(command), fault.code());
        self.replies.say(|reply| reply.error(fault.bytes()));
    }

    fn shrink(&mut self) {
        self.input.shrink();
        self.parser.shrink();
        self.replies.shrink();
        self.pending.clear();
        self.pending.records.shrink_to(limits::RESP_BUFFER_BYTES_KEPT);
        self.pending.ops.shrink_to(limits::RESP_ARGUMENTS_KEPT);
        self.floored.clear();
        self.floored.shrink_to(limits::RESP_ARGUMENTS_KEPT);
        self.answers.clear();
        self.answers.shrink_to(limits::RESP_ARGUMENTS_KEPT);
    }
}

/// Sets of buffers that nobody needs right now.
#[derive(Default)]
pub struct Pool {
    works: RefCell<Vec<ConnectionWork>>,
}

impl Pool {
    pub fn take(&self) -> ConnectionWork {
        self.works.borrow_mut().pop().unwrap_or_default()
    }

    pub fn give(&self, mut work: ConnectionWork) {
        debug_assert!(work.is_blank());
        let mut works = self.works.borrow_mut();
        if works.len() < limits::RESP_BUFFERS_KEPT {
            work.shrink();
            works.push(work);
        }
    }
}

/// Bytes from the network that have not become commands yet.
#[derive(Default)]
pub struct Input {
    /// Initialised to its full length; only `start..end` means something.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How much more it can take as it is.
    #[inline]
    pub fn free_bytes(&self) -> usize {
        self.bytes.len() - self.end
    }

    #[inline]
    pub fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
    }

    /// Reads what is there, up to a bound, behind what is unread. Answers 0 when the client has closed its side.
    pub fn poll_fill(&mut self, stream: &mut TcpStream, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut free = ReadBuf::new(&mut self.bytes[self.end..]);
        ready!(Pin::new(stream).poll_read(context, &mut free))?;
        let len = free.filled().len();
        self.end += len;
        Poll::Ready(Ok(len))
    }

    /// Puts what was kept elsewhere before everything else.
    pub fn restore(&mut self, rest: &[u8]) {
        debug_assert!(self.unread().is_empty());
        (self.start, self.end) = (0, rest.len());
        self.make_room();
        self.bytes[..rest.len()].copy_from_slice(rest);
    }

    /// Moves what is unread to the front, and grows when it fills the buffer: a command that is larger than it arrives.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.bytes.len() < self.end + limits::RESP_READ_BYTES / 2 {
            self.bytes.resize(self.end + limits::RESP_READ_BYTES.max(self.end / 2), 0);
        }
    }

    fn forget(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    fn shrink(&mut self) {
        debug_assert!(self.unread().is_empty());
        self.forget();
        self.bytes.truncate(limits::RESP_READ_BYTES);
        self.bytes.shrink_to(limits::RESP_READ_BYTES);
    }
}
