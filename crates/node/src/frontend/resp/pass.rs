//! One pass over a connection's input: what commands see, and how they are carried out.
//!
//! A command answers at once, or pushes operations and the shape of its reply, or asks for something that only the
//! connection can do for it ([`Flow`]). Commands never wait: waiting is the connection's business.

use super::client::{Client, Hearing};
use super::command::{self, Command};
use super::encode::Protocol;
use super::fault::{self, ErrorReply};
use super::integer::parse_i64;
use super::parse::{Args, Parser, ProtocolError};
use super::reply::{Replies, Shape};
use super::server::Server;
use super::unit::{Making, Touched, Unit};
use super::walk::{Fetched, Walk};
use super::work::Input;
use tally_core::counter::{Declarations, Intent, Target};
use tally_core::database::{DATABASES, Space};
use tally_core::id::CellKey;
use tally_core::limits;
use tally_core::op::Submission;

/// How the connection goes on after a command.
pub enum Flow {
    Next,
    /// The command wants everything before it to be finished, and then to be run again as a unit of its own.
    Alone,
    /// A transaction.
    Exec(Box<Unit>),
    /// Names have to be fetched before the unit can go on.
    Fetch(Box<Walk>),
    Watch(Vec<FoundNames>),
    /// Answer what there is to answer and close.
    Close,
}

/// A key, and what it stands for.
pub struct FoundNames {
    pub database: u8,
    pub key: Vec<u8>,
    pub cell: CellKey,
}

pub type CommandOutcome = Result<Flow, ErrorReply>;

pub struct Pass<'a> {
    pub server: &'a Server,
    pub client: &'a Client,
    pub declarations: &'a Declarations,
    pub pending: &'a mut Submission,
    /// Which of the pending operations are answered with 0 for a sum below it.
    pub floored: &'a mut Vec<usize>,
    pub replies: &'a mut Replies,
    /// Which space each database stands on, what is pending included.
    pub spaces: [Space; DATABASES],
    /// Only while a unit is made.
    pub unit: Option<Making<'a>>,
}

