//! The last life: nothing fails any more, everything is let count, and everything is held against the oracle.

use super::NodeWorld;
use super::life::{TURNS_MAX, pass, turns};
use super::store::Mood;
use crate::oracle::Boxes;
use std::collections::BTreeMap;
use tally_core::ledger::BoxKind;
use tally_core::op::{Answer, Submission};
use tally_node::clock::{Clock, Hands};
use tally_node::engine::Engine;
use tally_node::worker::Spawner;

/// Log time that passes at the end, in steps: longer than the longest that something waits for.
const STEP_MS: u64 = 20_000;
const STEPS: u64 = 8;

impl NodeWorld {
    /// Nothing fails any more.
    pub fn last_life(&mut self) {
        self.store.set(Mood::Well);
        let (clock, hands) = Clock::simulated(self.wall_ms);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let thread = match self.open(clock, u64::MAX) {
                Ok(thread) => thread,
                Err(error) => return self.fail(format!("it does not start, and nothing fails: {error}")),
            };
            let engine = thread.engine();
            Spawner::task(thread.run(async |_| ()));
            self.find_out(&engine).await;
            self.let_count(&engine, &hands).await;
            self.check_markers(&engine).await;
            self.check_values(&engine).await;
            self.check_boxes(&engine).await;
            self.touch_ended(&engine, &hands).await;
            self.check_followed(&engine).await;
        });
    }

    /// Everything that waits is due, and everything that ends has ended.
    async fn let_count(&mut self, engine: &Engine, hands: &Hands) {
        for _ in 0..STEPS {
            pass(hands, STEP_MS).await;
        }
        self.judge.run(self.sent, u64::MAX, 1);
        self.take_changes();
        let now_ms = engine.clock().now_ms();
        self.worth.pass_time(self.sent, now_ms, now_ms);
    }

    async fn check_markers(&mut self, engine: &Engine) {
        for marker in self.acknowledged.clone() {
            let cell = engine.hasher().key(marker.as_bytes());
            let place = engine.get(cell).await.ok().flatten().map(|reading| reading.value);
            if place.is_none() || place != self.found.get(&marker).copied() {
                self.fail(format!("{marker} was acknowledged, and is {place:?}"));
            }
        }
    }

    async fn check_values(&mut self, engine: &Engine) {
        let right: Vec<(String, Option<i64>)> =
            self.worth.now().map(|(key, value, _)| (key.to_owned(), value)).collect();
        for (key, value) in right {
            let told = engine.get(engine.hasher().key(key.as_bytes())).await.ok().flatten();
            let told = told.map(|reading| reading.value);
            if told != value {
                self.fail(format!("{key} is {told:?}, and {value:?} is right"));
            }
        }
    }

    /// A counter that has left memory is let go when somebody touches it: that it has ended is told then.
    async fn touch_ended(&mut self, engine: &Engine, hands: &Hands) {
        let ended: Vec<String> =
            self.worth.now().filter(|(_, value, _)| value.is_none()).map(|(key, ..)| key.to_owned()).collect();
        for key in ended {
            let mut touch = Submission::default();
            touch.delete(engine.hasher().key(key.as_bytes()), key.as_bytes());
            let answers = turns(engine.submit(touch), TURNS_MAX).await.and_then(Result::ok).map(|told| told.answers);
            if answers.as_deref() != Some(&[Answer::Absent]) {
                self.fail(format!("{key} has ended, and to delete it is answered {answers:?}"));
            }
        }
        pass(hands, STEP_MS).await;
    }

    async fn check_boxes(&mut self, engine: &Engine) {
        let (told, _) = engine.balances().await.expect("it runs");
        let told: BTreeMap<String, Boxes> = told
            .iter()
            .filter(|balance| balance.received > 0)
            .map(|balance| {
                let of = |kind| balance.boxes.get(kind);
                let boxes = Boxes {
                    received: balance.received as i64,
                    counted: of(BoxKind::Counted),
                    duplicate: of(BoxKind::Duplicate),
                    conflict: of(BoxKind::Conflict),
                    rejected: of(BoxKind::Rejected),
                    ignored: of(BoxKind::Ignored),
                    late: of(BoxKind::Late),
                };
                (balance.name.to_string(), boxes)
            })
            .collect();
        let right: BTreeMap<String, Boxes> =
            self.judge.boxes.iter().map(|(name, boxes)| ((*name).to_owned(), *boxes)).collect();
        if told != right {
            self.fail(format!("boxes are {told:?}, and {right:?} is right"));
        }
        if let Some((name, _)) = told.iter().find(|(_, boxes)| !boxes.adds_up()) {
            self.fail(format!("boxes of {name} do not add up"));
        }
    }
}
