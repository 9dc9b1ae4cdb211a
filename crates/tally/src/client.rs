//! A small blocking client of a running server, over the Redis protocol: one command, one answer.

use crate::access::password_text;
use crate::address;
use crate::failure::{Failure, Result};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

pub const DEFAULT_SERVER: &str = "127.0.0.1:7379";

const CONNECT_MAX: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(30);
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// A longer text is passed over, up to what Redis has at most.
const BULK_BYTES_MAX: usize = 1024 * 1024;
const PASSED_OVER_BYTES_MAX: usize = 512 * 1024 * 1024;
/// What is kept of it, to tell it by.
const START_BYTES: usize = 128;
const ELEMENTS_MAX: usize = 1_000_000;

/// Where the server is and how to be let in.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    /// Where the server listens for the Redis protocol
    #[arg(long, value_name = "ADDR", default_value = DEFAULT_SERVER, env = "TALLY_SERVER")]
    pub server: String,
    #[command(flatten)]
    pub secret: SecretArgs,
}

/// What the server asks for over the Redis protocol.
#[derive(clap::Args, Clone, Debug)]
pub struct SecretArgs {
    /// The server's password, if it has one [env: TALLY_PASSWORD]
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// The same, from the first line of a file
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    password_file: Option<PathBuf>,
}

impl SecretArgs {
    pub fn password(&self) -> Result<Option<String>> {
        password_text(self.password.as_deref(), self.password_file.as_deref())
    }
}

#[derive(Debug, PartialEq)]
pub enum ServerAnswer {
    Integer(i64),
    Text(Vec<u8>),
    Nothing,
    List(Vec<ServerAnswer>),
    /// A text that is too long to be held: how it begins, and how long it is.
    Long {
        start: Vec<u8>,
        bytes: usize,
    },
}

impl ServerAnswer {
    pub fn bytes(self) -> Option<Vec<u8>> {
        if let ServerAnswer::Text(bytes) = self { Some(bytes) } else { None }
    }

    pub fn text(self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Not what the command answers.
    pub fn strange(&self) -> Failure {
        Failure::new("the server gave a strange answer").why(format!("{self:?}"))
    }
}

/// Who answers: what is to be done about a failure depends on that.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    Tally,
    /// One that is imported from.
    Redis,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Tally => "server",
            Peer::Redis => "Redis",
        }
    }

    fn if_absent(self) -> &'static str {
        match self {
            Peer::Tally => "Start one with: tally serve, or name another with --server.",
            Peer::Redis => "Start it, or name another as redis://HOST:PORT.",
        }
    }

    fn if_lost(self) -> &'static str {
        match self {
            Peer::Tally => "Whether the command counted is unknown: ask with tally get before repeating it.",
            Peer::Redis => "Run it again: what is there already is set once more.",
        }
    }

    fn if_unknown(self) -> &'static str {
        match self {
            Peer::Tally => "Give the server's password with --password or --password-file.",
            Peer::Redis => "Give its password with --redis-password-file, or as redis://USER:PASSWORD@HOST.",
        }
    }

    fn refused(self, command: &str, text: &str) -> Failure {
        let failure = Failure::new(format!("the {} refused {command}", self.name())).why(text);
        match text.split(' ').next() {
            Some("NOAUTH" | "WRONGPASS") => failure.remedy(self.if_unknown()),
            Some("BUSY") => failure.remedy("Try again in a moment."),
            _ => failure,
        }
    }
}

pub struct RespClient {
    peer: Peer,
    server: String,
    stream: BufReader<TcpStream>,
}

impl RespClient {
    pub fn connect(args: &ServerArgs) -> Result<RespClient> {
        RespClient::connect_to(&args.server, args.secret.password()?.as_deref())
    }

