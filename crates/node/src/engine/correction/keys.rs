//! The keys of a declared counter that a clearing of all of it names.

use super::super::Engine;
use super::CorrectionError;
use tally_core::database::Space;
use tally_core::id::SEPARATOR;
use tally_core::limits::{CORRECTION_DELTAS_MAX, SCAN_NAMES_MAX};
use tally_core::machine::Unfit;

/// Names that one step of a walk asks for.
const PAGE_NAMES: usize = 1024;

impl Engine {
    /// Whether an id is the bare name of a declared counter that has keys: then it means all of them.
    pub fn is_all_of(&self, id: &str) -> bool {
        let declarations = self.declarations();
        declarations.find(id.as_bytes()).is_some_and(|index| !declarations.counter(index).dimensions.is_empty())
    }

    /// The ids of a counter's keys that are not 0.
    pub async fn keys_to_clear(&self, name: &str) -> Result<Vec<Vec<u8>>, CorrectionError> {
        let prefix = [name.as_bytes(), &[SEPARATOR]].concat();
        let mut ids = Vec::new();
        let mut after = None;
        for _ in 0..SCAN_NAMES_MAX / PAGE_NAMES {
            let page = self.scan(Space::MAIN, prefix.clone(), after, PAGE_NAMES).await?;
            ids.extend(page.counters.into_iter().filter(|(_, reading)| reading.value != 0).map(|(id, _)| id));
            after = page.next;
            if after.is_none() || ids.len() > CORRECTION_DELTAS_MAX {
                break;
            }
        }
        if after.is_none() && ids.len() <= CORRECTION_DELTAS_MAX {
            return Ok(ids);
        }
        Err(Unfit::TooManyKeys { name: name.to_owned() }.into())
    }
}
