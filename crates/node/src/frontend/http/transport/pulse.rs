//! Whether a connection still does something, and what it makes the node hold meanwhile.
//!
//! A connection is idle while no byte moves on it and no request of it is being worked on. The same measure holds for a
//! client that connects and says nothing, one that leaves its connection open, and one that does not read its answer.
//!
//! What it has sent of a request that has not begun, and what it does not take of its answers, is charged to the budget of
//! all clients; where there is no room, the connection ends.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tally_core::limits::{HTTP_CONNECTION_BYTES, HTTP_WINDOW_BYTES};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::head::is_bare_refusal;
use crate::frontend::budget::{Budget, Charge, Full};

/// How an HTTP/2 connection begins.
const PREFACE: &[u8] = b"PRI ";

#[derive(Debug)]
pub struct Pulse {
    moves: AtomicU64,
    sent: AtomicU64,
    working: AtomicUsize,
    requests: AtomicU64,
    /// The client does not take what it is sent.
    blocked: AtomicBool,
    /// Bytes since the last request began that are not part of its body: the head of the next one.
    head_bytes: AtomicUsize,
    /// There was the end of a line among them.
    head_has_line: AtomicBool,
    head: Mutex<Charge>,
    /// hyper refused a head by itself, and was not let to say so.
    refused: AtomicBool,
    /// The connection ends for want of memory for clients.
    crowded_out: AtomicBool,
}

impl Pulse {
    pub fn new(budget: &Arc<Budget>) -> Pulse {
        Pulse {
            moves: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            working: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            head_bytes: AtomicUsize::new(0),
            head_has_line: AtomicBool::new(false),
            head: Mutex::new(Charge::new(budget)),
            refused: AtomicBool::new(false),
            crowded_out: AtomicBool::new(false),
        }
    }

    /// Grows with every read and write that moved something.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Grows with every write that moved something.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn is_working(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }

    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Whether the head of a request has ever come whole.
    pub fn has_begun(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }

    /// Whether the sender of a head is still to be told why it was refused.
    pub fn owes_reason(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn is_crowded_out(&self) -> bool {
        self.crowded_out.load(Ordering::Relaxed)
    }

    /// Whether a part of a head has come.
    pub fn has_head(&self) -> bool {
        self.head_bytes.load(Ordering::Relaxed) > 0
    }

    pub fn head_has_line(&self) -> bool {
        self.head_has_line.load(Ordering::Relaxed)
    }

    /// Marks a request as being worked on, until the guard is dropped.
    pub fn work(self: &Arc<Pulse>) -> Working {
        self.working.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head_has_line.store(false, Ordering::Relaxed);
        if self.head_bytes.swap(0, Ordering::Relaxed) > HTTP_CONNECTION_BYTES {
            self.lock_head().release();
        }
        Working(Arc::clone(self))
    }

    /// Keeps a request that is being worked on so when its answer has begun, because its body goes on.
    pub fn go_on(self: &Arc<Pulse>) -> Working {
        self.working.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(self))
    }

    /// Books bytes that arrived while no request was worked on.
    fn read_head(&self, bytes: &[u8]) -> Result<(), Full> {
        if bytes.contains(&b'\n') {
            self.head_has_line.store(true, Ordering::Relaxed);
        }
        let all = self.head_bytes.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        // So much is paid for by the connection.
        if all > HTTP_CONNECTION_BYTES { self.lock_head().set(all) } else { Ok(()) }
    }

    fn lock_head(&self) -> std::sync::MutexGuard<'_, Charge> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Working(Arc<Pulse>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose pulse is taken. When it is dropped, its stream goes back to whoever made it.
pub struct WatchedStream {
    /// `None` only while it is dropped.
    lent: Option<Lent>,
    pulse: Arc<Pulse>,
    protocol: HttpProtocol,
    /// What HTTP/2 may have sent ahead.
    window: Charge,
    /// What waits for the client to take it.
    unsent: Charge,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HttpProtocol {
    Unknown,
    Http1,
    Http2,
}

struct Lent {
    stream: TcpStream,
    giver: oneshot::Sender<TcpStream>,
}

impl WatchedStream {
    pub fn new(
        stream: TcpStream,
        pulse: Arc<Pulse>,
        budget: &Arc<Budget>,
    ) -> (WatchedStream, oneshot::Receiver<TcpStream>) {
        let (giver, given_back) = oneshot::channel();
        let watched = WatchedStream {
            lent: Some(Lent { stream, giver }),
            pulse,
            protocol: HttpProtocol::Unknown,
            window: Charge::new(budget),
            unsent: Charge::new(budget),
        };
        (watched, given_back)
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.lent.as_mut().expect("nobody polls what is being dropped").stream)
    }

    /// Takes note of bytes that arrived.
    fn arrived(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pulse.moves.fetch_add(1, Ordering::Relaxed);
        if self.protocol == HttpProtocol::Unknown && !bytes.is_empty() {
            self.protocol = if bytes.starts_with(PREFACE) { HttpProtocol::Http2 } else { HttpProtocol::Http1 };
            if self.protocol == HttpProtocol::Http2 {
                self.window.set(HTTP_WINDOW_BYTES as usize).map_err(|full| self.no_room(full))?;
            }
        }
        match self.protocol == HttpProtocol::Http1 && !self.pulse.is_working() {
            true => self.pulse.read_head(bytes).map_err(|full| self.no_room(full)),
            false => Ok(()),
        }
    }

    /// Takes note of how much of `bytes` the client took.
    fn sent(&mut self, polled: Poll<io::Result<usize>>, bytes: usize) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(_)) => {
                self.pulse.moves.fetch_add(1, Ordering::Relaxed);
                self.pulse.sent.fetch_add(1, Ordering::Relaxed);
                if self.pulse.blocked.swap(false, Ordering::Relaxed) {
                    self.unsent.release();
                }
            }
            Poll::Pending => {
                self.pulse.blocked.store(true, Ordering::Relaxed);
                if let Err(full) = self.unsent.set(bytes) {
                    return Poll::Ready(Err(self.no_room(full)));
                }
            }
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    fn no_room(&self, _: Full) -> io::Error {
        self.pulse.crowded_out.store(true, Ordering::Relaxed);
        io::Error::new(io::ErrorKind::OutOfMemory, "the memory for clients is in use")
    }

    /// Whether this is an answer that somebody else is going to give in more words.
    fn is_held_back(&self, bytes: &[u8]) -> bool {
        let bare = is_bare_refusal(bytes);
        if bare {
            self.pulse.refused.store(true, Ordering::Relaxed);
        }
        bare
    }
}

impl Drop for WatchedStream {
    fn drop(&mut self) {
        if let Some(Lent { stream, giver }) = self.lent.take() {
            // Nobody may want it; then it is closed here.
            let _ = giver.send(stream);
        }
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.stream().poll_read(cx, buf))?;
        Poll::Ready(self.arrived(&buf.filled()[before..]))
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_held_back(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        let polled = self.stream().poll_write(cx, buf);
        self.sent(polled, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        if bufs.first().is_some_and(|buf| self.is_held_back(buf)) {
            return Poll::Ready(Ok(bytes));
        }
        let polled = self.stream().poll_write_vectored(cx, bufs);
        self.sent(polled, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.lent.as_ref().is_some_and(|lent| lent.stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The last word is still to be said.
        if self.pulse.owes_reason() {
            return Poll::Ready(Ok(()));
        }
        self.stream().poll_shutdown(cx)
    }
}
