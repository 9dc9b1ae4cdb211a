//! One connection that posts events, each of which feeds two declared counters.

use super::range::Amounts;
use crate::client::{self, HttpClient};
use crate::random::Random;
use anyhow::{Result, bail, ensure};
use std::fmt::Write;
use std::net::SocketAddr;

pub const CONFIG: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules:
      - {on: video.viewed, op: increment}
  - counterName: views_by_country
    mode: display
    dimensions: [country]
    rules:
      - {on: video.viewed, op: increment}
";

const VIDEOS: usize = 50;
const COUNTRIES: [&str; 5] = ["DE", "US", "BR", "IN", "JP"];
const COUNTERS_PER_EVENT: u64 = 2;
const EVENTS_MAX: u64 = 40;

pub struct EventLane {
    number: usize,
    random: Random,
    requests: u64,
    counted: Vec<Amounts>,
    pub acknowledged: u64,
}

/// The videos, then the countries.
pub fn keys() -> Vec<String> {
    let videos = (0..VIDEOS).map(|n| format!("views:v{n}"));
    videos.chain(COUNTRIES.iter().map(|country| format!("views_by_country:{country}"))).collect()
}

/// An event counts for its video and for its country or for neither, so both kinds have the same sum.
pub fn verify_sums(keys: &[String], found: &[Option<i64>]) -> Result<()> {
    let sum = |found: &[Option<i64>]| found.iter().flatten().sum::<i64>();
    assert_eq!(keys.len(), found.len(), "every key was read");
    let (videos, countries) = found.split_at(VIDEOS);
    ensure!(
        sum(videos) == sum(countries),
        "an event was counted in part: {} by video, {} by country",
        sum(videos),
        sum(countries)
    );
    Ok(())
}

impl EventLane {
    pub fn new(number: usize, seed: u64) -> EventLane {
        let counted = vec![Amounts::default(); VIDEOS + COUNTRIES.len()];
        EventLane { number, random: Random::new(seed), requests: 0, counted, acknowledged: 0 }
    }

    pub fn counted(&mut self) -> &mut [Amounts] {
        &mut self.counted
    }

    /// Posts until the server goes away.
    pub fn run(&mut self, server: SocketAddr) -> Result<()> {
        let mut client = match HttpClient::connect(server) {
            Err(error) if client::was_cut(&error) => return Ok(()),
            other => other?,
        };
        loop {
            let (body, fed) = self.attempt();
            match client.post_lines("/v1/events", &body) {
                Ok((200..=299, answer)) => self.acknowledge(&fed, &answer)?,
                Ok((503, answer)) if answer.contains("shutting down") => return Ok(()),
                Ok((status, answer)) => bail!("events were answered {status}: {answer}"),
                Err(error) if client::was_cut(&error) => return Ok(()),
                Err(error) => bail!("events of lane {} were not answered: {error}", self.number),
            }
        }
    }

    /// Makes up events and notes them as attempted; answers their text and the keys they feed.
    fn attempt(&mut self) -> (String, Vec<usize>) {
        self.requests += 1;
        let (mut body, mut fed) = (String::new(), Vec::new());
        for seq in 0..=self.random.below(EVENTS_MAX) {
            let video = self.random.below(VIDEOS as u64) as usize;
            let country = self.random.below(COUNTRIES.len() as u64) as usize;
            writeln!(
                body,
                r#"{{"type":"video.viewed","session":"lane{}-{}","seq":{seq},"dimensions":{{"video":"v{video}","country":"{}"}}}}"#,
                self.number, self.requests, COUNTRIES[country]
            )
            .expect("writing to a string cannot fail");
            fed.extend([video, VIDEOS + country]);
        }
        fed.iter().for_each(|&key| self.counted[key].attempt(1));
        (body, fed)
    }

    fn acknowledge(&mut self, fed: &[usize], answer: &str) -> Result<()> {
        let answer: serde_json::Value = serde_json::from_str(answer)?;
        ensure!(answer["counted"] == fed.len() as u64, "{} entries were answered {answer}", fed.len());
        fed.iter().for_each(|&key| self.counted[key].acknowledge(1));
        self.acknowledged += fed.len() as u64 / COUNTERS_PER_EVENT;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counted_in_part_is_noticed() {
        let mut found = vec![Some(0); keys().len()];
        (found[3], found[VIDEOS]) = (Some(2), Some(2));
        assert!(verify_sums(&keys(), &found).is_ok());
        found[VIDEOS] = Some(1);
        assert!(verify_sums(&keys(), &found).is_err());
    }

    #[test]
    fn a_line_is_json_and_feeds_a_video_and_a_country() {
        let (body, fed) = EventLane::new(0, 1).attempt();
        assert_eq!(body.lines().count() * 2, fed.len());
        for line in body.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["type"], "video.viewed");
        }
    }
}
