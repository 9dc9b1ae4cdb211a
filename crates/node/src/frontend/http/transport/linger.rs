//! The end of a connection on which the other side may still be sending.
//!
//! Closing a socket that holds unread bytes, or that gets more of them, makes the kernel send a reset, and a reset
//! destroys the answer under way. So whoever was answered early (408, 413, 404 with a body …) is told that nothing more
//! comes, and is then listened to until he closes, too; for a bounded time and a bounded number of bytes.

use std::time::Duration;

use tally_core::limits::HTTP_DRAIN_BYTES_MAX;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Closes the connection, after the other side has closed it or after `patience`.
pub async fn linger(stream: TcpStream, patience: Duration) {
    // However it ends, the answer has had its chance.
    let _ = timeout(patience, discard(stream)).await;
}

async fn discard(mut stream: TcpStream) -> std::io::Result<u64> {
    stream.shutdown().await?;
    copy(&mut stream.take(HTTP_DRAIN_BYTES_MAX as u64), &mut sink()).await
}
