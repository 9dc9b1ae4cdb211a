//! Lists in the documents that the code has as a table: each is held against the table here, in both directions.
//!
//! A test that fails prints what is missing and where. Mend the document, or the code.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod background;
mod commands;
mod endpoints;
mod flags;
mod formats;
mod limits;
mod metrics;
mod page;
mod problems;
mod settings;
mod source;
mod wire;
