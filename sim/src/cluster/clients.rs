//! Clients, and what they ask for.

use super::World;
use crate::fault::Fault;
use crate::oracle::Ask;
use crate::requests::{Crowd, event_of};
use tally_cluster::collect::Receipt;

const CROWD: Crowd = Crowd { events: 40, sessions: 4, seqs: 12 };

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
        let received_ms = self.collector_clock_ms(collector);
        CROWD.ask(&mut self.random, self.now_ms, received_ms)
    }
}
