//! Boards: which keys of a counter came to most in an hour, or by the values of a dimension, in bounded memory ([`board`]).
//!
//! There is one for each counter, roll-up and hour that somebody may ask for ([`crate::values`] says which). They are changed with the
//! parts that they are about, go to the store with a cut, those that changed, and are read back as a whole at a start. A board says
//! how much a pair came to *at most*; what it came to is in its parts. Why an answer made of both cannot miss a key: ADR 26.

pub mod board;

use super::LedgerKey;
use super::cut::{Change, Kind, LedgerRow, Rows};
use crate::counter::rollup::Minutes;
use crate::id::CellKey;
use crate::limits::{BOARD_HOURS_KEPT, BOARDS_BYTES_MAX, BOARDS_PER_LINE_MAX};
use crate::record::{DecodeError, put_varint, take_varint};
use board::{Board, PairName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Boards of one roll-up of a counter, one for each hour or one for all time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoardLine {
    /// The cell of the counter's name.
    pub counter: CellKey,
    /// The number of the roll-up, twice; and one if it is about keys alone, whatever dimensions the roll-up has.
    pub number: u32,
}

impl BoardLine {
    pub fn new(counter: CellKey, rollup: u16, of_keys_alone: bool) -> BoardLine {
        BoardLine { counter, number: u32::from(rollup) * 2 + u32::from(of_keys_alone) }
    }

    pub fn rollup(self) -> u16 {
        (self.number / 2) as u16
    }

    fn key(self, hour: Minutes) -> LedgerKey {
        LedgerKey::Board(self.counter, self.number, hour)
    }
}

/// The board that has no hour.
pub const ALL_TIME: Minutes = 0;
/// No hour: here stands from when on a line knows of everything.
const BEGINNING: Minutes = Minutes::MAX;
const HOUR: Minutes = 60;

/// Where a board stands in memory, until one of them goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoardPlace {
    index: usize,
    /// When it was found; 0 is never.
    epoch: u64,
    hour: Minutes,
}

#[derive(Default)]
pub struct Boards {
    kept: Vec<KeptBoard>,
    lines: BTreeMap<BoardLine, Line>,
    /// Places in `kept` are good as long as this does not change.
    epoch: u64,
    /// Rows that are not there any more, and beginnings that changed.
    changed: BTreeSet<(BoardLine, Minutes)>,
    changed_boards: usize,
    flying: Option<Arc<BoardRows>>,
    /// The log time, in minutes, as far as it is known here.
    now: Minutes,
    bytes: usize,
}

struct KeptBoard {
    line: BoardLine,
    hour: Minutes,
    board: Board,
    has_changed: bool,
}

#[derive(Default)]
struct Line {
    /// Hours from this on are known from their first addition; 0 if all are.
    known_from: Minutes,
    hours: BTreeMap<Minutes, usize>,
}

/// Rows for a cut.
#[derive(Default)]
struct BoardRows(BTreeMap<(BoardLine, Minutes), Option<RowOfBoard>>);

enum RowOfBoard {
    Board(Box<Board>),
    Beginning(Minutes),
}

impl Boards {
    /// Goes over to these lines; others are forgotten. `known_from` says from when on a line knows of everything that is new here.
    pub fn declare(&mut self, lines: impl Iterator<Item = (BoardLine, Minutes)>) {
        let wanted: BTreeMap<BoardLine, Minutes> = lines.collect();
        let gone: Vec<BoardLine> = self.lines.keys().filter(|line| !wanted.contains_key(line)).copied().collect();
        for line in gone {
            self.changed.insert((line, BEGINNING));
            self.retain(|kept| kept.line != line);
            self.lines.remove(&line);
        }
        for (line, known_from) in wanted {
            self.lines.entry(line).or_insert_with(|| {
                self.changed.insert((line, BEGINNING));
                Line { known_from, ..Line::default() }
            });
        }
        self.epoch += 1;
    }

    /// Log time goes on.
    #[inline]
    pub fn pass_time(&mut self, minute: Minutes) {
        self.now = minute;
    }