impl Pass<'_> {
    /// Carries out the `INCR`s that stand at the front of the input, by far the most frequent command, until the slice is
    /// full or something else comes. Answers how many there were.
    #[inline]
    pub fn run_incrs(&mut self, parser: &Parser, input: &mut Input, replies_before: usize) -> u64 {
        if !self.is_plain() {
            return 0;
        }
        let (mut rest, mut count) = (input.unread(), 0);
        while !self.is_full(replies_before)
            && let Some((id, len)) = parser.glance(rest)
        {
            match self.push_add(id, 1) {
                Ok(()) => self.replies.expect(Shape::Incr),
                Err(fault) => {
                    self.server.stats.fail(command::INCR, fault.code());
                    self.fail(&fault);
                }
            }
            rest = &rest[len..];
            count += 1;
        }
        let len = input.unread().len() - rest.len();
        input.consume(len);
        if count > 0 {
            self.client.last_command.set("incr");
            self.server.stats.count_at(command::INCR, count);
        }
        count
    }

    /// Whether commands need no look at the state of the connection.
    fn is_plain(&self) -> bool {
        self.client.authenticated.get() && !self.client.hearing.get().is_skipping() && !self.client.is_queueing()
    }

    /// Carries out any command, or queues it.
    pub fn run(&mut self, args: Args<'_>) -> Flow {
        self.hear();
        let command = match command::find(args) {
            Ok(command) => command,
            // A browser that was talked into speaking to us must not get a word in.
            Err(_) if is(args.get(0), "POST") || is(args.get(0), "Host:") => return Flow::Close,
            Err(fault) => return self.reject(command::meant(args), &fault),
        };
        if !self.client.authenticated.get() && !command.is_for_strangers() {
            return self.reject(Some(command), &ErrorReply::of("NOAUTH Authentication required."));
        }
        self.client.last_command.set(command.name);
        match command.is_queued() && self.client.is_queueing() {
            true => self.queue(command, args),
            false => self.run_command(command, args),
        }
    }

    /// Carries out a command of a unit.
    pub fn run_now(&mut self, args: Args<'_>) -> Flow {
        match command::find(args) {
            Ok(command) => self.run_command(command, args),
            Err(fault) => self.fail(&fault),
        }
    }

    fn run_command(&mut self, command: &'static Command, args: Args<'_>) -> Flow {
        match (command.run)(self, args) {
            // It is run again.
            Ok(flow @ (Flow::Alone | Flow::Fetch(_))) => flow,
            Ok(flow) => {
                self.count(command, None);
                flow
            }
            Err(fault) => {
                self.count(command, Some(&fault));
                self.fail(&fault)
            }
        }
    }

    fn count(&mut self, command: &'static Command, fault: Option<&ErrorReply>) {
        match &mut self.unit {
            Some(unit) => unit.ran.push((command.slot, fault.cloned())),
            None => self.server.stats.count(command.slot, fault),
        }
    }

    fn queue(&mut self, command: &'static Command, args: Args<'_>) -> Flow {
        let queued = self.client.transaction.borrow_mut().as_mut().map_or(Ok(()), |queue| queue.queue(args));
        match queued {
            Ok(()) => self.replies.say(|reply| reply.simple("QUEUED")),
            Err(fault) => return self.reject(Some(command), &fault),
        }
        Flow::Next
    }

    /// A command that is not even queued spoils the transaction.
    fn reject(&mut self, command: Option<&Command>, fault: &ErrorReply) -> Flow {
        self.server.stats.reject(command.map(|command| command.slot), fault.code());
        if let Some(transaction) = &mut *self.client.transaction.borrow_mut() {
            transaction.spoiled = true;
        }
        self.fail(fault)
    }

    /// Moves `CLIENT REPLY SKIP` on by one command.
    fn hear(&mut self) {
        match self.client.hearing.get() {
            Hearing::All | Hearing::None => {}
            Hearing::SkipNext => self.set_hearing(Hearing::SkipThis),
            Hearing::SkipThis => self.set_hearing(Hearing::All),
        }
    }

    pub fn set_hearing(&mut self, hearing: Hearing) {
        self.client.hearing.set(hearing);
        self.replies.set_manner(self.client.manner());
    }

    pub fn speak(&mut self, protocol: Protocol) {
        self.client.protocol.set(protocol);
        self.replies.set_manner(self.client.manner());
    }

    /// The stream makes no sense any more.
    pub fn fail_protocol(&mut self, error: ProtocolError) -> Flow {
        self.server.stats.count_errors(b"ERR", 1);
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

    pub fn fail(&mut self, fault: &ErrorReply) -> Flow {
        self.replies.say(|reply| reply.error(fault.bytes()));
        Flow::Next
    }

    pub fn ok(&mut self) -> CommandOutcome {
        self.replies.say(|reply| reply.simple("OK"));
        Ok(Flow::Next)
    }

    /// Whoever wonders one day where the counters went finds it in the log.
    pub fn tell_flush(&self, what: &str) {
        let (client, counters) = (self.client.address, self.server.counters.count());
        let (command, database) = (self.client.last_command.get(), self.client.database.get());
        tracing::warn!(command, database, %client, counters, "a client has flushed {what}");
    }

    /// Finds a counter, if the command may do there what it intends to.
    #[inline]
    pub fn locate<'i>(&self, id: &'i [u8], intent: Intent) -> Result<Target<'i>, ErrorReply> {
        self.locate_in(self.client.database.get(), id, intent)
    }

    /// The same in any database.
    #[inline]
    pub fn locate_in<'i>(&self, database: u8, id: &'i [u8], intent: Intent) -> Result<Target<'i>, ErrorReply> {
        let target = match database {
            0 => self.declarations.resolve(&self.server.hasher, id)?,
            other => Target::in_space(&self.server.hasher, self.spaces[usize::from(other)], id)?,
        };
        self.declarations.permit(&target, intent)?;
        Ok(target)
    }

    /// The space that the connection has selected.
    pub fn space(&self) -> Space {
        self.spaces[usize::from(self.client.database.get())]
    }

    /// Walks through names and replies with them.
    pub fn walk(&mut self, mut walk: Walk) -> CommandOutcome {
        let Some(unit) = &mut self.unit else { return Ok(Flow::Alone) };
        let touched = Touched::by(self.pending, walk.space(), self.server.hasher);
        walk.skip(touched.keys);
        if touched.flushed || unit.fresh.contains(&walk.space()) {
            walk.reply(&Fetched::default(), self);
            return Ok(Flow::Next);
        }
        match unit.next_fetched() {
            None => return Ok(Flow::Fetch(Box::new(walk))),
            Some(Ok(fetched)) => walk.reply(fetched, self),
            Some(Err(fault)) => return Err(fault.clone()),
        }
        Ok(Flow::Next)
    }

    /// The same for every argument of a command, so that it does all or nothing.
    pub fn locate_all<'i>(&self, args: Args<'i>, intent: Intent) -> Result<Vec<Target<'i>>, ErrorReply> {
        args.from(1).map(|id| self.locate(id, intent)).collect()
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&mut self, id: &[u8], delta: i64, shape: Shape) -> CommandOutcome {
        self.push_add(id, delta)?;
        self.replies.expect(shape);
        Ok(Flow::Next)
    }

    /// Always inlined: it is most of what an `INCR` takes here, and whether it is must not hang on what else there is to inline.
    #[inline(always)]
    pub fn push_add(&mut self, id: &[u8], delta: i64) -> Result<(), ErrorReply> {
        if self.client.database.get() == 0 && self.declarations.is_plainly_ad_hoc(id) {
            self.pending.add(self.server.hasher.key(id), id, delta);
            return Ok(());
        }
        self.push_add_located(id, delta)
    }

    /// The same for any id.
    fn push_add_located(&mut self, id: &[u8], delta: i64) -> Result<(), ErrorReply> {
        let target = self.locate(id, Intent::Count)?;
        self.note_floor(&target);
        self.pending.add_to(&target, delta);
        Ok(())
    }

    /// Reads a counter, in its turn.
    pub fn read(&mut self, id: &[u8], shape: Shape) -> CommandOutcome {
        let target = self.locate(id, Intent::Read)?;
        self.push_get(&target);
        self.replies.expect(shape);
        Ok(Flow::Next)
    }

    pub fn push_get(&mut self, target: &Target<'_>) {
        self.note_floor(target);
        self.pending.get(target.cell);
    }

    /// To be called before the operation is pushed.
    #[inline]
    pub fn note_floor(&mut self, target: &Target<'_>) {
        if target.floor_at_zero {
            self.floored.push(self.pending.ops.len());
        }
    }
}

/// An argument that must be an integer.
pub fn integer(argument: &[u8]) -> Result<i64, ErrorReply> {
    parse_i64(argument).ok_or(fault::NOT_AN_INTEGER)
}

/// An argument that must be the number of a database.
pub fn database(argument: &[u8]) -> Result<u8, ErrorReply> {
    let index = i32::try_from(integer(argument)?)
        .map_err(|_| ErrorReply::of("ERR value is out of range, value must between -2147483648 and 2147483647"))?;
    let database = u8::try_from(index).ok().filter(|&index| usize::from(index) < DATABASES);
    database.ok_or(ErrorReply::of("ERR DB index is out of range"))
}

/// Whether an argument is the given word, in capitals or not.
pub fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
