//! The requests of a run, numbered in the order in which they are asked, whichever connection asks them. So a run of N
//! events has sent exactly the first N, and another run can go on behind them or repeat them.

pub struct Requests {
    next: u64,
    /// Of each lane, the request it has asked last.
    asked: Vec<u64>,
}

/// A request that a lane is about to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestTurn {
    pub request: u64,
    /// All requests below it are answered.
    pub answered_below: u64,
}

impl Requests {
    pub fn new(first: u64, lanes: usize) -> Requests {
        Requests { next: first, asked: vec![u64::MAX; lanes] }
    }

    /// The next request, for a lane whose last one is answered.
    pub fn next(&mut self, lane: usize) -> RequestTurn {
        let request = self.next;
        self.next += 1;
        self.asked[lane] = request;
        let answered_below = *self.asked.iter().min().expect("a run has at least the lane that asks");
        RequestTurn { request, answered_below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_slow_lane_has_asked_is_not_answered() {
        let mut requests = Requests::new(10, 2);
        assert_eq!(requests.next(0), RequestTurn { request: 10, answered_below: 10 });
        assert_eq!(requests.next(1), RequestTurn { request: 11, answered_below: 10 });
        assert_eq!(requests.next(1), RequestTurn { request: 12, answered_below: 10 });
        assert_eq!(requests.next(0), RequestTurn { request: 13, answered_below: 12 });
    }
}
