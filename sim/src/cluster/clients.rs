//! Clients, and what they ask for.

use super::World;
use crate::fault::Fault;
use crate::oracle::{Ask, Happening};
use tally_cluster::collect::Receipt;
use tally_core::event::Event;

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

impl World {
    /// A client asks a collector. Answers the receipt, if the collector is there.
    pub fn ask(&mut self, collector: usize, ask: Ask) -> Option<Receipt> {
        let process = self.collectors[collector].process.as_mut()?;
        let receipt = self.referee.asked(&ask);
        let copies = match &ask {
            Ask::Event(happening) => process.event(&event_of(happening), receipt),
            Ask::Add { key, delta } => {
                process.add(key.as_bytes(), *delta, receipt);
                1
            }
            Ask::AddOnce { key, id, delta } => {
                process.add_once(key.as_bytes(), id.as_bytes(), *delta, receipt);
                1
            }
            Ask::Expire { key, at_ms } => {
                process.expire(key.as_bytes(), *at_ms, receipt);
                1
            }
        };
        self.referee.copies(receipt, copies);
        self.trace.note(format_args!("{} asks {collector}: {ask:?}", receipt.0));
        Some(receipt)
    }

    /// Something that a client may ask for.
    pub fn random_ask(&mut self, collector: usize) -> Ask {
        let random = &mut self.random;
        if random.chance(120) && !self.referee.events.is_empty() {
            // It was not answered in time, or a phone thinks so.
            let at = random.below(self.referee.events.len() as u64) as usize;
            let mut again = self.referee.events[at].clone();
            again.received_ms = self.collector_clock_ms(collector);
            if self.random.chance(100) {
                again.country = "XX".to_owned();
            }
            self.hit(Fault::ClientRetry);
            return Ask::Event(again);
        }
        let random = &mut self.random;
        let key = match random.below(4) {
            0 => "plays:v0".to_owned(),
            n => format!("hits{n}"),
        };
        let (number, delta) = (random.below(12), 1 + random.below(3) as i64);
        match random.below(20) {
            0..4 => Ask::Add { key, delta: if random.chance(200) { -delta } else { delta } },
            4..6 => Ask::AddOnce { key, id: format!("k{number}"), delta },
            6 => {
                let at_ms = (self.now_ms + 3_000).saturating_sub(self.random.below(4_000));
                Ask::Expire { key: format!("hits{}", 1 + self.random.below(3)), at_ms }
            }
            _ => Ask::Event(self.random_event(collector)),
        }
    }

    fn random_event(&mut self, collector: usize) -> Happening {
        let received_ms = self.collector_clock_ms(collector);
        let random = &mut self.random;
        let kind = *random.pick(&["play", "view", "view", "view", "like", "like", "unlike", "sale", "sale", "mixed"]);
        let behind_ms = match random.below(10) {
            0 => 1_000 + random.below(5_000),
            1 => 60_000 + random.below(60_000),
            _ => random.below(900),
        };
        Happening {
            kind,
            id: (!random.chance(50)).then(|| format!("e{}", random.below(40))),
            session: format!("s{}", random.below(4)),
            seq: random.below(12),
            user: format!("u{}", random.below(3)),
            video: (!random.chance(30)).then(|| format!("v{}", random.below(3))),
            country: random.pick(&["DE", "FR"]).to_string(),
            occurred_ms: received_ms - behind_ms,
            received_ms,
            delta: if matches!(kind, "play" | "view") { 1 + random.below(3) as i64 } else { 1 },
        }
    }
}
