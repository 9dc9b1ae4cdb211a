//! Requests to a server that may be busy, or end at any moment.

use crate::client::was_cut;
use std::io;
use std::thread;
use std::time::Duration;

/// A server that is busy for longer does not catch up.
const BUSY_MAX: u32 = 120;
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// Makes a request until it is not refused for being too much just now. What was refused must not have been counted: that
/// the next answer is the first one is checked like that of any other request.
pub fn patiently(mut request: impl FnMut() -> io::Result<(u16, String)>) -> io::Result<(u16, String)> {
    for _ in 0..BUSY_MAX {
        match request()? {
            (503, text) if text.contains("/problems/busy") => thread::sleep(BUSY_PAUSE),
            answer => return Ok(answer),
        }
    }
    request()
}

/// Whether the server ended before it could say what became of a request.
pub fn went_away(answer: &io::Result<(u16, String)>) -> bool {
    match answer {
        Ok((status, text)) => *status == 503 && text.contains("shutting down"),
        Err(error) => was_cut(error),
    }
}
