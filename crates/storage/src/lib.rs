//! The seams between Tally and where its data lives: one trait each, one suite each, one implementation per deployment.

pub mod chance;
pub mod label;
pub mod log;
pub mod store;
pub mod topic;
pub mod view;
