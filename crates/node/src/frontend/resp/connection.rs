//! One connection: read what is there, run it, commit it, answer it with one write, again.
//!
//! ```text
//!  readable ─▶ input ─▶ parser ─▶ Pass::run per command ─▶ pending + shapes ─▶ submit ─▶ settle ─▶ send
//!                 ▲                                                                         │
//!                 └──────────────── the next slice of a long pipeline ◀─────────────────────┘
//! ```
//!
//! Replies that the client does not take wait while its further commands are read, as a client that writes its whole
//! pipeline before it reads expects. They and an unfinished command are charged to the budget of all clients; when it is
//! used up, the connection that holds most of it is closed.

use super::client::Client;
use super::fault::ErrorReply;
use super::latency::Family;
use super::parse::{Allowance, Args, ParseStep};
use super::pass::{Flow, FoundNames, Pass};
use super::server::Server;
use super::unit::Unit;
use super::work::ConnectionWork;
use crate::clock::{self, Stopwatch};
use crate::counters::Watched;
use crate::counters::local::LocalCounters;
use crate::frontend::places::ClientPlace;
use crate::metrics::{Connected, CutOff};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tally_core::limits;
use tokio::io::{AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// How often a connection that waits for a walk looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub struct Connection<L: LocalCounters> {
    server: Rc<Server>,
    local: L,
    client: Rc<Client>,
    stream: TcpStream,
    place: ClientPlace,
    /// Only while there is much in it.
    work: Option<ConnectionWork>,
    /// The beginning of a command, if it is all that there is and it is short.
    rest: Vec<u8>,
    /// Grows with whatever the client takes.
    sent_bytes: u64,
    connected: Stopwatch,
    _counted: Connected,
}

/// Why a slice of the pipeline ended.
pub enum End {
    /// Everything that has arrived is taken care of.
    Drained,
    /// There is more to run once this much is committed and sent.
    More,
    /// What is before it comes first.
    Unit(Box<Unit>),
    Watch(Vec<FoundNames>),
    Close,
}

impl End {
    /// Whether a slice ends with a command, and why.
    fn after<'a>(flow: Flow, args: impl FnOnce() -> Args<'a>) -> Option<End> {
        match flow {
            Flow::Next => None,
            Flow::Alone => Some(End::Unit(Box::new(Unit::alone(args())))),
            Flow::Exec(unit) => Some(End::Unit(unit)),
            Flow::Watch(keys) => Some(End::Watch(keys)),
            Flow::Close => Some(End::Close),
            Flow::Fetch(_) => unreachable!("only a unit fetches names"),
        }
    }
}

impl<L: LocalCounters> Connection<L> {
    pub fn new(
        server: Rc<Server>,
        local: L,
        client: Rc<Client>,
        stream: TcpStream,
        place: ClientPlace,
    ) -> Connection<L> {
        Connection {
            _counted: server.host.metrics.connected("resp"),
            server,
            local,
            client,
            stream,
            place,
            work: None,
            rest: Vec::new(),
            sent_bytes: 0,
            connected: Stopwatch::start(),
        }
    }

