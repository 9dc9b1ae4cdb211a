//! What one connection sends: sessions with consecutive seqs, out of order, and a quarter of the events once more: at once,
//! later in the request, a window later, two windows later, or when they must count again.

use super::model::WINDOWS_MS;
use crate::random::{Random, mix};
use std::collections::VecDeque;
use std::fmt::Write;

pub const SESSIONS: u32 = 50_000;
pub const VIDEOS: usize = 1_000;
pub const COUNTRIES: [&str; 5] = ["DE", "US", "BR", "IN", "JP"];

const EVENTS_PER_REQUEST: usize = 500;
/// Events that wait for their turn; whose turn it is, chance decides.
const SHUFFLED: usize = 4 * EVENTS_PER_REQUEST;
/// One fresh event in this many is sent again.
const FRESH_PER_RETRY: u64 = 4;
/// How long retries wait, in milliseconds: one, two and four of the shorter windows.
const DELAYS_MS: [u64; 3] = [WINDOWS_MS[0], 2 * WINDOWS_MS[0], 4 * WINDOWS_MS[0]];

/// Everything else about an event follows from these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    pub session: u32,
    pub seq: u32,
}

impl Event {
    fn chance(self) -> usize {
        mix(u64::from(self.session) << 32 | u64::from(self.seq)) as usize
    }

    pub fn video(self) -> usize {
        self.chance() % VIDEOS
    }

    pub fn country(self) -> usize {
        self.chance() / VIDEOS % COUNTRIES.len()
    }

