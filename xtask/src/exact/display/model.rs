//! The display rule, as plainly as it can be said: an entry is a duplicate if and only if the same (counter, session, seq)
//! stood earlier, and was not rejected (nothing here is), in the current or the previous tumbling window of log time.

use super::super::answer::Boxes;
use super::traffic::{COUNTRIES, Event, VIDEOS};
use std::collections::HashMap;
use std::fmt;

/// The counters that an event feeds, by the length of their windows.
pub const WINDOWS_MS: [u64; 2] = [2_000, 5_000];

/// How often each part of the rule was met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub fresh: u64,
    pub same_window: u64,
    pub previous_window: u64,
    /// Seen before, and so long ago that it counts again.
    pub forgotten: u64,
    /// Duplicates of what was sent in an earlier life of the server.
    pub across_restarts: u64,
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Met { fresh, same_window, previous_window, forgotten, across_restarts } = self;
        write!(
            f,
            "{fresh} fresh, {same_window} again in the window, {previous_window} in the next ({across_restarts} across \
             restarts), {forgotten} later, which count again"
        )
    }
}

#[derive(Default)]
pub struct Model {
    /// For each event the window in which it stood last, by counter.
    last: HashMap<Event, [u64; WINDOWS_MS.len()]>,
    by_video: Vec<u64>,
    by_country: Vec<u64>,
    life_began_ms: u64,
    pub met: Met,
}

impl Model {
    pub fn new() -> Model {
        Model { by_video: vec![0; VIDEOS], by_country: vec![0; COUNTRIES.len()], ..Model::default() }
    }

    /// The log time with which a life of the server began.
    pub fn begin_life(&mut self, log_time_ms: u64) {
        self.life_began_ms = log_time_ms;
    }

    /// Videos, then countries.
    pub fn values(&self) -> Vec<u64> {
        [self.by_video.as_slice(), &self.by_country].concat()
    }

    /// The next event of its session, committed at this log time.
    pub fn take(&mut self, event: Event, log_time_ms: u64) -> Boxes {
        let now = WINDOWS_MS.map(|window_ms| log_time_ms / window_ms);
        let last = self.last.insert(event, now);
        let mut boxes = Boxes::default();
        for counter in 0..WINDOWS_MS.len() {
            let life_began = self.life_began_ms / WINDOWS_MS[counter];
            if self.met.is_duplicate(last.map(|last| last[counter]), now[counter], life_began) {
                boxes.duplicate += 1;
                continue;
            }
            boxes.counted += 1;
            match counter {
                0 => self.by_video[event.video()] += 1,
                _ => self.by_country[event.country()] += 1,
            }
        }
        boxes
    }
}

impl Met {
    /// The rule, given the windows of an entry and of the one before it that was the same.
    fn is_duplicate(&mut self, last: Option<u64>, now: u64, life_began: u64) -> bool {
        let Some(last) = last else {
            self.fresh += 1;
            return false;
        };
        let duplicate = last == now || last + 1 == now;
        match now - last {
            0 => self.same_window += 1,
            1 => self.previous_window += 1,
            _ => self.forgotten += 1,
        }
        self.across_restarts += u64::from(duplicate && last < life_began);
        duplicate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: Event = Event { session: 1, seq: 7 };

    /// How one event is counted by the first counter (windows of 2 s) when it is sent at these times.
    fn counted(times_ms: &[u64]) -> u64 {
        let mut model = Model::new();
        for &time_ms in times_ms {
            model.take(EVENT, time_ms);
        }
        model.by_video.iter().sum()
    }

    #[test]
    fn an_event_counts_once_in_this_window_and_the_one_before() {
        assert_eq!(counted(&[10_000, 10_000, 11_999]), 1, "the same window");
        assert_eq!(counted(&[10_000, 13_999]), 1, "the previous window, wherever in it");
        assert_eq!(counted(&[11_999, 14_000]), 2, "two windows later, though hardly more than 2 s");
    }

    #[test]
    fn a_duplicate_is_remembered_as_well() {
        assert_eq!(counted(&[10_000, 12_000, 14_000, 16_000]), 1);
    }

    #[test]
    fn each_counter_has_its_own_window() {
        let mut model = Model::new();
        let one_each = Boxes { counted: 1, duplicate: 1, conflict: 0 };
        assert_eq!(model.take(EVENT, 10_000), Boxes { counted: 2, ..Boxes::default() });
        assert_eq!(model.take(EVENT, 14_000), one_each, "forgotten after 2 s windows, known in 5 s windows");
        assert_eq!(model.values().iter().sum::<u64>(), 3);
    }

    #[test]
    fn sessions_and_seqs_are_told_apart() {
        let mut model = Model::new();
        for event in [EVENT, Event { session: 2, ..EVENT }, Event { seq: 8, ..EVENT }] {
            assert_eq!(model.take(event, 10_000).counted, 2);
        }
    }

    #[test]
    fn what_was_met_is_told_apart() {
        let mut model = Model::new();
        model.take(EVENT, 10_000);
        model.begin_life(12_000);
        model.take(EVENT, 12_500);
        model.take(EVENT, 20_000);
        let met = model.met;
        assert_eq!((met.fresh, met.same_window, met.previous_window, met.forgotten), (2, 1, 1, 2));
        assert_eq!(met.across_restarts, 1, "only where the windows show it");
    }
}
