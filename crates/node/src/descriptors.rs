//! File descriptors: every connection takes one, and so do the files of the log and of the store.
//!
//! A node that has given all of them to its clients cannot open the next file of its log. So at its start it asks for as
//! many as it may need, and where it does not get them it takes fewer connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tally_core::limits::DESCRIPTORS_RESERVED;

/// How many connections a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    pub http: usize,
    pub resp: usize,
}

/// Raises this process's limit as far as it takes and as far as it may. Answers how many connections fit then.
pub fn make_room(wanted: Connections) -> Connections {
    let needed = (DESCRIPTORS_RESERVED + wanted.http + wanted.resp) as u64;
    let limit = getrlimit(Resource::Nofile);
    let within_hard = limit.maximum.map_or(needed, |hard| hard.min(needed));
    let mut allowed = limit.current.unwrap_or(u64::MAX);
    if allowed < within_hard {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(within_hard), maximum: limit.maximum }) {
            Ok(()) => allowed = within_hard,
            Err(error) => tracing::warn!(%error, "the limit on file descriptors cannot be raised to {within_hard}"),
        }
    }
    let fitting = fit(wanted, usize::try_from(allowed).unwrap_or(usize::MAX));
    if fitting != wanted {
        tracing::warn!(
            allowed,
            needed,
            "fewer connections are taken than could be: raise the limit on file descriptors (ulimit -n, LimitNOFILE)"
        );
    }
    fitting
}

/// The log and the store come first, but with few descriptors everybody gets his part.
fn fit(wanted: Connections, allowed: usize) -> Connections {
    let all = wanted.http + wanted.resp;
    let left = allowed.saturating_sub(DESCRIPTORS_RESERVED.min(allowed / 2));
    if all <= left {
        return wanted;
    }
    let part = |count: usize| (count as u128 * left as u128 / all as u128).max(1) as usize;
    Connections { http: part(wanted.http), resp: part(wanted.resp) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Connections = Connections { http: 4_096, resp: 10_000 };

    #[test]
    fn the_log_and_the_store_keep_their_part() {
        assert_eq!(fit(WANTED, 1 << 20), WANTED);
        assert_eq!(fit(WANTED, 4_096 + 10_000 + DESCRIPTORS_RESERVED), WANTED);
        for allowed in [20, 256, 1_024, 4_096, 15_000] {
            let Connections { http, resp } = fit(WANTED, allowed);
            let reserved = allowed - http - resp;
            assert!(http > 0 && resp > 0 && reserved >= DESCRIPTORS_RESERVED.min(allowed / 2), "{http} {resp}");
        }
    }

    #[test]
    fn a_node_that_takes_few_connections_needs_few_descriptors() {
        let few = Connections { http: 2, resp: 0 };
        assert_eq!(make_room(few), few);
    }
}
