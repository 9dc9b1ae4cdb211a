//! The Redis protocol, RESP2 and RESP3: any Redis client is a Tally client.
//!
//! ```text
//!  server ─▶ connection ─▶ parse ─▶ pass ─▶ command/* ─▶ operations + reply shapes
//!                 ▲                                             │
//!                 └── encode ◀── reply ◀── answers ◀── engine ◀─┘
//! ```
//!
//! Connections are tasks on the writer's own thread. Commands are parsed over borrowed bytes, and a whole pipeline is
//! one submission to the engine, so that nothing is allocated, locked or awakened per command. Whatever Redis also does
//! is answered byte for byte as Redis answers it (`tests/resp/*.txt` runs on both).

mod client;
mod command;
mod connection;
mod cursor;
mod encode;
mod fault;
mod glob;
mod inline;
mod integer;
mod latency;
mod parse;
mod pass;
mod reply;
mod server;
mod stats;
mod transaction;
mod unit;
mod walk;
mod work;

pub use server::{RespOptions, serve};
