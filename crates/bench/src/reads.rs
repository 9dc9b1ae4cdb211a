//! `GET /v1/counters/{id}`, one at a time: the request is built once, and only the digits of the key change.

use crate::http::{HttpAnswer, excerpt};
use crate::keys::{KeyPattern, Picker, write_digits};
use crate::lane::{Errors, Lane, LaneKind};
use std::ops::{ControlFlow, Range};

const ANSWER_BYTES_MAX: usize = 64 * 1024;

pub struct HttpReadLane {
    question: Vec<u8>,
    /// Where the digits of the key stand.
    digits: Range<usize>,
    answer: Vec<u8>,
}

impl HttpReadLane {
    pub fn new(host: &str, token: Option<&str>, key: &KeyPattern) -> HttpReadLane {
        let path = format!("GET /v1/counters/{}", encoded(&key.prefix));
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let rest = format!("{} HTTP/1.1\r\nHost: {host}\r\n{token}\r\n", encoded(&key.suffix));
        let digits = path.len()..path.len() + key.digits;
        let question = [path, "0".repeat(key.digits), rest].concat().into_bytes();
        HttpReadLane { question, digits, answer: Vec::with_capacity(1024) }
    }
}

impl Lane for HttpReadLane {
    fn group(&self) -> LaneKind {
        LaneKind::Reads
    }

    fn prepare(&mut self, picker: &mut Picker, _operations_max: u64) -> u64 {
        write_digits(&mut self.question[self.digits.clone()], picker.next());
        self.answer.clear();
        1
    }

    fn question(&self) -> &[u8] {
        &self.question
    }

    fn answer(&mut self, bytes: &[u8], errors: &mut Errors) -> ControlFlow<()> {
        self.answer.extend_from_slice(bytes);
        match HttpAnswer::parse(&self.answer) {
            HttpAnswer::Incomplete if self.answer.len() < ANSWER_BYTES_MAX => return ControlFlow::Continue(()),
            HttpAnswer::Incomplete => errors.add(|| format!("an answer longer than {ANSWER_BYTES_MAX} bytes")),
            HttpAnswer::Whole { status: 200, .. } => {}
            HttpAnswer::Whole { status, body } => errors.add(|| format!("HTTP {status}: {}", excerpt(body))),
            HttpAnswer::Nonsense => errors.add(|| format!("not an HTTP answer: {}", excerpt(&self.answer))),
        }
        ControlFlow::Break(())
    }
}

/// What of a name cannot stand in a path as it is, is percent-encoded.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_its_key_and_an_answer_may_come_in_pieces() {
        let mut lane = HttpReadLane::new("h:1", Some("t"), &"views:a/v%04d".parse().unwrap());
        let (mut picker, mut errors) = (Picker::in_order(100), Errors::default());
        lane.prepare(&mut picker, 1);
        lane.prepare(&mut picker, 1);
        let question = "GET /v1/counters/views:a%2Fv0001 HTTP/1.1\r\nHost: h:1\r\nAuthorization: Bearer t\r\n\r\n";
        assert_eq!(std::str::from_utf8(lane.question()).unwrap(), question);
        assert!(lane.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{", &mut errors).is_continue());
        assert!(lane.answer(b"}", &mut errors).is_break());
        assert_eq!(errors.count, 0);
        lane.prepare(&mut picker, 1);
        assert!(lane.answer(b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n", &mut errors).is_break());
        assert_eq!(errors.first.as_deref(), Some("HTTP 503: "));
    }
}
