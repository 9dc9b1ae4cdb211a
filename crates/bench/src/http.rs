//! An answer over HTTP, read as far as it is judged.

use std::time::Duration;

const EXCERPT_BYTES: usize = 300;

pub enum HttpAnswer<'a> {
    Incomplete,
    Whole { status: u16, retry_after: Option<Duration>, body: &'a [u8] },
    Nonsense,
}

impl HttpAnswer<'_> {
    pub fn parse(bytes: &[u8]) -> HttpAnswer<'_> {
        let Some(head_end) = find(bytes, b"\r\n\r\n") else { return HttpAnswer::Incomplete };
        let Ok(head) = std::str::from_utf8(&bytes[..head_end]) else { return HttpAnswer::Nonsense };
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3)?.parse().ok());
        let (Some(status), Some(length)) = (status, header(head, "content-length")) else {
            return HttpAnswer::Nonsense;
        };
        let retry_after = header(head, "retry-after").map(|seconds| Duration::from_secs(seconds as u64));
        match bytes[head_end + 4..].get(..length) {
            None => HttpAnswer::Incomplete,
            Some(body) => HttpAnswer::Whole { status, retry_after, body },
        }
    }
}

/// A header that is a number.
fn header(head: &str, name: &str) -> Option<usize> {
    let mut headers = head.split("\r\n").filter_map(|line| line.split_once(':'));
    headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).and_then(|(_, value)| value.trim().parse().ok())
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The beginning of a text that may be long.
pub fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]).into_owned()
}
