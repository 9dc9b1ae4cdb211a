//! Which keys of a counter came to most within an hour, or for a value of a dimension: boards that are changed where parts are.
//!
//! A counter has a board of its keys for each hour if a roll-up of it has buckets that fit into an hour; and for each roll-up that has one
//! dimension one by its values, for each hour or for all time. Which roll-up a question is answered from is said here, once.

mod candidates;

use super::Values;
use crate::counter::rollup::{Minutes, Rollup, Unit};
use crate::id::{CellHasher, CellKey};
use crate::ledger::boards::ALL_TIME;
use crate::ledger::boards::board::PairName;
use crate::ledger::parts::block::values_of;
use crate::ledger::{BoardLine, BoardPlace, Boards, Split};
use crate::series::choose;
use crate::values::KeptRollup;
use std::sync::Arc;

pub use candidates::{Candidate, Candidates, RestBound, Sample};

/// Events are this far ahead of their arrival at most, in minutes: who did not see the first of an hour was there two days before.
const AHEAD: Minutes = 2 * 24 * 60;

/// The roll-up that a top is made from, or the one that would have to be declared. By a dimension it is one that has no other, and for
/// all time one without buckets.
pub fn choose_board<'k>(kept: &'k [KeptRollup], by: Option<&str>, hourly: bool) -> Result<&'k KeptRollup, Rollup> {
    let (by, unit) = (by.as_slice(), hourly.then_some(Unit::Hour));
    let found = choose(kept, by, unit)?;
    let is_kept = by.is_empty() || found.rollup.dimensions.len() == 1 && (hourly || found.rollup.unit.is_none());
    let lacking = || Rollup { dimensions: by.iter().map(|name| (*name).into()).collect(), unit };
    is_kept.then_some(found).ok_or_else(lacking)
}

/// The boards of a counter.
#[derive(Default)]
pub(super) struct TopBoards {
    hourly: Vec<PlannedBoard>,
    by: Vec<BoardsBy>,
    /// The hour of the last time, and the times that lie in it, if buckets are shorter.
    hour: Minutes,
    until: Minutes,
}

/// Those by a dimension.
struct BoardsBy {
    /// Which of the split's.
    dimension: usize,
    /// The key and the value of the change at hand.
    pair: u128,
    hourly: Option<PlannedBoard>,
    all_time: Option<PlannedBoard>,
}

struct PlannedBoard {
    line: BoardLine,
    /// Those of the last hours, odd and even: what is a little late does not push out what is not.
    places: [BoardPlace; 2],
}

impl PlannedBoard {
    fn new(counter: CellKey, kept: &KeptRollup, of_keys_alone: bool) -> PlannedBoard {
        PlannedBoard { line: BoardLine::new(counter, kept.number, of_keys_alone), places: Default::default() }
    }

    #[inline]
    fn place(&mut self, hour: Minutes) -> &mut BoardPlace {
        &mut self.places[(hour / 60) as usize % 2]
    }

    #[inline]
    fn add(&mut self, boards: &mut Boards, hour: Minutes, pair: u128, delta: i64) -> bool {
        boards.add(self.line, hour, &mut self.places[(hour / 60) as usize % 2], pair, delta)
    }
}

impl TopBoards {
    /// Of a counter whose keys are told apart; one without keys has nothing to rank. Only those that some roll-ups answer from.
    pub fn new(counter: CellKey, kept: &[KeptRollup], split: &Split, is_of: impl Fn(u16) -> bool) -> TopBoards {
        let planned = |by: Option<&str>, hourly: bool| {
            let chosen = choose_board(kept, by, hourly).ok().filter(|chosen| is_of(chosen.number))?;
            Some(PlannedBoard::new(counter, chosen, by.is_none()))
        };
        let by = split.dimensions.iter().enumerate().map(|(dimension, name)| BoardsBy {
            dimension,
            pair: 0,
            hourly: planned(Some(name), true),
            all_time: planned(Some(name), false),
        });
        let by = by.filter(|by| by.hourly.is_some() || by.all_time.is_some()).collect();
        TopBoards { hourly: planned(None, true).into_iter().collect(), by, hour: 0, until: 0 }
    }

    /// With others, of the same split.
    pub fn extend(&mut self, others: TopBoards) {
        self.hourly.extend(others.hourly);
        self.by.extend(others.by);
    }

    fn all(&self) -> impl Iterator<Item = (&PlannedBoard, bool)> {
        let by = self.by.iter().flat_map(|by| {
            let hourly = by.hourly.as_ref().map(|board| (board, true));
            hourly.into_iter().chain(by.all_time.as_ref().map(|board| (board, false)))
        });
        self.hourly.iter().map(|board| (board, true)).chain(by)
    }

