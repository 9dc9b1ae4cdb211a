//! The least of the Redis protocol and of HTTP that tests from outside need, written without a look at the server's own.

use anyhow::{Context, Result, bail};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that takes longer has stopped answering, which is a failure of its own.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// What counts everything again, or waits until all of it is written, takes as long as there is much.
const WORK_MAX: Duration = Duration::from_secs(600);
const KEYS_PER_READ: usize = 100;

#[derive(Debug, PartialEq)]
pub enum Reply {
    Integer(i64),
    Text(String),
    Nothing,
    Error(String),
    List(Vec<Reply>),
}

pub struct RespClient {
    stream: BufReader<TcpStream>,
}

impl RespClient {
    pub fn connect(server: SocketAddr) -> io::Result<RespClient> {
        Ok(RespClient { stream: connect(server)? })
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    pub fn reply(&mut self) -> io::Result<Reply> {
        let line = read_line(&mut self.stream)?;
        let (kind, rest) = line.split_at_checked(1).ok_or(ErrorKind::InvalidData)?;
        let number = || rest.parse::<i64>().map_err(|_| io::Error::new(ErrorKind::InvalidData, line.clone()));
        Ok(match kind {
            ":" => Reply::Integer(number()?),
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            "$" if number()? < 0 => Reply::Nothing,
            "$" => Reply::Text(read_text(&mut self.stream, number()? as usize)?),
            "*" => Reply::List((0..number()?).map(|_| self.reply()).collect::<io::Result<_>>()?),
            _ => return Err(io::Error::new(ErrorKind::InvalidData, line)),
        })
    }

    /// The values of `keys`, in their order.
    pub fn read(&mut self, keys: &[String]) -> Result<Vec<Option<i64>>> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_PER_READ) {
            let mut command = Vec::new();
            encode(&mut command, &[&["MGET"], &*keys.iter().map(String::as_str).collect::<Vec<_>>()].concat());
            self.send(&command)?;
            let Reply::List(replies) = self.reply()? else { bail!("MGET did not answer with a list") };
            for reply in replies {
                values.push(value_of(reply)?);
            }
        }
        Ok(values)
    }
}

pub fn value_of(reply: Reply) -> Result<Option<i64>> {
    match reply {
        Reply::Nothing => Ok(None),
        Reply::Text(text) => Ok(Some(text.parse().with_context(|| format!("a counter's value was {text:?}"))?)),
        other => bail!("a read answered {other:?}"),
    }
}

/// Appends a command.
pub fn encode(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

pub struct HttpClient {
    stream: BufReader<TcpStream>,
    host: String,
}

impl HttpClient {
    pub fn connect(server: SocketAddr) -> io::Result<HttpClient> {
        Ok(HttpClient { stream: connect(server)?, host: server.to_string() })
    }

    /// Posts lines of JSON; answers status and body.
    pub fn post_lines(&mut self, path: &str, body: &str) -> io::Result<(u16, String)> {
        self.post(path, "application/x-ndjson", body)
    }

    pub fn post(&mut self, path: &str, content_type: &str, body: &str) -> io::Result<(u16, String)> {
        self.request("POST", path, &format!("Content-Type: {content_type}\r\n"), body)
    }

    /// A request of JSON that is made once, however often it is sent under the key.
    pub fn once(&mut self, method: &str, path: &str, key: &str, body: &str) -> io::Result<(u16, String)> {
        self.request(method, path, &format!("Content-Type: application/json\r\nIdempotency-Key: {key}\r\n"), body)
    }

    fn request(&mut self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<(u16, String)> {
        let (host, length) = (&self.host, body.len());
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    /// Waits longer for each answer from here on.
    pub fn patient(self) -> io::Result<HttpClient> {
        self.stream.get_ref().set_read_timeout(Some(WORK_MAX))?;
        Ok(self)
    }

    /// Answers the body of `path`, which must be there.
    pub fn get(&mut self, path: &str) -> Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.get_mut().write_all(request.as_bytes())?;
        match self.answer()? {
            (200, body) => Ok(body),
            (status, body) => bail!("GET {path} was answered {status}: {body}"),
        }
    }

    fn answer(&mut self) -> io::Result<(u16, String)> {
        let (status, length) = read_head(&mut self.stream)?;
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// A stream of server-sent events, which ends with the server.
pub struct Subscription {
    stream: BufReader<TcpStream>,
}

impl Subscription {
    /// When this returns, the server has begun to answer.
    pub fn open(server: SocketAddr, path: &str) -> Result<Subscription> {
        let mut stream = connect(server)?;
        // In HTTP/1.0 a body has no frames of its own: it is read line by line until the connection ends.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\nAccept: text/event-stream\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let (status, _) = read_head(&mut stream)?;
        if status != 200 {
            let mut body = String::new();
            stream.read_to_string(&mut body)?;
            bail!("GET {path} was answered {status}: {body}");
        }
        Ok(Subscription { stream })
    }

    /// The next line of the stream, or nothing at its end.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(line.trim_end().to_owned())),
            Err(error) if was_cut(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Status and length of an answer.
fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<(u16, usize)> {
    let status_line = read_line(stream)?;
    let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, status_line.clone()))?;
    let mut length = 0;
    loop {
        let line = read_line(stream)?.to_ascii_lowercase();
        if line.is_empty() {
            return Ok((status, length));
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(|_| io::Error::new(ErrorKind::InvalidData, line.clone()))?;
        }
    }
}

/// Whether the server went away, as it does when it is killed; anything else that goes wrong is its fault.
pub fn was_cut(error: &io::Error) -> bool {
    use ErrorKind::*;
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | ConnectionRefused | BrokenPipe)
}

fn connect(server: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(BufReader::new(stream))
}

fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.strip_suffix("\r\n").map(str::to_owned).ok_or(ErrorKind::UnexpectedEof.into())
}

fn read_text(stream: &mut BufReader<TcpStream>, length: usize) -> io::Result<String> {
    let mut bytes = vec![0; length + 2];
    stream.read_exact(&mut bytes)?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())
}
