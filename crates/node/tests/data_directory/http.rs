//! The same node, asked over HTTP.

use crate::support::{PATIENCE, Running};
use std::io::{Read, Write};
use std::net::TcpStream;

impl Running {
    /// The status and the body of an answer over HTTP, if the node takes it.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.http_with("", method, path, body)
    }

    /// The same with more fields in the head.
    pub fn http_with(&self, fields: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.node.http_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        let length = body.len();
        write!(stream, "{head}{fields}content-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}