    pub fn push_line(self, body: &mut String) {
        let (Event { session, seq }, video, country) = (self, self.video(), COUNTRIES[self.country()]);
        writeln!(
            body,
            r#"{{"type":"video.viewed","session":"s{session}","seq":{seq},"dimensions":{{"video":"v{video}","country":"{country}"}}}}"#
        )
        .expect("writing to a string cannot fail");
    }
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Next {
    Send(Vec<Event>),
    /// Only retries are left, and the first of them is due at this time.
    WaitUntil(u64),
    Done,
}

pub struct Traffic {
    random: Random,
    /// The next seqs of this connection's sessions; nobody else sends for them.
    seqs: Vec<u32>,
    lane: u32,
    lanes: u32,
    fresh_left: u64,
    drawn: u64,
    shuffled: Vec<Event>,
    /// For each delay the retries that wait, in the order in which they become due.
    retries: [VecDeque<(u64, Event)>; DELAYS_MS.len()],
}

impl Traffic {
    /// Some `events` events, retries included, of the sessions `lane`, `lane + lanes`, `lane + 2 × lanes`, …
    pub fn new(lane: u32, lanes: u32, events: u64, seed: u64) -> Traffic {
        Traffic {
            random: Random::new(seed),
            seqs: vec![0; (SESSIONS / lanes) as usize],
            lane,
            lanes,
            fresh_left: events * FRESH_PER_RETRY / (FRESH_PER_RETRY + 1),
            drawn: 0,
            shuffled: Vec::new(),
            retries: Default::default(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.fresh_left == 0 && self.shuffled.is_empty() && self.retries.iter().all(VecDeque::is_empty)
    }

    /// The next request.
    pub fn next(&mut self, now_ms: u64) -> Next {
        let (mut batch, mut later) = (Vec::with_capacity(EVENTS_PER_REQUEST), Vec::new());
        while batch.len() + later.len() < EVENTS_PER_REQUEST {
            if let Some(event) = self.due_retry(now_ms) {
                batch.push(event);
            } else if let Some(event) = self.draw() {
                batch.push(event);
                if self.drawn.is_multiple_of(FRESH_PER_RETRY) {
                    self.retry(event, now_ms, &mut batch, &mut later);
                }
            } else {
                break;
            }
        }
        batch.append(&mut later);
        match self.retries.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due).min() {
            _ if !batch.is_empty() => Next::Send(batch),
            Some(due) => Next::WaitUntil(due),
            None => Next::Done,
        }
    }

    /// A fresh event, not the next one: one of those that wait.
    fn draw(&mut self) -> Option<Event> {
        while self.fresh_left > 0 && self.shuffled.len() < SHUFFLED {
            let place = self.random.below(self.seqs.len() as u64) as usize;
            self.shuffled.push(Event { session: place as u32 * self.lanes + self.lane, seq: self.seqs[place] });
            self.seqs[place] += 1;
            self.fresh_left -= 1;
        }
        if self.shuffled.is_empty() {
            return None;
        }
        self.drawn += 1;
        let chosen = self.random.below(self.shuffled.len() as u64) as usize;
        Some(self.shuffled.swap_remove(chosen))
    }

    fn retry(&mut self, event: Event, now_ms: u64, batch: &mut Vec<Event>, later: &mut Vec<Event>) {
        match self.random.below(5) {
            0 => batch.push(event),
            1 => later.push(event),
            choice => {
                let delay = choice as usize - 2;
                self.retries[delay].push_back((now_ms + DELAYS_MS[delay], event));
            }
        }
    }

    fn due_retry(&mut self, now_ms: u64) -> Option<Event> {
        let queue = self.retries.iter_mut().find(|queue| queue.front().is_some_and(|(due, _)| *due <= now_ms))?;
        queue.pop_front().map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const EVENTS: u64 = 40_000;

    /// Everything that is sent, with the time, if a request takes a tenth of a second and each wait the time it asks for.
    fn sent(lane: u32) -> Vec<(u64, Event)> {
        let (mut traffic, mut now_ms, mut sent) = (Traffic::new(lane, 4, EVENTS, 1), 0, Vec::new());
        loop {
            match traffic.next(now_ms) {
                Next::Send(events) => sent.extend(events.into_iter().map(|event| (now_ms, event))),
                Next::WaitUntil(due) => now_ms = due,
                Next::Done => break,
            }
            now_ms += 100;
        }
        assert!(traffic.is_done());
        sent
    }

    #[test]
    fn a_fifth_of_all_events_was_sent_before_and_each_kind_of_retry_is_among_them() {
        let (mut first, mut waited) = (HashMap::new(), Vec::new());
        for (now_ms, event) in sent(0) {
            if let Some(before) = first.insert(event, now_ms) {
                waited.push(now_ms - before);
            }
        }
        assert_eq!((first.len(), waited.len()), (EVENTS as usize * 4 / 5, EVENTS as usize / 5));
        for range in [0..100, 2_000..4_000, 4_000..8_000, 8_000..u64::MAX] {
            let met = waited.iter().filter(|waited| range.contains(waited)).count();
            assert!(met > waited.len() / 10, "{met} waited {range:?} ms");
        }
    }

    #[test]
    fn no_two_connections_send_for_a_session_and_seqs_have_no_gaps_in_the_end() {
        let mut seqs: HashMap<u32, Vec<u32>> = HashMap::new();
        for (_, event) in sent(3) {
            assert_eq!(event.session % 4, 3);
            seqs.entry(event.session).or_default().push(event.seq);
        }
        let mut out_of_order = 0;
        for seqs in seqs.values_mut() {
            out_of_order += seqs.windows(2).filter(|pair| pair[0] > pair[1]).count();
            seqs.sort();
            seqs.dedup();
            assert!(seqs.iter().copied().eq(0..seqs.len() as u32), "{seqs:?}");
        }
        assert!(out_of_order > 1000, "{out_of_order}");
    }

    #[test]
    fn an_event_is_always_the_same_json() {
        let (mut once, mut again) = (String::new(), String::new());
        let event = Event { session: 41, seq: 3 };
        event.push_line(&mut once);
        event.push_line(&mut again);
        assert_eq!(once, again);
        let json: serde_json::Value = serde_json::from_str(&once).unwrap();
        assert_eq!(json["dimensions"]["video"], format!("v{}", event.video()));
        assert_eq!((&json["session"], &json["seq"]), (&"s41".into(), &3.into()));
    }
}
