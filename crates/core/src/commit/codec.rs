//! The bytes of a commit (`docs/formats/commits.md`), and its digest.
//!
//! ```text
//!  version, head (behind its length), digest, deltas (behind their length and a checksum) if there are any
//! ```
//!
//! The digest is over the digest of the commit before and the head: whether somebody listened changes nothing about it.

use super::audit::Audit;
use super::delta::CounterDelta;
use super::exception::{Exception, Subject};
use super::slot::Slot;
use crate::fates::Void;
use crate::head::RULES_WITH_AUDIT;
use crate::ledger::{BoxKind, Correction, Row};
use crate::limits::DELTAS_TOLD_MAX;
use crate::position::Position;
use crate::record::{DecodeError, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_varint};
use hashbrown::HashSet;
use std::sync::Arc;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const VERSION: u8 = 3;
/// Of batches that are judged by rules of version 1. Whoever makes such a commit again makes the same bytes, so this one has no
/// audit; nor has the one before.
const VERSION_WITHOUT_AUDIT: u8 = 2;
/// Of batches without heads: no version of the rules, and no void batches.
const VERSION_WITHOUT_HEADS: u8 = 1;

/// What a commit and all before it came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub u128);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub from: Position,
    pub to: Position,
    pub log_time_ms: u64,
    pub generation: u64,
    pub exceptions: Vec<NamedException>,
    pub corrections: Vec<ToldCorrection>,
    /// The highest version of the rules that one of its batches is judged by; 0 if its batches have no heads.
    pub rules: u32,
    pub voids: Vec<VoidBatch>,
    /// Event ids that came again.
    pub audit: Audit,
    pub digest: Digest,
    /// `None` if nobody followed.
    pub deltas: Option<Deltas>,
}

impl Commit {
    /// Whether nothing counts of the batch whose first record this is.
    pub fn is_void(&self, batch_offset: u64) -> bool {
        self.voids.iter().any(|void| void.offset == batch_offset)
    }

    /// What is told of a record's entries, and the number of the first of these. They stand in the order of the log.
    pub fn exceptions_of(&self, offset: u64) -> (usize, &[NamedException]) {
        let from = self.exceptions.partition_point(|exception| exception.offset < offset);
        let behind = &self.exceptions[from..];
        let len = behind.iter().take_while(|exception| exception.offset == offset).count();
        (from, &behind[..len])
    }
}

/// An [`Exception`] that needs no declarations to be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedException {
    pub offset: u64,
    /// The name of a declared counter, or the id of another. There may be a hundred thousand of one counter in a commit.
    pub counter: Arc<[u8]>,
    pub fate: BoxKind,
}

/// Names that are there once, however often they are said.
#[derive(Default)]
struct Names(HashSet<Arc<[u8]>>);

impl Names {
    fn one(&mut self, name: &[u8]) -> Arc<[u8]> {
        match self.0.get(name) {
            Some(known) => known.clone(),
            None => {
                let new: Arc<[u8]> = name.into();
                self.0.insert(new.clone());
                new
            }
        }
    }
}

/// A correction that became visible, with the first of its deltas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldCorrection {
    pub delta_count: u64,
    pub correction: Correction,
}

impl ToldCorrection {
    pub fn new(mut correction: Correction) -> ToldCorrection {
        let delta_count = correction.deltas.len() as u64;
        correction.deltas.truncate(DELTAS_TOLD_MAX);
        ToldCorrection { delta_count, correction }
    }
}

/// A batch of which nothing counts, because it stood before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoidBatch {
    /// Of its first record.
    pub offset: u64,
    pub why: Void,
}

/// What happened to counters of database 0, in the order in which they changed first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deltas {
    /// Every counter was forgotten before.
    pub flushed: bool,
    /// Counters that changed and whose ids nobody knows: an entity left them whose row is of an older version.
    pub unnamed: u64,
    pub counters: CounterDeltas,
}

/// [`CounterDelta`]s as bytes: there may be many, and most are only handed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterDeltas {
    count: u64,
    bytes: Vec<u8>,
}

impl CounterDeltas {
    pub(super) fn with_capacity(bytes: usize) -> CounterDeltas {
        CounterDeltas { count: 0, bytes: Vec::with_capacity(bytes) }
    }

