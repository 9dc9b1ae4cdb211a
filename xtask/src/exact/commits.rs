//! The commits of the log, as `GET /v1/commits` tells them: which records were committed at what log time.
//!
//! The stream must have no gap and log time must not run backwards; both are checked as it is read, also across restarts.

use super::answer::offset;
use crate::client::Subscription;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// The longest a commit may take to be told after it was answered.
const TOLD_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Commit {
    /// Records from this one …
    from: u64,
    /// … up to, not including, this one.
    to: u64,
    log_time_ms: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    from: String,
    to: String,
    log_time: String,
}

/// All commits that were told, in their order.
#[derive(Default)]
pub struct Commits {
    list: Vec<Commit>,
    /// The position behind the last one, in the server's words.
    last: Option<String>,
}

impl Commits {
    fn push(&mut self, data: &str) -> Result<()> {
        let told: Told = serde_json::from_str(data)?;
        let log_time_ms = told.log_time.parse::<jiff::Timestamp>()?.as_millisecond() as u64;
        let commit = Commit { from: offset(&told.from)?, to: offset(&told.to)?, log_time_ms };
        if let Some(before) = self.list.last() {
            ensure!(commit.from == before.to, "{commit:?} does not follow {before:?}");
            ensure!(commit.log_time_ms >= before.log_time_ms, "time ran backwards from {before:?} to {commit:?}");
        }
        self.list.push(commit);
        self.last = Some(told.to);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.list.last().map_or(0, |commit| commit.to)
    }

    /// When the records up to `log_end` were committed: the log time of the commit that holds the last of them.
    pub fn log_time_ms(&self, log_end: u64) -> Result<u64> {
        let at = self.list.partition_point(|commit| commit.to < log_end);
        let commit = self.list.get(at).filter(|commit| commit.from < log_end);
        Ok(commit.with_context(|| format!("no commit with record {log_end} was told"))?.log_time_ms)
    }

    pub fn first_log_time_ms(&self) -> Option<u64> {
        self.list.first().map(|commit| commit.log_time_ms)
    }

    pub fn last_log_time_ms(&self) -> Option<u64> {
        self.list.last().map(|commit| commit.log_time_ms)
    }
}

/// Commits that one thread reads and another waits for.
#[derive(Default)]
pub struct Followed {
    commits: Mutex<Commits>,
    grown: Condvar,
}

impl Followed {
    /// The path of the stream from where it was left.
    pub fn path(&self) -> String {
        match &self.lock().last {
            Some(last) => format!("/v1/commits?from={last}"),
            None => "/v1/commits".to_owned(),
        }
    }

    /// Reads until the server goes away.
    pub fn follow(&self, mut stream: Subscription) -> Result<()> {
        let mut name = String::new();
        while let Some(line) = stream.line()? {
            match line.split_once(':') {
                Some(("event", text)) => name = text.trim().to_owned(),
                Some(("data", text)) if name == "commit" => {
                    self.lock().push(text.trim()).with_context(|| format!("a commit was told as {text}"))?;
                    self.grown.notify_all();
                }
                Some(("data", text)) if name == "problem" => bail!("the commits ended with {text}"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits until the records up to `log_end` were told.
    pub fn wait(&self, log_end: u64) -> Result<()> {
        let behind = |commits: &mut Commits| commits.end() < log_end;
        let waited = self.grown.wait_timeout_while(self.lock(), TOLD_MAX, behind);
        let (commits, timeout) = waited.expect("nobody panics while holding the commits");
        let end = commits.end();
        ensure!(!timeout.timed_out(), "record {log_end} was answered, and the commits end at {end} after {TOLD_MAX:?}");
        Ok(())
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, Commits> {
        self.commits.lock().expect("nobody panics while holding the commits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(commits: &[(u64, u64, i64)]) -> Result<Commits> {
        let mut told = Commits::default();
        for (from, to, time) in commits {
            let time = jiff::Timestamp::from_millisecond(*time)?;
            told.push(&format!(r#"{{"from":"1-0-{from}","to":"2-0-{to}","logTime":"{time}"}}"#))?;
        }
        Ok(told)
    }

    #[test]
    fn a_record_has_the_time_of_the_commit_that_holds_it() {
        let commits = told(&[(5, 10, 100), (10, 12, 100), (12, 30, 250)]).unwrap();
        for (log_end, time) in [(6, 100), (10, 100), (12, 100), (13, 250), (30, 250)] {
            assert_eq!(commits.log_time_ms(log_end).unwrap(), time, "{log_end}");
        }
        assert!(commits.log_time_ms(5).is_err() && commits.log_time_ms(31).is_err());
        assert_eq!(commits.last.as_deref(), Some("2-0-30"));
    }

    #[test]
    fn a_gap_and_a_step_back_in_time_are_noticed() {
        assert!(told(&[(0, 5, 100), (6, 9, 100)]).is_err());
        assert!(told(&[(0, 5, 100), (5, 9, 99)]).is_err());
    }
}
