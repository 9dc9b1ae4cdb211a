//! What clients ask for, in both worlds: drawn by chance, said in Tally's words, and its answer held against the oracle's.

use crate::oracle::worth::Expected;
use crate::oracle::{Ask, Happening};
use crate::random::Random;
use tally_core::event::Event;
use tally_core::op::Answer;

/// How many there are of what requests name: few, so that they meet.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    pub events: u64,
    pub sessions: u64,
    /// Sequence numbers of a session.
    pub seqs: u64,
}

/// An event in Tally's words.
pub fn event_of(happening: &Happening) -> Event<'_> {
    let mut event = Event::new(happening.kind, happening.received_ms);
    event.event_id = happening.id.as_deref().map(Into::into);
    event.session = Some(happening.session.as_str().into());
    event.seq = Some(happening.seq);
    event.occurred_at_ms = Some(happening.occurred_ms as i64);
    event.delta = happening.delta;
    event.dimensions =
        vec![("user".into(), happening.user.as_str().into()), ("country".into(), happening.country.as_str().into())];
    if let Some(video) = &happening.video {
        event.dimensions.push(("video".into(), video.as_str().into()));
    }
    event
}

/// Whether an answer is the one that is right.
pub fn is_right(expected: Expected, answer: Answer) -> bool {
    match (expected, answer) {
        (Expected::Value(value), Answer::Value(told)) => told == value,
        (Expected::Repeated(value), Answer::Repeated(told)) => told == value,
        (Expected::OtherDelta(delta), Answer::OtherDelta(told)) => told == delta,
        (Expected::Done(true), Answer::Yes) | (Expected::Done(false), Answer::No) => true,
        _ => false,
    }
}

impl Crowd {
    /// Something that a client may ask for, of somebody whose clock says `received_ms`.
    pub fn ask(&self, random: &mut Random, now_ms: u64, received_ms: u64) -> Ask {
        let ad_hoc = format!("hits{}", 1 + random.below(3));
        let key = if random.chance(250) { "plays:v0".to_owned() } else { ad_hoc.clone() };
        let (number, delta) = (random.below(12), 1 + random.below(3) as i64);
        match random.below(20) {
            0..4 => Ask::Add { key, delta: if random.chance(200) { -delta } else { delta } },
            4..6 => Ask::AddOnce { key, id: format!("k{number}"), delta },
            // A declared counter does not end.
            6 => Ask::Expire { key: ad_hoc, at_ms: (now_ms + 3_000).saturating_sub(random.below(4_000)) },
            _ => Ask::Event(self.event(random, received_ms)),
        }
    }

    fn event(&self, random: &mut Random, received_ms: u64) -> Happening {
        let kind = *random.pick(&["play", "view", "view", "view", "like", "like", "unlike", "sale", "sale", "mixed"]);
        let occurred_ms = match random.below(10) {
            0 => received_ms - 1_000 - random.below(5_000),
            1 => received_ms - 60_000 - random.below(60_000),
            // The clock of whoever tells it is wrong. Only of what is counted by time: a like from the future would stand for ever.
            2 if kind == "view" => received_ms + random.below(60_000),
            _ => received_ms - random.below(900),
        };
        Happening {
            kind,
            id: (!random.chance(50)).then(|| format!("e{}", random.below(self.events))),
            session: format!("s{}", random.below(self.sessions)),
            seq: random.below(self.seqs),
            user: format!("u{}", random.below(3)),
            video: (!random.chance(30)).then(|| format!("v{}", random.below(3))),
            country: random.pick(&["DE", "FR"]).to_string(),
            occurred_ms,
            received_ms,
            delta: if matches!(kind, "play" | "view") { 1 + random.below(3) as i64 } else { 1 },
        }
    }
}
