//! What can be asked: a file or a folder for each family of endpoints, [`openapi`], which lists and describes them all, and [`page`], for people.

pub mod aggregate;
pub mod archive;
pub mod balance;
pub mod commits;
pub mod config;
pub mod corrections;
pub mod counters;
pub mod duplicates;
pub mod events;
pub mod explain;
pub mod health;
pub mod history;
pub mod list;
pub mod live;
pub mod openapi;
pub mod page;
pub mod series;
pub mod snapshot;
pub mod top;
pub mod total;
pub mod workers;
