//! What only a running node can say: whether it starts, what every key comes to when it is counted again, and whether parts and totals add up.
//! It runs on the clone, listens nowhere, and is stopped without anybody having noticed.

use super::report::{Check, Finding, Fix, Verified};
use super::scratch::Scratch;
use super::{Tell, Verifying};
use crate::assemble::{Node, Options};
use crate::clock::rfc3339;
use crate::engine::{Refusal, Snapshot};
use crate::reconcile::{Compared, Report, Wanted};
use std::collections::BTreeMap;
use std::sync::Arc;
use tally_core::counter::Declarations;
use tally_core::values::KeptRollup;
use tokio::runtime::Runtime;

/// Keys that are read at a time.
const KEYS: usize = 10_000;

pub fn run(runtime: &Runtime, what: &Verifying, scratch: &Scratch, verified: &mut Verified, tell: Tell<'_>) {
    tell("starting on the clone", 0, 1);
    let options = Options {
        memory_bytes: what.memory_bytes,
        archive: scratch.archive(),
        sql: Some(what.sql),
        // What is looked at is what is there, whatever time it is.
        accept_clock: true,
        fill_rollups: false,
        ..Options::new(scratch.data())
    };
    let mut start = Check::new("start");
    let node = match Node::start(options) {
        Ok(node) => node,
        Err(error) => {
            start.find(Finding::new(scratch.meant(&error.to_string()), Fix::Backup));
            verified.checks.push(start);
            let why = "a start is refused";
            ["recount", "parts"].into_iter().for_each(|name| verified.skip(name, why));
            return;
        }
    };
    let found = node.recovered();
    start.said = format!("{} counters, {} records replayed", found.counters, found.replayed_records);
    verified.checks.push(start);
    match scratch.archive().is_some() {
        true => verified.checks.push(recount(runtime, &node, scratch, tell)),
        false => verified.skip("recount", "there is no archive"),
    }
    verified.checks.push(parts(runtime, &node, scratch, tell));
    // It is a clone, and what it would still write is of no use to anybody.
    let _ = node.stop();
}

/// Counts every key again, and says which are not worth what they should be.
fn recount(runtime: &Runtime, node: &Node, scratch: &Scratch, tell: Tell<'_>) -> Check {
    tell("counting again", 0, 1);
    let mut check = Check::new("recount");
    let (Some(archive), Some(reconcile)) = (node.archive(), node.reconcile()) else {
        check.skipped = Some("what is declared has no archive".to_owned());
        return check;
    };
    if let Err(refusal) = runtime.block_on(archive.flush()) {
        check.find(Finding::new(scratch.meant(&format!("the archive does not go on: {refusal}")), Fix::Archive));
        return check;
    }
    match runtime.block_on(reconcile.run(Wanted::default())) {
        Ok(report) => differences(&report, scratch, &mut check),
        Err(error) => check.find(Finding::new(scratch.meant(&error.to_string()), Fix::Archive)),
    }
    check
}

fn differences(report: &Report, scratch: &Scratch, check: &mut Check) {
    let (mut keys_seen, mut not) = (0, Vec::new());
    for counter in &report.counters {
        let name = &counter.counter;
        match &counter.compared {
            Compared::Not(why) => not.push(format!("{name}: {why}")),
            Compared::Failed(why) => check.find(Finding::new(scratch.meant(&format!("{name}: {why}")), Fix::Archive)),
            Compared::With { keys, differences, has_more, .. } => {
                keys_seen += keys;
                for difference in differences {
                    let (id, live, recount) = (&difference.id, difference.live, difference.recount);
                    let of = difference.bucket_ms.map(|ms| format!(" of the bucket {}", rfc3339(ms)));
                    let of = of.unwrap_or_default();
                    let what =
                        format!("{id} is worth {live}{of}, and {recount} when it is counted again from the archive");
                    let finding = Finding::new(what, Fix::Reconcile).instead_of(live, recount);
                    check.find(Finding { counter: Some(name.clone()), key: Some(id.clone()), ..finding });
                }
                check.more += u64::from(*has_more);
            }
        }
    }
    check.said = format!("{keys_seen} keys of {} counters at {}", report.counters.len(), report.position);
    if !not.is_empty() {
        check.said += &format!(" (not compared: {})", not.join("; "));
    }
}

