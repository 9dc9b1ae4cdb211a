//! What node and process say to each other, over one socket.
//!
//! The node says once what there is to do: a length and JSON. The process answers in frames: a byte that says what it is, a length, and the
//! content. With the frame that asks for a table comes the socket that it is to be written to: rows of a live one as a stream of Arrow, files of one
//! of the archive as JSON.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use tally_archive::ReadableFile;
use tally_node::sql::{Column, Form};

/// What is read at once, and the most that one frame has.
const PIECE_BYTES: usize = 256 << 10;
/// A kind and a length.
const HEADER_BYTES: usize = 5;

const TABLE: u8 = b'T';
const ROWS: u8 = b'R';
const ENDED: u8 = b'E';

/// What a process is to do.
#[derive(Serialize, Deserialize)]
pub struct Task {
    pub statement: String,
    pub form: Form,
    pub rows_max: usize,
    pub memory_bytes: usize,
    pub has_archive: bool,
    /// A directory of its own, for what does not fit into memory.
    pub spill: PathBuf,
    /// So much of it, at most.
    pub spill_bytes: u64,
}

impl Task {
    pub fn send(&self, mut to: impl Write) -> io::Result<()> {
        let task = serde_json::to_vec(self)?;
        to.write_all(&(task.len() as u32).to_le_bytes())?;
        to.write_all(&task)
    }

    pub fn receive(mut from: impl Read) -> io::Result<Task> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut task = vec![0; u32::from_le_bytes(length) as usize];
        from.read_exact(&mut task)?;
        Ok(serde_json::from_slice(&task)?)
    }
}

/// A table: rows of ids that begin so, if it is a live one.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct TableRequest {
    pub table: String,
    pub prefix: Vec<u8>,
}

/// What a question came to; its rows were told before.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Ended {
    Found(Found),
    /// The statement is wrong.
    Wrong(String),
    /// It needs more than it may have.
    TooMuch(String),
    /// Something cannot be read.
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Found {
    pub columns: Vec<Column>,
    pub row_count: u64,
    pub is_truncated: bool,
}

/// A table of the archive.
#[derive(Serialize, Deserialize)]
pub struct Files {
    /// The columns, as a stream of Arrow begins.
    pub schema: Vec<u8>,
    pub files: Vec<ReadableFile>,
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend((content.len() as u32).to_le_bytes());
    frame.extend(content);
    frame
}

/// The process's end.
pub struct Teller(Mutex<UnixStream>);

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
    }
}

impl Teller {
    pub fn new(stream: UnixStream) -> Teller {
        Teller(Mutex::new(stream))
    }

    fn tell(&self, kind: u8, content: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&frame(kind, content))
    }

    pub fn rows(&self, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(PIECE_BYTES - HEADER_BYTES).try_for_each(|piece| self.tell(ROWS, piece))
    }

    pub fn ended(&self, ended: &Ended) -> io::Result<()> {
        self.tell(ENDED, &serde_json::to_vec(ended)?)
    }

    /// Where what is asked for comes from.
    pub fn table(&self, request: &TableRequest) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        let frame = frame(TABLE, &serde_json::to_vec(request)?);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut along, sockets) = (SendAncillaryBuffer::new(&mut space), [theirs.as_fd()]);
        assert!(along.push(SendAncillaryMessage::ScmRights(&sockets)), "there is room for one");
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sendmsg(&*stream, &[IoSlice::new(&frame)], &mut along, SendFlags::empty())?;
        stream.write_all(&frame[sent..])?;
        Ok(ours)
    }
}

/// What the process says.
#[derive(Debug)]
pub enum Heard {
    /// Nothing for a while.
    Nothing,
    Rows(Vec<u8>),
    Table(TableRequest, UnixStream),
    Ended(Ended),
    /// It has closed its end, as everybody does who is gone.
    End,
}

/// The node's end.
pub struct Listener {
    stream: UnixStream,
    bytes: Vec<u8>,
    sockets: VecDeque<OwnedFd>,
}

impl Listener {
    /// Hears nothing for as long as the stream's timeout is, and says so.
    pub fn new(stream: UnixStream) -> Listener {
        Listener { stream, bytes: Vec::new(), sockets: VecDeque::new() }
    }

    pub fn hear(&mut self) -> io::Result<Heard> {
        loop {
            if let Some((kind, content)) = self.take_frame()? {
                return self.heard(kind, content);
            }
            match self.read() {
                Ok(0) => return Ok(Heard::End),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Heard::Nothing),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Heard::End),
                Err(error) => return Err(error),
            }
        }
    }

    fn heard(&mut self, kind: u8, content: Vec<u8>) -> io::Result<Heard> {
        match kind {
            ROWS => Ok(Heard::Rows(content)),
            ENDED => Ok(Heard::Ended(serde_json::from_slice(&content)?)),
            TABLE => {
                let socket = self.sockets.pop_front().ok_or_else(unheard_of)?;
                Ok(Heard::Table(serde_json::from_slice(&content)?, socket.into()))
            }
            _ => Err(unheard_of()),
        }
    }

    fn take_frame(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [kind, length @ ..] = *header;
        let length = u32::from_le_bytes(length) as usize;
        // An error of the planner repeats the statement, maybe more than once.
        if length > 64 * PIECE_BYTES {
            return Err(unheard_of());
        }
        let Some(content) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.bytes.drain(..HEADER_BYTES + length);
        Ok(Some((kind, content)))
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.stream, &mut [IoSliceMut::new(&mut piece)], &mut along, RecvFlags::CMSG_CLOEXEC)?;
        for message in along.drain() {
            if let RecvAncillaryMessage::ScmRights(sockets) = message {
                self.sockets.extend(sockets);
            }
        }
        self.bytes.extend(&piece[..received.bytes]);
        Ok(received.bytes)
    }
}

fn unheard_of() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the process that answers a question says what cannot be understood")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_told_is_heard_and_rows_come_by_the_socket_that_was_sent() {
        let (node, process) = UnixStream::pair().unwrap();
        node.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let (teller, mut listener) = (Teller::new(process), Listener::new(node));
        assert!(matches!(listener.hear().unwrap(), Heard::Nothing));
        let request = TableRequest { table: "counters".to_owned(), prefix: b"views:".to_vec() };
        let mut ours = teller.table(&request).unwrap();
        teller.rows(b"some").unwrap();
        let found = Found { columns: vec![], row_count: 1, is_truncated: false };
        teller.ended(&Ended::Found(found)).unwrap();
        drop(teller);

        let Heard::Table(heard, mut theirs) = listener.hear().unwrap() else { panic!("rows were asked for first") };
        assert_eq!(heard, request);
        theirs.write_all(b"here").unwrap();
        drop(theirs);
        let mut rows = String::new();
        ours.read_to_string(&mut rows).unwrap();
        assert_eq!(rows, "here");
        assert!(matches!(listener.hear().unwrap(), Heard::Rows(rows) if rows == b"some"));
        assert!(matches!(listener.hear().unwrap(), Heard::Ended(Ended::Found(Found { row_count: 1, .. }))));
        assert!(matches!(listener.hear().unwrap(), Heard::End));
    }
}
