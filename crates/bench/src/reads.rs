//! `GET` of a counter or of what is known about it, one at a time: the request is built once, and only the digits of the key change.

use crate::http::{HttpAnswer, excerpt};
use crate::keys::{KeyPattern, Picker, write_digits};
use crate::lane::{Errors, Heard, Lane, LaneKind};
use std::ops::{ControlFlow, Range};

const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Where the key stands in a path.
const KEY: &str = "{}";

pub struct HttpReadLane {
    question: Vec<u8>,
    /// Where the digits of the key stand; nowhere if the path has none.
    digits: Range<usize>,
    answer: Vec<u8>,
}

impl HttpReadLane {
    pub fn new(host: &str, token: Option<&str>, path: &str, key: &KeyPattern) -> HttpReadLane {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let rest = format!(" HTTP/1.1\r\nHost: {host}\r\n{token}\r\n");
        let (question, digits) = match path.split_once(KEY) {
            Some((before, behind)) => {
                let before = format!("GET {before}{}", encoded(&key.prefix));
                let digits = before.len()..before.len() + key.digits;
                ([before, "0".repeat(key.digits), encoded(&key.suffix), behind.to_owned(), rest].concat(), digits)
            }
            None => (format!("GET {path}{rest}"), 0..0),
        };
        let question = question.into_bytes();
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

    fn answer(&mut self, bytes: &[u8], errors: &mut Errors) -> ControlFlow<Heard> {
        self.answer.extend_from_slice(bytes);
        match HttpAnswer::parse(&self.answer) {
            HttpAnswer::Incomplete if self.answer.len() < ANSWER_BYTES_MAX => return ControlFlow::Continue(()),
            HttpAnswer::Incomplete => errors.add(|| format!("an answer longer than {ANSWER_BYTES_MAX} bytes")),
            HttpAnswer::Whole { status: 200, .. } => {}
            HttpAnswer::Whole { status, body, .. } => errors.add(|| format!("HTTP {status}: {}", excerpt(body))),
            HttpAnswer::Nonsense => errors.add(|| format!("not an HTTP answer: {}", excerpt(&self.answer))),
        }
        ControlFlow::Break(Heard::Answer)
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
        let mut lane = HttpReadLane::new("h:1", Some("t"), "/v1/counters/{}", &"views:a/v%04d".parse().unwrap());
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

    #[test]
    fn a_path_may_say_more_than_its_key_or_have_none() {
        let key = "views:v%02d".parse().unwrap();
        for (path, asked) in [
            ("/v1/counters/{}/series?by=country", "/v1/counters/views:v01/series?by=country"),
            ("/v1/top/views?k=10", "/v1/top/views?k=10"),
        ] {
            let mut lane = HttpReadLane::new("h:1", None, path, &key);
            let mut picker = Picker::in_order(100);
            lane.prepare(&mut picker, 1);
            lane.prepare(&mut picker, 1);
            let question = format!("GET {asked} HTTP/1.1\r\nHost: h:1\r\n\r\n");
            assert_eq!(std::str::from_utf8(lane.question()).unwrap(), question);
        }
    }
}
