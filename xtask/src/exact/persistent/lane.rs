//! One connection of the persistent test: what it sends, and what the answers must be.
//!
//! An event is a function of its id, so nothing has to be remembered to send one a second time. One repeat in ten has another
//! content under the same id, which is a conflict and counts nowhere.

use super::super::answer::{Answer, Boxes};
use super::super::request::{patiently, went_away};
use crate::client::{self, HttpClient};
use crate::random::{Random, mix};
use anyhow::{Result, bail, ensure};
use std::fmt::{self, Write};
use std::io;
use std::iter::Sum;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

pub const ADS: usize = 100_000;
pub const CAMPAIGNS: usize = 100;
/// An event counts for its ad and for its campaign.
const COUNTERS: u64 = 2;
const EVENTS_PER_REQUEST: u64 = 500;
/// One event in this many repeats an earlier one …
const EVENTS_PER_REPEAT: u64 = 5;
/// … and one of those in this many has another content.
const REPEATS_PER_CONFLICT: u64 = 10;

/// The name of an event: which lane made it up, and which of its events it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    lane: usize,
    number: u64,
}

impl Id {
    fn ad(self) -> usize {
        mix((self.lane as u64) << 48 | self.number) as usize % ADS
    }

    fn push_line(self, ad: usize, body: &mut String) {
        let (Id { lane, number }, campaign) = (self, ad % CAMPAIGNS);
        writeln!(
            body,
            r#"{{"eventId":"e{lane}-{number}","type":"ad.shown","dimensions":{{"ad":"a{ad}","campaign":"c{campaign}"}}}}"#
        )
        .expect("writing to a string cannot fail");
    }
}

/// How many ids of each lane are in requests that were answered: these, everybody may repeat.
pub struct Answered<const LANES: usize>([AtomicU64; LANES]);

impl<const LANES: usize> Default for Answered<LANES> {
    fn default() -> Self {
        Answered([const { AtomicU64::new(0) }; LANES])
    }
}

/// Events that reached the log, as far as answers tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub events: u64,
    pub different_ids: u64,
    pub conflicts: u64,
    /// Requests that were sent a second time …
    pub resent: u64,
    /// … and of these the ones whose first attempt had been counted.
    pub counted_unanswered: u64,
}

impl Reached {
    /// Events whose id stood before.
    pub fn repeats(&self) -> u64 {
        self.events - self.different_ids
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { events, different_ids, conflicts, resent, counted_unanswered } = self;
        let repeats = self.repeats();
        write!(
            f,
            "{events} events in the log, {different_ids} ids, {repeats} repeats ({conflicts} conflicts); \
             {resent} requests sent again, {counted_unanswered} of them had been counted"
        )
    }
}

impl Sum for Reached {
    fn sum<I: Iterator<Item = Reached>>(all: I) -> Reached {
        all.fold(Reached::default(), |sum, one| Reached {
            events: sum.events + one.events,
            different_ids: sum.different_ids + one.different_ids,
            conflicts: sum.conflicts + one.conflicts,
            resent: sum.resent + one.resent,
            counted_unanswered: sum.counted_unanswered + one.counted_unanswered,
        })
    }
}

/// One request: its text, and what must become of it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Request {
    body: String,
    events: u64,
    /// The lane's own numbers that stand in it for the first time.
    fresh: std::ops::Range<u64>,
    /// Events, not entries.
    duplicates: u64,
    conflicts: u64,
}

impl Request {
    /// The answer if no attempt was counted before.
    fn first_answer(&self) -> Boxes {
        let fresh = self.fresh.end - self.fresh.start;
        Boxes { counted: fresh * COUNTERS, duplicate: self.duplicates * COUNTERS, conflict: self.conflicts * COUNTERS }
    }

    /// The answer if the same request was counted before.
    fn second_answer(&self) -> Boxes {
        let first = self.first_answer();
        Boxes { counted: 0, duplicate: first.duplicate + first.counted, conflict: first.conflict }
    }
}

