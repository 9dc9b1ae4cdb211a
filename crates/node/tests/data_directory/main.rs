//! What becomes of a data directory: whose parts it has, what damage does to it, how it is made, what a full disk means.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod carried;
mod creation;
mod full;
mod http;
mod parts;
mod small_disk;
mod support;
