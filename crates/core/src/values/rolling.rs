//! The parts of declared counters, added to where their values change: the same delta, in the same step.
//!
//! Every change of a declared counter goes through one of the methods here, so the parts of a roll-up add up to what the counter has
//! changed since the roll-up was there. What does not say its dimensions is `(none)`, what people correct without saying where
//! `(correction)`. Beside the parts of each key those of the counter as a whole are kept, under the cell of its bare name.

use super::Values;
use super::stand_in::Filling;
use super::tops::{TopBoards, TopChange};
use crate::available::Available;
use crate::counter::rollup::{Bands, Keep, Minutes, Rollup, Rollups, Unit, Zone, bucket_ms, minute_of};
use crate::counter::{Counter, Declarations, Declared};
use crate::event::raw_time_and_dimensions;
use crate::fates::Scene;
use crate::id::{CellHasher, CellKey};
use crate::ledger::{
    BoardLine, CORRECTION, CountedAs, NONE, OldBuckets, ROLLUP_NUMBERS_MAX, Role, Split, SplitRollup, ValueFacts,
};
use crate::memory::prefetch::prefetch;
use crate::op::Op;
use crate::record::{
    DecodeError, event_at, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A roll-up that a counter has, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRollup {
    pub number: u16,
    pub rollup: Rollup,
    pub zone: Zone,
    /// The log time from which its parts add up; `None` if they always did.
    pub since_ms: Option<u64>,
    /// What becomes of its buckets.
    pub bands: Bands,
    /// The number of the one whose place it takes when it has what was counted before that ([`super::stand_in`]).
    pub stands_in_for: Option<u16>,
}

impl KeptRollup {
    /// What there is of it at a log time; `None` if it has no bucket.
    pub fn available(&self, log_time_ms: u64) -> Option<Available> {
        self.rollup.unit.map(|unit| self.bands.at(unit, &self.zone, log_time_ms))
    }

    /// Its buckets that have become old by a log time; `None` if there are none.
    pub fn old_buckets(&self, log_time_ms: u64) -> Option<OldBuckets> {
        let unit = self.rollup.unit.filter(|_| !self.bands.is_empty())?;
        let available = self.bands.at(unit, &self.zone, log_time_ms);
        let coarser = self.bands.coarser().collect();
        (!available.is_all()).then_some(OldBuckets { rollup: self.number, unit, coarser, available })
    }

    /// Without a bucket it is the same in every time zone.
    fn is(&self, rollup: &Rollup, zone: &Zone) -> bool {
        self.rollup == *rollup && (rollup.unit.is_none() || self.zone == *zone)
    }
}

/// What is kept of a counter's roll-ups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptRollups {
    /// The number of the next one. None is ever given to another.
    pub(super) next: u16,
    pub(super) kept: Vec<KeptRollup>,
    /// The generation in which a key was cleared last.
    pub(super) cleared: u64,
}

/// Lines of the cache in which the dimensions of most events begin.
const RECORD_LINES: usize = 3;
const LINE_BYTES: usize = 64;

/// A counter that has roll-ups.
struct Roll {
    split: Arc<Split>,
    /// The bucket of the last time, and the times that lie in it.
    bucket: Minutes,
    until: Minutes,
    tops: TopBoards,
    filling: Option<Filling>,
}

/// The roll-ups of all counters.
#[derive(Default)]
pub(crate) struct Rolling {
    /// In the order of the declarations; those without any are `None`.
    active: Vec<Option<Roll>>,
    pub(super) kept: BTreeMap<Box<str>, KeptRollups>,
    values: Vec<u8>,
}

