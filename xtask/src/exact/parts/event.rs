//! The events of the test. Each is a function of its lane and number, so nothing has to be remembered to send one again.
//!
//! They happened during three days around the end of summer time in Europe, long before anything that is dated by the run itself.

use super::counters::VIDEOS;
use crate::random::mix;
use jiff::Timestamp;
use std::fmt::Write;

/// The first of them: 2025-10-25T00:00:00Z. Clocks in Berlin are changed a day and an hour later.
pub const FIRST_MS: i64 = 1_761_350_400_000;
/// The model tells quarters of an hour apart: hours of every time zone are made of them.
pub const SLOT_MS: i64 = 15 * 60 * 1000;
pub const SLOTS: usize = 3 * 24 * 4;

/// What events say; the last is an event that does not.
pub const COUNTRIES: [&str; 6] = ["DE", "US", "BR", "IN", "JP", "(none)"];
pub const DEVICES: [&str; 5] = ["tv", "phone", "tablet", "web", "(none)"];
/// Users come and go in groups, each of which lives so long that keys are cleared meanwhile.
const NUMBERS_PER_GROUP: u64 = 20_000;
const USERS_PER_GROUP: u64 = 400;
/// A user likes and unlikes only so many videos.
const VIDEOS_PER_USER: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    View,
    Like,
    Unlike,
    Ad,
}

/// What an event says beside its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub country: usize,
    pub device: usize,
    pub slot: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub lane: u64,
    pub number: u64,
    pub kind: Kind,
    pub user: u64,
    pub video: usize,
    pub place: Place,
}

impl Event {
    pub fn of(lane: u64, number: u64) -> Event {
        let chance = mix(lane << 48 | number);
        let kind = [Kind::View, Kind::View, Kind::Like, Kind::Like, Kind::Unlike, Kind::Ad][chance as usize % 6];
        let user = number / NUMBERS_PER_GROUP * USERS_PER_GROUP + (chance >> 8) % USERS_PER_GROUP;
        let video = match kind {
            Kind::Like | Kind::Unlike => {
                mix((lane << 48) | (user * VIDEOS_PER_USER + (chance >> 16) % VIDEOS_PER_USER))
            }
            Kind::View | Kind::Ad => chance >> 16,
        };
        let slot = match kind {
            Kind::Like | Kind::Unlike => slot_of_a_user(number % NUMBERS_PER_GROUP, chance >> 40),
            Kind::View | Kind::Ad => (chance >> 40) as usize % SLOTS,
        };
        let (country, device) = ((chance >> 24) as usize % COUNTRIES.len(), (chance >> 32) as usize % DEVICES.len());
        let place = Place { country, device, slot };
        Event { lane, number, kind, user, video: video as usize % VIDEOS, place }
    }

    /// When it happened. No two of one user happen at once.
    pub fn time_ms(&self) -> i64 {
        FIRST_MS + self.place.slot as i64 * SLOT_MS + (self.number % SLOT_MS as u64) as i64
    }

    /// How many counters it feeds.
    pub fn entries(&self) -> u64 {
        if self.kind == Kind::Ad { 1 } else { 2 }
    }

    /// One line of JSON; with another video if it is altered.
    pub fn push_line(&self, altered: bool, body: &mut String) {
        let Event { lane, number, user, .. } = self;
        let kind = ["view", "like", "unlike", "ad"][self.kind as usize];
        let video = (self.video + usize::from(altered)) % VIDEOS;
        let at = Timestamp::from_millisecond(self.time_ms()).expect("a time of this century is one");
        let (session, seq) = (number / 1000, number % 1000);
        write!(
            body,
            r#"{{"type":"{kind}","eventId":"e{lane}-{number}","session":"s{lane}-{session}","seq":{seq},"occurredAt":"{at}","dimensions":{{"video":"v{video}","user":"u{lane}-{user}""#
        )
        .expect("writing to a string cannot fail");
        push_dimension(body, "country", COUNTRIES[self.place.country]);
        push_dimension(body, "device", DEVICES[self.place.device]);
        body.push_str("}}\n");
    }
}

/// Most events of a user are newer than those before, and some overtake each other.
fn slot_of_a_user(at: u64, chance: u64) -> usize {
    let half = SLOTS as u64 / 2;
    (at * half / NUMBERS_PER_GROUP + chance % half) as usize
}

fn push_dimension(body: &mut String, name: &str, value: &str) {
    if value != "(none)" {
        write!(body, r#","{name}":"{value}""#).expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn users_like_and_unlike_the_same_videos_at_different_times() {
        let mut times: HashMap<(u64, usize), Vec<i64>> = HashMap::new();
        for event in (0..100_000).map(|number| Event::of(1, number)) {
            if matches!(event.kind, Kind::Like | Kind::Unlike) {
                times.entry((event.user, event.video)).or_default().push(event.time_ms());
            }
        }
        let several = times.values().filter(|times| times.len() > 3).count();
        assert!(several > 1_000, "{several}");
        for times in times.values_mut() {
            times.sort();
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        }
    }

    #[test]
    fn an_event_is_json_and_says_what_it_is() {
        for event in (0..1_000).map(|number| Event::of(2, number)) {
            let mut line = String::new();
            event.push_line(false, &mut line);
            let json: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(json["dimensions"]["video"], format!("v{}", event.video));
            let country = json["dimensions"]["country"].as_str().unwrap_or("(none)");
            assert_eq!(country, COUNTRIES[event.place.country]);
            let at: Timestamp = json["occurredAt"].as_str().unwrap().parse().unwrap();
            assert_eq!(at.as_millisecond(), event.time_ms());
        }
    }
}
