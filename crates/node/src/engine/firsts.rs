//! What came first under event ids: from memory, or from the store for those that a checkpoint took there.

use super::question::Question;
use super::{Engine, Refusal};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use tally_core::ledger::{FirstChunks, FirstContents, FirstKey, StoredFirsts};
use tally_core::machine::Machine;
use tally_storage::store::{Error, Reads};

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
        let found = self.shared.blocking(move || chunks.find(&asked)).await?;
        let search = StoredFirsts::new(Arc::unwrap_or_clone(wanted), found);
        Ok(view.continued(search, look).await?.found())
    }
}

/// Blocks on the store.
fn look(store: &dyn Reads, mut search: StoredFirsts) -> Result<StoredFirsts, Error> {
    while let Some(keys) = search.seek() {
        let mut read = Ok(());
        store.ledger_rows(&keys.start, &keys.end, &mut |key, row| {
            search.visit(key, row).unwrap_or_else(|error| {
                read = Err(Error::Damaged(format!("a row of first contents: {error}")));
                ControlFlow::Break(())
            })
        })?;
        read?;
    }
    Ok(search)
}
