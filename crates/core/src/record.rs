//! The codec of log records (bytes in `docs/formats/wal.md`, "Records").
//!
//! A record is a tag byte and its fields. Numbers are LEB128 varints, signed ones zigzagged; texts are a varint length
//! and their bytes. A record says nothing about the batch it stands in: the log knows its position and time.

mod bytes;

use crate::combined::Additions;
use crate::database::{DATABASES, Space};
use crate::event::Event;
use std::borrow::Cow;

pub use bytes::{put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint};

/// When a `Set` takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SetCondition {
    Always = 0,
    IfAbsent = 1,
    IfPresent = 2,
}

/// What a `Set` does to the counter's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Clear,
    Keep,
    /// Milliseconds since 1970.
    At(u64),
}

/// When an `Expire` takes effect, compared with the expiry that is there; none counts as infinitely late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExpireCondition {
    Always = 0,
    IfNone = 1,
    IfSome = 2,
    IfGreater = 4,
    IfLess = 8,
    /// `XX GT` and `XX LT` of the Redis protocol.
    IfSomeAndGreater = 6,
    IfSomeAndLess = 10,
}

/// What a `Copy` does to the two counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CopyManner {
    /// Only if there is no counter of the other name.
    IfAbsent = 0,
    /// In place of the counter of the other name, if there is one.
    Replace = 1,
    /// As the first, and the counter that was copied is gone.
    MoveIfAbsent = 2,
    MoveReplace = 3,
}

impl CopyManner {
    pub fn replaces(self) -> bool {
        matches!(self, CopyManner::Replace | CopyManner::MoveReplace)
    }

