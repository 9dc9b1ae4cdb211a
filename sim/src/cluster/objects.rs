//! An object store: objects that never change, and manifests that are replaced by compare-and-swap.

use super::chains::Cuts;
use std::collections::BTreeMap;
use tally_cluster::chain::Manifest;
use tally_cluster::fates::FatesHead;
use tally_cluster::values::ValuesHead;

/// Whose chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChainOf {
    Fates(u32),
    Values(u32),
}

#[derive(Default)]
pub struct Objects {
    pub fates: Cuts<FatesHead>,
    pub values: Cuts<ValuesHead>,
    manifests: BTreeMap<ChainOf, Manifest>,
}

impl Objects {
    pub fn manifest(&self, of: ChainOf) -> Manifest {
        self.manifests.get(&of).cloned().unwrap_or_default()
    }

    /// Replaces a manifest, if it is the one that the caller has seen. 412 otherwise.
    pub fn replace(&mut self, of: ChainOf, seen: &Manifest, new: Manifest) -> bool {
        let is_seen = self.manifest(of) == *seen;
        if is_seen {
            self.manifests.insert(of, new);
        }
        is_seen
    }
}
