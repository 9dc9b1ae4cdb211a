//! What clients talk to.

pub mod http;
pub mod resp;
