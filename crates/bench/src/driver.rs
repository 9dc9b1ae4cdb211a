//! Moves the bytes: one thread, nonblocking sockets, one question per connection under way.
//!
//! The generator shares the machine with the server it measures, so the loop allocates nothing, reads the clock once
//! per answer, and makes one read and one write per question unless the kernel takes less.
//!
//! What a server refuses because it has too much to do is asked again when it says so, as a client would; its latency counts from
//! when it was asked first.
//!
//! Without a pace a connection asks again as soon as it is answered. With one, questions are due at moments that no answer
//! moves, and a latency counts from there: a server that stands still is charged for everybody who had to wait for it.

use crate::keys::Picker;
use crate::lane::{Errors, Heard, Lane, LaneKind};
use crate::pace::Pace;
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
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
    /// Questions that were asked again.
    pub retries: u64,
    pub errors: Errors,
}

struct Conversation<L> {
    socket: TcpStream,
    lane: L,
    sent_bytes: usize,
    operations: u64,
    /// When the question was due.
    asked_at: Instant,
}

enum Progress {
    /// The answer is not complete.
    Waiting,
    Answered,
    Refused(Duration),
}

/// Runs `lanes`, a connection each (which says `AUTH` first if there is a password), until `limit`, at `rate` operations per second if it
/// is given; calls `progress` now and then with operations done and time passed, which may break the run off: then what was asked is still answered.
pub fn run<L: Lane>(
    server: SocketAddr,
    password: Option<&str>,
    lanes: Vec<L>,
    picker: Picker,
    limit: Limit,
    rate: Option<u64>,
    progress: impl FnMut(u64, Duration) -> ControlFlow<()>,
) -> io::Result<Measured> {
    let poll = Poll::new()?;
    let mut connections = Vec::with_capacity(lanes.len());
    for (n, lane) in lanes.into_iter().enumerate() {
        let mut socket = connect(server, password)?;
        poll.registry().register(&mut socket, Token(n), Interest::READABLE | Interest::WRITABLE)?;
        connections.push(Conversation { socket, lane, sent_bytes: 0, operations: 0, asked_at: Instant::now() });
    }
    // Behind those of the connections.
    let pace = rate.map(|rate| Pace::new(rate, poll.registry(), Token(connections.len()))).transpose()?;
    Driver::new(connections, picker, limit, pace).run(poll, progress)
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
    pace: Option<Pace>,
    /// Connections that wait for a question to be due.
    idle: VecDeque<usize>,
    /// Connections whose question was refused, and when each asks it again.
    refused: Vec<(Instant, usize)>,
    retries: u64,
    started: Instant,
    /// Connections with a question under way, or one that was refused.
    busy: usize,
    asked: u64,
    done: u64,
    groups: Vec<LaneResult>,
    errors: Errors,
    buffer: Vec<u8>,
}

impl<L: Lane> Driver<L> {
    fn new(connections: Vec<Conversation<L>>, picker: Picker, limit: Limit, pace: Option<Pace>) -> Driver<L> {
        let histogram =
            || Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds of the histogram are constants");
        let groups = LaneKind::ALL.map(|group| LaneResult { group, operations: 0, latency_ns: histogram() });
        Driver {
            connections,
            picker,
            limit,
            pace,
            idle: VecDeque::new(),
            refused: Vec::new(),
            retries: 0,
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
        let mut events = Events::with_capacity(self.connections.len() + 1);
        self.started = Instant::now();
        if let Some(pace) = &mut self.pace {
            pace.start(self.started);
        }
        for n in 0..self.connections.len() {
            self.next(n, self.started);
        }
        self.ask_due(self.started)?;
        let (mut ticked, mut ticked_done, mut progressed) = (self.started, 0, self.started);
        let mut last = self.started;
        while self.busy > 0 || !self.idle.is_empty() {
            match poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other?,
            }
            let connections = self.connections.len();
            for event in events.iter().filter(|event| event.token().0 < connections) {
                last = self.serve(event.token().0, last);
            }
            let now = Instant::now();
            self.ask_again(now);
            self.ask_due(now)?;
            if now - ticked >= TICK {
                if self.done + self.retries > ticked_done || self.busy == 0 {
                    progressed = now;
                } else if now - progressed > SILENCE_MAX {
                    return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer for {SILENCE_MAX:?}")));
                }
                (ticked, ticked_done) = (now, self.done + self.retries);
                if progress(self.done, now - self.started).is_break() {
                    self.limit.operations = 0;
                }
            }
        }
        let groups = self.groups.into_iter().filter(|group| group.operations > 0).collect();
        Ok(Measured { elapsed: last - self.started, groups, retries: self.retries, errors: self.errors })
    }