impl Rolling {
    /// Goes over to new declarations. A roll-up that was there goes on; another one begins at this log time. `is_new` says of which
    /// counters nothing was counted yet. Answers the boards that there are now, each with the minute from which on it knows of everything
    /// if it is new.
    pub fn declare(
        &mut self,
        declarations: &Declarations,
        hasher: &CellHasher,
        log_time_ms: u64,
        is_new: impl Fn(&str) -> bool,
    ) -> Vec<(BoardLine, Minutes)> {
        let mut lines = Vec::new();
        let is_there = |name: &str| declarations.all_counters().iter().any(|counter| *counter.name == *name);
        for (_, kept) in self.kept.iter_mut().filter(|(name, _)| !is_there(name)) {
            // Nothing adds to them while it is not declared.
            kept.kept.clear();
        }
        self.active.clear();
        for counter in declarations.all_counters() {
            let roll = (!counter.rollups.is_empty() || self.kept.contains_key(&counter.name)).then(|| {
                let kept = self.kept.entry(counter.name.clone()).or_default();
                let first_new = kept.next;
                kept.declare(&counter.rollups, (!is_new(&counter.name)).then_some(log_time_ms), log_time_ms);
                let whole = counter.has_keys().then(|| hasher.key(counter.name.as_bytes()));
                let split = kept.split(&counter.rollups, whole)?;
                let now = minute_of(log_time_ms as i64);
                let mut tops = TopBoards::default();
                if let Some(cell) = whole {
                    tops = TopBoards::new(cell, &kept.seen(), &split, |_| true);
                    lines.extend(tops.lines(first_new, now));
                    // Its boards begin with it, since it is given up where others are declared.
                    let of_stand_in = kept.tops_of_stand_in(cell, &split);
                    lines.extend(of_stand_in.lines(0, now));
                    tops.extend(of_stand_in);
                }
                let filling = kept.filling(&counter.rollups, whole);
                Some(Roll { split: Arc::new(split), bucket: 0, until: 0, tops, filling })
            });
            self.active.push(roll.flatten());
        }
        lines
    }

    /// Where the change of a counter was added that was added last: its split, boards, bucket and values.
    pub(super) fn last_change(&mut self, counter: u16) -> Option<(&Split, &mut TopBoards, Minutes, &[u8])> {
        let Rolling { active, values, .. } = self;
        let Roll { split, tops, bucket, .. } = active.get_mut(usize::from(counter))?.as_mut()?;
        Some((split, tops, if split.unit.is_some() { *bucket } else { 0 }, values))
    }

    /// How the stand-in of a counter gets what it lacks.
    pub(super) fn filling(&mut self, counter: u16) -> Option<&mut Filling> {
        self.active.get_mut(usize::from(counter))?.as_mut()?.filling.as_mut()
    }

    /// Every value is gone, and so the parts of every roll-up add up.
    pub fn flush(&mut self) {
        self.drop_stand_ins();
        self.kept.values_mut().flat_map(|kept| &mut kept.kept).for_each(|kept| kept.since_ms = None);
    }

    #[inline]
    pub fn is_rolled(&self, counter: u16) -> bool {
        matches!(self.active.get(usize::from(counter)), Some(Some(_)))
    }

    /// Fetches the record of an entry whose dimensions will be read: another thread has written it.
    #[inline]
    pub fn prefetch(&self, op: &Op, records: &[u8]) {
        if self.is_rolled(op.counter) {
            let lines = (0..RECORD_LINES).filter_map(|line| records.get(op.record as usize + line * LINE_BYTES));
            lines.for_each(prefetch);
        }
    }

    /// What each counter answers from.
    pub fn in_force(&self) -> BTreeMap<Box<str>, Vec<KeptRollup>> {
        self.kept.iter().map(|(name, kept)| (name.clone(), kept.seen())).collect()
    }

    pub fn all(&self) -> &BTreeMap<Box<str>, KeptRollups> {
        &self.kept
    }

    pub fn resume(&mut self, kept: BTreeMap<Box<str>, KeptRollups>) {
        self.kept = kept;
    }
}

impl KeptRollups {
    fn declare(&mut self, rollups: &Rollups, since_ms: Option<u64>, log_time_ms: u64) {
        let wanted = wanted(rollups);
        self.kept.retain(|kept| wanted.iter().any(|rollup| kept.is(rollup, &rollups.zone)));
        for rollup in wanted {
            if !self.kept.iter().any(|kept| kept.is(&rollup, &rollups.zone)) {
                assert!(self.next < ROLLUP_NUMBERS_MAX, "nobody declares so many of one counter");
                let (number, zone, bands) = (self.next, rollups.zone.clone(), Bands::default());
                self.kept.push(KeptRollup { number, rollup, zone, since_ms, bands, stands_in_for: None });
                self.next += 1;
            }
        }
        for KeptRollup { rollup, zone, bands, .. } in &mut self.kept {
            let way: &[Keep] = rollup.unit.map_or(&[], |unit| rollups.retention.way(unit));
            bands.declare(way, zone, log_time_ms);
        }
    }

