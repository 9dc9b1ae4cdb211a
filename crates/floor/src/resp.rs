//! `INCR` over the Redis protocol: everything that the sockets have is parsed, written and synced as one batch, added, answered.

use crate::disk::Disk;
use crate::table::Table;
use anyhow::Result;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use xxhash_rust::xxh3::xxh3_64;

const LISTENER: Token = Token(usize::MAX);
const INPUT_BYTES: usize = 64 * 1024;
/// All that a command has before the length of its key.
const INCR: &[u8] = b"*2\r\n$4\r\nINCR\r\n$";

pub struct Loop {
    listener: TcpListener,
    poll: Poll,
    connections: Vec<Option<Connection>>,
    disk: Disk,
    table: Table,
    /// Of the batch that gathers: the hash of each key.
    hashes: Vec<u64>,
    /// Of the batch that gathers: who has sent how many, in the order of the hashes.
    senders: Vec<(usize, usize)>,
}

struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    /// How much of the input is there and not parsed.
    held: usize,
    output: Vec<u8>,
}

impl Loop {
    pub fn new(listener: std::net::TcpListener, disk: Disk, counters: usize) -> Result<Loop> {
        listener.set_nonblocking(true)?;
        let (mut listener, poll) = (TcpListener::from_std(listener), Poll::new()?);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let (hashes, senders) = (Vec::new(), Vec::new());
        Ok(Loop { listener, poll, connections: Vec::new(), disk, table: Table::new(counters), hashes, senders })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the process is ended.
    pub fn run(mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(n) => self.receive(n)?,
                }
            }
            self.commit()?;
        }
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            socket.set_nodelay(true)?;
            let token = Token(self.connections.len());
            self.poll.registry().register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
            let (input, output) = (vec![0; INPUT_BYTES], Vec::new());
            self.connections.push(Some(Connection { socket, input, held: 0, output }));
        }
    }

    /// Takes in what connection `n` has sent. Readiness is told once, so it reads until the socket is empty.
    fn receive(&mut self, n: usize) -> Result<()> {
        loop {
            if !self.disk.has_room(INPUT_BYTES) {
                self.commit()?;
            }
            let Some(connection) = &mut self.connections[n] else { return Ok(()) };
            let before = self.hashes.len();
            let goes_on = connection.read(&mut self.disk, &mut self.hashes)?;
            if self.hashes.len() > before {
                self.senders.push((n, self.hashes.len() - before));
            }
            match goes_on {
                Reading::More => {}
                Reading::Empty => return connection.send().map_err(Into::into),
                Reading::Closed => {
                    self.commit()?; // Whose answers nobody reads any more.
                    self.connections[n] = None;
                    return Ok(());
                }
            }
        }
    }

    /// Makes what has gathered durable, adds it and answers.
    fn commit(&mut self) -> Result<()> {
        if self.hashes.is_empty() {
            return Ok(());
        }
        self.disk.commit()?;
        let (connections, mut senders, mut number) = (&mut self.connections, self.senders.iter(), itoa::Buffer::new());
        let (mut sender, mut left) = (0, 0);
        self.table.increment(self.hashes.iter().copied(), |value| {
            if left == 0 {
                (sender, left) = *senders.next().expect("every hash has a sender");
            }
            left -= 1;
            if let Some(connection) = &mut connections[sender] {
                connection.output.push(b':');
                connection.output.extend_from_slice(number.format(value).as_bytes());
                connection.output.extend_from_slice(b"\r\n");
            }
        });
        for (sender, _) in self.senders.drain(..) {
            if let Some(connection) = &mut connections[sender] {
                connection.send()?;
            }
        }
        self.hashes.clear();
        Ok(())
    }
}

enum Reading {
    More,
    Empty,
    Closed,
}

impl Connection {
    fn read(&mut self, disk: &mut Disk, hashes: &mut Vec<u64>) -> Result<Reading> {
        let room = self.input.len() - self.held;
        let bytes = match self.socket.read(&mut self.input[self.held..]) {
            Ok(0) => return Ok(Reading::Closed),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Reading::Empty),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Reading::More),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Reading::Closed),
            Err(error) => return Err(error.into()),
        };
        let end = self.held + bytes;
        let mut at = 0;
        while let Some((key, next)) = command(&self.input[at..end])? {
            // A record is the key behind its length.
            disk.push(&[key.len() as u8]);
            disk.push(key);
            hashes.push(xxh3_64(key));
            at += next;
        }
        self.input.copy_within(at..end, 0);
        self.held = end - at;
        Ok(if bytes < room { Reading::Empty } else { Reading::More })
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.socket.write(&self.output) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It goes on when there is room; if nobody is there any more, the next read says so.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    self.output.clear();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The key of the `INCR` at the beginning, and where the next one begins; nothing if it is not whole.
#[inline]
fn command(bytes: &[u8]) -> Result<Option<(&[u8], usize)>> {
    let (mut at, mut length) = (INCR.len(), 0);
    let Some(head) = bytes.get(..at) else { return Ok(None) };
    anyhow::ensure!(head == INCR, "the floor takes INCR and nothing else");
    loop {
        let Some(&byte) = bytes.get(at) else { return Ok(None) };
        at += 1;
        match byte {
            b'0'..=b'9' => length = length * 10 + usize::from(byte - b'0'),
            _ => break,
        }
    }
    let from = at + 1;
    anyhow::ensure!(length < 256, "a key of the floor has at most 255 bytes");
    let next = from + length + 2;
    Ok((bytes.len() >= next).then(|| (&bytes[from..from + length], next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_not_whole_waits_for_its_rest() {
        let whole = b"*2\r\n$4\r\nINCR\r\n$3\r\nv:1\r\n";
        assert_eq!(command(&[&whole[..], b"*2\r\n"].concat()).unwrap(), Some((&b"v:1"[..], whole.len())));
        for end in 0..whole.len() {
            assert_eq!(command(&whole[..end]).unwrap(), None, "{end}");
        }
        assert!(command(b"*1\r\n$4\r\nPING\r\n.......").is_err());
    }

    #[test]
    fn every_increment_is_answered_on_its_own_connection() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let disk = Disk::create(&directory.path().join("file")).unwrap();
        let server = Loop::new(listener, disk, 100).unwrap();
        let address = server.address().unwrap();
        std::thread::spawn(move || server.run());
        let mut clients = [(); 2].map(|()| std::net::TcpStream::connect(address).unwrap());
        let command = b"*2\r\n$4\r\nINCR\r\n$3\r\nv:1\r\n";
        for (n, expected) in [(0, ":1\r\n:2\r\n"), (1, ":3\r\n:4\r\n"), (0, ":5\r\n:6\r\n")] {
            clients[n].write_all(&command.repeat(2)).unwrap();
            let mut answer = [0; 8];
            clients[n].read_exact(&mut answer).unwrap();
            assert_eq!(std::str::from_utf8(&answer).unwrap(), expected);
        }
    }
}
