//! What a checkpoint carries beside rows and names (`docs/formats/keys.md`, "State"): time, declarations, boxes,
//! watermarks, and what is parked. Small, so it is written as a whole each time.

use super::State;
use super::contract::{Kept, Sums};
use super::memory::Memory;
use super::parked::ParkedEntry;
use super::quota;
use super::replay::ReplayError;
use super::timeline::Config;
use crate::counter::Meaning;
use crate::database::Databases;
use crate::dedup::RejectedEntry;
use crate::id::CellKey;
use crate::ledger::{Boxes, Proposal, Row};
use crate::record::{
    DecodeError, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint,
};

/// The first version had open proposals in it, no rules in meanings and no sums of counters, idempotency keys by the hour, and nothing
/// behind the number of audited rows. The second had no floors in meanings.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=3;

impl State {
    /// The bytes for a checkpoint at `offset`, and the offset from which a start has to read the log.
    pub fn checkpoint(&mut self, offset: u64) -> (Vec<u8>, u64) {
        let read_from = self.read_from(offset);
        let mut out = vec![*VERSIONS.end()];
        put_varint(&mut out, self.log_time_ms);
        put_varint(&mut out, read_from);
        put_list(&mut out, self.timeline.configs_from(read_from), put_config);
        let kept: Vec<_> = self.contracts.kept().collect();
        put_list(&mut out, &kept, put_kept);
        for rows in [self.ledger.claims.len(), self.ledger.entities.len(), self.ledger.answers.len()] {
            put_varint(&mut out, rows);
        }
        put_varint(&mut out, self.corrections.generation);
        put_varint(&mut out, self.corrections.number);
        put_list(&mut out, &self.corrections.reverted, |out, (number, by)| {
            put_varint(out, *number);
            put_varint(out, *by);
        });
        put_list(&mut out, self.answered.moments(), |out, (at_ms, keys)| {
            put_varint(out, *at_ms);
            put_varint(out, *keys);
        });
        let parked: Vec<_> = self.contracts.parked.iter().collect();
        put_list(&mut out, &parked, put_parked);
        put_varint(&mut out, self.contracts.audited);
        put_varint(&mut out, self.forgotten_before_ms);
        let rejected: Vec<_> =
            self.contracts.memories().filter(|memory| memory.dedup.rejected().next().is_some()).collect();
        put_list(&mut out, rejected, put_rejected);
        put_list(&mut out, self.databases.numbers(), put_varint);
        (out, read_from)
    }

    /// The offset from which a start from a checkpoint at `offset` would have to read the log.
    pub fn read_from(&mut self, offset: u64) -> u64 {
        let remembered = self.contracts.needed_from_ms(self.log_time_ms);
        let read_from = remembered.and_then(|since_ms| self.timeline.needed_from(since_ms)).unwrap_or(offset);
        read_from.min(offset)
    }

    /// Goes on from a checkpoint. Answers the offset from which the log has to be read; what lies between it and the
    /// checkpoint is for [`State::remember`], under the declarations that were in force there.
    pub fn resume(&mut self, bytes: &[u8]) -> Result<u64, ReplayError> {
        let bytes = &mut &bytes[..];
        let version = take_byte(bytes)?;
        if !VERSIONS.contains(&version) {
            return Err(DecodeError::BadValue { field: "version of the state", value: version.into() }.into());
        }
        self.log_time_ms = take_varint(bytes)?;
        let read_from = take_varint(bytes)?;
        self.timeline.resume(take_list(bytes, take_config)?);
        for (name, kept) in take_list::<Vec<_>, _>(bytes, |bytes| take_kept(bytes, version))? {
            self.contracts.resume(name, kept);
        }
        self.ledger.claims.resume(take_varint(bytes)?);
        self.ledger.entities.resume(take_varint(bytes)?);
        self.ledger.answers.resume(take_varint(bytes)?);
        self.corrections.generation = take_varint(bytes)?;
        self.corrections.number = take_varint(bytes)?;
        if version == 1 {
            for proposal in take_list::<Vec<_>, _>(bytes, |bytes| Proposal::decode(take_bytes(bytes)?))? {
                self.ledger.proposals.insert(&proposal);
            }
        }
        self.corrections.reverted = take_list(bytes, |bytes| Ok((take_varint(bytes)?, take_varint(bytes)?)))?;
        for (at, keys) in take_list::<Vec<_>, _>(bytes, |bytes| Ok((take_varint(bytes)?, take_varint(bytes)?)))? {
            self.answered.resume(if version == 1 { quota::end_of_hour_ms(at) } else { at }, keys);
        }
        for (cell, bucket_ms, entry) in take_list::<Vec<_>, _>(bytes, take_parked)? {
            self.table.add_pending(cell, entry.entries as i64);
            self.contracts.parked.resume(cell, bucket_ms, entry);
        }
        self.contracts.audited = take_varint(bytes)?;
        if version >= 2 {
            self.forgotten_before_ms = take_varint(bytes)?;
            self.contracts.rejected = take_list(bytes, take_rejected)?;
            let numbers: Vec<u64> = take_list(bytes, take_varint)?;
            let wrong = DecodeError::BadValue { field: "databases", value: numbers.len() as u64 };
            self.databases = Databases::from_numbers(&numbers).ok_or(wrong)?;
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
            if declarations.version() != self.declarations().version() {
                self.declare(declarations);
            }
        }
        self.contracts.resume_rejected();
        Ok(())
    }

