//! Who sent which batches: a batch that stands in the log twice counts once.
//!
//! Whoever appends to a log over a network may not learn whether a batch arrived, and sends it again, perhaps from a spool, hours
//! later and after a restart. So every batch says whose it is ([`Head`]): a sender, one of its lives, and a number there. What
//! stood before is *void*: none of its entries is decided, and it is in no box. What a sender says to be settled is never
//! sent again, and need not be remembered one by one.
//!
//! A life that has ended may still have batches in a spool, so each life is judged by its own numbers, whichever came last.
//! Only lives that are forgotten cannot be judged: their batches are void, which is told ([`Void::is_alarm`]).

use crate::head::Head;
use crate::limits::{INCARNATIONS_MAX, SENDER_KEPT_MS, SENDERS_MAX, UNSETTLED_MAX};
use crate::record::{DecodeError, put_varint, take_varint};
use std::collections::VecDeque;

/// Why a batch is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Void {
    /// It stood before.
    Repeated = 1,
    /// Another batch stood before under its number: two senders take themselves for the same.
    OtherBytes = 2,
    /// It is of a life of its sender that is forgotten, so nobody knows whether it stood before.
    Forgotten = 3,
}

impl Void {
    pub const ALL: [Void; 3] = [Void::Repeated, Void::OtherBytes, Void::Forgotten];

    /// Whether something may not have counted, so that somebody should look.
    pub fn is_alarm(self) -> bool {
        self != Void::Repeated
    }

    pub fn name(self) -> &'static str {
        match self {
            Void::Repeated => "repeated",
            Void::OtherBytes => "otherBytes",
            Void::Forgotten => "forgotten",
        }
    }
}

/// A sender does what it must not, so that its batches cannot be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overrun {
    #[error("sender {sender} has more than {UNSETTLED_MAX} batches that it may send again")]
    Unsettled { sender: u64 },
    #[error("sender {sender} is one more than {SENDERS_MAX}, of which none was silent for long")]
    Senders { sender: u64 },
}

/// Ascending by their ids: nearly always there are few, and one that was here before is found in some steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Senders(Vec<Sender>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Sender {
    id: u64,
    /// When a batch of it came last, by the log's time.
    heard_ms: u64,
    /// Lives before this one are forgotten.
    known_from: u64,
    /// Ascending.
    lives: VecDeque<Life>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    incarnation: u64,
    /// No batch before this one comes again and counts.
    settled: u64,
    /// Which of the others stood, ascending, and the digests of their bytes.
    stood: VecDeque<(u64, u64)>,
}

impl Life {
    /// Where a batch is, or would have to be.
    fn find(&self, seq: u64) -> Result<usize, usize> {
        self.stood.binary_search_by_key(&seq, |(seq, _)| *seq)
    }

    fn judge(&self, head: &Head, digest: impl FnOnce() -> u64) -> Option<Void> {
        if head.seq < self.settled {
            return Some(Void::Repeated);
        }
        let stood = self.find(head.seq).ok()?;
        let same = self.stood[stood].1 == digest();
        Some(if same { Void::Repeated } else { Void::OtherBytes })
    }

    #[inline]
    fn note(&mut self, head: &Head, digest: impl FnOnce() -> u64) {
        if head.seq >= head.settled
            && let Err(at) = self.find(head.seq)
        {
            self.stood.insert(at, (head.seq, digest()));
        }
        self.settled = self.settled.max(head.settled);
        while self.stood.front().is_some_and(|(seq, _)| *seq < self.settled) {
            self.stood.pop_front();
        }
    }
}

impl Sender {
    fn life(&self, incarnation: u64) -> Result<usize, usize> {
        match self.lives.back() {
            Some(last) if last.incarnation == incarnation => Ok(self.lives.len() - 1),
            _ => self.lives.binary_search_by_key(&incarnation, |life| life.incarnation),
        }
    }

    /// Remembers a life; the first of too many is forgotten. Answers where it stands, unless it is that one.
    #[cold]
    fn begin_life(&mut self, incarnation: u64) -> Option<usize> {
        let at = self.life(incarnation).err()?;
        self.lives.insert(at, Life { incarnation, settled: 0, stood: VecDeque::new() });
        if self.lives.len() <= INCARNATIONS_MAX {
            return Some(at);
        }
        let first = self.lives.pop_front()?;
        self.known_from = first.incarnation + 1;
        at.checked_sub(1)
    }
}

