//! Rows of coarser buckets that old ones were rolled into, beside those of the roll-up's own.

use super::{PartsOf, damaged};
use std::ops::{ControlFlow, Range};
use tally_core::counter::rollup::Minutes;
use tally_core::ledger::{Band, LedgerKey};
use tally_core::machine::Machine;
use tally_core::values::KeptRollup;
use tally_storage::store::{self, Reads};

/// All of them that begin within some time. Blocks on the store.
pub(super) fn read(
    store: &dyn Reads,
    of: &PartsOf,
    minutes: &Range<Minutes>,
) -> Result<Vec<(Minutes, Vec<u8>)>, store::Error> {
    let mut rows = Vec::new();
    for unit in &of.coarser {
        let range = LedgerKey::parts_within(of.cell, Band::new(of.rollup, Some(*unit)).number(), minutes);
        let mut read = Ok(());
        store.ledger_rows(&range.start, &range.end, &mut |key, row| {
            match LedgerKey::decode(key) {
                Ok(LedgerKey::Part(_, _, bucket)) => rows.push((bucket, row.to_vec())),
                Ok(_) => {}
                Err(error) => {
                    read = Err(damaged(error));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        read?;
    }
    Ok(rows)
}

/// The roll-up as it is kept now. Rows may have been moved as it says; as anything else said before, they are not.
pub(super) fn in_force(state: &Machine, of: &PartsOf) -> Option<KeptRollup> {
    state.declarations().rollups_of(&of.counter).iter().find(|kept| kept.number == of.rollup).cloned()
}