    fn split(&self, rollups: &Rollups, whole: Option<CellKey>) -> Option<Split> {
        let mut dimensions: Vec<Box<str>> = Vec::new();
        for name in self.kept.iter().flat_map(|kept| &kept.rollup.dimensions) {
            if !dimensions.contains(name) {
                dimensions.push(name.clone());
            }
        }
        let at = |name: &str| dimensions.iter().position(|known| **known == *name).unwrap_or(0) as u8;
        let split = self.kept.iter().map(|kept| {
            let admits = limit_of(rollups, &kept.rollup);
            SplitRollup {
                number: kept.number,
                dimensions: kept.rollup.dimensions.iter().map(|name| at(name)).collect(),
                unit: kept.rollup.unit,
                admits,
                role: if admits.is_some() && !kept.is_stand_in() { Role::Decides } else { Role::Counts },
            }
        });
        let mut split: Vec<_> = split.collect();
        // What a stand-in will decide some time it gets before others decide.
        split.sort_by_key(|rollup| (rollup.admits.is_none(), rollup.role == Role::Decides));
        let unit = finest(split.iter().filter_map(|rollup| rollup.unit));
        let (dimensions, zone) = (dimensions.into(), rollups.zone.clone());
        (!split.is_empty()).then(|| Split { dimensions, unit, zone, whole, rollups: split.into() })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.next.into());
        put_varint(out, self.cleared);
        put_varint(out, self.kept.len() as u64);
        for KeptRollup { number, rollup, zone, since_ms, bands, stands_in_for } in &self.kept {
            put_varint(out, (*number).into());
            out.push(rollup.unit.map_or(0, |unit| unit as u8));
            put_bytes(out, zone.name().as_bytes());
            put_signed(out, since_ms.map_or(-1, |since_ms| since_ms as i64));
            put_varint(out, rollup.dimensions.len() as u64);
            rollup.dimensions.iter().for_each(|name| put_bytes(out, name.as_bytes()));
            bands.encode(out);
            put_signed(out, stands_in_for.map_or(-1, i64::from));
        }
    }

    /// `version` is that of the state in which they stand: the ninth had no bands, and the tenth nothing of stand-ins.
    pub fn decode(bytes: &mut &[u8], version: u8) -> Result<KeptRollups, DecodeError> {
        let next = take_number(bytes)?;
        let cleared = if version >= 11 { take_varint(bytes)? } else { 0 };
        let kept = (0..take_varint(bytes)?).map(|_| take_kept(bytes, version)).collect::<Result<_, _>>()?;
        Ok(KeptRollups { next, kept, cleared })
    }
}

fn take_number(bytes: &mut &[u8]) -> Result<u16, DecodeError> {
    let number = take_varint(bytes)?;
    u16::try_from(number).map_err(|_| DecodeError::BadValue { field: "number of a roll-up", value: number })
}

fn take_kept(bytes: &mut &[u8], version: u8) -> Result<KeptRollup, DecodeError> {
    let number = take_number(bytes)?;
    let unit = match take_byte(bytes)? {
        0 => None,
        unit => Some(Unit::numbered(unit).ok_or(DecodeError::BadValue { field: "bucket", value: unit.into() })?),
    };
    let zone = Zone::named(take_str(bytes)?).ok_or(DecodeError::BadValue { field: "timezone", value: 0 })?;
    let since_ms = u64::try_from(take_signed(bytes)?).ok();
    let dimensions =
        (0..take_varint(bytes)?).map(|_| Ok(take_str(bytes)?.into())).collect::<Result<_, DecodeError>>()?;
    let bands = if version >= 10 { Bands::decode(bytes)? } else { Bands::default() };
    let stands_in_for = if version >= 11 { u16::try_from(take_signed(bytes)?).ok() } else { None };
    Ok(KeptRollup { number, rollup: Rollup { dimensions, unit }, zone, since_ms, bands, stands_in_for })
}

