//! How a life of the server ends, and the values that it must know when the next one begins.

use crate::client::RespClient;
use crate::random::Random;
use crate::server::Server;
use anyhow::{Result, ensure};
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// SIGKILL.
    Kill,
    /// SIGTERM, which it must answer with exit code 0.
    Stop,
}

impl End {
    /// One in four is clean.
    pub fn choose(random: &mut Random) -> End {
        if random.one_in(4) { End::Stop } else { End::Kill }
    }

    pub fn bring(self, server: Server) -> Result<()> {
        match self {
            End::Stop => server.stop(),
            End::Kill => {
                server.kill();
                Ok(())
            }
        }
    }
}

/// A moment of chance; earlier if nobody has anything to send any more.
pub fn wait_for_the_blow<T>(lanes: &[thread::ScopedJoinHandle<'_, T>], moment: Duration) {
    const STEP: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while waited < moment && !lanes.iter().all(|lane| lane.is_finished()) {
        thread::sleep(STEP.min(moment - waited));
        waited += STEP;
    }
}

/// Reads `keys` and compares them with what they must be.
pub fn verify_values(server: &Server, keys: &[String], expected: &[u64]) -> Result<()> {
    let found = RespClient::connect(server.resp)?.read(keys)?;
    compare(keys, expected, &found)
}

fn compare(keys: &[String], expected: &[u64], found: &[Option<i64>]) -> Result<()> {
    assert!(keys.len() == expected.len() && keys.len() == found.len(), "every key was read");
    let (mut over, mut under, mut first) = (0, 0, None);
    for ((key, &expected), found) in keys.iter().zip(expected).zip(found) {
        let difference = found.unwrap_or(0) - expected as i64;
        over += difference.max(0);
        under -= difference.min(0);
        if difference != 0 && first.is_none() {
            first = Some(format!("{key} is {found:?} and must be {expected}"));
        }
    }
    ensure!(over == 0 && under == 0, "{over} over, {under} under; the first: {}", first.unwrap_or_default());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_and_under_do_not_cancel_out() {
        let keys = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert!(compare(&keys, &[1, 2, 0], &[Some(1), Some(2), None]).is_ok());
        let error = compare(&keys, &[1, 2, 0], &[Some(3), None, None]).unwrap_err().to_string();
        assert_eq!(error, "2 over, 2 under; the first: a is Some(3) and must be 1");
    }
}
