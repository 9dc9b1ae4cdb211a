//! One connection: read what is there, run it, commit it, answer it with one write, again.
//!
//! ```text
//!  readable ─▶ input ─▶ parser ─▶ Pass::run per command ─▶ pending + shapes ─▶ submit ─▶ settle ─▶ send
//!                 ▲                                                                         │
//!                 └──────────────── the next slice of a long pipeline ◀─────────────────────┘
//! ```
//!
//! Replies that the client does not take wait while its further commands are read, as a client that writes its whole
//! pipeline before it reads expects; the bound on them is the bound on what a connection may hold.

use super::client::Client;
use super::fault::Fault;
use super::parse::{Allowance, ProtocolError, Step};
use super::pass::{Flow, Pass};
use super::server::Server;
use super::walk::Walk;
use super::work::Work;
use crate::clock;
use crate::engine::{Hot, LocalEngine};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tally_core::limits;
use tally_core::op::{Answer, Op, OpKind};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a client may take to read its last replies.
const LINGER: Duration = Duration::from_secs(5);

/// How many reads ahead the memory of a counter is asked for.
const READ_AHEAD: usize = 16;

pub struct Connection {
    server: Rc<Server>,
    client: Rc<Client>,
    stream: TcpStream,
    /// Only while there is something in it.
    work: Option<Work>,
    /// This connection's part of what all connections hold.
    held_bytes: usize,
}

/// Why a slice of the pipeline ended.
enum End {
    /// Everything that has arrived is taken care of.
    Drained,
    /// There is more to run once this much is committed and sent.
    More,
    Walk(Box<Walk>),
    Close,
}

impl Connection {
    pub fn new(server: Rc<Server>, client: Rc<Client>, stream: TcpStream) -> Connection {
        Connection { server, client, stream, work: None, held_bytes: 0 }
    }

