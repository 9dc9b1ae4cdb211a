//! What `INFO` counts: connections, calls, time, errors.
//!
//! Calls are counted one by one. Their time is not measured one by one: looking at the clock takes as long as an `INCR`. A slice of a
//! pipeline is timed as a whole, from its arrival to its answer, and each command of it has an equal share of that.

use super::command::{self, SLOTS};
use super::encode::Failed;
use super::fault::ErrorReply;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a slice has run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    pub slot: usize,
    pub calls: u64,
}

/// What is told of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub calls: u64,
    pub took: Duration,
    /// It was not even tried.
    pub rejected: u64,
    pub failed: u64,
}

pub struct Stats {
    pub connections: Cell<u64>,
    pub connections_refused: Cell<u64>,
    pub commands: Cell<u64>,
    calls: [Cell<u64>; SLOTS],
    /// Of the calls, those whose slice is known. The others belong to the slice under way.
    timed: [Cell<u64>; SLOTS],
    /// The last command that was counted, unless that was an `INCR`.
    last: Cell<usize>,
    nanos: [Cell<u64>; SLOTS],
    rejected: [Cell<u64>; SLOTS],
    failed: [Cell<u64>; SLOTS],
    /// By their code. There are only as many as Tally's own errors have.
    errors: RefCell<BTreeMap<Box<[u8]>, u64>>,
}

impl Default for Stats {
    fn default() -> Stats {
        let zeros = || [const { Cell::new(0) }; SLOTS];
        Stats {
            connections: Cell::default(),
            connections_refused: Cell::default(),
            commands: Cell::default(),
            calls: zeros(),
            timed: zeros(),
            last: Cell::default(),
            nanos: zeros(),
            rejected: zeros(),
            failed: zeros(),
            errors: RefCell::default(),
        }
    }
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

impl Stats {
    /// A command was carried out so many times.
    pub fn count_at(&self, slot: usize, calls: u64) {
        add(&self.calls[slot], calls);
    }

    /// The same of one that may have failed.
    pub fn count(&self, slot: usize, fault: Option<&ErrorReply>) {
        self.count_at(slot, 1);
        self.last.set(slot);
        if let Some(fault) = fault {
            self.fail(slot, fault.code());
        }
    }

    /// The same of one whose time is told elsewhere.
    pub fn count_timed(&self, slot: usize, fault: Option<&ErrorReply>) {
        self.count(slot, fault);
        add(&self.timed[slot], 1);
    }

    /// A command was not even tried, because of its arguments or of whom it came from.
    pub fn reject(&self, slot: Option<usize>, code: &[u8]) {
        if let Some(slot) = slot {
            add(&self.rejected[slot], 1);
        }
        self.count_errors(code, 1);
    }

    pub fn fail(&self, slot: usize, code: &[u8]) {
        add(&self.failed[slot], 1);
        self.count_errors(code, 1);
    }

    /// Counts what failed when its answers came.
    pub fn note(&self, failed: &mut Vec<Failed>) {
        for Failed { command, code } in failed.drain(..) {
            self.fail(command::slot(command), &code);
        }
    }

    pub fn count_errors(&self, code: &[u8], count: u64) {
        *self.errors.borrow_mut().entry(code.into()).or_default() += count;
    }

    /// Takes what the slice that ends here has run. Nothing else runs in the meantime, so it is all that was not taken before.
    pub fn take_ran(&self, commands: u64, ran: &mut Vec<Ran>) {
        ran.clear();
        // Mostly all of them are the same command.
        let alone = [command::INCR, self.last.get()].into_iter().find(|slot| self.untimed(*slot) == commands);
        let slots = alone.map_or(0..SLOTS, |slot| slot..slot + 1);
        for slot in slots {
            let calls = self.untimed(slot);
            if calls > 0 {
                add(&self.timed[slot], calls);
                ran.push(Ran { slot, calls });
            }
        }
    }

    #[inline]
    fn untimed(&self, slot: usize) -> u64 {
        self.calls[slot].get() - self.timed[slot].get()
    }

    /// Shares the time of a slice among its commands.
    pub fn spend(&self, took: Duration, commands: u64, ran: &[Ran]) {
        let nanos = took.as_nanos() as u64;
        for Ran { slot, calls } in ran {
            add(&self.nanos[*slot], nanos * calls / commands.max(1));
        }
    }

    /// The commands that were called, or should have been, by their names.
    pub fn told(&self) -> BTreeMap<&'static str, Told> {
        let told = |slot: usize| Told {
            calls: self.calls[slot].get(),
            took: Duration::from_nanos(self.nanos[slot].get()),
            rejected: self.rejected[slot].get(),
            failed: self.failed[slot].get(),
        };
        let all = command::all().map(|command| (command.name, told(command.slot)));
        all.filter(|(_, told)| *told != Told::default()).collect()
    }

    /// How many errors there were, by their code.
    pub fn errors(&self) -> BTreeMap<Box<[u8]>, u64> {
        self.errors.borrow().clone()
    }

    /// Forgets all of it.
    pub fn reset(&self) {
        for cell in [&self.connections, &self.connections_refused, &self.commands] {
            cell.set(0);
        }
        for cells in [&self.calls, &self.timed, &self.nanos, &self.rejected, &self.failed] {
            cells.iter().for_each(|cell| cell.set(0));
        }
        self.errors.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_share_of_the_time_of_its_slice() {
        let (stats, mut ran) = (Stats::default(), Vec::new());
        let (get, set) = (command::slot("get"), command::slot("set"));
        (0..3).for_each(|_| stats.count(get, None));
        stats.count(set, None);
        stats.take_ran(4, &mut ran);
        stats.spend(Duration::from_micros(40), 4, &ran);
        stats.count_at(command::INCR, 64);
        stats.take_ran(64, &mut ran);
        assert_eq!(ran, [Ran { slot: command::INCR, calls: 64 }]);
        stats.spend(Duration::from_micros(64), 64, &ran);
        stats.count_timed(set, None);
        stats.take_ran(1, &mut ran);
        assert_eq!(ran, []);
        let told = stats.told();
        let is = |calls, micros| Told { calls, took: Duration::from_micros(micros), ..Told::default() };
        assert_eq!(told, BTreeMap::from([("get", is(3, 30)), ("incr", is(64, 64)), ("set", is(2, 10))]));
    }

    #[test]
    fn what_failed_and_what_was_rejected_is_told_with_its_code() {
        let stats = Stats::default();
        stats.count(command::slot("set"), Some(&ErrorReply::of("ERR syntax error")));
        stats.reject(Some(command::slot("set")), b"NOAUTH");
        stats.reject(None, b"ERR");
        stats.note(&mut vec![Failed { command: "rename", code: b"ERR".as_slice().into() }]);
        let told = stats.told();
        assert_eq!(told["set"], Told { calls: 1, rejected: 1, failed: 1, ..Told::default() });
        assert_eq!(told["rename"], Told { failed: 1, ..Told::default() });
        let errors = stats.errors();
        assert_eq!(
            errors.iter().map(|(code, count)| (&code[..], *count)).collect::<Vec<_>>(),
            [(&b"ERR"[..], 3), (b"NOAUTH", 1)]
        );
        stats.reset();
        assert!(stats.told().is_empty() && stats.errors().is_empty());
    }
}
