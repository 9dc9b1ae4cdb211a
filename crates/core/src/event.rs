//! An event as a client sent it, and its form in the log.

use crate::record::DecodeError;

#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    pub event_type: &'a str,
}

impl<'a> Event<'a> {
    pub fn encode(&self, _out: &mut Vec<u8>) {}
    pub fn decode(_bytes: &mut &'a [u8]) -> Result<Event<'a>, DecodeError> {
        Err(DecodeError::Truncated)
    }
}