    pub fn connect_to(server: &str, password: Option<&str>) -> Result<RespClient> {
        let mut client = RespClient::reach(Peer::Tally, server)?;
        if let Some(password) = password {
            client.call(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// Without a word so far.
    pub fn reach(peer: Peer, server: &str) -> Result<RespClient> {
        let stream = connect(server).map_err(|error| {
            Failure::new(format!("no {} answers at {server}", peer.name())).why(error).remedy(peer.if_absent())
        })?;
        Ok(RespClient { peer, server: server.to_owned(), stream: BufReader::new(stream) })
    }

    /// Where it is.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends one command and waits for its answer; an error answer is a failure.
    pub fn call(&mut self, command: &[impl AsRef<[u8]>]) -> Result<ServerAnswer> {
        let answer = self.send(command).and_then(|()| read_answer(&mut self.stream));
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(text)) => Err(self.refused(&String::from_utf8_lossy(command[0].as_ref()), &text)),
            Err(error) => Err(self.lost(error).remedy(self.peer.if_lost())),
        }
    }

    fn send(&mut self, command: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut one = Pipeline::default();
        one.add(command);
        self.stream.get_mut().write_all(&one.bytes)
    }

    /// Sends many commands and reads the answer to each; an error answer is one of them.
    pub fn exchange(&mut self, pipeline: &Pipeline) -> Result<Vec<std::result::Result<ServerAnswer, String>>> {
        let sent = self.stream.get_mut().write_all(&pipeline.bytes);
        let answers = sent.and_then(|()| (0..pipeline.commands).map(|_| read_answer(&mut self.stream)).collect());
        answers.map_err(|error| self.lost(error))
    }

    /// What a person is told of an error answer.
    pub fn refused(&self, command: &str, text: &str) -> Failure {
        self.peer.refused(command, text)
    }

    fn lost(&self, error: io::Error) -> Failure {
        Failure::new(format!("the connection to {} was lost", self.server)).why(error)
    }
}

/// Commands that are sent at once. Servers read all of them before anybody reads what they answer, so they are few enough for that.
#[derive(Default)]
pub struct Pipeline {
    bytes: Vec<u8>,
    commands: usize,
}

impl Pipeline {
    pub fn add(&mut self, command: &[impl AsRef<[u8]>]) {
        self.bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
        for word in command.iter().map(AsRef::as_ref) {
            self.bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.bytes.extend_from_slice(word);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.commands += 1;
    }
}

fn connect(server: &str) -> io::Result<TcpStream> {
    let mut stream = Err(ErrorKind::AddrNotAvailable.into());
    for address in address::resolve(server).map_err(io::Error::other)? {
        stream = TcpStream::connect_timeout(&address, CONNECT_MAX);
        if stream.is_ok() {
            break;
        }
    }
    let stream = stream?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Reads one answer; the inner error is the server's own.
fn read_answer(stream: &mut impl BufRead) -> io::Result<std::result::Result<ServerAnswer, String>> {
    let line = read_line(stream)?;
    let Some(kind) = line.chars().next() else { return Err(nonsense("an empty line")) };
    let rest = &line[kind.len_utf8()..];
    let number = || rest.parse::<i64>().map_err(|_| nonsense(&line));
    Ok(Ok(match kind {
        '-' => return Ok(Err(rest.to_owned())),
        '+' => ServerAnswer::Text(rest.as_bytes().to_vec()),
        ':' => ServerAnswer::Integer(number()?),
        '$' if number()? < 0 => ServerAnswer::Nothing,
        '$' => read_bulk(stream, number()?)?,
        '*' => ServerAnswer::List(read_list(stream, number()?)?),
        _ => return Err(nonsense(&line)),
    }))
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    stream.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(text) => Ok(text.to_owned()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn read_bulk(stream: &mut impl BufRead, length: i64) -> io::Result<ServerAnswer> {
    let length =
        usize::try_from(length).ok().filter(|n| *n <= PASSED_OVER_BYTES_MAX).ok_or_else(|| nonsense("a huge text"))?;
    let is_long = length > BULK_BYTES_MAX;
    let held = if is_long { START_BYTES } else { length };
    let mut bytes = vec![0; held];
    stream.read_exact(&mut bytes)?;
    // The rest, and the end of the line.
    let rest = (length - held) as u64 + 2;
    if io::copy(&mut stream.take(rest), &mut io::sink())? < rest {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(if is_long { ServerAnswer::Long { start: bytes, bytes: length } } else { ServerAnswer::Text(bytes) })
}

fn read_list(stream: &mut impl BufRead, length: i64) -> io::Result<Vec<ServerAnswer>> {
    let length = usize::try_from(length).ok().filter(|n| *n <= ELEMENTS_MAX).ok_or_else(|| nonsense("a huge list"))?;
    (0..length).map(|_| read_answer(stream)?.map_err(|text| nonsense(&text))).collect()
}

fn nonsense(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not an answer in the Redis protocol: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &str) -> io::Result<std::result::Result<ServerAnswer, String>> {
        read_answer(&mut bytes.as_bytes())
    }

    #[test]
    fn every_kind_of_answer_is_read() {
        assert_eq!(read(":-7\r\n").unwrap(), Ok(ServerAnswer::Integer(-7)));
        assert_eq!(read("+OK\r\n").unwrap(), Ok(ServerAnswer::Text("OK".into())));
        assert_eq!(read("$-1\r\n").unwrap(), Ok(ServerAnswer::Nothing));
        assert_eq!(read("-BUSY later\r\n").unwrap(), Err("BUSY later".into()));
        let long = format!("${}\r\n{}\r\n:7\r\n", BULK_BYTES_MAX + 1, "x".repeat(BULK_BYTES_MAX + 1));
        let mut long = long.as_bytes();
        let passed_over = ServerAnswer::Long { start: vec![b'x'; START_BYTES], bytes: BULK_BYTES_MAX + 1 };
        assert_eq!(read_answer(&mut long).unwrap(), Ok(passed_over));
        assert_eq!(read_answer(&mut long).unwrap(), Ok(ServerAnswer::Integer(7)));
        let list = vec![ServerAnswer::Text("42".into()), ServerAnswer::Nothing];
        assert_eq!(read("*2\r\n$2\r\n42\r\n$-1\r\n").unwrap(), Ok(ServerAnswer::List(list)));
    }

    #[test]
    fn what_is_not_an_answer_is_refused() {
        for bytes in ["", "\r\n", ":x\r\n", "HTTP/1.1 400\r\n", "$5\r\nab", "$99999999999\r\n", "*-5\r\n"] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
