//! What a checkpoint carries beside rows and names (`docs/formats/keys.md`, "State"): time, declarations, boxes,
//! watermarks, and what is parked. Small, so it is written as a whole each time.

use super::Machine;
use super::replay::ReplayError;
use super::timeline::Config;
use crate::counter::Meaning;
use crate::counter::rollup::minute_of;
use crate::database::Databases;
use crate::fates::{Balance, Kept, ParkedEntry, Senders};
use crate::id::CellKey;
use crate::ledger::{Boxes, CountedAs, LOOKED_UP, LedgerKind, Proposal, Row};
use crate::record::{
    DecodeError, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint,
};
use crate::values::{KeptRollups, Sums, end_of_hour_ms};
use std::collections::{BTreeMap, VecDeque};

/// The first version had open proposals in it, no rules in meanings and no sums of counters, idempotency keys by the hour, and nothing
/// behind the number of audited rows. The second had no floors in meanings, and a list of display entries that were rejected after
/// they had been noted. The third had no senders and no void batches. The fourth had one sum for all corrections, which all were
/// adjustments. The fifth had the numbers of claims, entities and answers, and no others. The sixth did not say whether answers stand where
/// formats up to 4 have them. The seventh did not have every deadline among the facts. The eighth had no roll-ups and no lists of keys.
/// The ninth did not say how long buckets of roll-ups are kept, and the tenth nothing of roll-ups that are filled.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=11;

impl Machine {
    /// The bytes for a checkpoint at `offset`, and the offset from which a start has to read the log.
    pub fn checkpoint(&mut self, offset: u64) -> (Vec<u8>, u64) {
        let read_from = self.read_from(offset);
        let mut out = vec![*VERSIONS.end()];
        put_varint(&mut out, self.log_time_ms());
        put_varint(&mut out, read_from);
        put_list(&mut out, self.timeline.configs_from(read_from), put_config);
        let kept: Vec<_> = self.fates.contracts.kept().collect();
        put_list(&mut out, &kept, |out, (name, kept)| put_kept(out, name, kept, self.values.sums.of(name)));
        put_list(&mut out, LOOKED_UP, |out, looked_up| {
            out.push(looked_up.kind as u8);
            put_varint(out, self.looked_up(looked_up.kind).len());
        });
        put_varint(&mut out, self.values.generations.current);
        put_varint(&mut out, self.values.generations.number);
        put_list(&mut out, &self.values.generations.reverted, |out, (number, by)| {
            put_varint(out, *number);
            put_varint(out, *by);
        });
        put_list(&mut out, self.values.answered.moments(), |out, (at_ms, keys)| {
            put_varint(out, *at_ms);
            put_varint(out, *keys);
        });
        let parked: Vec<_> = self.fates.contracts.parked.iter().collect();
        put_list(&mut out, &parked, put_parked);
        put_varint(&mut out, self.fates.contracts.audited);
        put_varint(&mut out, self.values.forgotten_before_ms);
        put_list(&mut out, self.values.databases.numbers(), put_varint);
        self.fates.senders.encode(&mut out);
        put_list(&mut out, self.timeline.voids_from(read_from), |out, offset| put_varint(out, *offset));
        let answers_ms = self
            .values
            .answers_of_format_4_ms
            .filter(|up_to_ms| *up_to_ms >= self.values.keys_known_from_ms(self.log_time_ms()));
        out.push(answers_ms.is_some().into());
        answers_ms.into_iter().for_each(|up_to_ms| put_varint(&mut out, up_to_ms));
        put_list(&mut out, self.values.rolling.all(), |out, (name, kept)| {
            put_bytes(out, name.as_bytes());
            kept.encode(out);
        });
        self.values.lists.encode(&mut out);
        (out, read_from)
    }

    /// The offset from which a start from a checkpoint at `offset` would have to read the log.
    pub fn read_from(&mut self, offset: u64) -> u64 {
        let remembered = self.fates.contracts.needed_from_ms(self.log_time_ms());
        let read_from = remembered.and_then(|since_ms| self.timeline.needed_from(since_ms)).unwrap_or(offset);
        read_from.min(offset)
    }

