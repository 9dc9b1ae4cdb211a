//! The corrections that one lane makes: proposed, looked at, applied, and some of them reverted. Deltas add up in whatever order they
//! come, so the model need not know it.
//!
//! Each step is sent under an id of its own; one without an answer is sent again in the server's next life, and is done once.

use super::super::request::{patiently, went_away};
use super::counters::{Counter, VIDEOS};
use super::event::{FIRST_MS, SLOT_MS, SLOTS};
use crate::client::HttpClient;
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Where a correction belongs: in the slot that it names, or in the moment at which it was made.
pub type When = Option<usize>;

#[derive(Clone, Copy, Debug)]
struct Delta {
    counter: Counter,
    video: usize,
    when: When,
    delta: i64,
}

#[derive(Clone, Debug)]
enum Step {
    Propose,
    Apply(u64),
    Revert(u64),
}

pub struct Corrector {
    lane: u64,
    random: Random,
    steps: u64,
    deltas: Vec<Delta>,
    next: Step,
    /// The next step was sent before, and nobody knows what became of it.
    under_way: bool,
    /// What was corrected of each key and, under no video, of each counter as a whole.
    corrected: BTreeMap<(Counter, Option<usize>), BTreeMap<When, i64>>,
    pub applied: u64,
    pub reverted: u64,
}

impl Corrector {
    pub fn new(lane: u64, seed: u64) -> Corrector {
        Corrector {
            lane,
            random: Random::new(seed),
            steps: 0,
            deltas: Vec::new(),
            next: Step::Propose,
            under_way: false,
            corrected: BTreeMap::new(),
            applied: 0,
            reverted: 0,
        }
    }

    /// What was corrected, and where.
    pub fn corrected(&self, counter: Counter, video: Option<usize>) -> impl Iterator<Item = (When, i64)> {
        self.corrected.get(&(counter, video)).into_iter().flatten().map(|(when, sum)| (*when, *sum))
    }

    /// What was corrected of a key is void.
    pub fn clear(&mut self, counter: Counter, video: usize) {
        self.corrected.remove(&(counter, Some(video)));
    }

    /// Something else was corrected, at its moment.
    pub fn add(&mut self, counter: Counter, video: Option<usize>, when: When, delta: i64) {
        *self.corrected.entry((counter, video)).or_default().entry(when).or_default() += delta;
    }

    /// Takes one more step; `false` if the server went away.
    pub fn step(&mut self, client: &mut HttpClient) -> Result<bool> {
        if !self.under_way {
            self.steps += 1;
            if let Step::Propose = self.next {
                self.make_up();
            }
        }
        let (path, body) = self.request();
        let key = format!("c{}-{}", self.lane, self.steps);
        let answer = patiently(|| client.once("POST", &path, &key, &body));
        self.under_way = went_away(&answer);
        match answer {
            Ok((200 | 201, text)) => self.done(client, &text).with_context(|| format!("{path} was answered {text}"))?,
            _ if self.under_way => {}
            Ok((status, text)) => bail!("POST {path} was answered {status}: {text}"),
            Err(error) => bail!("POST {path} was not answered: {error}"),
        }
        Ok(!self.under_way)
    }

    /// Sends the step that was under way once more.
    pub fn finish(&mut self, client: &mut HttpClient) -> Result<()> {
        ensure!(!self.under_way || self.step(client)?, "the server went away");
        Ok(())
    }

    fn make_up(&mut self) {
        let deltas = 1 + self.random.below(3);
        self.deltas = (0..deltas).map(|_| self.make_up_delta()).collect();
    }

    fn make_up_delta(&mut self) -> Delta {
        let when = self.random.below(SLOTS as u64) as usize;
        Delta {
            counter: Counter::ALL[self.random.below(Counter::ALL.len() as u64) as usize],
            video: self.random.below(VIDEOS as u64) as usize,
            when: (!self.random.one_in(2)).then_some(when),
            delta: 1 + self.random.below(20) as i64 - if self.random.one_in(2) { 21 } else { 0 },
        }
    }

    fn request(&self) -> (String, String) {
        match self.next {
            Step::Propose => {
                let deltas: Vec<Value> = self.deltas.iter().map(Delta::json).collect();
                let body = json!({"reason": "a test", "author": "a lane", "deltas": deltas});
                ("/v1/corrections".to_owned(), body.to_string())
            }
            Step::Apply(number) => (format!("/v1/corrections/{number}/apply"), String::new()),
            Step::Revert(number) => (format!("/v1/corrections/{number}/revert"), String::new()),
        }
    }

    fn done(&mut self, client: &mut HttpClient, text: &str) -> Result<()> {
        let answer: Value = serde_json::from_str(text)?;
        let number = answer["number"].as_u64().context("a correction has a number")?;
        self.next = match self.next {
            Step::Propose => {
                self.look(client, number)?;
                Step::Apply(number)
            }
            Step::Apply(number) => {
                self.add_all(1);
                self.applied += 1;
                if self.random.one_in(3) { Step::Revert(number) } else { Step::Propose }
            }
            Step::Revert(_) => {
                self.add_all(-1);
                self.reverted += 1;
                Step::Propose
            }
        };
        Ok(())
    }

    /// A preview says what the deltas say. The server may go away meanwhile, which the next step will notice.
    fn look(&mut self, client: &mut HttpClient, number: u64) -> Result<()> {
        let Ok(text) = client.get(&format!("/v1/corrections/{number}/preview")) else { return Ok(()) };
        let preview: Value = serde_json::from_str(&text)?;
        let told = preview["counters"].as_array().context("a preview has counters")?;
        let told: i64 = told.iter().filter_map(|counter| counter["delta"].as_i64()).sum();
        let proposed: i64 = self.deltas.iter().map(|delta| delta.delta).sum();
        ensure!(told == proposed, "{:?} was proposed, and the preview is {text}", self.deltas);
        Ok(())
    }

    fn add_all(&mut self, sign: i64) {
        for Delta { counter, video, when, delta } in self.deltas.clone() {
            self.add(counter, Some(video), when, sign * delta);
            self.add(counter, None, when, sign * delta);
        }
    }
}

impl Delta {
    fn json(&self) -> Value {
        let Delta { counter, video, when, delta } = self;
        let mut json = json!({"id": counter.id(Some(*video)), "delta": delta});
        if let Some(slot) = when {
            // Any moment of it will do.
            let moment_ms = FIRST_MS + *slot as i64 * SLOT_MS + SLOT_MS / 2;
            let moment = jiff::Timestamp::from_millisecond(moment_ms).expect("a time of this century is one");
            json["bucket"] = moment.to_string().into();
        }
        json
    }
}
