//! Machines that own values partitions.

use super::chains::{Chain, Chained, Copies, CutStep, Cuts, Host, LocalCopy};
use super::objects::{ChainOf, Objects};
use super::{FATES, VALUES, World, hasher, partitions};
use crate::fault::Fault;
use tally_cluster::collect::BatchId;
use tally_cluster::control::Control;
use tally_cluster::cut::PartitionCut;
use tally_cluster::values::{ValuesEffects, ValuesHead, ValuesOwner};
use tally_cluster::view::ViewWriter;

pub type ValuesHost = Host<ValuesProcess, ValuesHead>;

pub struct ValuesProcess {
    pub owner: ValuesOwner,
    pub chain: Chain<ValuesHead>,
    pub writer: ViewWriter,
}

impl Chained for ValuesOwner {
    type Head = ValuesHead;

    fn chain_of(partition: u32) -> ChainOf {
        ChainOf::Values(partition)
    }

    fn cuts(objects: &mut Objects) -> &mut Cuts<ValuesHead> {
        &mut objects.values
    }

    fn copies(world: &mut World, partition: u32) -> &mut Copies<ValuesHead> {
        &mut world.values[partition as usize].local
    }

    fn ready(&self) -> Option<&PartitionCut<ValuesHead>> {
        self.cut()
    }

    fn is_final(&mut self) -> PartitionCut<ValuesHead> {
        self.cut_is_final()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesStep {
    Read {
        answer_lost: bool,
    },
    /// The next step of a cut, which is begun if none is on its way.
    Cut {
        answer_lost: bool,
    },
    /// Writes what is due to the view.
    Publish {
        answer_lost: bool,
    },
}

impl World {
    pub fn start_values(&mut self, partition: u32) {
        self.start_values_from(partition, LocalCopy::Newest);
    }

    pub fn start_values_from(&mut self, partition: u32, copy: LocalCopy) {
        let chain = self.read_chain::<ValuesOwner>(partition, copy);
        let mut owner = ValuesOwner::resume(partition, partitions(VALUES), FATES, hasher(), &chain.rows);
        owner.follow();
        self.note(format_args!("values {partition} starts at {}", owner.next()));
        // What it has to publish it finds out by what it knows and the view does not.
        let mut writer = ViewWriter::default();
        writer.changed(owner.ids());
        self.values[partition as usize].active = Some(ValuesProcess { owner, chain, writer });
    }

    pub fn step_values(&mut self, partition: u32, zombie: Option<usize>, step: ValuesStep) -> bool {
        let Some(mut process) = self.values[partition as usize].take(zombie) else { return false };
        let done = match step {
            ValuesStep::Read { answer_lost } => self.read_values(partition, &mut process, answer_lost),
            ValuesStep::Publish { answer_lost } => self.publish(partition, &mut process, answer_lost),
            ValuesStep::Cut { answer_lost } => match self.cut_values(partition, &mut process, answer_lost) {
                CutStep::Fenced => return true,
                done => done == CutStep::Done,
            },
        };
        self.values[partition as usize].put_back(zombie, process);
        done
    }

    fn read_values(&mut self, partition: u32, process: &mut ValuesProcess, answer_lost: bool) -> bool {
        let ValuesProcess { owner, chain, writer } = process;
        let from = owner.next();
        let Some(logged) = self.values_log[partition as usize].read(owner.next()) else { return false };
        let effects = match owner.take(&logged, Control(&self.control), &chain.rows) {
            Ok(effects) => effects,
            Err(error) => {
                self.referee.fail(format!("values {partition} stops: {error}"));
                return false;
            }
        };
        let to = owner.next();
        let ValuesEffects { answers, changed, deltas, corrections } = effects;
        writer.changed(changed.iter().map(|id| &**id));
        self.tell(partition, from, to, &deltas.expect("it is followed"), &corrections);
        let Some((head, answers)) = answers else { return true };
        if answer_lost && !answers.is_empty() {
            self.hit(Fault::AnswerLost);
            return true;
        }
        let id = BatchId { incarnation: head.incarnation, seq: head.seq };
        let process = self.collectors[head.sender as usize].process.as_mut();
        for (receipt, answer) in process.map(|process| process.answered(id, &answers)).unwrap_or_default() {
            self.referee.hears(receipt, answer);
        }
        true
    }

    /// The next step of a cut, which is begun if none is on its way.
    fn cut_values(&mut self, partition: u32, process: &mut ValuesProcess, answer_lost: bool) -> CutStep {
        let ValuesProcess { owner, chain, .. } = process;
        if chain.is_idle() && owner.cut().is_none() {
            owner.begin_cut();
            return CutStep::Done;
        }
        self.step_cut(partition, owner, chain, answer_lost)
    }

    pub fn crash_values(&mut self, partition: u32) {
        let Some(process) = self.values[partition as usize].active.take() else { return };
        self.hit(process.chain.crash().unwrap_or(Fault::CrashReading));
    }

    pub fn replace_values(&mut self, partition: u32) {
        self.hit(Fault::Zombie);
        self.values[partition as usize].replace();
    }
}