    pub fn moves(self) -> bool {
        matches!(self, CopyManner::MoveIfAbsent | CopyManner::MoveReplace)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    Add {
        name: &'a [u8],
        delta: i64,
    },
    Set {
        name: &'a [u8],
        value: i64,
        condition: SetCondition,
        expiry: Expiry,
    },
    Delete {
        name: &'a [u8],
    },
    Expire {
        name: &'a [u8],
        at_ms: u64,
        condition: ExpireCondition,
    },
    Persist {
        name: &'a [u8],
    },
    Flush,
    /// Nothing but the passing of time: lets what is due expire.
    Tick,
    /// The declarations in force from the next batch on, as YAML. Always alone in its batch, but for its parts.
    Config {
        version: u64,
        yaml: &'a [u8],
    },
    /// An event as it was received; what it counts follows from the declarations at its position.
    Event(Event<'a>),
    /// An addition that is made once, however often it is asked for under the same id.
    AddOnce {
        name: &'a [u8],
        id: &'a [u8],
        delta: i64,
    },
    /// A [`crate::ledger::Proposal`]: a correction that somebody may apply later. As earlier versions wrote it.
    Propose(&'a [u8]),
    /// A proposal is taken back.
    Withdraw {
        number: u64,
    },
    /// A [`crate::ledger::Correction`], in force from here on, as earlier versions wrote it: drafted in full.
    Correct(&'a [u8]),
    /// Something was asked for under an id: a hash of what, and the number of the correction or proposal that it came to (0 if
    /// nothing had to be done). It stands in the batch of what it came to. As earlier versions wrote it.
    Once {
        id: &'a [u8],
        content: u64,
        number: u64,
    },
    /// Something is asked for about the past: a [`crate::ledger::Remedy`] and the id it is asked for under. Alone in its batch, but for
    /// its parts: what is too large for one record ([`RECORD_BYTES_MAX`](crate::limits::RECORD_BYTES_MAX)) begins in those before it.
    Remedy(&'a [u8]),
    /// The beginning of what a record behind it in its batch says, which makes all of it visible.
    Part(&'a [u8]),
    /// A [`crate::ledger::Fill`]: a roll-up that was added later gets what was counted before it.
    Fill(&'a [u8]),
    /// There is no memory for more repeats: entries behind it in its batch that need some are rejected.
    RepeatsFull,
    /// A database other than 0 is empty from here on: it stands on another [`crate::database::Space`].
    FlushDatabase {
        database: u8,
        space: u64,
    },
    /// A counter gets the value and the end of another one.
    Copy {
        from: &'a [u8],
        to: &'a [u8],
        manner: CopyManner,
    },
    /// Counters get values if there is none of them: [`pairs`] of names and values.
    SetNew(&'a [u8]),
    /// Additions to one counter, each of which is answered for itself.
    AddMany {
        name: &'a [u8],
        deltas: Additions<'a>,
    },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("a record ends in the middle of a field")]
    Truncated,
    #[error("unknown record tag {0}")]
    UnknownTag(u8),
    #[error("a number in a record is longer than 64 bits")]
    NumberTooLong,
    #[error("field {field} of a record has the impossible value {value}")]
    BadValue { field: &'static str, value: u64 },
    #[error("text in a record is not UTF-8")]
    NotUtf8,
}

pub(crate) mod tag {
    pub const ADD: u8 = 1;
    /// `Add` with a delta of 1, by far the most frequent record.
    pub const INCREMENT: u8 = 2;
    pub const SET: u8 = 3;
    pub const DELETE: u8 = 4;
    pub const EXPIRE: u8 = 5;
    pub const PERSIST: u8 = 6;
    pub const FLUSH: u8 = 7;
    pub const TICK: u8 = 8;
    pub const CONFIG: u8 = 9;
    pub const EVENT: u8 = 10;
    pub const ADD_ONCE: u8 = 11;
    pub const PROPOSE: u8 = 12;
    pub const WITHDRAW: u8 = 13;
    pub const CORRECT: u8 = 14;
    pub const ONCE: u8 = 15;
    pub const FLUSH_DATABASE: u8 = 16;
    pub const REPEATS_FULL: u8 = 17;
    pub const COPY: u8 = 18;
    pub const SET_NEW: u8 = 19;
    /// No record: the [`crate::head::Head`] of a batch stands before its records, and has no offset.
    pub const HEAD: u8 = 20;
    /// The two forms of `AddMany`.
    pub const ADD_SAME: u8 = 21;
    pub const ADD_EACH: u8 = 22;
    pub const REMEDY: u8 = 32;
    pub const PART: u8 = 33;
    pub const FILL: u8 = 34;
}

impl<'a> Record<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Record::Add { name, delta } => encode_add(name, delta, out),
            Record::Set { name, value, condition, expiry } => {
                out.push(tag::SET);
                put_bytes(out, name);
                put_signed(out, value);
                out.push(condition as u8);
                put_expiry(out, expiry);
            }
            Record::Delete { name } => {
                out.push(tag::DELETE);
                put_bytes(out, name);
            }
            Record::Expire { name, at_ms, condition } => {
                out.push(tag::EXPIRE);
                put_bytes(out, name);
                put_varint(out, at_ms);
                out.push(condition as u8);
            }
            Record::Persist { name } => {
                out.push(tag::PERSIST);
                put_bytes(out, name);
            }
            Record::Flush => out.push(tag::FLUSH),
            Record::RepeatsFull => out.push(tag::REPEATS_FULL),
            Record::Tick => out.push(tag::TICK),
            Record::Config { version, yaml } => {
                out.push(tag::CONFIG);
                put_varint(out, version);
                put_bytes(out, yaml);
            }
            Record::Event(ref event) => encode_event(event, out),
            Record::AddOnce { name, id, delta } => {
                out.push(tag::ADD_ONCE);
                put_bytes(out, name);
                put_bytes(out, id);
                put_signed(out, delta);
            }
            Record::Propose(proposal) => {
                out.push(tag::PROPOSE);
                put_bytes(out, proposal);
            }
            Record::Withdraw { number } => {
                out.push(tag::WITHDRAW);
                put_varint(out, number);
            }
            Record::Correct(correction) => {
                out.push(tag::CORRECT);
                put_bytes(out, correction);
            }
            Record::Once { id, content, number } => {
                out.push(tag::ONCE);
                put_bytes(out, id);
                put_varint(out, content);
                put_varint(out, number);
            }
            Record::Remedy(remedy) => {
                out.push(tag::REMEDY);
                put_bytes(out, remedy);
            }
            Record::Part(part) => {
                out.push(tag::PART);
                put_bytes(out, part);
            }
            Record::Fill(fill) => {
                out.push(tag::FILL);
                put_bytes(out, fill);
            }
            Record::FlushDatabase { database, space } => {
                out.push(tag::FLUSH_DATABASE);
                out.push(database);
                put_varint(out, space);
            }
            Record::Copy { from, to, manner } => {
                out.push(tag::COPY);
                put_bytes(out, from);
                put_bytes(out, to);
                out.push(manner as u8);
            }
            Record::SetNew(pairs) => {
                out.push(tag::SET_NEW);
                put_bytes(out, pairs);
            }
            Record::AddMany { name, deltas } => {
                out.push(if matches!(deltas, Additions::Same { .. }) { tag::ADD_SAME } else { tag::ADD_EACH });
                put_bytes(out, name);
                deltas.encode(out);
            }
        }
    }

    /// The counter that a client named.
    pub fn name(&self) -> Option<&'a [u8]> {
        match *self {
            Record::Add { name, .. }
            | Record::AddOnce { name, .. }
            | Record::AddMany { name, .. }
            | Record::Set { name, .. }
            | Record::Delete { name }
            | Record::Expire { name, .. }
            | Record::Persist { name } => Some(name),
            _ => None,
        }
    }

    /// All counters that a client named.
    pub fn names(&self) -> Vec<&'a [u8]> {
        match *self {
            Record::Copy { from, to, .. } => vec![from, to],
            Record::SetNew(bytes) => pairs(bytes).map(|(name, _)| name).collect(),
            _ => self.name().into_iter().collect(),
        }
    }

    /// Decodes the record at the front of `bytes` and moves past it.
    pub fn decode(bytes: &mut &'a [u8]) -> Result<Record<'a>, DecodeError> {
        let tag = take_byte(bytes)?;
        Ok(match tag {
            tag::INCREMENT => Record::Add { name: take_bytes(bytes)?, delta: 1 },
            tag::ADD => Record::Add { name: take_bytes(bytes)?, delta: take_signed(bytes)? },
            tag::SET => Record::Set {
                name: take_bytes(bytes)?,
                value: take_signed(bytes)?,
                condition: take_set_condition(bytes)?,
                expiry: take_expiry(bytes)?,
            },
            tag::DELETE => Record::Delete { name: take_bytes(bytes)? },
            tag::EXPIRE => Record::Expire {
                name: take_bytes(bytes)?,
                at_ms: take_varint(bytes)?,
                condition: take_expire_condition(bytes)?,
            },
            tag::PERSIST => Record::Persist { name: take_bytes(bytes)? },
            tag::FLUSH => Record::Flush,
            tag::REPEATS_FULL => Record::RepeatsFull,
            tag::TICK => Record::Tick,
            tag::CONFIG => Record::Config { version: take_varint(bytes)?, yaml: take_bytes(bytes)? },
            tag::EVENT => Record::Event(Event::decode(bytes)?),
            tag::ADD_ONCE => {
                Record::AddOnce { name: take_bytes(bytes)?, id: take_bytes(bytes)?, delta: take_signed(bytes)? }
            }
            tag::PROPOSE => Record::Propose(take_bytes(bytes)?),
            tag::WITHDRAW => Record::Withdraw { number: take_varint(bytes)? },
            tag::CORRECT => Record::Correct(take_bytes(bytes)?),
            tag::ONCE => {
                Record::Once { id: take_bytes(bytes)?, content: take_varint(bytes)?, number: take_varint(bytes)? }
            }
            tag::FLUSH_DATABASE => Record::FlushDatabase { database: take_database(bytes)?, space: take_space(bytes)? },
            tag::COPY => {
                Record::Copy { from: take_bytes(bytes)?, to: take_bytes(bytes)?, manner: take_copy_manner(bytes)? }
            }
            tag::SET_NEW => Record::SetNew(take_pairs(bytes)?),
            tag::ADD_SAME => Record::AddMany { name: take_bytes(bytes)?, deltas: Additions::take_same(bytes)? },
            tag::ADD_EACH => Record::AddMany { name: take_bytes(bytes)?, deltas: Additions::take_each(bytes)? },
            tag::REMEDY => Record::Remedy(take_bytes(bytes)?),
            tag::PART => Record::Part(take_bytes(bytes)?),
            tag::FILL => Record::Fill(take_bytes(bytes)?),
            unknown => return Err(DecodeError::UnknownTag(unknown)),
        })
    }
}

/// Takes the record at the front, and what it says in parts before it.
pub fn take_with_parts<'a>(records: &mut &'a [u8]) -> Result<(Vec<u8>, Record<'a>), DecodeError> {
    let mut parts = Vec::new();
    loop {
        match Record::decode(records)? {
            Record::Part(part) => parts.extend_from_slice(part),
            record => return Ok((parts, record)),
        }
    }
}

/// What is said in parts and in the record behind them.
pub(crate) fn joined<'a>(mut parts: Vec<u8>, rest: &'a [u8]) -> Cow<'a, [u8]> {
    if parts.is_empty() {
        return Cow::Borrowed(rest);
    }
    parts.extend_from_slice(rest);
    Cow::Owned(parts)
}

/// The bytes of [`Record::Add`].
#[inline(always)]
pub(crate) fn encode_add(name: &[u8], delta: i64, out: &mut Vec<u8>) {
    let is_increment = delta == 1;
    put_tagged(out, if is_increment { tag::INCREMENT } else { tag::ADD }, name);
    if !is_increment {
        put_signed(out, delta);
    }
}

/// A tag and a text, which nearly always has a length of one byte.
#[inline(always)]
fn put_tagged(out: &mut Vec<u8>, tag: u8, text: &[u8]) {
    if text.len() >= 0x80 {
        return put_tagged_long(out, tag, text);
    }
    out.extend_from_slice(&[tag, text.len() as u8]);
    out.extend_from_slice(text);
}

#[cold]
fn put_tagged_long(out: &mut Vec<u8>, tag: u8, text: &[u8]) {
    out.push(tag);
    put_bytes(out, text);
}

/// Whether records begin with a [`Record::Tick`].
pub(crate) fn begins_with_tick(records: &[u8]) -> bool {
    records.first() == Some(&tag::TICK)
}

/// The bytes of [`Record::Event`], for those who have an event and want to keep it.
#[inline]
pub(crate) fn encode_event(event: &Event<'_>, out: &mut Vec<u8>) {
    out.push(tag::EVENT);
    event.encode(out);
}

/// The event of a record that begins at `at`, as bytes.
#[inline]
pub(crate) fn event_at(records: &[u8], at: u32) -> &[u8] {
    let (tag, event) = records[at as usize..].split_first().expect("an operation points to its record");
    debug_assert_eq!(*tag, tag::EVENT, "only events are claims and entries");
    event
}

fn put_expiry(out: &mut Vec<u8>, expiry: Expiry) {
    match expiry {
        Expiry::Clear => out.push(0),
        Expiry::Keep => out.push(1),
        Expiry::At(at_ms) => {
            out.push(2);
            put_varint(out, at_ms);
        }
    }
}

fn take_expiry(bytes: &mut &[u8]) -> Result<Expiry, DecodeError> {
    match take_byte(bytes)? {
        0 => Ok(Expiry::Clear),
        1 => Ok(Expiry::Keep),
        2 => Ok(Expiry::At(take_varint(bytes)?)),
        value => Err(DecodeError::BadValue { field: "expiry", value: value.into() }),
    }
}

fn take_database(bytes: &mut &[u8]) -> Result<u8, DecodeError> {
    match take_byte(bytes)? {
        database if (1..DATABASES as u8).contains(&database) => Ok(database),
        value => Err(DecodeError::BadValue { field: "database", value: value.into() }),
    }
}

fn take_space(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    match take_varint(bytes)? {
        value if value == 0 || Space::from_number(value).is_none() => {
            Err(DecodeError::BadValue { field: "space", value })
        }
        space => Ok(space),
    }
}

fn take_copy_manner(bytes: &mut &[u8]) -> Result<CopyManner, DecodeError> {
    use CopyManner::*;
    let value = take_byte(bytes)?;
    [IfAbsent, Replace, MoveIfAbsent, MoveReplace]
        .into_iter()
        .find(|manner| *manner as u8 == value)
        .ok_or(DecodeError::BadValue { field: "manner", value: value.into() })
}

/// One of the [`pairs`] of a `SetNew`.
pub fn encode_pair(name: &[u8], value: i64, out: &mut Vec<u8>) {
    put_bytes(out, name);
    put_signed(out, value);
}

/// The names and values of a `SetNew`. Decoding its record has checked them.
pub fn pairs(mut bytes: &[u8]) -> impl Iterator<Item = (&[u8], i64)> {
    std::iter::from_fn(move || take_pair(&mut bytes).ok())
}

fn take_pair<'a>(bytes: &mut &'a [u8]) -> Result<(&'a [u8], i64), DecodeError> {
    Ok((take_bytes(bytes)?, take_signed(bytes)?))
}

fn take_pairs<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let pairs = take_bytes(bytes)?;
    let mut rest = pairs;
    while !rest.is_empty() {
        take_pair(&mut rest)?;
    }
    Ok(pairs)
}

fn take_set_condition(bytes: &mut &[u8]) -> Result<SetCondition, DecodeError> {
    match take_byte(bytes)? {
        0 => Ok(SetCondition::Always),
        1 => Ok(SetCondition::IfAbsent),
        2 => Ok(SetCondition::IfPresent),
        value => Err(DecodeError::BadValue { field: "condition", value: value.into() }),
    }
}

fn take_expire_condition(bytes: &mut &[u8]) -> Result<ExpireCondition, DecodeError> {
    use ExpireCondition::*;
    let value = take_byte(bytes)?;
    [Always, IfNone, IfSome, IfGreater, IfLess, IfSomeAndGreater, IfSomeAndLess]
        .into_iter()
        .find(|condition| *condition as u8 == value)
        .ok_or(DecodeError::BadValue { field: "condition", value: value.into() })
}

#[cfg(test)]
mod tests;
