//! How things are said: ids, patterns, parameters and documents that come in; envelopes and problems that go out.
//! Nothing here asks the engine for a number.

pub mod at_least;
pub mod cursor;
pub mod document;
pub mod envelope;
pub mod format;
pub mod id;
pub mod moment;
pub mod parameters;
pub mod pattern;
pub mod problem;