    /// Fetches the place of a pair that is to be added to.
    #[inline]
    pub fn prefetch(&self, place: &BoardPlace, pair: u128) {
        if let Some(kept) = self.kept.get(place.index) {
            kept.board.prefetch(pair);
        }
    }

    /// Adds to a pair. Answers whether its name is wanted.
    #[inline]
    pub fn add(&mut self, line: BoardLine, hour: Minutes, place: &mut BoardPlace, pair: u128, delta: i64) -> bool {
        if (place.epoch != self.epoch || place.hour != hour) && !self.find(line, hour, place) {
            return false;
        }
        let mut room = BOARDS_BYTES_MAX.saturating_sub(self.bytes);
        let before = room;
        let kept = &mut self.kept[place.index];
        self.changed_boards += usize::from(!std::mem::replace(&mut kept.has_changed, true));
        let wants_name = kept.board.add(pair, delta, &mut room);
        self.bytes = (self.bytes + before) - room;
        wants_name
    }

    /// Says who a pair is.
    #[cold]
    pub fn name(&mut self, place: &BoardPlace, pair: u128, name: PairName) {
        let Some(kept) = self.kept.get_mut(place.index).filter(|_| place.epoch == self.epoch) else { return };
        let mut room = BOARDS_BYTES_MAX.saturating_sub(self.bytes);
        let before = room;
        kept.board.name(pair, name, &mut room);
        self.bytes = (self.bytes + before) - room;
    }

    /// Finds the board of an hour, or begins it. `false` if nobody will ask for it.
    #[cold]
    fn find(&mut self, line: BoardLine, hour: Minutes, place: &mut BoardPlace) -> bool {
        let Some(of_line) = self.lines.get(&line) else { return false };
        let index = of_line.hours.get(&hour).copied().or_else(|| self.begin(line, hour));
        if let Some(index) = index {
            *place = BoardPlace { index, epoch: self.epoch, hour };
        }
        index.is_some()
    }

    fn begin(&mut self, line: BoardLine, hour: Minutes) -> Option<usize> {
        if is_old(hour, self.now) {
            return None;
        }
        self.drop_old();
        let of_line = self.lines.get_mut(&line)?;
        if of_line.hours.len() == BOARDS_PER_LINE_MAX {
            // Somebody has named many hours of the far future: until then, nothing is certain.
            of_line.known_from = of_line.known_from.max(hour.saturating_add(HOUR));
            self.changed.insert((line, BEGINNING));
            return None;
        }
        let (index, board) = (self.kept.len(), Board::default());
        of_line.hours.insert(hour, index);
        self.bytes += board.bytes();
        self.kept.push(KeptBoard { line, hour, board, has_changed: false });
        Some(index)
    }

    /// Boards that nobody will ask for any more go.
    fn drop_old(&mut self) {
        let now = self.now;
        if self.kept.iter().any(|kept| is_old(kept.hour, now)) {
            self.retain(|kept| !is_old(kept.hour, now));
        }
    }

    fn retain(&mut self, stays: impl Fn(&KeptBoard) -> bool) {
        for gone in self.kept.extract_if(.., |kept| !stays(kept)) {
            self.changed.insert((gone.line, gone.hour));
            self.changed_boards -= usize::from(gone.has_changed);
            self.bytes -= gone.board.bytes();
        }
        self.lines.values_mut().for_each(|line| line.hours.clear());
        for (index, KeptBoard { line, hour, .. }) in self.kept.iter().enumerate() {
            if let Some(line) = self.lines.get_mut(line) {
                line.hours.insert(*hour, index);
            }
        }
        self.epoch += 1;
    }

    /// The boards of some hours; those that had nothing have none. `None` if not everything is known of them.
    pub fn of(&self, line: BoardLine, hours: &[Minutes]) -> Option<Vec<&Board>> {
        let of_line = self.lines.get(&line)?;
        let is_known = |hour: &Minutes| *hour >= of_line.known_from && !is_old(*hour, self.now);
        let board = |hour: &Minutes| of_line.hours.get(hour).map(|index| &self.kept[*index].board);
        hours.iter().all(is_known).then(|| hours.iter().filter_map(board).collect())
    }

