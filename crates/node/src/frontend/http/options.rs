//! What an operator may choose about an address.

use std::time::Duration;

use tally_core::limits::{HTTP_CONNECTIONS_MAX, SUBSCRIBERS_MAX};

use super::transport::guard::Access;

/// What an address offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    Everything,
    /// Health and metrics, for machines that watch.
    Watch,
}

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    pub surface: Surface,
    pub access: Access,
    pub connections_max: usize,
    /// `None`: three quarters of them, or all for clients on this machine.
    pub connections_per_address_max: Option<usize>,
    /// How long the head of a request may take.
    pub head_timeout: Duration,
    /// How long a body may pause.
    pub body_idle_timeout: Duration,
    /// How long a body may take as a whole.
    pub body_timeout: Duration,
    /// How long a connection may stand still between requests.
    pub idle_timeout: Duration,
    /// How long a client may take nothing of an answer or of a subscription that waits for it.
    pub write_timeout: Duration,
    /// How long a sender who was refused is listened to, so that he gets to read why.
    pub linger: Duration,
    /// How long requests under way may take to finish when the node stops.
    pub grace: Duration,
    pub subscribers_max: usize,
    /// How long a subscription may be silent.
    pub heartbeat: Duration,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            surface: Surface::Everything,
            access: Access::default(),
            connections_max: HTTP_CONNECTIONS_MAX,
            connections_per_address_max: None,
            head_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            grace: Duration::from_secs(10),
            subscribers_max: SUBSCRIBERS_MAX,
            heartbeat: Duration::from_secs(15),
        }
    }
}
