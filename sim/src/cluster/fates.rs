//! Machines that own fates partitions: what is on them, and what happens to them.

use super::chains::{Chain, Chained, Copies, CutStep, Cuts, Host, LocalCopy};
use super::objects::{ChainOf, Objects};
use super::{World, hasher, partitions};
use crate::fault::Fault;
use std::collections::BTreeMap;
use tally_cluster::control::Control;
use tally_cluster::cut::PartitionCut;
use tally_cluster::fates::{FatesHead, FatesOwner};
use tally_cluster::message::ToValues;

pub type FatesHost = Host<FatesProcess, FatesHead>;

pub struct FatesProcess {
    pub owner: FatesOwner,
    chain: Chain<FatesHead>,
    /// How much of the oldest emission is written.
    written: usize,
}

impl Chained for FatesOwner {
    type Head = FatesHead;

    fn chain_of(partition: u32) -> ChainOf {
        ChainOf::Fates(partition)
    }

    fn cuts(objects: &mut Objects) -> &mut Cuts<FatesHead> {
        &mut objects.fates
    }

    fn copies(world: &mut World, partition: u32) -> &mut Copies<FatesHead> {
        &mut world.fates[partition as usize].local
    }

    fn ready(&self) -> Option<&PartitionCut<FatesHead>> {
        self.ready_cut()
    }

    fn is_final(&mut self) -> PartitionCut<FatesHead> {
        self.cut_is_final()
    }
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

impl World {
    pub fn start_fates(&mut self, partition: u32) {
        self.start_fates_from(partition, LocalCopy::Newest);
    }

    pub fn start_fates_from(&mut self, partition: u32, copy: LocalCopy) {
        let chain = self.read_chain::<FatesOwner>(partition, copy);
        let owner = FatesOwner::resume(partition, partitions(super::VALUES), hasher(), &chain.rows);
        self.note(format_args!("fates {partition} starts at {} from cut {}", owner.next(), chain.rows.to));
        self.fates[partition as usize].active = Some(FatesProcess { owner, chain, written: 0 });
    }

    /// A process does one thing. Answers whether there was something to do.
    pub fn step_fates(&mut self, partition: u32, zombie: Option<usize>, step: FatesStep) -> bool {
        let Some(mut process) = self.fates[partition as usize].take(zombie) else { return false };
        let done = match step {
            FatesStep::Read { wants_cut } => self.read_fates(partition, &mut process, wants_cut),
            FatesStep::Emit => self.emit(partition, &mut process),
            FatesStep::Cut { answer_lost } => {
                let FatesProcess { owner, chain, .. } = &mut process;
                match self.step_cut(partition, owner, chain, answer_lost) {
                    CutStep::Fenced => return true,
                    done => done == CutStep::Done,
                }
            }
        };
        self.fates[partition as usize].put_back(zombie, process);
        done
    }

    fn read_fates(&mut self, partition: u32, process: &mut FatesProcess, wants_cut: bool) -> bool {
        let Some(logged) = self.events[partition as usize].read(process.owner.next()) else { return false };
        let control = Control(&self.control);
        let FatesProcess { owner, chain, .. } = process;
        owner.take(&logged, control, &chain.rows, wants_cut).expect("a simulated owner has all of control");
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
            let remarks = self.referee.slot(to, &part, offset, appended_ms);
            if remarks.is_behind_clear {
                self.hit(Fault::BehindClear);
            }
            if remarks.undoes_behind_clear {
                self.hit(Fault::UndoneBehindClear);
            }
        }
        process.written += 1;
        if process.written > super::VALUES as usize {
            process.owner.emitted();
            process.written = 0;
        }
        true
    }

    /// What the chain of a partition adds up to, as its owner has it.
    pub fn facts_of(&self, partition: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.fates[partition as usize]
            .active
            .as_ref()
            .map(|process| process.chain.rows.facts().clone())
            .unwrap_or_default()
    }

    /// A process dies; which fault that is depends on where it stood.
    pub fn crash_fates(&mut self, partition: u32) {
        let Some(process) = self.fates[partition as usize].active.take() else { return };
        let fault = process.chain.crash().unwrap_or(if process.written > 0 {
            Fault::CrashBetweenParts
        } else if process.owner.outbox().next().is_some() {
            Fault::CrashBeforeCommit
        } else {
            Fault::CrashReading
        });
        self.hit(fault);
    }

    /// A process is taken for dead, and is not.
    pub fn replace_fates(&mut self, partition: u32) {
        self.hit(Fault::Zombie);
        self.fates[partition as usize].replace();
    }
}
