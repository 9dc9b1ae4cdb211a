//! How long a connection may stay that does nothing, sends its first head slowly, or does not take what it is sent.

use std::time::Duration;

use super::pulse::Pulse;
use crate::clock::Stopwatch;
use crate::frontend::http::HttpOptions;
use crate::metrics::CutOff;

pub struct Patience {
    pub look_every: Duration,
    head_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    connected: Stopwatch,
    moves: u64,
    since_move: Stopwatch,
    sent: u64,
    since_sent: Stopwatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatienceVerdict {
    Stay,
    /// It may be ended in good order.
    Idle,
    /// There is nobody to wait for, and why.
    Gone(CutOff),
}

impl Patience {
    pub fn new(options: &HttpOptions) -> Patience {
        let shortest = options.head_timeout.min(options.idle_timeout).min(options.write_timeout);
        Patience {
            look_every: shortest / 2,
            head_timeout: options.head_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
            connected: Stopwatch::start(),
            moves: 0,
            since_move: Stopwatch::start(),
            sent: 0,
            since_sent: Stopwatch::start(),
        }
    }

    /// What to do about a connection; to be asked again and again.
    pub fn verdict(&mut self, pulse: &Pulse) -> PatienceVerdict {
        if pulse.moves() != self.moves || pulse.is_working() {
            self.moves = pulse.moves();
            self.since_move = Stopwatch::start();
        }
        if pulse.sent() != self.sent || !pulse.is_blocked() {
            self.sent = pulse.sent();
            self.since_sent = Stopwatch::start();
        }
        if self.since_sent.elapsed() >= self.write_timeout {
            return PatienceVerdict::Gone(CutOff::Stalled);
        }
        // hyper has the same patience with a head and says so; this is for those who do not even begin.
        if !pulse.has_begun() && self.connected.elapsed() >= self.head_timeout + self.look_every {
            return PatienceVerdict::Gone(CutOff::Silent);
        }
        if self.since_move.elapsed() >= self.idle_timeout { PatienceVerdict::Idle } else { PatienceVerdict::Stay }
    }
}