/// The roll-ups that are declared, and one for each dimension whose values are limited: it decides which of them a key admits.
fn wanted(rollups: &Rollups) -> Vec<Rollup> {
    let mut wanted: Vec<Rollup> = rollups.all.to_vec();
    for (name, _) in &rollups.limits {
        let deciding = Rollup { dimensions: [name.clone()].into(), unit: None };
        if !wanted.contains(&deciding) {
            wanted.push(deciding);
        }
    }
    wanted
}

pub(super) fn limit_of(rollups: &Rollups, rollup: &Rollup) -> Option<u64> {
    let [dimension] = &*rollup.dimensions else { return None };
    let limit = rollups.limits.iter().find(|(name, _)| name == dimension).map(|(_, limit)| *limit);
    limit.filter(|_| rollup.unit.is_none())
}

/// The finest bucket from which all of these follow. Weeks and months have only days in common.
fn finest(units: impl Iterator<Item = Unit> + Clone) -> Option<Unit> {
    let finest = units.clone().min()?;
    Some(if units.clone().all(|unit| finest.fits_into(unit)) { finest } else { Unit::Day })
}

impl Roll {
    #[inline]
    fn bucket(&mut self, time_ms: i64) -> Minutes {
        let Some(unit) = self.split.unit else { return 0 };
        let minute = minute_of(time_ms);
        if !(self.bucket..self.until).contains(&minute) {
            self.bucket = unit.bucket(minute, &self.split.zone);
            self.until = unit.next(self.bucket, &self.split.zone);
        }
        self.bucket
    }
}

