//! Between the world and the oracle: hears of everything that clients ask, that collectors promise and that logs hold, lets the
//! oracle decide what that comes to, and holds what Tally makes of it against that.

use super::{FATES, VALUES, partitions};
use crate::oracle::judge::{Change, Of};
use crate::oracle::worth::{Expected, Kind};
use crate::oracle::{Ask, Boxes, Config, Happening, Judge, Spec, Worth};
use crate::requests::is_right;
use std::collections::{BTreeMap, BTreeSet};
use tally_cluster::collect::{BatchId, Outgoing, Receipt, To};
use tally_cluster::message::SlotPart;
use tally_cluster::route::values_partition;
use tally_core::commit::Commit;
use tally_core::op::Answer;

/// A control record in the oracle's words.
enum Order {
    Config(Config),
    LateRun {
        due_by_ms: u64,
    },
    Correct(Kind, Vec<(String, i64)>),
    /// A key, or all keys of a counter.
    Clear(String),
    Revert(u64),
}

/// What is remarkable about a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remarks {
    /// It was judged before a clear of one of its keys, and stands behind it.
    pub is_behind_clear: bool,
    /// It takes back what counted in such a slot.
    pub undoes_behind_clear: bool,
}

/// A batch as its collector made it.
struct Made {
    to: To,
    control: u64,
    clock_ms: u64,
    span: u64,
    receipts: Vec<Receipt>,
}

pub struct Referee {
    orders: Vec<Order>,
    specs: [Spec; 2],
    asks: Vec<Ask>,
    /// Events that somebody has told.
    pub events: Vec<Happening>,
    /// Copies of each that are not promised yet.
    unpromised: Vec<usize>,
    promised: Vec<(u64, BatchId, Receipt)>,
    made: BTreeMap<(u64, BatchId), Made>,
    stood: BTreeSet<(u64, BatchId)>,
    /// How often a request stands in a log, by group, in batches that are not void.
    standing: BTreeMap<(Receipt, u16), u64>,
    pub voids: u64,
    pub judges: Vec<Judge>,
    /// The control position behind each batch, by where the batch ends.
    controls: Vec<Vec<(u64, u64)>>,
    pub worths: Vec<Worth>,
    taken: Vec<Vec<u64>>,
    expected: BTreeMap<Receipt, Expected>,
    pub answered: BTreeMap<Receipt, Answer>,
    commits: BTreeMap<(u32, u64), Commit>,
    pub exceptions: Boxes,
    /// The first thing that does not hold.
    pub failure: Option<String>,
}

impl Referee {
    pub fn new() -> Referee {
        Referee {
            orders: Vec::new(),
            specs: [Config::First.spec(), Config::Second.spec()],
            asks: Vec::new(),
            events: Vec::new(),
            unpromised: Vec::new(),
            promised: Vec::new(),
            made: BTreeMap::new(),
            stood: BTreeSet::new(),
            standing: BTreeMap::new(),
            voids: 0,
            judges: (0..FATES).map(|_| Judge::default()).collect(),
            controls: vec![Vec::new(); FATES as usize],
            worths: (0..VALUES).map(|_| Worth::default()).collect(),
            taken: vec![vec![0; FATES as usize]; VALUES as usize],
            expected: BTreeMap::new(),
            answered: BTreeMap::new(),
            commits: BTreeMap::new(),
            exceptions: Boxes::default(),
            failure: None,
        }
    }

    pub fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    pub fn configured(&mut self, config: Config) {
        self.orders.push(Order::Config(config));
    }

    pub fn late_run(&mut self, due_by_ms: u64) {
        self.orders.push(Order::LateRun { due_by_ms });
    }

    pub fn correction(&mut self, kind: Kind, deltas: &[(String, i64)]) {
        self.orders.push(Order::Correct(kind, deltas.to_vec()));
    }

    pub fn cleared(&mut self, what: &str) {
        self.orders.push(Order::Clear(what.to_owned()));
    }

    pub fn reverted(&mut self, generation: u64) {
        self.orders.push(Order::Revert(generation));
    }

    /// The last generation that there is.
    pub fn last_generation(&self) -> u64 {
        self.generation(self.orders.len() as u64)
    }

    fn config_at(&self, control: u64) -> Config {
        let configs = self.orders[..control as usize].iter().rev();
        configs
            .clone()
            .find_map(|order| if let Order::Config(config) = order { Some(*config) } else { None })
            .unwrap_or(Config::First)
    }

    pub fn is_second(&self) -> bool {
        self.config_at(self.orders.len() as u64) == Config::Second
    }

    fn generation(&self, control: u64) -> u64 {
        self.orders[..control as usize].iter().filter(|order| !matches!(order, Order::Config(_))).count() as u64
    }

    pub fn asked(&mut self, ask: &Ask) -> Receipt {
        if let Ask::Event(event) = ask {
            self.events.push(event.clone());
        }
        self.asks.push(ask.clone());
        self.unpromised.push(usize::MAX);
        Receipt(self.asks.len() as u64 - 1)
    }

    pub fn copies(&mut self, receipt: Receipt, copies: usize) {
        self.unpromised[receipt.0 as usize] = copies;
    }

