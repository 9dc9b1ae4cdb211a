//! A small blocking client of a running server, over HTTP: one question, one answer, one connection.

use crate::access::first_line;
use crate::address;
use crate::failure::{Failure, Result};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A walk through many counters may begin with a checkpoint.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where the server is and how to be let in.
#[derive(clap::Args, Debug)]
pub struct HttpArgs {
    /// Where the server listens for HTTP
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070", env = "TALLY_HTTP_SERVER")]
    server: String,
    /// The first line of this file is the token that the server asks for over HTTP
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
}

/// What the server answered, and it was no error.
pub struct HttpAnswer {
    head: String,
    pub body: String,
}

impl HttpAnswer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).map_err(|error| strange(&error))
    }
}

impl HttpArgs {
    /// A server that asks for no token.
    pub fn open(address: SocketAddr) -> HttpArgs {
        HttpArgs { server: address.to_string(), http_token_file: None }
    }

    /// Asks for a path with its parameters, those without a value left out.
    pub fn get(&self, path: &str, parameters: &[(&str, Option<&str>)]) -> Result<HttpAnswer> {
        let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped((*value)?))));
        let query = given.collect::<Vec<_>>().join("&");
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        self.ask("GET", &target, None, ANSWER_MAX)
    }

    pub fn post(&self, path: &str, content_type: &str, body: &str) -> Result<HttpAnswer> {
        self.post_within(ANSWER_MAX, path, content_type, body)
    }

    /// The same for what may take longer.
    pub fn post_within(&self, time: Duration, path: &str, content_type: &str, body: &str) -> Result<HttpAnswer> {
        self.ask("POST", path, Some((content_type, body)), time)
    }

    pub fn delete(&self, path: &str) -> Result<HttpAnswer> {
        self.ask("DELETE", path, None, ANSWER_MAX)
    }

    /// Asks once; a body comes with the type of its content.
    fn ask(&self, method: &str, target: &str, body: Option<(&str, &str)>, time: Duration) -> Result<HttpAnswer> {
        let token = self.http_token_file.as_deref().map(first_line).transpose()?;
        let server = self.server.trim_start_matches("http://").trim_end_matches('/');
        let mut request = format!("{method} {target} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n");
        if let Some(token) = token {
            request += &format!("authorization: Bearer {token}\r\n");
        }
        if let Some((content_type, body)) = body {
            request += &format!("content-type: {content_type}\r\ncontent-length: {}\r\n", body.len());
        }
        request += "\r\n";
        request += body.map_or("", |(_, body)| body);
        let answer = ask(&self.server, &request, time).map_err(|error| {
            Failure::new(format!("no server answers at {}", self.server))
                .why(error)
                .remedy("Start one with: tally serve, or name the address of its HTTP with --server.")
        })?;
        answer_of(&answer)
    }
}

/// The part of a path or a query, as every part of one is written.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => out.push(byte.into()),
            other => drop(write!(out, "%{other:02X}")),
        }
    }
    out
}

fn ask(server: &str, request: &str, time: Duration) -> io::Result<Vec<u8>> {
    let mut stream = Err(ErrorKind::AddrNotAvailable.into());
    for address in address::resolve(server).map_err(io::Error::other)? {
        stream = TcpStream::connect_timeout(&address, CONNECT_MAX);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    stream.set_read_timeout(Some(time))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

fn answer_of(bytes: &[u8]) -> Result<HttpAnswer> {
    let text = std::str::from_utf8(bytes).map_err(|error| strange(&error))?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| strange(&"it has no head"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    let answer = HttpAnswer { head: head.to_owned(), body: body.to_owned() };
    let length = answer.header("content-length").and_then(|length| length.parse().ok());
    if length != Some(body.len()) {
        return Err(strange(&"it is not whole"));
    }
    match status {
        Some(200..=299) => Ok(answer),
        Some(status) => Err(refused(status, &answer.body)),
        None => Err(strange(&head)),
    }
}

fn refused(status: u16, body: &str) -> Failure {
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    let failure = Failure::new("the server refused it").why(problem["detail"].as_str().unwrap_or(body));
    match status {
        401 => failure.remedy("Give the server's token with --http-token-file."),
        503 => failure.remedy("Try again in a moment."),
        _ => failure,
    }
}

fn strange(why: &dyn std::fmt::Display) -> Failure {
    Failure::new("the server gave a strange answer").why(why).remedy("Name the address of its HTTP with --server.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_a_whole_or_not_at_all() {
        let answer = answer_of(b"HTTP/1.1 200 OK\r\nTally-Cursor: 0a\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert_eq!((answer.header("tally-cursor"), &*answer.body), (Some("0a"), "{}"));
        for bytes in [&b""[..], b"-ERR\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}", b"\xff\r\n\r\n"] {
            assert!(answer_of(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_server() {
        let body = r#"{"detail":"k is 0; send 1 to 1000"}"#;
        let answer = format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let failure = answer_of(answer.as_bytes()).err().unwrap().to_string();
        assert!(failure.contains("k is 0; send 1 to 1000"), "{failure}");
    }

    #[test]
    fn a_parameter_means_itself() {
        assert_eq!(escaped("views:a%3A&b=*é"), "views:a%253A%26b%3D%2A%C3%A9");
    }
}
