//! Machines that own values partitions.

use super::fates::LocalCopy;
use super::objects::ChainOf;
use super::{FATES, VALUES, World, hasher, partitions};
use crate::fault::Fault;
use std::rc::Rc;
use tally_cluster::chain::{Manifest, Nonce, Settled, settle};
use tally_cluster::collect::BatchId;
use tally_cluster::control::Control;
use tally_cluster::cut::ChainRows;
use tally_cluster::values::{ValuesEffects, ValuesHead, ValuesOwner};
use tally_cluster::view::ViewWriter;

#[derive(Default)]
pub struct ValuesHost {
    pub active: Option<ValuesProcess>,
    pub zombies: Vec<ValuesProcess>,
    pub local: Vec<(Nonce, Rc<ChainRows<ValuesHead>>)>,
}

pub struct ValuesProcess {
    pub owner: ValuesOwner,
    pub rows: ChainRows<ValuesHead>,
    pub writer: ViewWriter,
    seen: Manifest,
    proposed: Option<Manifest>,
    won: bool,
    owner_id: u64,
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
        let seen = self.objects.manifest(ChainOf::Values(partition));
        let local = &self.values[partition as usize].local;
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
            rows.add(&self.objects.values[cut]).expect("cuts can be read");
        }
        let owner = ValuesOwner::resume(partition, partitions(VALUES), FATES, hasher(), &rows);
        let owner_id = self.nonce();
        self.note(format_args!("values {partition} starts at {}", owner.next()));
        // What it has to publish it finds out by what it knows and the view does not.
        let mut writer = ViewWriter::default();
        writer.changed(owner.ids());
        let process = ValuesProcess { owner, rows, writer, seen, proposed: None, won: false, owner_id };
        self.values[partition as usize].active = Some(process);
    }

    pub fn step_values(&mut self, partition: u32, zombie: Option<usize>, step: ValuesStep) -> bool {
        let host = &mut self.values[partition as usize];
        let process = match zombie {
            None => host.active.take(),
            Some(at) if at < host.zombies.len() => Some(host.zombies.swap_remove(at)),
            Some(_) => None,
        };
        let Some(mut process) = process else { return false };
        let (has_done, lives) = match step {
            ValuesStep::Read { answer_lost } => (self.read_values(partition, &mut process, answer_lost), true),
            ValuesStep::Publish { answer_lost } => (self.publish(partition, &mut process, answer_lost), true),
            ValuesStep::Cut { answer_lost } => self.cut_values(partition, &mut process, answer_lost),
        };
        let host = &mut self.values[partition as usize];
        match zombie {
            _ if !lives => {}
            None => host.active = Some(process),
            Some(_) => host.zombies.push(process),
        }
        has_done
    }

    fn read_values(&mut self, partition: u32, process: &mut ValuesProcess, answer_lost: bool) -> bool {
        let ValuesProcess { owner, rows, writer, .. } = process;
        let Some(logged) = self.values_log[partition as usize].read(owner.next()) else { return false };
        let effects = match owner.take(&logged, Control(&self.control), rows) {
            Ok(effects) => effects,
            Err(error) => {
                self.referee.fail(format!("values {partition} stops: {error}"));
                return false;
            }
        };
        let ValuesEffects { answers, changed } = effects;
        writer.changed(changed.iter().map(|id| &**id));
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

    fn cut_values(&mut self, partition: u32, process: &mut ValuesProcess, answer_lost: bool) -> (bool, bool) {
        let of = ChainOf::Values(partition);
        if process.won {
            let cut = process.owner.cut_is_final();
            process.rows.add(&cut).expect("it was made of what can be read");
            process.won = false;
            let last = process.seen.nonce.expect("it was written with one");
            self.values[partition as usize].local.push((last, Rc::new(process.rows.clone())));
            return (true, true);
        }
        let Some(proposed) = process.proposed.clone() else {
            if process.owner.cut().is_none() {
                process.owner.begin_cut();
                return (true, true);
            }
            let nonce = Nonce(self.nonce());
            let object = Rc::new(process.owner.cut().expect("it was begun").clone());
            self.objects.values.insert(nonce, object);
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

    pub fn crash_values(&mut self, partition: u32) {
        let Some(process) = self.values[partition as usize].active.take() else { return };
        self.hit(match (process.won, process.proposed.is_some()) {
            (true, _) => Fault::CrashBehindManifest,
            (_, true) => Fault::CrashBeforeManifest,
            _ => Fault::CrashReading,
        });
    }

    pub fn replace_values(&mut self, partition: u32) {
        self.hit(Fault::Zombie);
        let host = &mut self.values[partition as usize];
        host.zombies.extend(host.active.take());
    }
}
