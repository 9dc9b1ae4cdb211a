//! What clients talk to.

pub mod budget;
pub mod http;
mod password;
pub mod places;
pub mod resp;

pub use password::Password;