    pub fn push(&mut self, counter: &CounterDelta<'_>) {
        put_counter(&mut self.bytes, counter);
        self.count += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = CounterDelta<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || self.next(&mut at))
    }

    /// The delta that begins at `at`, at first 0; `at` moves behind it. `None` at the end.
    #[inline]
    pub fn next(&self, at: &mut usize) -> Option<CounterDelta<'_>> {
        let mut rest = self.bytes.get(*at..).filter(|rest| !rest.is_empty())?;
        let counter = take_counter(&mut rest).expect("they were pushed, or looked at when they were read");
        *at = self.bytes.len() - rest.len();
        Some(counter)
    }

    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Takes all the bytes there are, which must be so many.
    fn decode(bytes: &mut &[u8], count: u64) -> Result<CounterDeltas, DecodeError> {
        let counters = CounterDeltas { count, bytes: bytes.to_vec() };
        for _ in 0..count {
            take_counter(bytes)?;
        }
        if bytes.is_empty() { Ok(counters) } else { Err(DecodeError::Truncated) }
    }
}

impl<'a> FromIterator<CounterDelta<'a>> for CounterDeltas {
    fn from_iter<I: IntoIterator<Item = CounterDelta<'a>>>(counters: I) -> CounterDeltas {
        let mut deltas = CounterDeltas::default();
        counters.into_iter().for_each(|counter| deltas.push(&counter));
        deltas
    }
}

impl Commit {
    /// The commit of a slot that is over, behind the one with digest `before`.
    pub fn new(slot: Slot, before: Digest, deltas: Option<Deltas>) -> Commit {
        let (declarations, mut names) = (slot.declarations, Names::default());
        let named = |exception: Exception| NamedException {
            offset: exception.offset,
            counter: match &exception.counter {
                Subject::Declared(index) => names.one(declarations.counter(*index).name.as_bytes()),
                Subject::Id(id) => names.one(id),
            },
            fate: exception.fate,
        };
        let mut commit = Commit {
            from: slot.from,
            to: slot.to,
            log_time_ms: slot.log_time_ms,
            generation: slot.generation,
            exceptions: slot.exceptions.into_iter().map(named).collect(),
            corrections: slot.corrections,
            rules: slot.rules,
            voids: slot.voids,
            audit: slot.audit,
            digest: Digest::default(),
            deltas,
        };
        commit.digest = digest(before, &commit.head());
        commit
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.version()];
        put_bytes(&mut out, &self.head());
        out.extend_from_slice(&self.digest.0.to_be_bytes());
        if let Some(deltas) = &self.deltas {
            deltas.encode(&mut out);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Commit, DecodeError> {
        let bytes = &mut &bytes[..];
        let version = take_byte(bytes)?;
        if !(VERSION_WITHOUT_HEADS..=VERSION).contains(&version) {
            return Err(DecodeError::BadValue { field: "version of a commit", value: version.into() });
        }
        let head = &mut take_bytes(bytes)?;
        let mut commit = Commit::decode_head(head)?;
        if version > VERSION_WITHOUT_HEADS {
            commit.take_carried(head)?;
        }
        if version != commit.version() {
            return Err(DecodeError::BadValue { field: "rules", value: commit.rules.into() });
        }
        if version > VERSION_WITHOUT_AUDIT {
            commit.audit = Audit::take(commit.from.offset, head)?;
        }
        commit.digest = Digest(u128::from_be_bytes(take_array(bytes)?));
        if !bytes.is_empty() {
            let checksum = u64::from_le_bytes(take_array(bytes)?);
            let deltas = take_bytes(bytes)?;
            if xxh3_64(deltas) != checksum {
                return Err(DecodeError::BadValue { field: "checksum of deltas", value: checksum });
            }
            commit.deltas = Some(Deltas::decode(deltas)?);
        }
        if bytes.is_empty() && head.is_empty() { Ok(commit) } else { Err(DecodeError::Truncated) }
    }

    /// Everything but the deltas, and the digest that is made of it.
    pub fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_position(&mut out, self.from);
        put_position(&mut out, self.to);
        put_varint(&mut out, self.log_time_ms);
        put_varint(&mut out, self.generation);
        put_varint(&mut out, self.exceptions.len() as u64);
        let mut before = before_all(self.from.offset);
        for exception in &self.exceptions {
            put_exception(&mut out, &before, exception);
            before.clone_from(exception);
        }
        put_varint(&mut out, self.corrections.len() as u64);
        for told in &self.corrections {
            put_varint(&mut out, told.delta_count);
            put_bytes(&mut out, &told.correction.to_bytes());
        }
        if self.version() > VERSION_WITHOUT_HEADS {
            self.put_carried(&mut out);
        }
        if self.version() > VERSION_WITHOUT_AUDIT {
            self.audit.encode(self.from.offset, &mut out);
        }
        out
    }