/// Where a change belongs.
pub(crate) enum Belongs<'a> {
    /// As an event in the log says.
    Event(&'a [u8]),
    /// As an entity that was counted says, if it does.
    Counted(Option<&'a CountedAs>),
    /// It has waited for its run, and only its hour is known.
    Late(u64),
    /// Whoever added it named the counter alone.
    Nowhere,
    /// It was corrected, in one bucket of time or at its own.
    Corrected(Option<u64>),
}

impl Values {
    /// Adds what an entry counts to the parts of its counter.
    #[inline(never)]
    pub(super) fn roll_event(&mut self, op: &Op, scene: &Scene<'_>) {
        let event = event_at(scene.batch.records, op.record);
        if self.roll_cell(op.counter, Some(op.cell), op.arg, Belongs::Event(event)) {
            let mut id = std::mem::take(&mut self.id);
            scene.entry_id(op, &mut id);
            self.name_tops(op.counter, op.cell, &id);
            self.id = id;
        }
    }

    /// Adds a change of a declared counter to its parts; `id` is that of its key.
    pub(crate) fn roll(&mut self, counter: u16, cell: CellKey, id: &[u8], delta: i64, belongs: Belongs<'_>) {
        if self.rolling.is_rolled(counter) && self.roll_cell(counter, Some(cell), delta, belongs) {
            self.name_tops(counter, cell, id);
        }
    }

    /// The same for a counter that is known by an id.
    pub(crate) fn roll_id(
        &mut self,
        declarations: &Declarations,
        id: &[u8],
        cell: CellKey,
        delta: i64,
        belongs: Belongs<'_>,
    ) {
        if let Declared::Now(counter) = declarations.declared(id) {
            self.roll(counter, cell, id, delta, belongs);
        }
    }

    /// A key begins anew, and so do its parts. Those of the counter as a whole are corrected.
    pub(crate) fn clear_parts(
        &mut self,
        declarations: &Declarations,
        id: &[u8],
        cell: CellKey,
        delta: i64,
        belongs: Belongs<'_>,
    ) {
        if let Declared::Now(counter) = declarations.declared(id)
            && self.rolling.is_rolled(counter)
        {
            self.facts.parts.clear_key(cell);
            self.rolling.note_cleared(&declarations.counter(counter).name, self.generations.current);
            self.roll_cell(counter, None, delta, belongs);
        }
    }

    /// Adds to the parts of a cell, if there is one, and of the counter as a whole. Answers whether somebody wants to know who the key is.
    fn roll_cell(&mut self, counter: u16, cell: Option<CellKey>, delta: i64, belongs: Belongs<'_>) -> bool {
        let Rolling { active, values, .. } = &mut self.rolling;
        let Some(Some(roll)) = active.get_mut(usize::from(counter)) else { return false };
        cell.iter().for_each(|cell| self.facts.parts.prefetch(*cell));
        values.clear();
        let time_ms = write_values(&roll.split, belongs, values).unwrap_or(self.log_time_ms as i64);
        let bucket = roll.bucket(time_ms);
        let ValueFacts { parts, boards, .. } = &mut self.facts;
        let Some(key) = cell else {
            parts.add(cell, &roll.split, values, bucket, delta);
            return false;
        };
        let change = TopChange { cell: key, values, bucket, delta };
        // They come from memory while the parts are added.
        roll.tops.prefetch(boards, &self.hasher, &roll.split, &change);
        parts.add(cell, &roll.split, values, bucket, delta);
        roll.tops.add(boards, &roll.split, &change)
    }
}

/// Writes the values of a change, one for each dimension; answers the time it belongs to, if it has one of its own.
#[inline]
fn write_values(split: &Split, belongs: Belongs<'_>, out: &mut Vec<u8>) -> Option<i64> {
    if let Belongs::Event(event) = belongs {
        let (time_ms, dimensions) = raw_time_and_dimensions(event);
        for name in &split.dimensions {
            put_bytes(out, dimensions.value(name.as_bytes()).unwrap_or(NONE.as_bytes()));
        }
        return Some(time_ms);
    }
    for name in &split.dimensions {
        let value = match &belongs {
            Belongs::Counted(counted) => counted.and_then(|counted| counted.value(name)),
            Belongs::Corrected(_) => Some(CORRECTION.as_bytes()),
            Belongs::Late(_) | Belongs::Nowhere | Belongs::Event(_) => None,
        };
        put_bytes(out, value.unwrap_or(NONE.as_bytes()));
    }
    match belongs {
        Belongs::Counted(counted) => counted.and_then(CountedAs::time_ms),
        Belongs::Corrected(at_ms) => at_ms.map(|at_ms| at_ms as i64),
        Belongs::Late(hour_ms) => Some(hour_ms as i64),
        Belongs::Nowhere | Belongs::Event(_) => None,
    }
}

impl Counter {
    /// What has to be remembered of an event so that it can be taken back: its time, and its value of each dimension, behind the name.
    pub(crate) fn parts_of(&self, event: &[u8]) -> Vec<Vec<u8>> {
        if self.rollups.is_empty() {
            return Vec::new();
        }
        let (time_ms, dimensions) = raw_time_and_dimensions(event);
        // As exact as any roll-up needs it, so that what waits together is one sum.
        let unit = finest(self.rollups.all.iter().filter_map(|rollup| rollup.unit)).unwrap_or(Unit::Hour);
        let mut time = Vec::new();
        put_signed(&mut time, bucket_ms(unit.bucket(minute_of(time_ms), &self.rollups.zone)) as i64);
        let mut parts = vec![time];
        let rolled =
            |name: &[u8]| self.rollups.all.iter().flat_map(|rollup| &rollup.dimensions).any(|of| of.as_bytes() == name);
        for (name, value) in dimensions.filter(|(name, _)| rolled(name)) {
            let mut part = Vec::new();
            put_bytes(&mut part, name);
            part.extend_from_slice(value);
            parts.push(part);
        }
        parts
    }
}

impl CountedAs {
    /// When it happened, as exactly as buckets need it, if that is remembered.
    pub fn time_ms(&self) -> Option<i64> {
        take_signed(&mut self.parts().next()?).ok()
    }

    /// The dimensions that are remembered, with their values.
    pub fn dimensions(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.parts().skip(1).filter_map(|mut part| Some((take_bytes(&mut part).ok()?, part)))
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        self.dimensions().find_map(|(known, value)| (known == name.as_bytes()).then_some(value))
    }
}