    /// Goes on from a checkpoint. Answers the offset from which the log has to be read; what lies between it and the
    /// checkpoint is for [`Machine::remember`], under the declarations that were in force there.
    pub fn resume(&mut self, bytes: &[u8]) -> Result<u64, ReplayError> {
        let bytes = &mut &bytes[..];
        let CheckpointHead { version, log_time_ms, read_from, configs, kept } = CheckpointHead::take(bytes)?;
        self.values.log_time_ms = log_time_ms;
        self.values.facts.boards.pass_time(minute_of(log_time_ms as i64));
        // What ended before is gone.
        self.values.table.keep_ends_before(log_time_ms + 1);
        self.values.lacks_endings = version < 8;
        self.timeline.resume(configs);
        for (name, kept, sums) in kept {
            self.values.sums.resume(name.clone(), sums);
            self.values.lists.resume_unknown(name.clone());
            self.fates.contracts.resume(name, kept);
        }
        for (kind, rows) in take_rows(bytes, version)? {
            self.looked_up_mut(kind).resume(rows);
        }
        self.values.generations.current = take_varint(bytes)?;
        self.values.generations.number = take_varint(bytes)?;
        if version == 1 {
            for proposal in take_list::<Vec<_>, _>(bytes, |bytes| Proposal::decode(take_bytes(bytes)?))? {
                self.values.facts.proposals.insert(&proposal);
            }
        }
        self.values.generations.reverted = take_list(bytes, |bytes| Ok((take_varint(bytes)?, take_varint(bytes)?)))?;
        for (at, keys) in take_list::<Vec<_>, _>(bytes, |bytes| Ok((take_varint(bytes)?, take_varint(bytes)?)))? {
            self.values.answered.resume(if version == 1 { end_of_hour_ms(at) } else { at }, keys);
        }
        for (cell, bucket_ms, entry) in take_list::<Vec<_>, _>(bytes, |bytes| take_parked(bytes, version))? {
            self.values.table.add_pending(cell, entry.entries as i64);
            self.fates.contracts.parked.resume(cell, bucket_ms, entry);
        }
        self.fates.contracts.audited = take_varint(bytes)?;
        if version >= 2 {
            self.values.forgotten_before_ms = take_varint(bytes)?;
            if version == 2 {
                take_list::<Vec<_>, _>(bytes, pass_over_rejected)?;
            }
            let numbers: Vec<u64> = take_list(bytes, take_varint)?;
            let wrong = DecodeError::BadValue { field: "databases", value: numbers.len() as u64 };
            self.values.databases = Databases::from_numbers(&numbers).ok_or(wrong)?;
        }
        if version >= 4 {
            self.fates.senders = Senders::take(bytes)?;
            self.timeline.resume_voids(take_list(bytes, take_varint)?);
        }
        self.values.answers_of_format_4_ms = match version {
            7.. if take_byte(bytes)? == 0 => None,
            7.. => Some(take_varint(bytes)?),
            _ => Some(log_time_ms),
        };
        if version >= 9 {
            let kept = take_list(bytes, |bytes| Ok((take_str(bytes)?.into(), KeptRollups::decode(bytes, version)?)))?;
            self.values.rolling.resume(kept);
            self.values.lists.resume(bytes, &mut self.values.table, &self.hasher)?;
        }
        if let Some(config) = self.timeline.first_config() {
            let declarations = config.declarations()?;
            self.declare(declarations);
        }
        Ok(read_from)
    }

    /// The log has been read up to the checkpoint: the declarations are those of the checkpoint.
    pub fn resumed(&mut self) -> Result<(), ReplayError> {
        if let Some(config) = self.timeline.last_config() {
            let declarations = config.declarations()?;
            self.values.declare_rollups(&declarations);
            self.declare(declarations);
        }
        Ok(())
    }

    /// Puts declarations in force that stand in the log before the checkpoint.
    pub fn redeclare(&mut self, declarations: crate::counter::Declarations) {
        self.declare(declarations);
    }
}

/// What a counter's entries had come to at a checkpoint; `None` if it was never declared by then.
pub fn balance_at(checkpoint: &[u8], name: &str) -> Result<Option<Balance>, DecodeError> {
    let kept = CheckpointHead::take(&mut &checkpoint[..])?.kept;
    let of_name = kept.iter().find(|(known, ..)| **known == *name);
    Ok(of_name.map(|(name, kept, sums)| Balance::of(name, kept, *sums)))
}

/// From which record on a start from a checkpoint reads the log.
pub fn read_from_of(checkpoint: &[u8]) -> Result<u64, DecodeError> {
    Ok(CheckpointHead::take(&mut &checkpoint[..])?.read_from)
}

/// What the bytes begin with.
struct CheckpointHead {
    version: u8,
    log_time_ms: u64,
    read_from: u64,
    configs: VecDeque<Config>,
    kept: Vec<(Box<str>, Kept, Option<Sums>)>,
}

impl CheckpointHead {
    fn take(bytes: &mut &[u8]) -> Result<CheckpointHead, DecodeError> {
        let version = take_byte(bytes)?;
        if !VERSIONS.contains(&version) {
            return Err(DecodeError::BadValue { field: "version of the state", value: version.into() });
        }
        Ok(CheckpointHead {
            version,
            log_time_ms: take_varint(bytes)?,
            read_from: take_varint(bytes)?,
            configs: take_list(bytes, take_config)?,
            kept: take_list(bytes, |bytes| take_kept(bytes, version))?,
        })
    }
}

fn put_list<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    put: impl Fn(&mut Vec<u8>, T),
) {
    let items = items.into_iter();
    put_varint(out, items.len() as u64);
    items.for_each(|item| put(out, item));
}