    /// Lets connection `n` go on as far as it can; answers when the last answer came.
    fn serve(&mut self, n: usize, last: Instant) -> Instant {
        match self.advance(n) {
            Ok(Progress::Waiting) => last,
            Ok(Progress::Answered) => {
                let now = Instant::now();
                self.record(n, now);
                self.next(n, now);
                now
            }
            Ok(Progress::Refused(after)) => {
                self.refused.push((Instant::now() + after, n));
                last
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

    /// Connection `n` may ask again: at once, or when something is due.
    fn next(&mut self, n: usize, now: Instant) {
        match self.pace {
            Some(_) => self.idle.push_back(n),
            None if !self.is_over(now) => drop(self.ask(n, now)),
            None => {}
        }
    }

    /// Sends what is due on connections that wait, the one that has rested longest first, and waits for the next moment.
    fn ask_due(&mut self, now: Instant) -> io::Result<()> {
        if self.is_over(now) {
            self.idle.clear();
        }
        while let Some(due) = self.pace.as_ref().map(Pace::due).filter(|due| *due <= now)
            && let Some(n) = self.idle.pop_front()
        {
            let operations = self.ask(n, due);
            self.pace.as_mut().expect("it was there a moment ago").asked(operations);
            if self.is_over(now) {
                self.idle.clear();
            }
        }
        match &mut self.pace {
            // With nobody at rest, the next answer is what is waited for.
            Some(pace) if !self.idle.is_empty() => pace.wake_when_due(now),
            _ => Ok(()),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.asked >= self.limit.operations || now - self.started >= self.limit.time
    }

    /// Sends the next question of connection `n`, which was due at a moment; answers how many operations it has.
    fn ask(&mut self, n: usize, due: Instant) -> u64 {
        let left = self.limit.operations - self.asked;
        let connection = &mut self.connections[n];
        let operations = connection.lane.prepare(&mut self.picker, left);
        connection.operations = operations;
        connection.sent_bytes = 0;
        connection.asked_at = due;
        self.asked += operations;
        self.busy += 1;
        if let Err(error) = connection.send() {
            self.close(n, error);
        }
        operations
    }

    /// Asks what was refused once more when its time has come. When the run is over nobody waits for it.
    fn ask_again(&mut self, now: Instant) {
        let is_over = now - self.started >= self.limit.time;
        let due: Vec<_> = self.refused.extract_if(.., |(at, _)| is_over || *at <= now).collect();
        for (_, n) in due {
            let connection = &mut self.connections[n];
            if connection.operations == 0 {
                continue; // It was lost meanwhile.
            }
            if is_over {
                connection.operations = 0;
                self.busy -= 1;
                continue;
            }
            self.retries += 1;
            connection.sent_bytes = 0;
            if let Err(error) = connection.send() {
                self.close(n, error);
            }
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
            if let ControlFlow::Break(heard) = self.lane.answer(&buffer[..bytes], errors) {
                return match heard {
                    _ if self.sent_bytes < self.lane.question().len() => {
                        Err(io::Error::other("answered before the question ended"))
                    }
                    Heard::Answer => Ok(Progress::Answered),
                    Heard::Refusal(after) => Ok(Progress::Refused(after)),
                };
            }
            if bytes < buffer.len() {
                return Ok(Progress::Waiting); // A short read has emptied the socket.
            }
        }
    }
}