/// The parts of each roll-up add up to their key, and the keys to the total of their counter.
fn parts(runtime: &Runtime, node: &Node, scratch: &Scratch, tell: Tell<'_>) -> Check {
    let mut check = Check::new("parts");
    let added =
        runtime.block_on(node.engine().base()).and_then(|snapshot| Adding::new(&snapshot, &mut check)?.all(tell));
    if let Err(refusal) = added {
        check.find(Finding::new(scratch.meant(&refusal.to_string()), Fix::Backup));
    }
    check
}

struct Adding<'a> {
    snapshot: &'a Snapshot,
    declarations: Arc<Declarations>,
    check: &'a mut Check,
    log_time_ms: u64,
    keys: u64,
    parts: u64,
    /// What the keys of each declared counter come to.
    totals: BTreeMap<String, i128>,
}

impl<'a> Adding<'a> {
    fn new(snapshot: &'a Snapshot, check: &'a mut Check) -> Result<Adding<'a>, Refusal> {
        let state = snapshot.state()?;
        let (declarations, log_time_ms) = (state.declarations().clone(), state.log_time_ms());
        Ok(Adding { snapshot, declarations, check, log_time_ms, keys: 0, parts: 0, totals: BTreeMap::new() })
    }

    fn all(mut self, tell: Tell<'_>) -> Result<(), Refusal> {
        let mut after = None;
        loop {
            let page = self.snapshot.page(after.as_deref(), KEYS)?;
            for (id, reading) in &page.counters {
                self.key(id, reading.value)?;
            }
            tell("parts and totals", self.keys, self.snapshot.counters());
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.compare_totals()?;
        self.check.said = format!("{} keys, {} parts of them", self.keys, self.parts);
        Ok(())
    }

    fn key(&mut self, id: &[u8], value: i64) -> Result<(), Refusal> {
        self.keys += 1;
        let declarations = self.declarations.clone();
        let Some(counter) = declarations.counter_of(id) else { return Ok(()) };
        *self.totals.entry(counter.name.to_string()).or_default() += i128::from(value);
        let log_time_ms = self.log_time_ms;
        for kept in declarations.rollups_of(&counter.name).iter().filter(|kept| adds_up(kept, log_time_ms)) {
            let (mut parts, mut sum) = (0, 0_i128);
            self.snapshot.parts(id, kept, &mut |_, _, _, part| {
                parts += 1;
                sum += i128::from(part);
            })?;
            self.parts += parts;
            if sum != i128::from(value) {
                let (id, rollup) = (String::from_utf8_lossy(id), kept.rollup.words().collect::<Vec<_>>().join(", "));
                let what = format!("{id} is worth {value}, and its parts by {rollup} add up to {sum}");
                let finding = Finding::new(what, Fix::Backup).instead_of(sum, value);
                let (counter, key) = (Some(counter.name.to_string()), Some(id.into_owned()));
                self.check.find(Finding { counter, key, ..finding });
            }
        }
        Ok(())
    }

    fn compare_totals(&mut self) -> Result<(), Refusal> {
        let state = self.snapshot.state()?;
        for counter in self.declarations.counters() {
            let Some(sums) = state.balance(&counter.name).and_then(|balance| balance.sums) else { continue };
            let found = self.totals.get(&*counter.name).copied().unwrap_or_default();
            // What restores brings keys to what was counted: if they were wrong and their sums were not, it is in their sums now.
            let expected = sums.counted + sums.adjusted;
            if found != expected && found != expected + sums.restored {
                let name = counter.name.to_string();
                let what = format!("the keys of {name} add up to {found}, and {expected} was counted for them");
                let finding = Finding::new(what, Fix::Total).instead_of(found, expected);
                self.check.find(Finding { counter: Some(name), ..finding });
            }
        }
        Ok(())
    }
}

/// Whether all of a key is in its parts: not if they began later, or some are gone.
fn adds_up(kept: &KeptRollup, log_time_ms: u64) -> bool {
    kept.since_ms.is_none() && kept.available(log_time_ms).is_none_or(|available| available.has_all())
}