    /// Serves the client until it goes away, misbehaves or the server drains.
    pub async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::debug!(client = self.client.id, address = %self.client.address, %error, "RESP connection closed");
        }
    }

    async fn serve(&mut self) -> io::Result<()> {
        loop {
            let Some(mut work) = poll_fn(|context| self.poll_ready(context)).await? else { return Ok(()) };
            self.client.busy.set(true);
            self.client.active_ms.set(clock::wall_ms());
            let open = self.pass(&mut work).await?;
            if !open || self.server.is_draining() {
                return self.linger(work).await;
            }
            self.put_down(work)?;
        }
    }

    /// Sends what waits and reads what is there, whichever is possible first; `None` when the client is gone.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Work>>> {
        let mut work = self.work.take().unwrap_or_else(|| self.server.pool.take());
        while !work.replies.out().is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, work.replies.out()) {
                Poll::Ready(sent) => drop(work.replies.out().drain(..sent?)),
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

    /// Keeps the buffers if something of this connection is in them.
    fn put_down(&mut self, mut work: Work) -> io::Result<()> {
        let blank = work.is_blank();
        let held_bytes = if blank { 0 } else { work.held_bytes() };
        self.client.busy.set(!work.replies.out().is_empty());
        match blank {
            true => self.server.pool.give(work),
            false => self.work = Some(work),
        }
        match self.hold(held_bytes) {
            true => Ok(()),
            false => {
                Err(io::Error::new(ErrorKind::OutOfMemory, "the client leaves too many bytes in the server's memory"))
            }
        }
    }

    /// Books what this connection holds. Answers whether that is still within bounds.
    fn hold(&mut self, bytes: usize) -> bool {
        let all = self.server.held_bytes.get() - self.held_bytes + bytes;
        self.server.held_bytes.set(all);
        self.held_bytes = bytes;
        bytes <= limits::RESP_HELD_BYTES_FREE || all <= limits::RESP_HELD_BYTES_MAX
    }

    /// Runs everything that has arrived. Answers whether the connection stays open.
    async fn pass(&mut self, work: &mut Work) -> io::Result<bool> {
        work.replies.protocol = self.client.protocol.get();
        work.replies.muted = self.client.hearing.get().is_muted();
        loop {
            let end = self.slice(work);
            self.settle(work).await;
            if let End::Walk(walk) = &end {
                walk.run(&self.server, &mut work.replies).await;
            }
            self.send(work)?;
            match end {
                End::Drained => return Ok(true),
                End::Close => return Ok(false),
                // A long pipeline takes turns with the other connections.
                End::More | End::Walk(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Runs commands until the input is used up, enough is pending, or a command wants more than a pass can do.
    fn slice(&self, work: &mut Work) -> End {
        let declarations = self.server.local.engine().declarations();
        let Work { input, parser, pending, floored, replies, .. } = work;
        let replies_before = replies.len();
        let (server, client, declarations) = (&self.server, &self.client, &declarations);
        let mut pass = Pass { server, client, declarations, pending, floored, replies };
        let mut commands = 0;
        let end = loop {
            let unread = input.unread();
            let (flow, len) = match parser.glance(unread) {
                Some((id, len)) if pass.is_plain() => (pass.incr(id), len),
                _ => match parser.step(unread, Allowance::new(self.client.authenticated.get())) {
                    Ok(Step::Command(len)) => (pass.run(parser.args(unread)), len),
                    Ok(Step::Nothing(len)) => (Flow::Next, len),
                    Ok(Step::Incomplete) if unread.len() <= limits::RESP_QUERY_BYTES_MAX => break End::Drained,
                    Ok(Step::Incomplete) => (pass.fail_protocol(ProtocolError::TooBigRequest), 0),
                    Err(error) => (pass.fail_protocol(error), 0),
                },
            };
            if let Flow::Settle = flow {
                break End::More;
            }
            input.consume(len);
            commands += 1;
            match flow {
                Flow::Next if pass.is_full(replies_before) => break End::More,
                Flow::Next | Flow::Settle => {}
                Flow::Walk(walk) => break End::Walk(walk),
                Flow::Close => break End::Close,
            }
        };
        self.server.count_commands(commands);
        end
    }

    /// Carries out what is pending and writes the replies that waited for it.
    async fn settle(&self, work: &mut Work) {
        let Work { pending, floored, answers, replies, .. } = work;
        if pending.is_empty() {
            return;
        }
        let committed = match pending.record_count == 0 && read_all(&self.server.local, &pending.ops, answers) {
            true => Ok(None),
            false => self.server.local.submit(pending, answers).await.map(Some),
        };
        pending.clear();
        match committed {
            Ok(position) => {
                floored.drain(..).for_each(|at| answers[at] = answers[at].floored());
                replies.settle(answers, position);
            }
            Err(refusal) => {
                floored.clear();
                replies.refuse(Fault::from(refusal).bytes());
            }
        }
    }

    /// Sends as much as the client takes right now.
    fn send(&self, work: &mut Work) -> io::Result<()> {
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
            false => Err(io::Error::other("the client does not read its replies")),
        }
    }

    /// Sends the last replies.
    async fn linger(&mut self, mut work: Work) -> io::Result<()> {
        let send = async {
            self.stream.write_all(work.replies.out()).await?;
            self.stream.shutdown().await
        };
        tokio::time::timeout(LINGER, send).await?
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hold(0);
        self.server.clients.remove(self.client.id);
    }
}

/// Answers reads from memory. Answers whether memory knew everything: if not, the engine has to ask the store.
fn read_all(local: &LocalEngine, ops: &[Op], answers: &mut Vec<Answer>) -> bool {
    answers.clear();
    ops.iter().take(READ_AHEAD).for_each(|op| local.engine().prefetch(op.cell));
    ops.iter().enumerate().all(|(index, op)| {
        if let Some(ahead) = ops.get(index + READ_AHEAD) {
            local.engine().prefetch(ahead.cell);
        }
        let answer = match op.kind {
            OpKind::Ttl => local.ttl(op.cell),
            _ => match local.read(op.cell) {
                Hot::Value(value) => Some(Answer::Value(value)),
                Hot::Absent => Some(Answer::Absent),
                Hot::Cold => None,
            },
        };
        answers.extend(answer);
        answer.is_some()
    })
}
