//! An answer over HTTP, read as far as it is judged.

const EXCERPT_BYTES: usize = 300;

pub enum HttpAnswer<'a> {
    Incomplete,
    Whole { status: u16, body: &'a [u8] },
    Nonsense,
}

impl HttpAnswer<'_> {
    pub fn parse(bytes: &[u8]) -> HttpAnswer<'_> {
        let Some(head_end) = find(bytes, b"\r\n\r\n") else { return HttpAnswer::Incomplete };
        let Ok(head) = std::str::from_utf8(&bytes[..head_end]) else { return HttpAnswer::Nonsense };
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse::<usize>().ok());
        let (Some(status), Some(length)) = (status, length) else { return HttpAnswer::Nonsense };
        let body = &bytes[head_end + 4..];
        if body.len() < length { HttpAnswer::Incomplete } else { HttpAnswer::Whole { status, body: &body[..length] } }
    }
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// The beginning of a text that may be long.
pub fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]).into_owned()
}