    /// Puts declarations in force that stand in the log before the checkpoint.
    pub fn redeclare(&mut self, declarations: crate::counter::Declarations) {
        self.declare(declarations);
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

fn put_config(out: &mut Vec<u8>, config: &Config) {
    put_varint(out, config.from);
    put_varint(out, config.version);
    put_bytes(out, config.yaml.as_bytes());
}

fn take_config(bytes: &mut &[u8]) -> Result<Config, DecodeError> {
    Ok(Config { from: take_varint(bytes)?, version: take_varint(bytes)?, yaml: take_str(bytes)?.into() })
}

fn put_kept(out: &mut Vec<u8>, (name, kept): &(&str, &Kept)) {
    put_bytes(out, name.as_bytes());
    kept.meaning.encode(out);
    put_varint(out, kept.received);
    put_bytes(out, &kept.boxes.to_bytes());
    put_signed(out, kept.watermark_ms);
    out.push(kept.sums.is_some().into());
    if let Some(Sums { counted, corrected }) = kept.sums {
        out.extend_from_slice(&counted.to_le_bytes());
        out.extend_from_slice(&corrected.to_le_bytes());
    }
}

fn take_kept(bytes: &mut &[u8], version: u8) -> Result<(Box<str>, Kept), DecodeError> {
    let name = take_str(bytes)?.into();
    let (meaning, received) = (Meaning::decode(bytes, version)?, take_varint(bytes)?);
    let boxes = Boxes::decode(take_bytes(bytes)?)?;
    let watermark_ms = take_signed(bytes)?;
    let has_sums = version >= 2 && take_byte(bytes)? != 0;
    let mut sum = || Ok(i128::from_le_bytes(take_array(bytes)?));
    let sums = if has_sums { Some(Sums { counted: sum()?, corrected: sum()? }) } else { None };
    Ok((name, Kept { meaning, received, boxes, watermark_ms, sums }))
}

fn put_rejected(out: &mut Vec<u8>, memory: &Memory) {
    put_bytes(out, &memory.name());
    // In one order, so that the same state is the same bytes.
    let mut rejected: Vec<_> = memory.dedup.rejected().collect();
    rejected.sort_unstable();
    put_list(out, rejected, |out, (group, seq, window)| {
        out.extend_from_slice(&group.to_bytes());
        put_varint(out, seq);
        put_varint(out, window);
    });
}

fn take_rejected(bytes: &mut &[u8]) -> Result<(Vec<u8>, Vec<RejectedEntry>), DecodeError> {
    let name = take_bytes(bytes)?.to_vec();
    let entry =
        |bytes: &mut &[u8]| Ok((CellKey::from_bytes(take_array(bytes)?), take_varint(bytes)?, take_varint(bytes)?));
    Ok((name, take_list(bytes, entry)?))
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
}

fn take_parked(bytes: &mut &[u8]) -> Result<(CellKey, u64, ParkedEntry), DecodeError> {
    let cell = CellKey::from_bytes(take_array(bytes)?);
    let bucket_ms = take_varint(bytes)?;
    let entry = ParkedEntry {
        id: take_bytes(bytes)?.into(),
        delta: take_signed(bytes)?,
        entries: take_varint(bytes)?,
        due_ms: take_varint(bytes)?,
    };
    Ok((cell, bucket_ms, entry))
}
