//! Moves the bytes: one thread, nonblocking sockets, one question per connection under way.
//!
//! The generator shares the machine with the server it measures, so the loop allocates nothing, reads the clock once
//! per answer, and makes one read and one write per question unless the kernel takes less.

use crate::keys::Picker;
use crate::lane::{Errors, Lane, LaneKind};
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const READ_BUFFER_BYTES: usize = 256 * 1024;
/// Of the answer to `AUTH`.
const ANSWER_BYTES_MAX: u64 = 4096;
const TICK: Duration = Duration::from_millis(100);
/// A server that has answered nobody for this long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Three significant digits up to a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// When a run ends: at whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub operations: u64,
    pub time: Duration,
}

/// What was measured for one group of lanes. A latency is that of a whole question.
pub struct LaneResult {
    pub group: LaneKind,
    pub operations: u64,
    pub latency_ns: Histogram<u64>,
}

pub struct Measured {
    pub elapsed: Duration,
    pub groups: Vec<LaneResult>,
    pub errors: Errors,
}

struct Conversation<L> {
    socket: TcpStream,
    lane: L,
    sent_bytes: usize,
    operations: u64,
    asked_at: Instant,
}

enum Progress {
    /// The answer is not complete.
    Waiting,
    Answered,
}

/// Runs `lanes`, a connection each (which says `AUTH` first if there is a password), until `limit`; calls `progress` now and then with operations done and time
/// passed, which may break the run off: then what was asked is still answered.
pub fn run<L: Lane>(
    server: SocketAddr,
    password: Option<&str>,
    lanes: Vec<L>,
    picker: Picker,
    limit: Limit,
    progress: impl FnMut(u64, Duration) -> ControlFlow<()>,
) -> io::Result<Measured> {
    let poll = Poll::new()?;
    let mut connections = Vec::with_capacity(lanes.len());
    for (n, lane) in lanes.into_iter().enumerate() {
        let mut socket = connect(server, password)?;
        poll.registry().register(&mut socket, Token(n), Interest::READABLE | Interest::WRITABLE)?;
        connections.push(Conversation { socket, lane, sent_bytes: 0, operations: 0, asked_at: Instant::now() });
    }
    Driver::new(connections, picker, limit).run(poll, progress)
}

fn connect(server: SocketAddr, password: Option<&str>) -> io::Result<TcpStream> {
    let mut socket = std::net::TcpStream::connect(server)?;
    socket.set_nodelay(true)?;
    if let Some(password) = password {
        log_in(&mut socket, password)?;
    }
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket))
}

