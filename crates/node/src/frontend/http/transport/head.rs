//! Heads of requests that nobody understood: what the sender is told instead of nothing.
//!
//! hyper answers them with a bare status. Here that answer is known by its form, held back ([`is_bare_refusal`]), and
//! replaced by one that says why.

use std::error::Error;

use tally_core::limits::HTTP_READ_BUFFER_BYTES_MAX;

use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Whether these bytes are an answer that hyper gives by itself; ours always have a body.
pub fn is_bare_refusal(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"HTTP/1.1 4").or_else(|| bytes.strip_prefix(b"HTTP/1.0 4")) else {
        return false;
    };
    let end = rest.windows(4).position(|window| window == b"\r\n\r\n").map_or(rest.len(), |end| end + 2);
    let mut lines = rest[..end].split(|&byte| byte == b'\n');
    lines.any(|line| line.eq_ignore_ascii_case(b"content-length: 0\r"))
}

/// What to say about a request that ended in `error` before it was understood. `has_line`: its first line had come.
pub fn explain(error: &(dyn Error + 'static), has_line: bool) -> Option<Problem> {
    let error = error.downcast_ref::<hyper::Error>()?;
    let limit = HTTP_READ_BUFFER_BYTES_MAX;
    if error.is_timeout() {
        let detail = "the head of the request came too slowly; nothing was done";
        return Some(Problem::new(ProblemKind::Timeout, detail));
    }
    let text = error.to_string();
    if error.is_parse_too_large() && has_line {
        let detail =
            format!("the head of the request has more than {limit} bytes; send fewer or shorter header fields");
        return Some(Problem::new(ProblemKind::HeadTooLarge, detail).with("limit", limit));
    }
    if error.is_parse_too_large() {
        let detail = "the first line of the request is too long; send what is long in the body";
        return Some(Problem::new(ProblemKind::UriTooLong, detail));
    }
    let detail = format!("the head of the request cannot be read: {text}; send HTTP/1.1 or HTTP/2, without TLS");
    error.is_parse().then(|| Problem::new(ProblemKind::InvalidHead, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_without_a_body_is_taken_for_a_bare_one() {
        assert!(is_bare_refusal(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"));
        assert!(is_bare_refusal(b"HTTP/1.1 431 X\r\ncontent-length: 0\r\ndate: y\r\n\r\n"));
        for ours in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 10\r\n\r\n{\"a\":1}"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 25\r\n\r\ncontent-length: 0\r\n",
            b"content-length: 0\r\n",
        ] {
            assert!(!is_bare_refusal(ours), "{}", String::from_utf8_lossy(ours));
        }
    }
}
