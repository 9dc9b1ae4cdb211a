//! What is asked of a node, and what the oracle makes of it.

use super::{NodeWorld, Unknown};
use crate::cluster::event_of;
use crate::oracle::worth::Expected;
use crate::oracle::{Ask, Happening};
use tally_core::counter::{Stager, Target};
use tally_core::fact::answer_key;
use tally_core::op::{Answer, Submission};
use tally_core::record::ExpireCondition;
use tally_node::engine::{Committed, Engine};

fn target<'a>(engine: &Engine, key: &'a str) -> Target<'a> {
    engine.declarations().resolve(&engine.hasher(), key.as_bytes()).expect("what is asked for has a name")
}

/// A marker, and what is asked: one submission, which is there as a whole or not at all.
pub fn submission(engine: &Engine, marker: u64, ask: &Ask) -> Submission {
    let mut out = Submission::default();
    let name = marker_name(marker);
    out.add_to(&target(engine, &name), 1);
    match ask {
        Ask::Event(happening) => {
            let event = event_of(happening);
            let at = out.event(&event);
            Stager::new(engine.declarations(), engine.hasher()).stage(&event, at, &mut out, &mut |_, _| {});
        }
        Ask::Add { key, delta } => out.add_to(&target(engine, key), *delta),
        Ask::AddOnce { key, id, delta } => {
            let stamp = answer_key(&engine.hasher(), key.as_bytes(), id.as_bytes());
            out.add_once(&target(engine, key), *delta, stamp, id.as_bytes());
        }
        Ask::Expire { key, at_ms } => {
            out.expire(engine.hasher().key(key.as_bytes()), key.as_bytes(), *at_ms, ExpireCondition::Always);
        }
    }
    out
}

pub fn marker_name(marker: u64) -> String {
    format!("marker{marker}")
}

impl NodeWorld {
    pub(super) fn random_ask(&mut self, now_ms: u64) -> Ask {
        let random = &mut self.random;
        let key = format!("hits{}", random.below(3));
        let (number, delta) = (random.below(12), 1 + random.below(3) as i64);
        match random.below(20) {
            0..3 => Ask::Add { key, delta: if random.chance(200) { -delta } else { delta } },
            3 => Ask::Add { key: "plays:v0".to_owned(), delta },
            4..6 => Ask::AddOnce { key, id: format!("k{number}"), delta },
            6 => Ask::Expire { key, at_ms: (now_ms + 3_000).saturating_sub(random.below(4_000)) },
            _ => Ask::Event(self.random_event(now_ms)),
        }
    }

    fn random_event(&mut self, received_ms: u64) -> Happening {
        let random = &mut self.random;
        let kind = *random.pick(&["play", "view", "view", "view", "like", "like", "unlike", "sale", "sale", "mixed"]);
        let behind_ms = match random.below(10) {
            0 => 1_000 + random.below(5_000),
            1 => 60_000 + random.below(60_000),
            _ => random.below(900),
        };
        Happening {
            kind,
            id: (!random.chance(50)).then(|| format!("e{}", random.below(30))),
            session: format!("s{}", random.below(3)),
            seq: random.below(8),
            user: format!("u{}", random.below(3)),
            video: (!random.chance(30)).then(|| format!("v{}", random.below(3))),
            country: random.pick(&["DE", "FR"]).to_string(),
            occurred_ms: received_ms - behind_ms,
            received_ms,
            delta: if matches!(kind, "play" | "view") { 1 + random.below(3) as i64 } else { 1 },
        }
    }

    /// The oracle learns what a request that is in the log came to. Answers what it must be answered, if it is an operation.
    pub(super) fn apply(&mut self, ask: &Ask, log_time_ms: u64) -> Option<Expected> {
        let n = self.markers;
        self.judge.pass_time(log_time_ms, log_time_ms);
        let now_ms = self.judge.log_time_ms;
        self.worth.pass_time(n, now_ms, now_ms);
        match ask {
            Ask::Event(event) => {
                for group in self.spec.groups(event.kind) {
                    self.judge.event(&self.spec, &group, n, event);
                }
                self.take_changes();
                None
            }
            Ask::Add { key, delta } => Some(self.worth.add(n, key, *delta)),
            Ask::AddOnce { key, id, delta } => Some(self.worth.add_once(n, key, id, *delta)),
            Ask::Expire { key, at_ms } => Some(self.worth.expire(n, key, *at_ms)),
        }
    }

    pub(super) fn take_changes(&mut self) {
        for (_, change) in std::mem::take(&mut self.judge.changes) {
            self.worth.change(self.markers, &change.key, change.delta, change.generation);
        }
    }

    /// A request was answered: it is there, and the answer is right.
    pub(super) fn answered(&mut self, unknown: &Unknown, committed: &Committed) {
        if committed.log_time_ms < self.judge.log_time_ms {
            self.fail(format!("log time goes back to {}", committed.log_time_ms));
        }
        self.acknowledged.push(unknown.marker);
        let expected = self.apply(&unknown.ask, committed.log_time_ms);
        let answer = committed.answers.last().copied();
        let is_right = match (expected, answer) {
            (None, _) => true,
            (Some(Expected::Value(value)), Some(Answer::Value(told))) => told == value,
            (Some(Expected::Repeated(value)), Some(Answer::Repeated(told))) => told == value,
            (Some(Expected::OtherDelta(delta)), Some(Answer::OtherDelta(told))) => told == delta,
            (Some(Expected::Done(true)), Some(Answer::Yes)) | (Some(Expected::Done(false)), Some(Answer::No)) => true,
            _ => false,
        };
        if !is_right || committed.answers[0] != Answer::Value(1) {
            self.fail(format!("{:?} was answered {:?}, and {expected:?} is right", unknown.ask, committed.answers));
        }
    }
}