fn take_list<C: FromIterator<T>, T>(
    bytes: &mut &[u8],
    mut take: impl FnMut(&mut &[u8]) -> Result<T, DecodeError>,
) -> Result<C, DecodeError> {
    let len = take_varint(bytes)?;
    (0..len).map(|_| take(bytes)).collect()
}

/// How many rows there are of each kind that is looked up.
fn take_rows(bytes: &mut &[u8], version: u8) -> Result<Vec<(LedgerKind, u64)>, DecodeError> {
    if version < 6 {
        let kinds = [LedgerKind::Claim, LedgerKind::Entity, LedgerKind::Answer];
        return kinds.into_iter().map(|kind| Ok((kind, take_varint(bytes)?))).collect();
    }
    take_list(bytes, |bytes| {
        let number = take_byte(bytes)?;
        let known = LOOKED_UP.iter().find(|looked_up| looked_up.kind as u8 == number);
        let unknown = DecodeError::BadValue { field: "kind of rows", value: number.into() };
        Ok((known.ok_or(unknown)?.kind, take_varint(bytes)?))
    })
}

fn put_config(out: &mut Vec<u8>, config: &Config) {
    put_varint(out, config.from);
    put_varint(out, config.version);
    put_bytes(out, config.yaml.as_bytes());
}

fn take_config(bytes: &mut &[u8]) -> Result<Config, DecodeError> {
    Ok(Config { from: take_varint(bytes)?, version: take_varint(bytes)?, yaml: take_str(bytes)?.into() })
}

fn put_kept(out: &mut Vec<u8>, name: &str, kept: &Kept, sums: Option<Sums>) {
    put_bytes(out, name.as_bytes());
    kept.meaning.encode(out);
    put_varint(out, kept.received);
    put_bytes(out, &kept.boxes.to_bytes());
    put_signed(out, kept.watermark_ms);
    out.push(u8::from(sums.is_some()) + u8::from(sums.is_some_and(|sums| sums.is_touched)));
    if let Some(Sums { counted, adjusted, restored, .. }) = sums {
        [counted, adjusted, restored].iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
    }
}

fn take_kept(bytes: &mut &[u8], version: u8) -> Result<(Box<str>, Kept, Option<Sums>), DecodeError> {
    let name = take_str(bytes)?.into();
    let (meaning, received) = (Meaning::decode(bytes, version)?, take_varint(bytes)?);
    let boxes = Boxes::decode(take_bytes(bytes)?)?;
    let watermark_ms = take_signed(bytes)?;
    let sums_are = if version >= 2 { take_byte(bytes)? } else { 0 };
    let mut sum = || Ok(i128::from_le_bytes(take_array(bytes)?));
    let mut sums = || {
        let (counted, adjusted) = (sum()?, sum()?);
        let restored = if version >= 5 { sum()? } else { 0 };
        // Earlier versions did not tell what was never changed from what has come to nothing.
        let is_touched =
            if version >= 11 { sums_are > 1 } else { received > 0 || (counted, adjusted, restored) != (0, 0, 0) };
        Ok(Sums { counted, adjusted, restored, is_touched })
    };
    let sums = if sums_are > 0 { Some(sums()?) } else { None };
    Ok((name, Kept { meaning, received, boxes, watermark_ms }, sums))
}

/// Of the second version: no entry is rejected any more after it was noted.
fn pass_over_rejected(bytes: &mut &[u8]) -> Result<(), DecodeError> {
    take_bytes(bytes)?;
    take_list::<Vec<_>, _>(bytes, |bytes| {
        take_array::<16>(bytes)?;
        Ok((take_varint(bytes)?, take_varint(bytes)?))
    })?;
    Ok(())
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (array, rest) = bytes.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(*array)
}

fn put_parked(out: &mut Vec<u8>, (cell, bucket_ms, entry): &(CellKey, u64, &ParkedEntry)) {
    out.extend_from_slice(&cell.to_bytes());
    put_varint(out, *bucket_ms);
    put_bytes(out, &entry.id);
    put_signed(out, entry.delta);
    put_varint(out, entry.entries);
    put_varint(out, entry.due_ms);
    put_varint(out, entry.first_ms);
    put_list(out, &entry.parts, |out, (part, sum)| {
        out.extend_from_slice(part.as_bytes());
        put_signed(out, *sum);
    });
}

fn take_parked(bytes: &mut &[u8], version: u8) -> Result<(CellKey, u64, ParkedEntry), DecodeError> {
    let cell = CellKey::from_bytes(take_array(bytes)?);
    let bucket_ms = take_varint(bytes)?;
    let entry = ParkedEntry {
        id: take_bytes(bytes)?.into(),
        delta: take_signed(bytes)?,
        entries: take_varint(bytes)?,
        due_ms: take_varint(bytes)?,
        first_ms: if version >= 11 { take_varint(bytes)? } else { 0 },
        parts: if version >= 9 {
            take_list(bytes, |bytes| Ok((CountedAs::take(bytes)?, take_signed(bytes)?)))?
        } else {
            BTreeMap::new()
        },
    };
    Ok((cell, bucket_ms, entry))
}
