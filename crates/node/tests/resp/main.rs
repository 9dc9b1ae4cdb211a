//! Scenarios of the Redis protocol, run on a real Redis and on Tally, with the same answers expected of both.
//!
//! The scenarios are the text files beside this one; `scenario.rs` says how to read them.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as it should be")]

mod bounds;
mod differential;
mod documents;
mod durable;
mod robustness;
mod scenario;
mod servers;
mod together;
mod tree;
mod wire;

use scenario::Scenario;
use servers::{Redis, Tally};
use std::collections::BTreeSet;
use std::path::Path;

macro_rules! scenarios {
    (on both: $($both:ident)+; on tally alone: $($alone:ident)+) => {
        const FILES: &[&str] =
            &[$(concat!(stringify!($both), ".txt"),)+ $(concat!(stringify!($alone), ".txt"),)+];
        mod redis {
            $(#[test] fn $both() { super::run_on_redis(concat!(stringify!($both), ".txt")); })+
        }
        mod tally {
            $(#[test] fn $both() { super::run_on_tally(concat!(stringify!($both), ".txt")); })+
            $(#[test] fn $alone() { super::run_on_tally(concat!(stringify!($alone), ".txt")); })+
        }
    };
}

scenarios! {
    on both:
        broken
        counting
        crowded
        databases
        expiring
        integers
        introspecting
        lines
        naming
        pipelining
        reading
        renaming
        setting
        shorthand
        strangers
        talking
        transactions
        unknown;
    on tally alone:
        declared
        once
}

fn run_on_redis(file: &str) {
    let scenario = Scenario::load(file);
    let redis = Redis::start(&scenario.settings);
    scenario.run("redis", redis.address());
}

fn run_on_tally(file: &str) {
    let scenario = Scenario::load(file);
    let tally = Tally::start(&scenario.settings);
    scenario.run("tally", tally.address());
    tally.stop();
}

#[test]
fn every_scenario_file_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/resp");
    let there = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = there.filter(|name| name.ends_with(".txt")).collect();
    assert_eq!(there, FILES.iter().map(|name| name.to_string()).collect());
}
