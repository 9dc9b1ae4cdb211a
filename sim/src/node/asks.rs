//! What is asked of a node, several things at once, and what the oracle makes of it.

use super::life::{TURNS_MAX, pass, turns};
use super::{NodeWorld, ORDER};
use crate::oracle::worth::Expected;
use crate::oracle::{Ask, Boxes};
use crate::requests::{Crowd, event_of, is_right};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use tally_core::counter::{Stager, Target};
use tally_core::fact::answer_key;
use tally_core::op::{Answer, Submission};
use tally_core::record::{CopyManner, ExpireCondition};
use tally_node::clock::Hands;
use tally_node::engine::{Committed, Engine, Refusal};
use tally_storage::log::local::LocalLog;
use tally_storage::log::{Log, LogError, LogHandle, LogReader};
use tally_wal::testing::FaultDisk;

const CROWD: Crowd = Crowd { events: 30, sessions: 3, seqs: 8 };

/// A request that nobody has heard an answer to.
pub struct Unknown {
    pub marker: String,
    pub ask: Ask,
    /// When it was sent; when it was appended, once the log has told.
    pub log_time_ms: u64,
}

impl Unknown {
    /// Nobody has heard when it was appended, and time may have passed, or leapt, since it was sent: only the log knows.
    pub fn look_up_time(&mut self, log: &LocalLog<FaultDisk>) -> Result<(), LogError> {
        let handle = log.handle();
        let mut batches = handle.reader(handle.start())?;
        while let Some(batch) = batches.next()? {
            if holds(batch.records, self.marker.as_bytes()) {
                self.log_time_ms = batch.log_time_ms;
            }
        }
        Ok(())
    }
}

/// Whether a marker is named, and not only the beginning of another one.
fn holds(records: &[u8], marker: &[u8]) -> bool {
    let named = |bytes: &[u8]| bytes.starts_with(marker) && !bytes.get(marker.len()).is_some_and(u8::is_ascii_digit);
    (0..records.len()).any(|at| named(&records[at..]))
}

/// A request that is under way.
struct UnderWay {
    unknown: Unknown,
    request: Pin<Box<dyn Future<Output = Result<Committed, Refusal>>>>,
    answer: Option<Result<Committed, Refusal>>,
}

fn target<'a>(engine: &Engine, key: &'a str) -> Target<'a> {
    engine.declarations().resolve(&engine.hasher(), key.as_bytes()).expect("what is asked for has a name")
}

