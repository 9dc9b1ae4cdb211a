//! What clients talk to.

pub mod http;
mod password;
pub mod resp;

pub use password::Password;
