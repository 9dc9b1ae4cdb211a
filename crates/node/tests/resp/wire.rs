//! A client that sees the bytes: it sends what it is told and cuts what comes back into replies, unread.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// No reply takes longer, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One reply as the lines it consists of; the text of a bulk string is one line.
pub type Reply = Vec<Vec<u8>>;

impl Wire {
    pub fn connect(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Wire { stream, received: Vec::new() }
    }

    /// Sends bytes. A server that has closed already does not take them, and its reply says why.
    pub fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(error) if !is_closed(error.kind()) => panic!("cannot send {} bytes: {error}", bytes.len()),
            _ => {}
        }
    }

    pub fn command(&mut self, words: &[&[u8]]) -> Reply {
        self.send(&encode(words));
        self.reply().expect("the connection is open")
    }

    /// Nothing more is going to be sent.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The next reply; `None` when the server has closed the connection.
    pub fn reply(&mut self) -> Option<Reply> {
        let line = self.line()?;
        let mut reply = vec![line.clone()];
        let len = || std::str::from_utf8(&line[1..]).unwrap().parse::<i64>().unwrap_or(-1).max(0) as usize;
        match line.first() {
            Some(b'$' | b'=') if line[1] != b'-' => reply.push(self.text(len())?),
            Some(b'*' | b'~') => (0..len()).try_for_each(|_| self.reply().map(|element| reply.extend(element)))?,
            Some(b'%') => (0..2 * len()).try_for_each(|_| self.reply().map(|element| reply.extend(element)))?,
            _ => {}
        }
        Some(reply)
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                return Some(self.take(end));
            }
            self.receive()?;
        }
    }

    fn text(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.received.len() < len + 2 {
            self.receive()?;
        }
        Some(self.take(len))
    }

    /// Takes `len` bytes and drops the line end behind them.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let rest = self.received.split_off(len + 2);
        let mut taken = std::mem::replace(&mut self.received, rest);
        taken.truncate(len);
        taken
    }

    fn receive(&mut self) -> Option<()> {
        let mut bytes = [0; 65536];
        match self.stream.read(&mut bytes) {
            Ok(0) => None,
            Ok(len) => {
                self.received.extend_from_slice(&bytes[..len]);
                Some(())
            }
            Err(error) if is_closed(error.kind()) => None,
            Err(error) => panic!("no answer after {PATIENCE:?}: {error}"),
        }
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

/// A command as an array of bulk strings.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
