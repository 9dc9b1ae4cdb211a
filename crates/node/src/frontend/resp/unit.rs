//! Commands that are carried out as one: a transaction, or a single command that needs more than its own counters.
//!
//! ```text
//!  run the commands ─▶ one of them needs names ─▶ fetch them, begin again
//!        │
//!        └─▶ all have run: one submission ─▶ its terms hold where it stands in the log ─▶ replies
//!                                        └─▶ they do not: nothing, or begin again
//! ```
//!
//! Running a command only makes operations and shapes of replies, so beginning again costs nothing but time.

use super::client::Client;
use super::command;
use super::fault::ErrorReply;
use super::parse::{Args, KeptCommand};
use super::pass::{Flow, Pass};
use super::server::Server;
use super::stats::Ran;
use super::walk::{Fetched, Walk};
use super::work::ConnectionWork;
use crate::counters::local::LocalCounters;
use crate::counters::{Terms, Transacted, Watch};
use std::collections::BTreeMap;
use tally_core::database::Space;
use tally_core::id::{CellHasher, CellKey};
use tally_core::limits;
use tally_core::op::{OpKind, Submission};
use tally_core::record::Record;

/// How often a unit is made again because counters came or went while names were fetched. After that it goes by the
/// names it has, which are those of a moment ago.
const AGAIN_MAX: usize = 3;

pub struct Unit {
    commands: KeptCommand,
    /// The replies of a transaction are one list.
    is_transaction: bool,
    watches: Vec<Watch>,
}

/// What the commands of a unit know while they run.
pub struct Making<'a> {
    fetched: &'a [Result<Fetched, ErrorReply>],
    next: usize,
    /// It flushes everything, which is right only while all there is is in database 0.
    pub only_main: bool,
    /// Spaces that this unit begins: nobody else has anything there.
    pub fresh: Vec<Space>,
    /// The slots of the commands that have run, and what was wrong with them.
    pub ran: Vec<(usize, Option<ErrorReply>)>,
}

enum Made {
    Ready { only_main: bool, ran: Vec<(usize, Option<ErrorReply>)> },
    Fetch(Box<Walk>),
    TooLarge,
}

impl Unit {
    pub fn alone(args: Args<'_>) -> Unit {
        let mut commands = KeptCommand::default();
        commands.push(args);
        Unit { commands, is_transaction: false, watches: Vec::new() }
    }

    pub fn transaction(commands: KeptCommand, watches: Vec<Watch>) -> Unit {
        Unit { commands, is_transaction: true, watches }
    }

    pub fn is_transaction(&self) -> bool {
        self.is_transaction
    }

    /// Carries out the commands and replies. Everything before must be settled.
    pub async fn run(&self, server: &Server, local: &impl LocalCounters, client: &Client, work: &mut ConnectionWork) {
        let (mark, before) = (work.replies.mark(), client.remember());
        let (mut fetched, mut again) = (Vec::new(), 0);
        let mut changes = server.keyspace.changes();
        loop {
            let ending = match self.make(server, client, work, &fetched) {
                Made::Ready { .. } if !server.hold(client, self.commands.bytes() + work.held_bytes()) => {
                    Some(Ending::Fault(no_memory()))
                }
                Made::Ready { only_main, ran } => {
                    let is_exact = !fetched.is_empty() && work.pending.record_count > 0 && again < AGAIN_MAX;
                    let terms = Terms { watches: &self.watches, only_main, changes: is_exact.then_some(changes) };
                    match work.carry_out(server, local, Some(&terms)).await {
                        Ok(Transacted::At(_)) => return self.count(server, &ran, &mut work.ran),
                        Ok(Transacted::Changed) => Some(Ending::Nothing),
                        Ok(Transacted::Outdated) => None,
                        Err(fault) => Some(Ending::Fault(fault)),
                    }
                }
                Made::Fetch(walk) => {
                    fetched.push(walk.fetch(server, client, self.commands.bytes()).await);
                    work.abandon();
                    work.replies.go_back(&mark);
                    client.restore(&before);
                    continue;
                }
                Made::TooLarge => Some(Ending::Fault(too_large())),
            };
            work.abandon();
            work.replies.go_back(&mark);
            client.restore(&before);
            match ending {
                Some(Ending::Nothing) => return work.replies.say(|reply| reply.null_array()),
                Some(Ending::Fault(fault)) => return work.fail(server, self.name(), &fault),
                None => {
                    fetched.clear();
                    again += 1;
                    changes = server.keyspace.changes();
                }
            }
        }
    }

