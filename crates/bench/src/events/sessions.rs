//! Which session an event belongs to, and which seq it has there. Both follow from its place in the run alone, so that an
//! event can be sent a second time.

/// Consecutive events of a request that are one short session.
const SHORT_EVENTS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sessions {
    /// A session is a few events of one request and never comes back.
    Short,
    /// So many take turns; whoever's turn it is has its next seq.
    Lasting(u64),
}

impl Sessions {
    /// How many digits a seq has, always: a number in JSON has no leading zeros to fill it up with.
    pub fn seq_digits(self) -> usize {
        match self {
            Sessions::Short => 3,
            Sessions::Lasting(_) => 10,
        }
    }

    /// Session and seq of an event.
    #[inline]
    pub fn of(self, request: u64, line: u64, events_per_request: u64) -> (u64, u64) {
        let seq_first = 10u64.pow(self.seq_digits() as u32 - 1);
        match self {
            Sessions::Short => {
                let per_request = events_per_request.div_ceil(SHORT_EVENTS);
                (request * per_request + line / SHORT_EVENTS, seq_first + line % SHORT_EVENTS)
            }
            Sessions::Lasting(sessions) => {
                let turn = request * events_per_request + line;
                (turn % sessions, seq_first + turn / sessions)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_sessions_take_turns_and_their_seqs_are_consecutive() {
        let sessions = Sessions::Lasting(3);
        let turns: Vec<_> = (0..2).flat_map(|request| (0..4).map(move |line| sessions.of(request, line, 4))).collect();
        let seq = |n: u64| 1_000_000_000 + n;
        assert_eq!(
            turns,
            [(0, seq(0)), (1, seq(0)), (2, seq(0)), (0, seq(1)), (1, seq(1)), (2, seq(1)), (0, seq(2)), (1, seq(2))]
        );
    }

    #[test]
    fn short_sessions_end_with_their_request() {
        assert_eq!(Sessions::Short.of(0, 19, 50), (0, 119));
        assert_eq!(Sessions::Short.of(0, 49, 50), (2, 109));
        assert_eq!(Sessions::Short.of(1, 0, 50), (3, 100));
    }
}