impl Senders {
    fn find(&self, id: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |sender| sender.id)
    }

    /// Whether a batch can be told from others. One that cannot must not be admitted.
    pub fn check(&self, head: &Head, log_time_ms: u64) -> Result<(), Overrun> {
        let Ok(at) = self.find(head.sender) else { return self.check_room(head.sender, log_time_ms) };
        let Ok(life) = self.0[at].life(head.incarnation).map(|life| &self.0[at].lives[life]) else { return Ok(()) };
        let is_full = life.stood.len() >= UNSETTLED_MAX && head.settled <= life.stood[0].0;
        match is_full && life.find(head.seq).is_err() {
            true => Err(Overrun::Unsettled { sender: head.sender }),
            false => Ok(()),
        }
    }

    fn check_room(&self, sender: u64, log_time_ms: u64) -> Result<(), Overrun> {
        let silent = |sender: &Sender| log_time_ms.saturating_sub(sender.heard_ms) >= SENDER_KEPT_MS;
        match self.0.len() < SENDERS_MAX || self.0.iter().any(silent) {
            true => Ok(()),
            false => Err(Overrun::Senders { sender }),
        }
    }

    /// A batch comes. Answers why it is void, if it is; then it changes nothing here. `digest` is that of its bytes, asked for
    /// only if the batch may be sent again.
    #[inline]
    pub fn admit(&mut self, head: &Head, log_time_ms: u64, digest: impl Fn() -> u64) -> Option<Void> {
        let at = self.find(head.sender).unwrap_or_else(|at| self.begin_sender(at, head.sender, log_time_ms));
        let sender = &mut self.0[at];
        sender.heard_ms = log_time_ms;
        if head.incarnation < sender.known_from {
            return Some(Void::Forgotten);
        }
        let life = sender.life(head.incarnation).ok();
        let Some(life) = life.or_else(|| sender.begin_life(head.incarnation)) else { return Some(Void::Forgotten) };
        let life = &mut sender.lives[life];
        let void = life.judge(head, &digest);
        if void.is_none() {
            life.note(head, digest);
        }
        void
    }

    /// Answers where it stands.
    #[cold]
    fn begin_sender(&mut self, at: usize, id: u64, log_time_ms: u64) -> usize {
        self.0.insert(at, Sender { id, heard_ms: log_time_ms, known_from: 0, lives: VecDeque::new() });
        if self.0.len() <= SENDERS_MAX {
            return at;
        }
        let (silent, _) =
            self.0.iter().enumerate().min_by_key(|(_, sender)| sender.heard_ms).expect("there are too many");
        assert_ne!(silent, at, "a sender that is silent was looked for before");
        self.0.remove(silent);
        at - usize::from(silent < at)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for sender in &self.0 {
            for number in [sender.id, sender.heard_ms, sender.known_from, sender.lives.len() as u64] {
                put_varint(out, number);
            }
            for life in &sender.lives {
                for number in [life.incarnation, life.settled, life.stood.len() as u64] {
                    put_varint(out, number);
                }
                for (seq, digest) in &life.stood {
                    put_varint(out, seq - life.settled);
                    out.extend_from_slice(&digest.to_le_bytes());
                }
            }
        }
    }

    pub fn take(bytes: &mut &[u8]) -> Result<Senders, DecodeError> {
        let count = take_varint(bytes)?;
        (0..count).map(|_| take_sender(bytes)).collect::<Result<_, _>>().map(Senders)
    }
}

fn take_sender(bytes: &mut &[u8]) -> Result<Sender, DecodeError> {
    let (id, heard_ms, known_from) = (take_varint(bytes)?, take_varint(bytes)?, take_varint(bytes)?);
    let count = take_varint(bytes)?;
    let lives = (0..count).map(|_| take_life(bytes)).collect::<Result<_, _>>()?;
    Ok(Sender { id, heard_ms, known_from, lives })
}

fn take_life(bytes: &mut &[u8]) -> Result<Life, DecodeError> {
    let (incarnation, settled, count) = (take_varint(bytes)?, take_varint(bytes)?, take_varint(bytes)?);
    let stood = (0..count).map(|_| take_stood(bytes, settled)).collect::<Result<_, _>>()?;
    Ok(Life { incarnation, settled, stood })
}

fn take_stood(bytes: &mut &[u8], settled: u64) -> Result<(u64, u64), DecodeError> {
    let distance = take_varint(bytes)?;
    let seq = settled.checked_add(distance);
    let seq = seq.ok_or(DecodeError::BadValue { field: "number of a batch that stood", value: distance })?;
    let (digest, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok((seq, u64::from_le_bytes(*digest)))
}

#[cfg(test)]
mod tests;
