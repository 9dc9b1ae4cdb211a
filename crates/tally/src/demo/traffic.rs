//! Sample traffic: a few events every tenth of a second, over HTTP like anybody else's, until there were enough.

use super::{COUNTRIES, DEVICES};
use crate::failure::Result;
use crate::http::HttpArgs;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use std::time::Duration;

/// How long to wait between two requests.
pub const EVERY: Duration = Duration::from_millis(100);
const EVENTS_PER_REQUEST: u64 = 30;
/// Every so many events one is sent twice, as clients do that got no answer.
const RETRY_EVERY: u64 = 20;
const VIDEOS: usize = 20;
const ADS: usize = 5;
/// Few enough to like twice, and to unlike what they liked.
const USERS: usize = 200;
const VIEWED: &str = "video.viewed";
const LIKED: &str = "video.liked";
const UNLIKED: &str = "video.unliked";
const SHOWN: &str = "ad.shown";
const TYPES: [&str; 10] = [VIEWED, VIEWED, VIEWED, VIEWED, VIEWED, LIKED, LIKED, UNLIKED, SHOWN, SHOWN];

pub struct Traffic {
    random: SmallRng,
    events_max: u64,
    pub sent: u64,
    last: String,
}

impl Traffic {
    pub fn new(events_max: u64) -> Traffic {
        Traffic { random: SmallRng::seed_from_u64(1), events_max, sent: 0, last: String::new() }
    }

    pub fn is_over(&self) -> bool {
        self.sent == self.events_max
    }

    /// Sends the next few.
    pub fn send(&mut self, server: &HttpArgs) -> Result<()> {
        let events = EVENTS_PER_REQUEST.min(self.events_max - self.sent);
        let body: String = (self.sent..self.sent + events).map(|n| self.line(n)).collect();
        server.post("/v1/events", "application/x-ndjson", &body)?;
        self.sent += events;
        Ok(())
    }

    /// The `n`-th event, or the one before it once more.
    fn line(&mut self, n: u64) -> String {
        if n % RETRY_EVERY != RETRY_EVERY - 1 {
            self.last = event(n, &mut self.random);
        }
        self.last.clone()
    }
}

/// The `n`-th event, as a line of JSON. Low numbers of videos are popular.
fn event(n: u64, random: &mut SmallRng) -> String {
    let video = random.random_range(0..VIDEOS).min(random.random_range(0..VIDEOS));
    let mut below = |choices: usize| random.random_range(0..choices);
    let (event_type, country, device) =
        (TYPES[below(TYPES.len())], COUNTRIES[below(COUNTRIES.len())], DEVICES[below(DEVICES.len())]);
    let mut event = json!({"type": event_type, "dimensions": {"country": country, "device": device}});
    if event_type == SHOWN {
        event["eventId"] = json!(format!("demo-{n}"));
        event["dimensions"]["ad"] = json!(format!("a{}", below(ADS)));
    } else {
        event["dimensions"]["video"] = json!(format!("v{video}"));
    }
    if event_type == VIEWED {
        event["session"] = json!(format!("demo-{}", n / 10));
        event["seq"] = json!(n % 10);
    }
    if event_type == LIKED || event_type == UNLIKED {
        event["dimensions"]["user"] = json!(format!("u{}", below(USERS)));
    }
    format!("{event}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;

    #[test]
    fn every_event_can_be_told_from_the_others_and_some_are_sent_twice() {
        let mut traffic = Traffic::new(1000);
        let (mut seen, mut before, mut retries) = (HashSet::new(), String::new(), 0);
        for line in (0..1000).map(|n| traffic.line(n)) {
            let event: Value = serde_json::from_str(line.strip_suffix('\n').unwrap()).unwrap();
            if line == before {
                retries += 1;
            } else if [VIEWED, SHOWN].contains(&event["type"].as_str().unwrap()) {
                let id = format!("{} {} {}", event["session"], event["seq"], event["eventId"]);
                assert!(seen.insert(id), "{line}");
            }
            before = line;
        }
        assert_eq!(retries, 1000 / RETRY_EVERY);
    }
}