    pub fn made(&mut self, sender: u64, id: BatchId, outgoing: &Outgoing, control: u64, clock_ms: u64) {
        self.made.entry((sender, id)).or_insert_with(|| Made {
            to: outgoing.to,
            control,
            clock_ms,
            span: u64::from(outgoing.payload.count).max(1),
            receipts: outgoing.all_receipts().collect(),
        });
    }

    /// A collector has promised these, as far as they are in this batch.
    pub fn acknowledged(&mut self, sender: u64, id: BatchId, receipts: &[Receipt]) {
        self.promised.extend(receipts.iter().map(|receipt| (sender, id, *receipt)));
    }

    /// A batch stands in a log, for the first time or not. Answers whether the log has control that the batch does not know of.
    pub fn appended(&mut self, sender: u64, id: BatchId, to: To, offset: u64, appended_ms: u64) -> bool {
        let is_first = self.stood.insert((sender, id));
        self.voids += u64::from(!is_first);
        let made = self.made.remove(&(sender, id)).expect("a batch is made before it is sent");
        assert_eq!(made.to, to, "a batch goes where it was made for");
        let known = match to {
            To::Events { partition, .. } => self.judges[partition as usize].control,
            To::Values { partition } => self.worths[partition as usize].control,
        };
        let is_behind = made.control < known;
        match to {
            To::Events { partition, group } => self.judge(partition, group, &made, offset, appended_ms, is_first),
            To::Values { partition } => self.operate(partition, &made, offset, appended_ms, is_first),
        }
        if is_first {
            let group = if let To::Events { group, .. } = to { group } else { 0 };
            for receipt in &made.receipts {
                *self.standing.entry((*receipt, group)).or_default() += 1;
            }
        }
        self.made.insert((sender, id), made);
        is_behind
    }

    fn judge(&mut self, partition: u32, group: u16, made: &Made, offset: u64, appended_ms: u64, is_first: bool) {
        let at = partition as usize;
        self.judges[at].pass_time(appended_ms, made.clock_ms);
        for control in self.judges[at].control..made.control {
            if let Order::LateRun { due_by_ms } = self.orders[control as usize] {
                let generation = self.generation(control + 1);
                self.judges[at].run(offset, due_by_ms, generation);
            }
        }
        let judge = &mut self.judges[at];
        judge.control = judge.control.max(made.control);
        self.controls[at].push((offset + made.span, judge.control));
        if !is_first || group == 0 {
            return;
        }
        let spec = self.specs[self.config_at(made.control) as usize].clone();
        let group = spec.counters[usize::from(group) - 1].group();
        for receipt in &made.receipts {
            let Ask::Event(event) = &self.asks[receipt.0 as usize] else { unreachable!("events are asked as events") };
            self.judges[at].event(&spec, &group, offset, event);
        }
    }

    fn operate(&mut self, partition: u32, made: &Made, offset: u64, appended_ms: u64, is_first: bool) {
        let (at, to) = (partition as usize, offset + made.span);
        self.worths[at].pass_time(to, appended_ms, made.clock_ms);
        self.correct(partition, made.control, to);
        if !is_first {
            return;
        }
        let worth = &mut self.worths[at];
        for receipt in &made.receipts {
            let expected = match &self.asks[receipt.0 as usize] {
                Ask::Add { key, delta } => worth.add(to, key, *delta),
                Ask::AddOnce { key, id, delta } => worth.add_once(to, key, id, *delta),
                Ask::Expire { key, at_ms } => worth.expire(to, key, *at_ms),
                Ask::Event(_) => unreachable!("an event is no operation by name"),
            };
            self.expected.insert(*receipt, expected);
        }
    }

    /// Corrections take effect before the first message that carries a position behind them.
    fn correct(&mut self, partition: u32, to_control: u64, to: u64) {
        let from = self.worths[partition as usize].control;
        for control in from..to_control {
            let generation = self.generation(control + 1);
            let worth = &mut self.worths[partition as usize];
            match &self.orders[control as usize] {
                Order::Config(_) | Order::LateRun { .. } => {}
                Order::Correct(kind, deltas) => {
                    for (key, delta) in deltas {
                        if values_partition(key.as_bytes(), partitions(VALUES)) == partition {
                            worth.correct(to, key, *kind, *delta, generation);
                        }
                    }
                }
                Order::Clear(what) => worth.clear(to, |key| is_of(key, what), generation),
                Order::Revert(of) => worth.revert(to, *of, generation),
            }
        }
        let worth = &mut self.worths[partition as usize];
        worth.control = worth.control.max(to_control);
    }

    /// Whether a clear of a key stands before a place of a values partition that a control position does not know of.
    fn is_behind_clear(&self, partition: u32, control: u64, key: &str) -> bool {
        let known = self.worths[partition as usize].control;
        let orders = self.orders.get(control as usize..known as usize).unwrap_or_default();
        orders.iter().any(|order| matches!(order, Order::Clear(what) if is_of(key, what)))
    }

