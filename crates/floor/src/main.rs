//! A program without any logic, for `cargo xtask bench`: what is left of a durable counter server when everything that can be
//! left out is left out. What it does in a second is the limit of what a server can do on the machine.
//!
//! Over the Redis protocol it takes `INCR` and nothing else: parse, hash, one write and one sync per batch, add, answer, on
//! one thread (`resp`). Over HTTP it reads a body, splits its lines, writes and syncs as many bytes as a server would, and
//! answers a constant; or, with `--constant`, answers without a look at it (`http`). There is no recovery, no checksum, no
//! bound on what clients make it hold. It shares no code with the server that it is compared with.

#![allow(clippy::disallowed_methods, reason = "nothing here decides what is counted, and nobody's data is in it")]

mod disk;
mod http;
mod resp;
mod table;

use anyhow::Result;
use clap::Parser;
use disk::Disk;
use std::net::TcpListener;
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc; // That of the server.

#[derive(Parser)]
struct Floor {
    /// A directory for what is written
    #[arg(long)]
    data: PathBuf,
    /// Room for so many different counters
    #[arg(long, default_value_t = 1_000_000)]
    counters: usize,
    /// How many events an answer over HTTP says were counted, if the body has no lines to tell
    #[arg(long, default_value_t = 1)]
    events: u64,
    /// Answer over HTTP without writing anything
    #[arg(long)]
    constant: bool,
}

fn main() -> Result<()> {
    let args = Floor::parse();
    let [resp, http] = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let commands = resp::Loop::new(resp, Disk::create(&args.data.join("commands"))?, args.counters)?;
    println!("redis://{}\nhttp://{}\nready", commands.address()?, http.local_addr()?);
    let answers = http::Answers { events: args.events, constant: args.constant };
    let bodies = Disk::create(&args.data.join("bodies"))?;
    std::thread::spawn(move || http::serve(http, bodies, answers).expect("the HTTP side of the floor failed"));
    commands.run()
}