    /// Serves the client until it goes away, misbehaves or the server drains.
    pub async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::debug!(client = self.client.id, address = %self.client.address, %error, "RESP connection closed");
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        loop {
            let Some(mut work) = self.ready().await? else { return Ok(()) };
            self.client.busy.set(true);
            self.client.active_ms.set(clock::wall_ms());
            let open = self.pass(&mut work).await?;
            if self.client.is_known() {
                self.place.settle();
            }
            if !open || self.server.is_draining() {
                return self.linger(work).await;
            }
            self.put_down(work)?;
        }
    }

    /// Waits for something to do, but not for ever for whom there is no reason to.
    async fn ready(&mut self) -> io::Result<Option<ConnectionWork>> {
        loop {
            let Some((patience, cut, why)) = self.patience() else { return self.ready_at_last().await };
            let sent_bytes = self.sent_bytes;
            match tokio::time::timeout(patience, self.ready_at_last()).await {
                Ok(ready) => return ready,
                Err(_) if self.sent_bytes > sent_bytes => {}
                Err(_) => {
                    self.server.count_cut(cut);
                    return Err(io::Error::new(ErrorKind::TimedOut, why));
                }
            }
        }
    }

    /// How long to wait for a client that may do nothing yet, or that has left much in the server's memory.
    fn patience(&self) -> Option<(Duration, CutOff, &'static str)> {
        let options = &self.server.options;
        if !self.client.authenticated.get() {
            let left = options.stranger_timeout.saturating_sub(self.connected.elapsed());
            return Some((left, CutOff::Silent, "the client did not say AUTH in time"));
        }
        let why = "the client neither went on sending nor read its replies";
        self.work.as_ref().map(|_| (options.stall_timeout, CutOff::Stalled, why))
    }

    async fn ready_at_last(&mut self) -> io::Result<Option<ConnectionWork>> {
        poll_fn(|context| self.poll_ready(context)).await
    }

    /// Sends what waits and reads what is there, whichever is possible first; `None` when the client is gone.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<ConnectionWork>>> {
        let mut work = self.pick_up();
        while !work.replies.out().is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, work.replies.out()) {
                Poll::Ready(sent) => {
                    let sent = sent?;
                    self.sent_bytes += sent as u64;
                    work.replies.out().drain(..sent);
                }
                Poll::Pending => break,
            }
        }
        match work.input.poll_fill(&mut self.stream, context) {
            Poll::Ready(Ok(0)) => Poll::Ready(Ok(None)),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(Some(work))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.put_down(work)?;
                Poll::Pending
            }
        }
    }

    fn pick_up(&mut self) -> ConnectionWork {
        self.work.take().unwrap_or_else(|| {
            let mut work = self.server.pool.take();
            if !self.rest.is_empty() {
                work.input.restore(&self.rest);
            }
            work
        })
    }

    /// Keeps the buffers if there is much of this connection in them. A short rest is kept by itself and read again.
    fn put_down(&mut self, mut work: ConnectionWork) -> io::Result<()> {
        let replies_wait = !work.replies.out().is_empty();
        self.client.busy.set(replies_wait);
        let rest = work.input.unread();
        self.client.input_bytes.set((rest.len(), 0));
        self.client.output_bytes.set(if replies_wait { work.replies.held_bytes() } else { 0 });
        if replies_wait || rest.len() > limits::RESP_HELD_BYTES_FREE {
            let held_bytes = work.held_bytes();
            self.work = Some(work);
            return self.hold(held_bytes);
        }
        match rest.is_empty() {
            true => self.rest = Vec::new(),
            false => rest.clone_into(&mut self.rest),
        }
        work.forget();
        self.server.pool.give(work);
        self.hold(0)
    }

    /// Books what this connection holds.
    fn hold(&self, bytes: usize) -> io::Result<()> {
        let queued_bytes = self.client.transaction.borrow().as_ref().map_or(0, |queue| queue.commands.bytes());
        match self.server.hold(&self.client, bytes + queued_bytes) {
            true => Ok(()),
            false => {
                // Best effort: it may not read at all.
                let _ = self
                    .stream
                    .try_write(b"-OOM clients have no memory left for so much: send or read less at once\r\n");
                Err(io::Error::new(ErrorKind::OutOfMemory, "the client leaves too many bytes in the server's memory"))
            }
        }
    }

    /// Runs everything that has arrived. Answers whether the connection stays open.
    async fn pass(&mut self, work: &mut ConnectionWork) -> io::Result<bool> {
        work.replies.set_manner(self.client.manner());
        let mut arrived = Stopwatch::start();
        loop {
            let (end, commands) = self.slice(work);
            let family = Family::of(&work.pending, &end);
            self.settle(work).await;
            match &end {
                End::Unit(unit) => self.run_unit(unit, work).await?,
                End::Watch(keys) => self.watch(keys, work).await,
                End::Drained | End::More | End::Close => {}
            }
            self.send(work)?;
            if work.replies.out().len() > limits::RESP_HELD_BYTES_FREE {
                self.hold(work.held_bytes())?;
            }
            // The next slice has been there as long, but it is counted from here: it waits for itself only.
            let answered = Stopwatch::start();
            let took = answered.since(&arrived);
            self.server.latency.observe(family, took, commands);
            self.server.stats.spend(took, commands, &work.ran);
            arrived = answered;
            match end {
                End::Drained => return Ok(true),
                End::Close => return Ok(false),
                // A long pipeline takes turns with the other connections.
                End::More | End::Unit(_) | End::Watch(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Carries out commands as one, unless the client leaves meanwhile.
    async fn run_unit(&self, unit: &Unit, work: &mut ConnectionWork) -> io::Result<()> {
        tokio::select! {
            biased;
            () = unit.run(&self.server, &self.local, &self.client, work) => {}
            () = self.has_left() => return Err(ErrorKind::ConnectionAborted.into()),
        }
        if unit.is_transaction() {
            self.client.watching.borrow_mut().forget(&*self.server.keyspace);
        }
        Ok(())
    }

    /// Resolves some time after the client has closed its side: it may still want to read what it has asked for.
    async fn has_left(&self) {
        // Bytes that wait to be read make the socket ready all the time, so this has to look now and then.
        while !self.stream.ready(Interest::READABLE).await.is_ok_and(|ready| ready.is_read_closed()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tokio::time::sleep(self.server.options.linger).await;
    }

    /// Runs commands until the input is used up, enough is pending, or a command wants more than a pass can do.
    fn slice(&self, work: &mut ConnectionWork) -> (End, u64) {
        let declarations = self.server.counters.declarations();
        let ConnectionWork { input, parser, pending, floored, replies, .. } = work;
        let replies_before = replies.len();
        let (server, client, declarations) = (&self.server, &self.client, &declarations);
        let spaces = server.keyspace.spaces();
        let mut pass = Pass { server, client, declarations, pending, floored, replies, spaces, unit: None };
        let mut commands = 0;
        let end = loop {
            commands += pass.run_incrs(parser, input, replies_before);
            if pass.is_full(replies_before) {
                break End::More;
            }
            let unread = input.unread();
            client.input_bytes.set((unread.len(), input.free_bytes()));
            let allowance = Allowance::new(client.authenticated.get());
            let (flow, len) = match parser.step(unread, allowance) {
                Ok(ParseStep::Command(len)) => (pass.run(parser.args(unread)), len),
                Ok(ParseStep::Nothing(len)) => (Flow::Next, len),
                Ok(ParseStep::Incomplete) if unread.len() <= allowance.query_bytes_max() => break End::Drained,
                Ok(ParseStep::Incomplete) => (pass.fail_protocol(allowance.too_big_a_request()), 0),
                Err(error) => (pass.fail_protocol(error), 0),
            };
            let end = End::after(flow, || parser.args(unread));
            input.consume(len);
            commands += 1;
            if let Some(end) = end {
                break end;
            }
        };
        self.server.count_commands(commands, &mut work.ran);
        (end, commands)
    }

    /// Carries out what is pending and writes the replies that waited for it.
    async fn settle(&self, work: &mut ConnectionWork) {
        if work.pending.is_empty() {
            // Only changes of manner can wait for nothing.
            return work.replies.settle(&[], None);
        }
        if let Err(fault) = work.carry_out(&self.server, &self.local, None).await {
            work.abandon();
            let refused = work.replies.refuse(fault.bytes());
            self.server.stats.count_errors(fault.code(), refused);
        }
    }

    /// Watches keys, of which memory may not know all.
    async fn watch(&self, keys: &[FoundNames], work: &mut ConnectionWork) {
        for FoundNames { database, key, cell } in keys {
            if self.client.watching.borrow().has(*database, key) {
                continue;
            }
            match self.local.watch(Watched { database: *database, key, cell: *cell }).await {
                Ok(watch) => self.client.watching.borrow_mut().add(*database, key, watch),
                Err(refusal) => return work.fail(&self.server, "watch", &ErrorReply::from(refusal)),
            }
        }
        work.replies.say(|reply| reply.simple("OK"));
    }

    /// Sends as much as the client takes right now.
    fn send(&self, work: &mut ConnectionWork) -> io::Result<()> {
        let out = work.replies.out();
        let mut sent = 0;
        while sent < out.len() {
            match self.stream.try_write(&out[sent..]) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        out.drain(..sent);
        match out.len() <= limits::RESP_OUTPUT_BYTES_MAX {
            true => Ok(()),
            false => {
                self.server.count_cut(CutOff::Stalled);
                Err(io::Error::other("the client does not read its replies"))
            }
        }
    }

    /// Sends the last replies.
    async fn linger(&mut self, mut work: ConnectionWork) -> io::Result<()> {
        let send = async {
            self.stream.write_all(work.replies.out()).await?;
            self.stream.shutdown().await
        };
        tokio::time::timeout(self.server.options.linger, send).await?
    }
}

impl<L: LocalCounters> Drop for Connection<L> {
    fn drop(&mut self) {
        self.client.watching.borrow_mut().forget(&*self.server.keyspace);
        self.server.clients.remove(self.client.id);
    }
}
