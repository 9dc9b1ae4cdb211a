//! Machines that own fates partitions: what is on them, and what happens to them.

use super::objects::ChainOf;
use super::{World, hasher, partitions};
use crate::fault::Fault;
use std::collections::BTreeMap;
use std::rc::Rc;
use tally_cluster::chain::{Manifest, Nonce, Settled, settle};
use tally_cluster::control::Control;
use tally_cluster::cut::ChainRows;
use tally_cluster::fates::{FatesHead, FatesOwner};
use tally_cluster::message::ToValues;

#[derive(Default)]
pub struct FatesHost {
    pub active: Option<FatesProcess>,
    /// Processes that were replaced and do not know it.
    pub zombies: Vec<FatesProcess>,
    /// Copies of rows on its disk, with the last cut in each; the newest last.
    pub local: Vec<(Nonce, Rc<ChainRows<FatesHead>>)>,
}

pub struct FatesProcess {
    pub owner: FatesOwner,
    rows: ChainRows<FatesHead>,
    seen: Manifest,
    /// How much of the oldest emission is written.
    written: usize,
    /// The manifest that is on its way.
    proposed: Option<Manifest>,
    /// The manifest is there, the local copy is not.
    won: bool,
    owner_id: u64,
}

/// What a process is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatesStep {
    Read {
        wants_cut: bool,
    },
    Emit,
    /// Objects, then the manifest, then the local copy: one of them. `answer_lost`: whoever wrote does not hear of it.
    Cut {
        answer_lost: bool,
    },
}

/// Which copy on its disk a process finds when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalCopy {
    Newest,
    Stale,
    Gone,
}

impl World {
    pub fn start_fates(&mut self, partition: u32) {
        self.start_fates_from(partition, LocalCopy::Newest);
    }

    /// The chain first; what is local is a cache of it, used only if its last cut is in the manifest.
    pub fn start_fates_from(&mut self, partition: u32, copy: LocalCopy) {
        let seen = self.objects.manifest(ChainOf::Fates(partition));
        let local = &self.fates[partition as usize].local;
        let local = match copy {
            LocalCopy::Newest => local.last(),
            LocalCopy::Stale => local.first(),
            LocalCopy::Gone => None,
        };
        let (mut rows, last) = match local {
            Some((last, rows)) if seen.behind(Some(*last)).is_some() => ((**rows).clone(), Some(*last)),
            _ => (ChainRows::default(), None),
        };
        for cut in seen.behind(last).expect("a copy that does not fit is not used") {
            rows.add(&self.objects.fates[cut]).expect("cuts can be read");
        }
        let owner = FatesOwner::resume(partition, partitions(super::VALUES), hasher(), &rows);
        let owner_id = self.nonce();
        self.note(format_args!("fates {partition} starts at {} from cut {}", owner.next(), rows.to));
        let process = FatesProcess { owner, rows, seen, written: 0, proposed: None, won: false, owner_id };
        self.fates[partition as usize].active = Some(process);
    }

    /// A process does one thing. Answers whether there was something to do.
    pub fn step_fates(&mut self, partition: u32, zombie: Option<usize>, step: FatesStep) -> bool {
        let host = &mut self.fates[partition as usize];
        let process = match zombie {
            None => host.active.take(),
            Some(at) if at < host.zombies.len() => Some(host.zombies.swap_remove(at)),
            Some(_) => None,
        };
        let Some(mut process) = process else { return false };
        let (has_done, lives) = match step {
            FatesStep::Read { wants_cut } => (self.read_fates(partition, &mut process, wants_cut), true),
            FatesStep::Emit => (self.emit(partition, &mut process), true),
            FatesStep::Cut { answer_lost } => self.cut_fates(partition, &mut process, answer_lost),
        };
        let host = &mut self.fates[partition as usize];
        match zombie {
            _ if !lives => {}
            None => host.active = Some(process),
            Some(_) => host.zombies.push(process),
        }
        has_done
    }