/// A marker that says which place in the log it has, and what is asked: one submission, which is there as a whole or not at all.
fn submission(engine: &Engine, marker: &str, ask: &Ask) -> Submission {
    let mut out = Submission::default();
    let key = |key: &'static str| (engine.hasher().key(key.as_bytes()), key.as_bytes());
    out.add_to(&target(engine, ORDER), 1);
    out.copy(key(ORDER), (engine.hasher().key(marker.as_bytes()), marker.as_bytes()), CopyManner::IfAbsent);
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

/// Polls everything that has no answer yet, until nothing is without.
async fn all_answered(under_way: &mut [UnderWay]) {
    poll_fn(|context| {
        for one in under_way.iter_mut().filter(|one| one.answer.is_none()) {
            if let Poll::Ready(answer) = one.request.as_mut().poll(context) {
                one.answer = Some(answer);
            }
        }
        if under_way.iter().all(|one| one.answer.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl NodeWorld {
    /// Asks for something. Answers whether the engine goes on.
    pub async fn ask(&mut self, engine: &Engine, hands: &Hands) -> bool {
        self.ask_at_once(engine, hands, 1).await
    }

    /// Asks for several things without waiting in between.
    pub async fn ask_at_once(&mut self, engine: &Engine, hands: &Hands, count: u64) -> bool {
        let under_way = (0..count).map(|_| self.send(engine)).collect();
        self.wait_for(under_way, hands).await
    }

    /// Asks for this. Answers whether the engine goes on.
    pub async fn ask_for(&mut self, ask: Ask, engine: &Engine, hands: &Hands) -> bool {
        let under_way = vec![self.send_this(ask, engine)];
        self.wait_for(under_way, hands).await
    }

    async fn wait_for(&mut self, mut under_way: Vec<UnderWay>, hands: &Hands) -> bool {
        let _ = turns(all_answered(&mut under_way), TURNS_MAX).await;
        for _ in 0..4 {
            if under_way.iter().any(|one| one.answer.is_none()) {
                // It waits for room, or for a cut: time has to pass.
                pass(hands, 1_000).await;
                let _ = turns(all_answered(&mut under_way), TURNS_MAX).await;
            }
        }
        self.hear(under_way)
    }

    /// Asks for several things, and hears only of what is answered within some turns.
    pub async fn ask_in_haste(&mut self, engine: &Engine, count: u64) {
        let mut under_way: Vec<UnderWay> = (0..count).map(|_| self.send(engine)).collect();
        let patience = self.random.below(30) as usize;
        let _ = turns(all_answered(&mut under_way), patience).await;
        self.hear(under_way);
    }

    fn send(&mut self, engine: &Engine) -> UnderWay {
        let now_ms = engine.clock().now_ms();
        let ask = match CROWD.ask(&mut self.random, now_ms, now_ms) {
            Ask::Expire { key, .. } if !self.circumstances.ending => Ask::Add { key, delta: 1 },
            ask => ask,
        };
        self.send_this(ask, engine)
    }

    fn send_this(&mut self, ask: Ask, engine: &Engine) -> UnderWay {
        let now_ms = engine.clock().now_ms();
        self.sent += 1;
        let unknown = Unknown { marker: format!("marker{}", self.sent), ask, log_time_ms: now_ms };
        self.trace.note(format_args!("{} at {now_ms}: {:?}", unknown.marker, unknown.ask));
        let (engine, submission) = (engine.clone(), submission(engine, &unknown.marker, &unknown.ask));
        let request = Box::pin(async move { engine.submit(submission).await });
        UnderWay { unknown, request, answer: None }
    }

    /// Takes the answers in the order of their places in the log. Answers whether the engine goes on.
    fn hear(&mut self, under_way: Vec<UnderWay>) -> bool {
        let (mut answered, mut goes_on) = (Vec::new(), true);
        for UnderWay { unknown, answer, .. } in under_way {
            match answer {
                Some(Ok(committed)) => answered.push((unknown, committed)),
                Some(Err(Refusal::DiskFull(_) | Refusal::Busy { .. } | Refusal::TooLarge(_) | Refusal::NotAll(_))) => {}
                other => {
                    let why = other.and_then(Result::err).map_or("nothing".to_owned(), |refusal| refusal.to_string());
                    self.trace.note(format_args!("{} was answered {why}", unknown.marker));
                    self.unknown.push(unknown);
                    goes_on = false;
                }
            }
        }
        answered.sort_by_key(|(_, committed)| place(committed));
        for (unknown, committed) in answered {
            self.answered(&unknown, &committed);
        }
        goes_on
    }

    /// A request was answered: it is there, and the answer is right.
    fn answered(&mut self, unknown: &Unknown, committed: &Committed) {
        if committed.log_time_ms < self.judge.log_time_ms {
            self.fail(format!("log time goes back to {}", committed.log_time_ms));
        }
        self.acknowledged.push(unknown.marker.clone());
        let before = self.judge.exceptions;
        let expected = self.stands(&unknown.marker, place(committed), &unknown.ask, committed.log_time_ms);
        // What is late counts in the end as well: only the answer says what was decided.
        let (told, right) = (exceptions(&committed.answers), self.judge.exceptions.since(&before));
        if told != right {
            self.fail(format!("{:?} was answered {:?}, and {right:?} is right", unknown.ask, committed.answers));
        }
        let answer = committed.answers.last().copied();
        let is_wrong = expected.is_some_and(|expected| !answer.is_some_and(|answer| is_right(expected, answer)));
        if is_wrong || committed.answers.get(2) != Some(&Answer::Yes) {
            self.fail(format!("{:?} was answered {:?}, and {expected:?} is right", unknown.ask, committed.answers));
        }
    }

    /// A request stands in the log, behind all that the oracle knows. Answers what it must be answered, if it is an operation.
    pub(super) fn stands(&mut self, marker: &str, place: i64, ask: &Ask, log_time_ms: u64) -> Option<Expected> {
        if place != self.found.len() as i64 + 1 {
            self.fail(format!("{marker} is the {place}th, and {} stand before it", self.found.len()));
        }
        self.found.insert(marker.to_owned(), place);
        self.apply(ask, log_time_ms)
    }

    fn apply(&mut self, ask: &Ask, log_time_ms: u64) -> Option<Expected> {
        let n = self.sent;
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
            Ask::AddOnce { key, id, delta } => {
                let expected = self.worth.add_once(n, key, id, *delta);
                if let Some(counter) = self.spec.counter_of(key) {
                    self.judge.once(counter, expected);
                }
                Some(expected)
            }
            Ask::Expire { key, at_ms } => Some(self.worth.expire(n, key, *at_ms)),
        }
    }

    pub(super) fn take_changes(&mut self) {
        for (_, change) in std::mem::take(&mut self.judge.changes) {
            self.worth.change(self.sent, &change.key, change.delta, change.generation);
        }
    }
}

/// The entries of a request that were not simply counted, as it was answered.
fn exceptions(answers: &[Answer]) -> Boxes {
    let mut boxes = Boxes::default();
    for answer in answers {
        match answer {
            Answer::Duplicate => boxes.duplicate += 1,
            Answer::Conflict => boxes.conflict += 1,
            Answer::Rejected => boxes.rejected += 1,
            Answer::Ignored => boxes.ignored += 1,
            Answer::Late => boxes.late += 1,
            _ => {}
        }
    }
    boxes
}

/// Which one in the log a request is, from 1.
fn place(committed: &Committed) -> i64 {
    match committed.answers.first() {
        Some(Answer::Value(place)) => *place,
        _ => 0,
    }
}
