//! One connection of the test: it sends requests of all kinds of events, and takes a step of its corrections now and then.
//!
//! A request without an answer is sent again as it is before anything else. Since the server is not killed while that goes on, a
//! request is sent at most twice; what the second answer must be, the model knows by taking the events a second time.

use super::super::request::{patiently, went_away};
use super::corrector::Corrector;
use super::event::{Event, Kind};
use super::model::{Boxes, Epochs, Model, Sent};
use crate::client::{HttpClient, was_cut};
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// So few that a request is one write to the log: it counts as a whole or not at all.
const EVENTS_PER_REQUEST: u64 = 200;
/// One event in this many repeats an earlier one …
const EVENTS_PER_REPEAT: u64 = 5;
/// … and one of those that may, in this many, has another content.
const REPEATS_PER_CONFLICT: u64 = 10;
const REQUESTS_PER_CORRECTION: u64 = 5;
/// How far back a repeat of a display event reaches: into this request or the one before.
const NUMBERS_BACK: u64 = EVENTS_PER_REQUEST / 2;
/// The window of the display counters. Later than that a repeat may be forgotten, and nobody outside could tell.
const WINDOW: Duration = Duration::from_secs(60);

struct Request {
    sent: Vec<Sent>,
    body: String,
    /// When the first of the events that it repeats may have been sent.
    since: Instant,
}

/// What was sent, as far as answers tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub events: u64,
    pub resent: u64,
    /// Of these the ones whose first attempt had been counted.
    pub counted_unanswered: u64,
    pub boxes: Boxes,
    pub late: u64,
}

pub struct Lane {
    number: u64,
    random: Random,
    events_left: u64,
    next: u64,
    before: Instant,
    unanswered: Option<Request>,
    pub model: Model,
    pub corrector: Corrector,
    pub told: Told,
}

impl Lane {
    pub fn new(number: u64, events: u64, seed: u64) -> Lane {
        let mut random = Random::new(seed);
        Lane {
            number,
            corrector: Corrector::new(number, random.next()),
            random,
            events_left: events,
            next: 0,
            before: Instant::now(),
            unanswered: None,
            model: Model::new(number),
            told: Told::default(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.events_left == 0 && self.unanswered.is_none()
    }

    /// Sends what was under way when the server ended once more.
    pub fn send_again(&mut self, server: SocketAddr, epochs: &Epochs) -> Result<()> {
        let mut client = HttpClient::connect(server)?;
        if let Some(request) = self.unanswered.take() {
            let (status, text) = patiently(|| client.post_lines("/v1/events", &request.body))?;
            ensure!(status == 200, "events that were sent again were answered {status}: {text}");
            self.judge(&request, &text, true, epochs)?;
        }
        self.corrector.finish(&mut client).context("the step of a correction that was under way")
    }

    /// Sends until everything is sent or the server goes away.
    pub fn run(&mut self, server: SocketAddr, epochs: &Epochs) -> Result<()> {
        let mut client = match HttpClient::connect(server) {
            Err(error) if was_cut(&error) => return Ok(()),
            other => other?,
        };
        while self.events_left > 0 {
            let request = self.make_up();
            match patiently(|| client.post_lines("/v1/events", &request.body)) {
                Ok((200, text)) => self.judge(&request, &text, false, epochs)?,
                answer if went_away(&answer) => {
                    self.unanswered = Some(request);
                    break;
                }
                Ok((status, text)) => bail!("events were answered {status}: {text}"),
                Err(error) => bail!("events of lane {} were not answered: {error}", self.number),
            }
            if self.random.one_in(REQUESTS_PER_CORRECTION) && !self.corrector.step(&mut client)? {
                break;
            }
        }
        Ok(())
    }

    fn make_up(&mut self) -> Request {
        let events = self.events_left.min(EVENTS_PER_REQUEST);
        self.events_left -= events;
        let mut request = Request { sent: Vec::new(), body: String::new(), since: self.before };
        for n in 0..events {
            // The first is always fresh.
            let repeat = if n > 0 && self.random.one_in(EVENTS_PER_REPEAT) { self.choose_earlier() } else { None };
            let sent = repeat.unwrap_or(Sent { number: self.next, altered: false });
            self.next += u64::from(repeat.is_none());
            Event::of(self.number, sent.number).push_line(sent.altered, &mut request.body);
            request.sent.push(sent);
        }
        self.before = Instant::now();
        request
    }

    /// An event that may be sent once more: of display a recent one, of the others any.
    fn choose_earlier(&mut self) -> Option<Sent> {
        let back = if self.random.one_in(2) { self.next } else { self.next.min(NUMBERS_BACK) };
        let number = self.next - 1 - self.random.below(back);
        let is_recent = number + NUMBERS_BACK >= self.next;
        match Event::of(self.number, number).kind {
            Kind::View => is_recent.then_some(Sent { number, altered: false }),
            Kind::Ad => Some(Sent { number, altered: self.random.one_in(REPEATS_PER_CONFLICT) }),
            Kind::Like | Kind::Unlike => Some(Sent { number, altered: false }),
        }
    }

    /// Takes in the answer to a request, which may be the answer to its second attempt.
    fn judge(&mut self, request: &Request, text: &str, again: bool, epochs: &Epochs) -> Result<()> {
        ensure!(
            request.since.elapsed() < WINDOW,
            "a request took {:?}: what it repeats may be forgotten",
            request.since.elapsed()
        );
        let answer = Answer::parse(text, self.number, request)?;
        let first = self.take(request, epochs);
        let counted_before = again && answer.boxes() != first;
        let expected = if counted_before { self.take(request, epochs) } else { first };
        ensure!(
            answer.boxes() == expected,
            "lane {}: a request was answered {:?} and must be {first:?}{}:\n{}",
            self.number,
            answer.boxes(),
            if again { format!(" or {expected:?}") } else { String::new() },
            request.body
        );
        self.told.events += request.sent.len() as u64 * (1 + u64::from(counted_before));
        self.told.resent += u64::from(again);
        self.told.counted_unanswered += u64::from(counted_before);
        self.told.boxes += expected;
        self.told.late += answer.late;
        Ok(())
    }

    fn take(&mut self, request: &Request, epochs: &Epochs) -> Boxes {
        let mut boxes = Boxes::default();
        request.sent.iter().for_each(|sent| boxes += self.model.take(*sent, epochs));
        boxes
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    events: u64,
    received: u64,
    counted: u64,
    duplicate: u64,
    conflict: u64,
    ignored: u64,
    late: u64,
    rejected_count: u64,
}

impl Answer {
    fn parse(text: &str, lane: u64, request: &Request) -> Result<Answer> {
        let answer: Answer = serde_json::from_str(text).with_context(|| format!("events were answered {text}"))?;
        let entries: u64 = request.sent.iter().map(|sent| Event::of(lane, sent.number).entries()).sum();
        let is_whole = answer.events == request.sent.len() as u64 && answer.received == entries;
        ensure!(is_whole && answer.rejected_count == 0, "{entries} entries were answered {text}");
        Ok(answer)
    }

    fn boxes(&self) -> Boxes {
        let Answer { counted, duplicate, conflict, ignored, late, .. } = *self;
        Boxes { counted_or_late: counted + late, duplicate, conflict, ignored }
    }
}
