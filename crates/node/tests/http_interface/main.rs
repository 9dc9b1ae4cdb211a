//! The HTTP interface of a whole node, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod access;
mod anomalies;
mod archive;
mod backups;
mod bands;
mod batch;
mod batch_stream;
mod bounds;
mod browser;
mod commits;
mod consistency;
mod corrections;
mod counters;
mod duplicates;
mod events;
mod explain;
mod following;
mod full;
mod honesty;
mod hostile;
mod lists;
mod metrics;
mod page;
mod probes;
mod protocol;
mod scenarios;
mod series;
mod series_many;
mod support;
mod tops;
mod workers;
