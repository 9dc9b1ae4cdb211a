//! Machines that own partitions, whichever they are of: processes that are replaced and do not know it, and the chain of cuts, whose
//! objects come first, then the manifest, then the local copy.

use super::World;
use super::objects::{ChainOf, Objects};
use crate::fault::Fault;
use std::collections::BTreeMap;
use std::rc::Rc;
use tally_cluster::chain::{Manifest, Nonce, Settled, settle};
use tally_cluster::cut::{ChainRows, PartitionCut};

/// Cuts by the names of their objects.
pub type Cuts<H> = BTreeMap<Nonce, Rc<PartitionCut<H>>>;

/// Copies of rows on a disk, with the last cut in each; the newest last.
pub type Copies<H> = Vec<(Nonce, Rc<ChainRows<H>>)>;

/// An owner whose cuts go into a chain.
pub trait Chained {
    type Head: Clone;

    fn chain_of(partition: u32) -> ChainOf;
    fn cuts(objects: &mut Objects) -> &mut Cuts<Self::Head>;
    fn copies(world: &mut World, partition: u32) -> &mut Copies<Self::Head>;
    /// The cut that may go into the chain.
    fn ready(&self) -> Option<&PartitionCut<Self::Head>>;
    fn is_final(&mut self) -> PartitionCut<Self::Head>;
}

/// A machine.
pub struct Host<P, H> {
    pub active: Option<P>,
    /// Processes that were replaced and do not know it.
    pub zombies: Vec<P>,
    pub local: Copies<H>,
}

impl<P, H> Default for Host<P, H> {
    fn default() -> Host<P, H> {
        Host { active: None, zombies: Vec::new(), local: Vec::new() }
    }
}

impl<P, H> Host<P, H> {
    /// Whoever is to do something.
    pub fn take(&mut self, zombie: Option<usize>) -> Option<P> {
        match zombie {
            None => self.active.take(),
            Some(at) => (at < self.zombies.len()).then(|| self.zombies.swap_remove(at)),
        }
    }

    pub fn put_back(&mut self, zombie: Option<usize>, process: P) {
        match zombie {
            None => self.active = Some(process),
            Some(_) => self.zombies.push(process),
        }
    }

    /// A process is taken for dead, and is not.
    pub fn replace(&mut self) {
        self.zombies.extend(self.active.take());
    }
}

/// What a process knows of its chain.
pub struct Chain<H> {
    pub rows: ChainRows<H>,
    seen: Manifest,
    /// The manifest that is on its way.
    proposed: Option<Manifest>,
    /// The manifest is there, the local copy is not.
    won: bool,
    owner_id: u64,
}

impl<H> Chain<H> {
    pub fn is_idle(&self) -> bool {
        self.proposed.is_none() && !self.won
    }

    /// Where in a cut a process stands that dies now.
    pub fn crash(&self) -> Option<Fault> {
        match (self.won, self.proposed.is_some()) {
            (true, _) => Some(Fault::CrashBehindManifest),
            (_, true) => Some(Fault::CrashBeforeManifest),
            _ => None,
        }
    }
}

/// Which copy on its disk a process finds when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalCopy {
    Newest,
    Stale,
    Gone,
}

/// What a step of a cut came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutStep {
    Nothing,
    Done,
    /// Somebody else owns the partition: whoever finds that stops.
    Fenced,
}

impl World {
    /// The chain first; what is local is a cache of it, used only if its last cut is in the manifest.
    pub(super) fn read_chain<O: Chained>(&mut self, partition: u32, copy: LocalCopy) -> Chain<O::Head> {
        let seen = self.objects.manifest(O::chain_of(partition));
        let local = O::copies(self, partition);
        let local = match copy {
            LocalCopy::Newest => local.last(),
            LocalCopy::Stale => local.first(),
            LocalCopy::Gone => None,
        };
        let (mut rows, last) = match local {
            Some((last, rows)) if seen.behind(Some(*last)).is_some() => ((**rows).clone(), Some(*last)),
            _ => (ChainRows::default(), None),
        };
        let cuts = O::cuts(&mut self.objects);
        for cut in seen.behind(last).expect("a copy that does not fit is not used") {
            rows.add(&cuts[cut]).expect("cuts can be read");
        }
        Chain { rows, seen, proposed: None, won: false, owner_id: self.nonce() }
    }

    /// Objects, then the manifest, then the local copy: one of them.
    pub(super) fn step_cut<O: Chained>(
        &mut self,
        partition: u32,
        owner: &mut O,
        chain: &mut Chain<O::Head>,
        answer_lost: bool,
    ) -> CutStep {
        if chain.won {
            chain.rows.add(&owner.is_final()).expect("it was made of what can be read");
            chain.won = false;
            let last = chain.seen.nonce.expect("it was written with one");
            O::copies(self, partition).push((last, Rc::new(chain.rows.clone())));
            return CutStep::Done;
        }
        match chain.proposed.clone() {
            Some(proposed) => self.propose(O::chain_of(partition), chain, proposed, answer_lost),
            None => {
                let Some(cut) = owner.ready() else { return CutStep::Nothing };
                let (object, nonce) = (Rc::new(cut.clone()), Nonce(self.nonce()));
                O::cuts(&mut self.objects).insert(nonce, object);
                chain.proposed = Some(chain.seen.with_cut(chain.owner_id, nonce));
                CutStep::Done
            }
        }
    }

    fn propose<H>(&mut self, of: ChainOf, chain: &mut Chain<H>, proposed: Manifest, answer_lost: bool) -> CutStep {
        let is_replaced = self.objects.replace(of, &chain.seen, proposed.clone());
        self.note(format_args!("manifest {} of {of:?}: {is_replaced}", proposed.number));
        if answer_lost {
            self.hit(Fault::StoreAnswerLost);
            return CutStep::Done;
        }
        let settled = if is_replaced {
            Settled::Won
        } else {
            self.hit(Fault::StoreFenced);
            settle(&chain.seen, &proposed, &self.objects.manifest(of))
        };
        match settled {
            Settled::Won => {
                (chain.seen, chain.proposed, chain.won) = (proposed, None, true);
                CutStep::Done
            }
            Settled::Open => CutStep::Done,
            Settled::Fenced => CutStep::Fenced,
        }
    }
}