pub struct Lane {
    number: usize,
    random: Random,
    events_left: u64,
    next: u64,
    unanswered: Option<Request>,
    ads: Vec<u32>,
    pub reached: Reached,
}

impl Lane {
    pub fn new(number: usize, events: u64, seed: u64) -> Lane {
        Lane {
            number,
            random: Random::new(seed),
            events_left: events,
            next: 0,
            unanswered: None,
            ads: vec![0; ADS],
            reached: Reached::default(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.events_left == 0 && self.unanswered.is_none()
    }

    /// How often each ad was shown, by the ids of this lane whose requests are answered.
    pub fn ads(&self) -> &[u32] {
        &self.ads
    }

    /// Sends what was under way when the server ended once more.
    pub fn send_again<const N: usize>(&mut self, server: SocketAddr, answered: &Answered<N>) -> Result<()> {
        let Some(request) = self.unanswered.take() else { return Ok(()) };
        let (status, text) = post(&mut HttpClient::connect(server)?, &request.body)?;
        ensure!(status == 200, "events that were sent again were answered {status}: {text}");
        self.judge(&request, &text, true, answered)
    }

    /// Sends until everything is sent or the server goes away.
    pub fn run<const N: usize>(&mut self, server: SocketAddr, answered: &Answered<N>) -> Result<()> {
        let mut client = match HttpClient::connect(server) {
            Err(error) if client::was_cut(&error) => return Ok(()),
            other => other?,
        };
        while self.events_left > 0 {
            let request = self.make_up(answered);
            match post(&mut client, &request.body) {
                Ok((200, text)) => self.judge(&request, &text, false, answered)?,
                answer if went_away(&answer) => {
                    self.unanswered = Some(request);
                    break;
                }
                Ok((status, text)) => bail!("events were answered {status}: {text}"),
                Err(error) => bail!("events of lane {} were not answered: {error}", self.number),
            }
        }
        Ok(())
    }

    fn make_up<const N: usize>(&mut self, answered: &Answered<N>) -> Request {
        let events = self.events_left.min(EVENTS_PER_REQUEST);
        self.events_left -= events;
        let mut request = Request { events, fresh: self.next..self.next, ..Request::default() };
        for n in 0..events {
            // The first is always fresh: by it the answer to a second attempt tells what became of the first.
            if n == 0 || !self.random.one_in(EVENTS_PER_REPEAT) {
                let id = Id { lane: self.number, number: request.fresh.end };
                request.fresh.end += 1;
                id.push_line(id.ad(), &mut request.body);
                continue;
            }
            let id = self.choose_earlier(&request, answered);
            if self.random.one_in(REPEATS_PER_CONFLICT) {
                request.conflicts += 1;
                id.push_line((id.ad() + 1) % ADS, &mut request.body);
            } else {
                request.duplicates += 1;
                id.push_line(id.ad(), &mut request.body);
            }
        }
        self.next = request.fresh.end;
        request
    }

    /// An id that stood earlier in this request, or in any answered one of any lane.
    fn choose_earlier<const N: usize>(&mut self, request: &Request, answered: &Answered<N>) -> Id {
        let lane = self.random.below(N as u64) as usize;
        match answered.0[lane].load(Ordering::Acquire) {
            ids if ids > 0 && !self.random.one_in(3) => Id { lane, number: self.random.below(ids) },
            _ => {
                let here = request.fresh.end - request.fresh.start;
                Id { lane: self.number, number: request.fresh.start + self.random.below(here) }
            }
        }
    }

    /// Takes in the answer to a request, which may be the answer to its second attempt.
    fn judge<const N: usize>(
        &mut self,
        request: &Request,
        text: &str,
        again: bool,
        answered: &Answered<N>,
    ) -> Result<()> {
        let boxes = Answer::parse(text, request.events as usize, COUNTERS)?.boxes;
        let counted_before = again && boxes == request.second_answer();
        ensure!(
            counted_before || boxes == request.first_answer(),
            "lane {}: a request was answered {boxes:?} and must be {:?}{}:\n{}",
            self.number,
            request.first_answer(),
            if again { format!(" or {:?}", request.second_answer()) } else { String::new() },
            request.body
        );
        let attempts = 1 + u64::from(counted_before);
        self.reached.events += request.events * attempts;
        self.reached.conflicts += request.conflicts * attempts;
        self.reached.different_ids += request.fresh.end - request.fresh.start;
        self.reached.resent += u64::from(again);
        self.reached.counted_unanswered += u64::from(counted_before);
        for number in request.fresh.clone() {
            self.ads[Id { lane: self.number, number }.ad()] += 1;
        }
        answered.0[self.number].store(request.fresh.end, Ordering::Release);
        Ok(())
    }
}

fn post(client: &mut HttpClient, body: &str) -> io::Result<(u16, String)> {
    patiently(|| client.post_lines("/v1/events", body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn text(request: &Request, boxes: Boxes) -> String {
        let Boxes { counted, duplicate, conflict } = boxes;
        format!(
            r#"{{"events":{},"received":{},"counted":{counted},"duplicate":{duplicate},"conflict":{conflict},
               "rejectedCount":0,"ignored":0,"late":0,"token":"1-0-1"}}"#,
            request.events,
            request.events * COUNTERS
        )
    }

    /// What a registry of ids makes of the lines of a request.
    fn register(registry: &mut HashMap<String, serde_json::Value>, request: &Request) -> Boxes {
        let mut boxes = Boxes::default();
        for line in request.body.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            match registry.get(&event["eventId"].to_string()) {
                None => boxes.counted += COUNTERS,
                Some(first) if *first == event => boxes.duplicate += COUNTERS,
                Some(_) => boxes.conflict += COUNTERS,
            }
            registry.entry(event["eventId"].to_string()).or_insert(event);
        }
        boxes
    }

    #[test]
    fn the_expected_answers_are_those_of_a_registry_also_for_second_attempts() {
        let answered = Answered::<2>::default();
        let mut lanes = [Lane::new(0, 20_000, 1), Lane::new(1, 20_000, 2)];
        let (mut registry, mut rows, mut attempts) = (HashMap::new(), 0, 0);
        while !lanes.iter().all(Lane::is_done) {
            for lane in &mut lanes {
                let request = lane.make_up(&answered);
                attempts += 1;
                let counted_before = attempts % 3 == 0;
                if counted_before {
                    let boxes = register(&mut registry, &request);
                    rows += (boxes.duplicate + boxes.conflict) / COUNTERS;
                }
                let boxes = register(&mut registry, &request);
                rows += (boxes.duplicate + boxes.conflict) / COUNTERS;
                lane.judge(&request, &text(&request, boxes), counted_before, &answered).unwrap();
            }
        }
        let reached: Reached = lanes.iter().map(|lane| lane.reached).sum();
        assert_eq!((reached.different_ids, reached.repeats()), (registry.len() as u64, rows));
        assert!(reached.conflicts > 100 && reached.counted_unanswered > 10, "{reached:?}");
        let shown: u64 = lanes.iter().flat_map(|lane| lane.ads()).map(|&shown| u64::from(shown)).sum();
        assert_eq!(shown, registry.len() as u64);
    }

    #[test]
    fn a_request_counted_in_part_and_a_repeat_without_cause_are_noticed() {
        let answered = Answered::<1>::default();
        let request = Lane::new(0, 500, 1).make_up(&answered);
        let judge = |boxes, again| Lane::new(0, 0, 1).judge(&request, &text(&request, boxes), again, &answered).is_ok();
        let (first, second) = (request.first_answer(), request.second_answer());
        assert!(judge(first, false) && judge(first, true) && judge(second, true));
        assert!(!judge(second, false), "nobody sent it before");
        let part = Boxes { counted: first.counted - 2, duplicate: first.duplicate + 2, ..first };
        assert!(!judge(part, false) && !judge(part, true));
    }
}
