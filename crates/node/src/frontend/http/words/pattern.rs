//! Patterns of ids as requests have them: what is wrong with one is a problem of the request.

use std::sync::Arc;

use tally_core::counter::{BadPattern, Pattern};

use super::problem::{Problem, ProblemKind, quoted};
use crate::counters::Matching;

impl From<BadPattern> for Problem {
    fn from(BadPattern(pattern): BadPattern) -> Problem {
        // A pattern is a client's own text: it is never repeated at length.
        let shown = quoted(&pattern);
        Problem::new(ProblemKind::InvalidId, BadPattern(shown.clone()).to_string()).with("value", shown)
    }
}

/// What a pattern means to whoever walks through ids.
pub fn matching(pattern: &Pattern) -> Matching {
    let of = pattern.clone();
    Matching { prefix: pattern.prefix().to_vec(), matches: Arc::new(move |id| of.matches(id)) }
}
