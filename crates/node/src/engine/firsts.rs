//! What came first under event ids: from memory, or from the store for those that a checkpoint took there.

use super::question::Question;
use super::{Engine, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tally_core::ledger::{FirstChunks, FirstKey, LedgerKey};
use tally_core::machine::Machine;

/// Contents by what they were asked for; those that were claimed before contents were kept are not there.
pub(super) type FirstContents = BTreeMap<FirstKey, Vec<u8>>;

struct FirstsOf(Arc<BTreeSet<FirstKey>>);

impl Question for FirstsOf {
    type Answer = FirstChunks;

    fn answer(self, state: &Machine) -> FirstChunks {
        state.fates.facts.firsts.chunks(&self.0)
    }
}

impl Engine {
    pub(super) async fn firsts(&self, wanted: BTreeSet<FirstKey>) -> Result<FirstContents, Refusal> {
        if wanted.is_empty() {
            return Ok(FirstContents::new());
        }
        let wanted = Arc::new(wanted);
        let (chunks, view) = self.view(FirstsOf(wanted.clone())).await?;
        let asked = wanted.clone();
        let mut found = self.shared.blocking(move || chunks.find(&asked)).await?;
        let missing: Vec<FirstKey> = wanted.iter().filter(|key| !found.contains_key(*key)).copied().collect();
        let keys = missing.iter().map(|key| LedgerKey::First(key.0, key.1).encode()).collect();
        for (key, content) in missing.into_iter().zip(view.many(keys).await?) {
            found.extend(content.map(|content| (key, content)));
        }
        Ok(found)
    }
}
