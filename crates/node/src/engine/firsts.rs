//! What came first under event ids: from memory, or from the store for those that a checkpoint took there.

use super::shared::Shared;
use super::{Engine, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use tally_core::aggregate::State;
use tally_core::ledger::{FirstChunks, FirstKey, LedgerKey};

/// Contents by what they were asked for; those that were claimed before contents were kept are not there.
pub type FirstContents = BTreeMap<FirstKey, Vec<u8>>;

impl Engine {
    /// Memory is asked first: what leaves it is in the store already.
    pub async fn firsts(&self, wanted: BTreeSet<FirstKey>) -> Result<FirstContents, Refusal> {
        if wanted.is_empty() {
            return Ok(FirstContents::new());
        }
        let look = move |state: &mut State| {
            let chunks = state.fates.firsts.chunks(&wanted);
            (wanted, chunks, state.values.store_is_void)
        };
        let (wanted, chunks, store_is_void) = self.visit(look).await?;
        let shared = self.shared.clone();
        self.shared.blocking(move || find(&shared, &wanted, &chunks, store_is_void)).await?
    }
}

fn find(
    shared: &Shared,
    wanted: &BTreeSet<FirstKey>,
    chunks: &FirstChunks,
    store_is_void: bool,
) -> Result<FirstContents, Refusal> {
    let mut found = chunks.find(wanted);
    if store_is_void {
        return Ok(found);
    }
    for key in wanted {
        if !found.contains_key(key) {
            let row = shared.store.ledger_get(&LedgerKey::First(key.0, key.1).encode());
            let row = row.map_err(|error| Refusal::store(&error))?;
            found.extend(row.map(|content| (*key, content)));
        }
    }
    Ok(found)
}
