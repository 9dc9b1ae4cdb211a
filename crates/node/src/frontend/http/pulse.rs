//! Whether a connection still does something.
//!
//! A connection is idle while no byte moves on it and no request of it is being worked on. The same measure holds for a
//! client that connects and says nothing, one that leaves its connection open, and one that does not read its answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub struct Pulse {
    moves: AtomicU64,
    working: AtomicUsize,
}

impl Pulse {
    /// Grows with every read and write that moved something.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    pub fn is_working(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }

    /// Marks a request as being worked on, until the guard is dropped.
    pub fn work(self: &Arc<Pulse>) -> Working {
        self.working.fetch_add(1, Ordering::Relaxed);
        Working(Arc::clone(self))
    }
}

pub struct Working(Arc<Pulse>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose pulse is taken. When it is dropped, its stream goes back to whoever made it.
pub struct Watched {
    /// `None` only while it is dropped.
    lent: Option<Lent>,
    pulse: Arc<Pulse>,
}

struct Lent {
    stream: TokioIo<TcpStream>,
    giver: oneshot::Sender<TcpStream>,
}

impl Watched {
    pub fn new(stream: TcpStream, pulse: Arc<Pulse>) -> (Watched, oneshot::Receiver<TcpStream>) {
        let (giver, given_back) = oneshot::channel();
        let lent = Some(Lent { stream: TokioIo::new(stream), giver });
        (Watched { lent, pulse }, given_back)
    }

    fn stream(&mut self) -> Pin<&mut TokioIo<TcpStream>> {
        Pin::new(&mut self.lent.as_mut().expect("nobody polls what is being dropped").stream)
    }

    fn felt<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Ok(_)) = polled {
            self.pulse.moves.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(Lent { stream, giver }) = self.lent.take() {
            // Nobody may want it; then it is closed here.
            let _ = giver.send(stream.into_inner());
        }
    }
}

impl Read for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let polled = self.stream().poll_read(cx, buf);
        self.felt(polled)
    }
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = self.stream().poll_write(cx, buf);
        self.felt(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream().poll_write_vectored(cx, bufs);
        self.felt(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.lent.as_ref().is_some_and(|lent| lent.stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