    /// Runs the commands on what has been fetched.
    fn make(
        &self,
        server: &Server,
        client: &Client,
        work: &mut ConnectionWork,
        fetched: &[Result<Fetched, ErrorReply>],
    ) -> Made {
        let declarations = server.counters.declarations();
        let ConnectionWork { pending, floored, replies, .. } = work;
        let making = Making { fetched, next: 0, only_main: false, fresh: Vec::new(), ran: Vec::new() };
        let spaces = server.keyspace.spaces();
        let mut pass =
            Pass { server, client, declarations: &declarations, pending, floored, replies, spaces, unit: Some(making) };
        self.look_at_watched(&mut pass);
        if self.is_transaction {
            pass.replies.say(|reply| reply.array(self.commands.len()));
        }
        for args in self.commands.iter() {
            if let Flow::Fetch(walk) = pass.run_now(args) {
                return Made::Fetch(walk);
            }
            if pass.pending.ops.len() > limits::RESP_TRANSACTION_OPS_MAX
                || pass.replies.len() > limits::RESP_OUTPUT_BYTES_MAX
            {
                return Made::TooLarge;
            }
        }
        pass.unit.map_or(Made::TooLarge, |Making { only_main, ran, .. }| Made::Ready { only_main, ran })
    }

    /// Only now, since a unit may be made several times. A transaction's time is that of `EXEC`, so its commands have none.
    fn count(&self, server: &Server, ran: &[(usize, Option<ErrorReply>)], timed: &mut Vec<Ran>) {
        for (slot, fault) in ran {
            server.stats.count_timed(*slot, fault.as_ref());
        }
        if !self.is_transaction {
            timed.extend(ran.iter().map(|(slot, _)| Ran { slot: *slot, calls: 1 }));
        }
    }

    /// The command that it is.
    fn name(&self) -> &'static str {
        let alone = self.commands.iter().next().filter(|_| !self.is_transaction);
        alone.and_then(command::meant).map_or("exec", |command| command.name)
    }

    /// Reads what is watched, so that memory knows it where the transaction stands.
    fn look_at_watched(&self, pass: &mut Pass<'_>) {
        if !self.watches.is_empty() {
            let cells = pass.server.keyspace.watched(&self.watches);
            cells.iter().for_each(|cell| pass.pending.get(*cell));
            pass.replies.expect_made(cells.len(), |_, _| {});
        }
    }
}

/// How a unit ends of which nothing has happened.
enum Ending {
    /// A watched key has changed.
    Nothing,
    Fault(ErrorReply),
}

fn no_memory() -> ErrorReply {
    ErrorReply::of("OOM clients have no memory left for so much at once; nothing was done")
}

fn too_large() -> ErrorReply {
    ErrorReply::from(format!(
        "ERR one transaction makes at most {} operations and {} bytes of replies; nothing was done",
        limits::RESP_TRANSACTION_OPS_MAX,
        limits::RESP_OUTPUT_BYTES_MAX
    ))
}

impl<'a> Making<'a> {
    /// What was fetched for the command that asks; `None` if that is still to be done.
    pub fn next_fetched(&mut self) -> Option<&'a Result<Fetched, ErrorReply>> {
        let fetched = self.fetched.get(self.next)?;
        self.next += 1;
        Some(fetched)
    }
}

/// What the operations so far do to the keys of a space.
pub struct Touched {
    /// Whatever was there before them is gone.
    pub flushed: bool,
    pub keys: BTreeMap<Vec<u8>, CellKey>,
    /// They touch keys of other spaces, too.
    pub elsewhere: bool,
}

impl Touched {
    pub fn by(pending: &Submission, space: Space, hasher: CellHasher) -> Touched {
        let mut touched = Touched { flushed: false, keys: BTreeMap::new(), elsewhere: false };
        for op in pending.ops.iter().filter(|op| !op.is_read()) {
            touched.flushed |= op.kind == OpKind::Flush;
            let record = Record::decode(&mut &pending.records[op.record as usize..]);
            for id in record.as_ref().map(Record::names).unwrap_or_default() {
                match Space::split(id) {
                    (own, key) if own == space => drop(touched.keys.insert(key.to_vec(), hasher.key(id))),
                    _ => touched.elsewhere = true,
                }
            }
        }
        touched
    }
}