/// Says `AUTH` and waits for the answer; nothing else is under way.
fn log_in(socket: &mut std::net::TcpStream, password: &str) -> io::Result<()> {
    socket.set_read_timeout(Some(SILENCE_MAX))?;
    write!(socket, "*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len())?;
    let mut answer = String::new();
    BufReader::new(socket).take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    match answer.trim_end() {
        "+OK" => Ok(()),
        refused => Err(io::Error::new(ErrorKind::PermissionDenied, format!("the server refused AUTH: {refused}"))),
    }
}

struct Driver<L> {
    connections: Vec<Conversation<L>>,
    picker: Picker,
    limit: Limit,
    started: Instant,
    /// Connections with a question under way.
    busy: usize,
    asked: u64,
    done: u64,
    groups: Vec<LaneResult>,
    errors: Errors,
    buffer: Vec<u8>,
}

impl<L: Lane> Driver<L> {
    fn new(connections: Vec<Conversation<L>>, picker: Picker, limit: Limit) -> Driver<L> {
        let histogram =
            || Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds of the histogram are constants");
        let groups = LaneKind::ALL.map(|group| LaneResult { group, operations: 0, latency_ns: histogram() });
        Driver {
            connections,
            picker,
            limit,
            started: Instant::now(),
            busy: 0,
            asked: 0,
            done: 0,
            groups: Vec::from(groups),
            errors: Errors::default(),
            buffer: vec![0; READ_BUFFER_BYTES],
        }
    }

    fn run(
        mut self,
        mut poll: Poll,
        mut progress: impl FnMut(u64, Duration) -> ControlFlow<()>,
    ) -> io::Result<Measured> {
        let mut events = Events::with_capacity(self.connections.len().max(1));
        self.started = Instant::now();
        for n in 0..self.connections.len() {
            self.ask(n, self.started);
        }
        let (mut ticked, mut ticked_done, mut progressed) = (self.started, 0, self.started);
        let mut last = self.started;
        while self.busy > 0 {
            match poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                last = self.serve(event.token().0, last);
            }
            let now = Instant::now();
            if now - ticked >= TICK {
                if self.done > ticked_done {
                    progressed = now;
                } else if now - progressed > SILENCE_MAX {
                    return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer for {SILENCE_MAX:?}")));
                }
                (ticked, ticked_done) = (now, self.done);
                if progress(self.done, now - self.started).is_break() {
                    self.limit.operations = 0;
                }
            }
        }
        let groups = self.groups.into_iter().filter(|group| group.operations > 0).collect();
        Ok(Measured { elapsed: last - self.started, groups, errors: self.errors })
    }

    /// Lets connection `n` go on as far as it can; answers when the last answer came.
    fn serve(&mut self, n: usize, last: Instant) -> Instant {
        match self.advance(n) {
            Ok(Progress::Waiting) => last,
            Ok(Progress::Answered) => {
                let now = Instant::now();
                self.record(n, now);
                self.ask(n, now);
                now
            }
            Err(error) => {
                self.close(n, error);
                last
            }
        }
    }

    fn advance(&mut self, n: usize) -> io::Result<Progress> {
        let Driver { connections, buffer, errors, .. } = self;
        let connection = &mut connections[n];
        if connection.operations == 0 {
            return Ok(Progress::Waiting); // It has said all it had to say.
        }
        connection.send()?;
        connection.receive(buffer, errors)
    }

    fn record(&mut self, n: usize, now: Instant) {
        let connection = &mut self.connections[n];
        let group = &mut self.groups[connection.lane.group() as usize];
        group.latency_ns.saturating_record((now - connection.asked_at).as_nanos() as u64);
        group.operations += connection.operations;
        self.done += connection.operations;
        connection.operations = 0;
        self.busy -= 1;
    }

    /// Sends the next question of connection `n`, if the run has not ended.
    fn ask(&mut self, n: usize, now: Instant) {
        let left = self.limit.operations.saturating_sub(self.asked);
        if left == 0 || now - self.started >= self.limit.time {
            return;
        }
        let connection = &mut self.connections[n];
        connection.operations = connection.lane.prepare(&mut self.picker, left);
        connection.sent_bytes = 0;
        connection.asked_at = now;
        self.asked += connection.operations;
        self.busy += 1;
        if let Err(error) = connection.send() {
            self.close(n, error);
        }
    }

    fn close(&mut self, n: usize, error: io::Error) {
        self.errors.add(|| format!("a connection was lost: {error}"));
        self.connections[n].operations = 0;
        self.busy -= 1;
    }
}

impl<L: Lane> Conversation<L> {
    fn send(&mut self) -> io::Result<()> {
        while self.sent_bytes < self.lane.question().len() {
            match self.socket.write(&self.lane.question()[self.sent_bytes..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Readiness is reported once per arrival: reads until the answer is complete or the socket is empty.
    fn receive(&mut self, buffer: &mut [u8], errors: &mut Errors) -> io::Result<Progress> {
        loop {
            let bytes = match self.socket.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Waiting),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if let ControlFlow::Break(()) = self.lane.answer(&buffer[..bytes], errors) {
                let early = self.sent_bytes < self.lane.question().len();
                return if early {
                    Err(io::Error::other("answered before the question ended"))
                } else {
                    Ok(Progress::Answered)
                };
            }
            if bytes < buffer.len() {
                return Ok(Progress::Waiting); // A short read has emptied the socket.
            }
        }
    }
}