    fn read_fates(&mut self, partition: u32, process: &mut FatesProcess, wants_cut: bool) -> bool {
        let Some(logged) = self.events[partition as usize].read(process.owner.next()) else { return false };
        let control = Control(&self.control);
        let FatesProcess { owner, rows, .. } = process;
        owner.take(&logged, control, rows, wants_cut).expect("a simulated owner has all of control");
        true
    }

    /// Writes the next piece of what a slot came to: first the commit, then a part for each values partition.
    fn emit(&mut self, partition: u32, process: &mut FatesProcess) -> bool {
        let Some(emission) = process.owner.outbox().next().cloned() else { return false };
        if process.written == 0 {
            self.referee.committed(&emission.commit);
            self.commits[partition as usize].push(emission.commit);
        } else {
            let part = emission.parts[process.written - 1].clone();
            let to = process.written as u32 - 1;
            let appended_ms = self.broker_ms();
            let offset = self.values_log[to as usize].append(appended_ms, ToValues::Slot(part.clone()));
            self.trace
                .note(format_args!("slot [{}, {}) of {partition} at {offset} of values {to}", part.from, part.to));
            self.referee.slot(to, &part, offset, appended_ms);
        }
        process.written += 1;
        if process.written > super::VALUES as usize {
            process.owner.emitted();
            process.written = 0;
        }
        true
    }

    /// Answers whether there was something to do, and whether the process goes on.
    fn cut_fates(&mut self, partition: u32, process: &mut FatesProcess, answer_lost: bool) -> (bool, bool) {
        let of = ChainOf::Fates(partition);
        if process.won {
            let cut = process.owner.cut_is_final();
            process.rows.add(&cut).expect("it was made of what can be read");
            process.won = false;
            let last = process.seen.nonce.expect("it was written with one");
            self.fates[partition as usize].local.push((last, Rc::new(process.rows.clone())));
            return (true, true);
        }
        let Some(proposed) = process.proposed.clone() else {
            let Some(cut) = process.owner.ready_cut() else { return (false, true) };
            let object = Rc::new(cut.clone());
            let nonce = Nonce(self.nonce());
            self.objects.fates.insert(nonce, object);
            process.proposed = Some(process.seen.with_cut(process.owner_id, nonce));
            return (true, true);
        };
        let is_replaced = self.objects.replace(of, &process.seen, proposed.clone());
        self.note(format_args!("manifest {} of {of:?}: {is_replaced}", proposed.number));
        if answer_lost {
            self.hit(Fault::StoreAnswerLost);
            return (true, true);
        }
        let settled = if is_replaced {
            Settled::Won
        } else {
            self.hit(Fault::StoreFenced);
            settle(&process.seen, &proposed, &self.objects.manifest(of))
        };
        match settled {
            Settled::Won => {
                (process.seen, process.proposed, process.won) = (proposed, None, true);
                (true, true)
            }
            Settled::Open => (true, true),
            Settled::Fenced => (true, false),
        }
    }

    /// What the chain of a partition adds up to, as its owner has it.
    pub fn facts_of(&self, partition: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.fates[partition as usize].active.as_ref().map(|process| process.rows.facts().clone()).unwrap_or_default()
    }

    /// A process dies; which fault that is depends on where it stood.
    pub fn crash_fates(&mut self, partition: u32) {
        let Some(process) = self.fates[partition as usize].active.take() else { return };
        let fault = if process.won {
            Fault::CrashBehindManifest
        } else if process.proposed.is_some() {
            Fault::CrashBeforeManifest
        } else if process.written > 0 {
            Fault::CrashBetweenParts
        } else if process.owner.outbox().next().is_some() {
            Fault::CrashBeforeCommit
        } else {
            Fault::CrashReading
        };
        self.hit(fault);
    }

    /// A process is taken for dead, and is not.
    pub fn replace_fates(&mut self, partition: u32) {
        self.hit(Fault::Zombie);
        let host = &mut self.fates[partition as usize];
        host.zombies.extend(host.active.take());
    }
}