    /// Its lines, and from when on each knows of everything if it is new: from the beginning, if its roll-up is as well.
    pub fn lines(&self, first_new: u16, now: Minutes) -> impl Iterator<Item = (BoardLine, Minutes)> {
        self.all().map(move |(board, hourly)| {
            let known_from = match board.line.rollup() >= first_new {
                true => 0,
                false if hourly => now.saturating_add(AHEAD),
                false => Minutes::MAX,
            };
            (board.line, known_from)
        })
    }

    /// Fetches the places of a change that is to be added.
    #[inline]
    pub fn prefetch(&mut self, boards: &Boards, hasher: &CellHasher, split: &Split, change: &TopChange<'_>) {
        let TopChange { cell, values, bucket, .. } = *change;
        let hour = self.hour(split, bucket);
        for board in &mut self.hourly {
            boards.prefetch(board.place(hour), cell.as_u128());
        }
        for BoardsBy { dimension, pair, hourly, all_time } in &mut self.by {
            *pair = pair_of(hasher, cell, values, *dimension);
            if let Some(board) = hourly {
                boards.prefetch(board.place(hour), *pair);
            }
            if let Some(board) = all_time {
                boards.prefetch(board.place(ALL_TIME), *pair);
            }
        }
    }

    /// Adds the change of a key whose places were fetched. Answers whether its name is wanted.
    #[inline]
    pub fn add(&mut self, boards: &mut Boards, split: &Split, change: &TopChange<'_>) -> bool {
        let TopChange { cell, bucket, delta, .. } = *change;
        let hour = self.hour(split, bucket);
        let mut wants_name = false;
        for board in &mut self.hourly {
            wants_name |= board.add(boards, hour, cell.as_u128(), delta);
        }
        for BoardsBy { pair, hourly, all_time, .. } in &mut self.by {
            if let Some(board) = hourly {
                wants_name |= board.add(boards, hour, *pair, delta);
            }
            if let Some(board) = all_time {
                wants_name |= board.add(boards, ALL_TIME, *pair, delta);
            }
        }
        wants_name
    }

    /// Says who the key of the last change is.
    #[cold]
    pub fn name(&mut self, boards: &mut Boards, hasher: &CellHasher, split: &Split, change: &TopChange<'_>, id: &[u8]) {
        let TopChange { cell, values, bucket, .. } = *change;
        let (hour, id): (_, Arc<[u8]>) = (self.hour(split, bucket), id.into());
        for board in &mut self.hourly {
            let name = PairName { id: id.clone(), value: Arc::default() };
            boards.name(board.place(hour), cell.as_u128(), name);
        }
        for BoardsBy { dimension, hourly, all_time, .. } in &mut self.by {
            let pair = pair_of(hasher, cell, values, *dimension);
            let name = PairName { id: id.clone(), value: value_of(values, *dimension).into() };
            for (board, hour) in [(hourly, hour), (all_time, ALL_TIME)] {
                if let Some(board) = board {
                    boards.name(board.place(hour), pair, name.clone());
                }
            }
        }
    }

    #[inline]
    fn hour(&mut self, split: &Split, bucket: Minutes) -> Minutes {
        if split.unit != Some(Unit::Minute) {
            return bucket;
        }
        if !(self.hour..self.until).contains(&bucket) {
            self.hour = Unit::Hour.bucket(bucket, &split.zone);
            self.until = Unit::Hour.next(self.hour, &split.zone);
        }
        self.hour
    }
}

/// A change of a key, as its parts have it.
#[derive(Clone, Copy)]
pub(super) struct TopChange<'a> {
    pub cell: CellKey,
    /// One for each dimension of the split.
    pub values: &'a [u8],
    /// One of its unit.
    pub bucket: Minutes,
    pub delta: i64,
}

/// A key and a value are known by both of their hashes.
#[inline]
fn pair_of(hasher: &CellHasher, cell: CellKey, values: &[u8], dimension: usize) -> u128 {
    cell.as_u128() ^ hasher.key(value_of(values, dimension)).as_u128()
}

#[inline]
fn value_of(values: &[u8], dimension: usize) -> &[u8] {
    values_of(values).nth(dimension).unwrap_or_default()
}

impl Values {
    /// Says who the key is whose change was added last, if somebody wants to know.
    #[cold]
    pub(super) fn name_tops(&mut self, counter: u16, cell: CellKey, id: &[u8]) {
        let Values { rolling, facts, hasher, .. } = self;
        if let Some((split, tops, bucket, values)) = rolling.last_change(counter) {
            tops.name(&mut facts.boards, hasher, split, &TopChange { cell, values, bucket, delta: 0 }, id);
        }
    }
}
