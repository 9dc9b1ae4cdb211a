//! The binary from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod anomalies;
mod archive;
mod backups;
mod bench;
mod buckets;
mod demo;
mod encode;
mod import;
mod lists;
mod logs;
mod manners;
mod probes;
mod proofs;
mod query;
mod reconcile;
mod server;
mod support;
mod verify;