    /// Takes in a row of the store.
    pub fn resume(&mut self, key: &[u8], mut row: &[u8]) -> Result<(), DecodeError> {
        let LedgerKey::Board(counter, number, hour) = LedgerKey::decode(key)? else { return Ok(()) };
        let line = BoardLine { counter, number };
        if hour == BEGINNING {
            self.lines.entry(line).or_default().known_from = take_varint(&mut row)?.try_into().unwrap_or(Minutes::MAX);
            return Ok(());
        }
        let board = Board::decode(row)?;
        self.bytes += board.bytes();
        self.lines.entry(line).or_default().hours.insert(hour, self.kept.len());
        self.kept.push(KeptBoard { line, hour, board, has_changed: false });
        self.epoch += 1;
        Ok(())
    }

    /// Everything that changed, as it is now.
    fn take_changed(&mut self) -> BoardRows {
        let mut rows = BTreeMap::new();
        for (line, hour) in std::mem::take(&mut self.changed) {
            let beginning = self.lines.get(&line).filter(|_| hour == BEGINNING);
            rows.insert((line, hour), beginning.map(|line| RowOfBoard::Beginning(line.known_from)));
        }
        self.changed_boards = 0;
        for kept in self.kept.iter_mut().filter(|kept| kept.has_changed) {
            kept.has_changed = false;
            rows.insert((kept.line, kept.hour), Some(RowOfBoard::Board(Box::new(kept.board.clone()))));
        }
        BoardRows(rows)
    }
}

/// Whether an hour has been over for so long that nobody asks for it.
fn is_old(hour: Minutes, now: Minutes) -> bool {
    hour != ALL_TIME && hour.saturating_add(BOARD_HOURS_KEPT * HOUR) <= now
}

impl Kind for Boards {
    /// Boards that changed are copied: 64 KB at most, and their names.
    fn begin_cut(&mut self) -> Arc<dyn Rows> {
        assert!(self.flying.is_none(), "one cut at a time");
        self.drop_old();
        let rows = Arc::new(self.take_changed());
        self.flying.insert(rows).clone()
    }

    fn finish_cut(&mut self) {
        self.flying = None;
    }

    fn abort_cut(&mut self) {
        let Some(flying) = self.flying.take() else { return };
        for (line, hour) in flying.0.keys() {
            let index = self.lines.get(line).and_then(|line| line.hours.get(hour));
            match index {
                Some(index) => {
                    let has_changed = &mut self.kept[*index].has_changed;
                    self.changed_boards += usize::from(!std::mem::replace(has_changed, true));
                }
                None => drop(self.changed.insert((*line, *hour))),
            }
        }
    }

    /// Nothing was ever counted, and so everything is known.
    fn clear(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let (epoch, now) = (self.epoch + 1, self.now);
        *self = Boards { epoch, now, ..Boards::default() };
        self.lines = lines.into_keys().map(|line| (line, Line::default())).collect();
        self.changed = self.lines.keys().map(|line| (*line, BEGINNING)).collect();
    }

    fn changed(&self) -> usize {
        self.changed.len() + self.changed_boards
    }

    /// They stay in memory, whatever a cut does.
    fn unsettled_bytes(&self) -> usize {
        0
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Rows for BoardRows {
    fn rows(&self) -> Box<dyn Iterator<Item = LedgerRow> + '_> {
        Box::new(self.0.iter().map(|((line, hour), row)| {
            let change = match row {
                None => Change::Delete,
                Some(RowOfBoard::Board(board)) => Change::Put(board.encode()),
                Some(RowOfBoard::Beginning(known_from)) => {
                    let mut row = Vec::new();
                    put_varint(&mut row, (*known_from).into());
                    Change::Put(row)
                }
            };
            LedgerRow::new(line.key(*hour), change)
        }))
    }
}
