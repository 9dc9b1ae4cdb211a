//! The binary from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod bench;
mod demo;
mod encode;
mod lists;
mod logs;
mod manners;
mod server;
mod support;
