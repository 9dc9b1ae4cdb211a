//! How bytes and connections come and go: listeners, who is let in, bodies, patience, answers on their way out.
//! Knows no endpoint, but for what is open to all.

pub mod answer;
pub mod aside;
pub mod body;
pub mod guard;
pub mod head;
pub mod linger;
pub mod observe;
pub mod patience;
pub mod pulse;
pub mod server;
