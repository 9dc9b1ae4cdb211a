//! One pass over a connection's input: what commands see, and how they are carried out.
//!
//! A command answers at once, or pushes operations and the shape of its reply, or asks for something that only the
//! connection can do for it ([`Flow`]). Commands never wait: waiting is the connection's business.

use super::client::{Client, Hearing};
use super::command::{self, Command};
use super::fault::{self, Fault};
use super::integer::parse_i64;
use super::parse::{Args, ProtocolError};
use super::reply::{Replies, Shape};
use super::server::Server;
use super::target::{self, Intent, Located};
use super::walk::Walk;
use tally_core::counter::Declarations;
use tally_core::id::CellKey;
use tally_core::limits;
use tally_core::op::Submission;

/// How the connection goes on after a command.
pub enum Flow {
    Next,
    /// The command wants everything before it to be finished, and then to be run again.
    Settle,
    /// The names of counters have to be walked through.
    Walk(Box<Walk>),
    /// Answer what there is to answer and close.
    Close,
}

pub type Outcome = Result<Flow, Fault>;

/// A counter: its cell, and what its id stands for.
pub type Place<'i> = (CellKey, Located<'i>);

pub struct Pass<'a> {
    pub server: &'a Server,
    pub client: &'a Client,
    pub declarations: &'a Declarations,
    pub pending: &'a mut Submission,
    /// Which of the pending operations are answered with 0 for a sum below it.
    pub floored: &'a mut Vec<usize>,
    pub replies: &'a mut Replies,
}

impl Pass<'_> {
    /// Carries out an `INCR`.
    #[inline]
    pub fn incr(&mut self, id: &[u8]) -> Flow {
        self.client.last_command.set("incr");
        match self.add(id, 1) {
            Ok(flow) => flow,
            Err(fault) => self.fail(&fault),
        }
    }

    /// Whether commands need no look at the state of the connection.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.client.authenticated.get() && !self.client.hearing.get().is_skipping()
    }

    /// Carries out any command.
    pub fn run(&mut self, args: Args<'_>) -> Flow {
        if !self.hear() {
            return Flow::Settle;
        }
        let outcome = match command::find(args) {
            Ok(command) => self.run_command(command, args),
            // A browser that was talked into speaking to us must not get a word in.
            Err(_) if is(args.get(0), "POST") || is(args.get(0), "Host:") => Ok(Flow::Close),
            Err(fault) => Err(fault),
        };
        outcome.unwrap_or_else(|fault| self.fail(&fault))
    }

    fn run_command(&mut self, command: &'static Command, args: Args<'_>) -> Outcome {
        if !self.client.authenticated.get() && !command.is_for_strangers() {
            return Err(Fault::of("NOAUTH Authentication required."));
        }
        self.client.last_command.set(command.name);
        (command.run)(self, args)
    }

    /// Moves `CLIENT REPLY SKIP` on by one command. Answers whether that was possible now.
    fn hear(&mut self) -> bool {
        let next = match self.client.hearing.get() {
            Hearing::All | Hearing::None => return true,
            Hearing::SkipNext => Hearing::SkipThis,
            Hearing::SkipThis => Hearing::All,
        };
        if self.is_settled() {
            self.set_hearing(next);
        }
        self.is_settled()
    }

    /// Only while everything is settled: it holds for all that is pending.
    pub fn set_hearing(&mut self, hearing: Hearing) {
        debug_assert!(self.is_settled());
        self.client.hearing.set(hearing);
        self.replies.muted = hearing.is_muted();
    }

    /// The stream makes no sense any more.
    pub fn fail_protocol(&mut self, error: ProtocolError) -> Flow {
        self.replies.say(|reply| reply.error(format!("ERR Protocol error: {error}").as_bytes()));
        Flow::Close
    }

    /// Whether enough is pending to commit and send it before the next command.
    #[inline]
    pub fn is_full(&self, replies_before: usize) -> bool {
        self.pending.ops.len() >= limits::RESP_SLICE_OPS
            || self.pending.records.len() >= limits::RESP_SLICE_BYTES
            || self.replies.len() - replies_before >= limits::RESP_SLICE_BYTES
    }

    pub fn fail(&mut self, fault: &Fault) -> Flow {
        self.replies.say(|reply| reply.error(fault.bytes()));
        Flow::Next
    }

    pub fn ok(&mut self) -> Outcome {
        self.replies.say(|reply| reply.simple("OK"));
        Ok(Flow::Next)
    }

    /// Whoever wonders one day where the counters went finds it in the log.
    pub fn tell_flush(&self) {
        let (client, counters) = (self.client.address, self.server.local.engine().len());
        tracing::warn!(command = self.client.last_command.get(), %client, counters, "a client has flushed all counters");
    }

    /// Whether everything before the current command is finished.
    pub fn is_settled(&self) -> bool {
        self.replies.is_settled()
    }

    /// Finds a counter, if the command may do there what it intends to.
    #[inline]
    pub fn locate<'i>(&self, id: &'i [u8], intent: Intent) -> Result<Place<'i>, Fault> {
        let located = target::locate(self.declarations, id, intent)?;
        Ok((self.server.hasher.key(&located.id), located))
    }

    /// The same for every argument of a command, so that it does all or nothing.
    pub fn locate_all<'i>(&self, args: Args<'i>, intent: Intent) -> Result<Vec<Place<'i>>, Fault> {
        args.from(1).map(|id| self.locate(id, intent)).collect()
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&mut self, id: &[u8], delta: i64) -> Outcome {
        self.push_add(id, delta)?;
        self.replies.expect(Shape::Integer);
        Ok(Flow::Next)
    }

    #[inline]
    pub fn push_add(&mut self, id: &[u8], delta: i64) -> Result<(), Fault> {
        let (cell, located) = self.locate(id, Intent::Count)?;
        self.note_floor(&located);
        self.pending.add_to(&located.direct(cell), delta);
        Ok(())
    }

    /// Reads a counter, in its turn.
    pub fn read(&mut self, id: &[u8], shape: Shape) -> Outcome {
        let place = self.locate(id, Intent::Read)?;
        self.push_get(&place);
        self.replies.expect(shape);
        Ok(Flow::Next)
    }

    pub fn push_get(&mut self, (cell, located): &Place<'_>) {
        self.note_floor(located);
        self.pending.get(*cell);
    }

    /// To be called before the operation is pushed.
    #[inline]
    pub fn note_floor(&mut self, located: &Located<'_>) {
        if located.floor_at_zero {
            self.floored.push(self.pending.ops.len());
        }
    }
}

/// An argument that must be an integer.
pub fn integer(argument: &[u8]) -> Result<i64, Fault> {
    parse_i64(argument).ok_or(fault::NOT_AN_INTEGER)
}

/// Whether an argument is the given word, in capitals or not.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