    /// It follows from the rules of its batches, so that a commit that is made again is of the version that it was of.
    fn version(&self) -> u8 {
        match self.rules {
            0 => VERSION_WITHOUT_HEADS,
            rules if rules < RULES_WITH_AUDIT => VERSION_WITHOUT_AUDIT,
            _ => VERSION,
        }
    }

    /// Whether its digest is that of itself behind a commit with this one.
    pub fn is_chained_to(&self, before: Digest) -> bool {
        self.digest == digest(before, &self.head())
    }

    /// Why it cannot stand behind another, if so.
    pub fn unchained(&self, before: &Commit) -> Option<String> {
        let (from, to) = (self.from, self.to);
        if from != before.to {
            return Some(format!("the next commit begins at {from} and not at {}, where this one ends", before.to));
        }
        let chained = self.is_chained_to(before.digest);
        (!chained).then(|| format!("the digest of the commit {from} to {to} is another than it came to"))
    }

    /// What is told of the heads of its batches.
    fn put_carried(&self, out: &mut Vec<u8>) {
        put_varint(out, self.rules.into());
        put_varint(out, self.voids.len() as u64);
        let mut before = self.from.offset;
        for VoidBatch { offset, why } in &self.voids {
            put_varint(out, offset - before);
            out.push(*why as u8);
            before = *offset;
        }
    }

    fn take_carried(&mut self, bytes: &mut &[u8]) -> Result<(), DecodeError> {
        let rules = take_varint(bytes)?;
        self.rules = u32::try_from(rules).map_err(|_| DecodeError::BadValue { field: "rules", value: rules })?;
        let mut before = self.from.offset;
        for _ in 0..take_varint(bytes)? {
            let distance = take_varint(bytes)?;
            let offset = before.checked_add(distance);
            let offset = offset.ok_or(DecodeError::BadValue { field: "offset of a void batch", value: distance })?;
            let why = take_byte(bytes)?;
            let known = Void::ALL.into_iter().find(|void| *void as u8 == why);
            let why = known.ok_or(DecodeError::BadValue { field: "why a batch is void", value: why.into() })?;
            self.voids.push(VoidBatch { offset, why });
            before = offset;
        }
        Ok(())
    }

    fn decode_head(bytes: &mut &[u8]) -> Result<Commit, DecodeError> {
        let (from, to) = (take_position(bytes)?, take_position(bytes)?);
        let (log_time_ms, generation) = (take_varint(bytes)?, take_varint(bytes)?);
        let (mut exceptions, mut names) = (Vec::new(), Names::default());
        let mut before = before_all(from.offset);
        for _ in 0..take_varint(bytes)? {
            before = take_exception(bytes, &before, &mut names)?;
            exceptions.push(before.clone());
        }
        let told = |bytes: &mut &[u8]| {
            let delta_count = take_varint(bytes)?;
            Ok(ToldCorrection { delta_count, correction: Correction::decode(take_bytes(bytes)?)? })
        };
        let corrections = (0..take_varint(bytes)?).map(|_| told(bytes)).collect::<Result<_, DecodeError>>()?;
        let digest = Digest::default();
        let (rules, voids, audit, deltas) = (0, Vec::new(), Audit::default(), None);
        Ok(Commit { from, to, log_time_ms, generation, exceptions, corrections, rules, voids, audit, digest, deltas })
    }
}

fn digest(before: Digest, head: &[u8]) -> Digest {
    let mut hash = Xxh3::new();
    hash.update(&before.0.to_be_bytes());
    hash.update(head);
    Digest(hash.digest128())
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    put_varint(out, position.epoch.into());
    put_varint(out, position.log.into());
    put_varint(out, position.offset);
}