    /// A slot of a fates partition stands in the log of a values partition.
    pub fn slot(&mut self, partition: u32, part: &SlotPart, offset: u64, appended_ms: u64) -> Remarks {
        let (at, to, of) = (partition as usize, offset + 1, part.partition as usize);
        self.worths[at].pass_time(to, appended_ms, part.log_time_ms);
        self.correct(partition, part.control, to);
        if part.from != self.taken[at][of] {
            return Remarks::default();
        }
        self.taken[at][of] = part.to;
        let behind = self.controls[of].iter().rfind(|(end, _)| *end <= part.to).map_or(0, |(_, control)| *control);
        if behind != part.control {
            self.fail(format!("{part:?} was decided under control {behind}"));
            return Remarks::default();
        }
        self.compare(partition, part);
        self.count(partition, part, to)
    }

    /// A slot says of every key exactly what its entries came to.
    fn compare(&mut self, partition: u32, part: &SlotPart) {
        let of = part.partition as usize;
        let mut right = BTreeMap::<&str, (i64, Option<u64>)>::new();
        for (_, change) in self.judges[of].changes.iter().filter(|(at, _)| (part.from..part.to).contains(at)) {
            let (delta, generation) = right.entry(&change.key).or_default();
            *delta += change.delta;
            *generation = (*generation).max(change.generation);
        }
        right.retain(|key, _| values_partition(key.as_bytes(), partitions(VALUES)) == partition);
        let told: BTreeMap<&str, (i64, Option<u64>)> = part
            .changes
            .iter()
            .filter(|(_, change)| change.counted.is_some() || !change.taken_back.is_empty() || !change.late.is_empty())
            .map(|(id, change)| {
                let taken_back: u64 = change.taken_back.values().sum();
                let sum = change.counted.unwrap_or(0) - taken_back as i64 + change.late.values().sum::<i64>();
                (std::str::from_utf8(id).expect("ids are text here"), (sum, change.late.keys().max().copied()))
            })
            .collect();
        if told != right {
            self.fail(format!("slot [{}, {}) of {of} says {told:?}, and {right:?} is right", part.from, part.to));
        }
    }

    /// What a slot came to counts where it stands.
    fn count(&mut self, partition: u32, part: &SlotPart, to: u64) -> Remarks {
        let mut remarks = Remarks::default();
        let changes = self.judges[part.partition as usize].changes.iter();
        let changes: Vec<Change> = changes
            .filter(|(at, _)| (part.from..part.to).contains(at))
            .map(|(_, change)| change.clone())
            .filter(|change| values_partition(change.key.as_bytes(), partitions(VALUES)) == partition)
            .collect();
        for Change { key, delta, generation, entity } in changes {
            let is_behind = self.is_behind_clear(partition, part.control, &key);
            remarks.is_behind_clear |= is_behind;
            let worth = &mut self.worths[partition as usize];
            match entity {
                None => worth.change(to, &key, delta, generation),
                Some(Of::Count(number)) => worth.count(to, &key, (part.partition, number), is_behind),
                Some(Of::Undo(number)) => remarks.undoes_behind_clear |= worth.undo(to, (part.partition, number)),
            }
        }
        remarks
    }

    /// A commit is written: whoever makes it again makes the same.
    pub fn committed(&mut self, commit: &Commit) {
        let key = (commit.from.log, commit.from.offset);
        match self.commits.get(&key) {
            Some(known) if known == commit => {}
            Some(known) => self.fail(format!("{commit:?} is not {known:?}, which was published before")),
            None => drop(self.commits.insert(key, commit.clone())),
        }
    }

    /// The commits of a partition in their order, from the beginning up to where one is missing.
    pub fn chain(&self, partition: u32) -> impl Iterator<Item = &Commit> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let commit = self.commits.get(&(partition, at))?;
            at = commit.to.offset;
            Some(commit)
        })
    }

    /// A client hears an answer.
    pub fn hears(&mut self, receipt: Receipt, answer: Answer) {
        let expected = self.expected.get(&receipt).copied();
        if !expected.is_some_and(|expected| is_right(expected, answer)) {
            let ask = &self.asks[receipt.0 as usize];
            self.fail(format!("{ask:?} was answered {answer:?}, and {expected:?} is right"));
        }
        self.answered.insert(receipt, answer);
    }

    /// Whether everything that was promised stands in the logs, and nothing twice.
    pub fn check_promises(&mut self) {
        let mut lost = None;
        for (sender, id, receipt) in &self.promised {
            let group = match self.made[&(*sender, *id)].to {
                To::Events { group, .. } => group,
                To::Values { .. } => 0,
            };
            if !self.standing.contains_key(&(*receipt, group)) {
                lost = Some(format!("{:?} was acknowledged and is in no log", self.asks[receipt.0 as usize]));
            }
        }
        let twice = self.standing.iter().find(|(_, times)| **times > 1);
        let twice = twice.map(|((receipt, _), _)| format!("{:?} stands in two batches", self.asks[receipt.0 as usize]));
        if let Some(failure) = lost.or(twice) {
            self.fail(failure);
        }
    }
}

/// Whether a key is what is named, or a key of it.
fn is_of(key: &str, what: &str) -> bool {
    key == what || key.split_once(':').is_some_and(|(name, _)| name == what)
}
