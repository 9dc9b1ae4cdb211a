//! Why an event was refused, in words for the person who sent it.

use std::fmt;

/// Longest excerpt of a value in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 64;

/// Names the field, its value and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError {
    /// `seq`, or `dimensions.video`; `None` if the event as a whole cannot be read.
    pub field: Option<String>,
    /// The beginning of the value as it was written, if the value is what is wrong.
    pub value: Option<String>,
    /// What is wrong and how to mend it; continues a sentence that begins with the value.
    pub reason: String,
}

impl EventError {
    pub(crate) fn value(field: impl Into<String>, value: &str, reason: impl Into<String>) -> EventError {
        EventError { field: Some(field.into()), value: Some(excerpt(value)), reason: reason.into() }
    }

    pub(super) fn field(field: &str, reason: impl Into<String>) -> EventError {
        EventError { field: Some(excerpt(field)), value: None, reason: reason.into() }
    }

    pub(super) fn event(reason: impl Into<String>) -> EventError {
        EventError { field: None, value: None, reason: reason.into() }
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(f, "field {field:?}: ")?;
        }
        if let Some(value) = &self.value {
            write!(f, "{value} ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for EventError {}

/// The beginning of a text, short enough for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