fn take_position(bytes: &mut &[u8]) -> Result<Position, DecodeError> {
    let mut number = |field| {
        let value = take_varint(bytes)?;
        u32::try_from(value).map_err(|_| DecodeError::BadValue { field, value })
    };
    Ok(Position { epoch: number("epoch")?, log: number("log")?, offset: take_varint(bytes)? })
}

/// What the first exception is told by its distance to.
fn before_all(offset: u64) -> NamedException {
    NamedException { offset, counter: [].into(), fate: BoxKind::Counted }
}

/// Most exceptions of a commit are of a counter in a row, so a name is written when it is another one.
fn put_exception(out: &mut Vec<u8>, before: &NamedException, exception: &NamedException) {
    let is_same = before.counter == exception.counter;
    out.push(exception.fate as u8 | if is_same { SAME_COUNTER } else { 0 });
    put_varint(out, exception.offset - before.offset);
    if !is_same {
        put_bytes(out, &exception.counter);
    }
}

const SAME_COUNTER: u8 = 0x80;

fn take_exception(
    bytes: &mut &[u8],
    before: &NamedException,
    names: &mut Names,
) -> Result<NamedException, DecodeError> {
    let first = take_byte(bytes)?;
    let fate = BoxKind::ALL.get(usize::from(first & !SAME_COUNTER)).copied();
    let fate = fate.ok_or(DecodeError::BadValue { field: "fate", value: first.into() })?;
    let distance = take_varint(bytes)?;
    let offset = before.offset.checked_add(distance);
    let offset = offset.ok_or(DecodeError::BadValue { field: "offset of an exception", value: distance })?;
    let counter = if first & SAME_COUNTER != 0 { before.counter.clone() } else { names.one(take_bytes(bytes)?) };
    Ok(NamedException { offset, counter, fate })
}

mod flag {
    pub const GONE: u8 = 1;
    /// The delta needs more than 64 bits.
    pub const WIDE: u8 = 2;
}

impl Deltas {
    /// Behind a checksum and the length. There may be millions, so that they are copied once.
    fn encode(&self, out: &mut Vec<u8>) {
        let mut head = vec![self.flushed.into()];
        put_varint(&mut head, self.unnamed);
        put_varint(&mut head, self.counters.count);
        let mut checksum = Xxh3::new();
        checksum.update(&head);
        checksum.update(&self.counters.bytes);
        out.extend_from_slice(&checksum.digest().to_le_bytes());
        put_varint(out, (head.len() + self.counters.bytes.len()) as u64);
        out.reserve_exact(head.len() + self.counters.bytes.len());
        out.extend_from_slice(&head);
        out.extend_from_slice(&self.counters.bytes);
    }

    fn decode(mut bytes: &[u8]) -> Result<Deltas, DecodeError> {
        let bytes = &mut bytes;
        let flushed = match take_byte(bytes)? {
            0 => false,
            1 => true,
            other => return Err(DecodeError::BadValue { field: "flushed", value: other.into() }),
        };
        let unnamed = take_varint(bytes)?;
        let count = take_varint(bytes)?;
        Ok(Deltas { flushed, unnamed, counters: CounterDeltas::decode(bytes, count)? })
    }
}

fn put_counter(out: &mut Vec<u8>, counter: &CounterDelta<'_>) {
    let narrow = i64::try_from(counter.delta);
    out.push(if counter.value.is_none() { flag::GONE } else { 0 } | if narrow.is_err() { flag::WIDE } else { 0 });
    put_bytes(out, counter.id);
    match narrow {
        Ok(delta) => put_signed(out, delta),
        Err(_) => out.extend_from_slice(&counter.delta.to_le_bytes()),
    }
    if let Some(value) = counter.value {
        put_signed(out, value);
    }
}

fn take_counter<'a>(bytes: &mut &'a [u8]) -> Result<CounterDelta<'a>, DecodeError> {
    let flags = take_byte(bytes)?;
    if flags & !(flag::GONE | flag::WIDE) != 0 {
        return Err(DecodeError::BadValue { field: "flags of a delta", value: flags.into() });
    }
    let id = take_bytes(bytes)?;
    let delta = match flags & flag::WIDE {
        0 => take_signed(bytes)?.into(),
        _ => i128::from_le_bytes(take_array(bytes)?),
    };
    let value = if flags & flag::GONE == 0 { Some(take_signed(bytes)?) } else { None };
    Ok(CounterDelta { id, delta, value })
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (array, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(*array)
}
