//! Clearing a declared counter: a correction that brings one key to 0, or all keys of it at once.

use super::super::Engine;
use super::{Corrected, CorrectionError, CorrectionRequest};
use tally_core::counter::Reach;
use tally_core::database::Space;
use tally_core::fact::Request;
use tally_core::id::SEPARATOR;
use tally_core::ledger::{Correction, Grounds, Remedy};
use tally_core::limits::{CORRECTION_DELTAS_MAX, SCAN_NAMES_MAX};
use tally_core::machine::Unfit;

/// Names that one step of a walk asks for.
const PAGE_NAMES: usize = 1024;

/// What is to be cleared, and why.
#[derive(Clone, Debug)]
pub struct ClearRequest {
    pub reach: Reach<'static>,
    pub grounds: Grounds,
    pub if_generation: Option<u64>,
    /// The idempotency key under which it is asked for.
    pub key: Option<String>,
}

/// What came of a clearing.
#[derive(Clone, Debug)]
pub struct Cleared {
    /// The id of the key in its canonical form, or the name of the counter.
    pub id: String,
    /// `None` if there was nothing to clear.
    pub made: Option<Correction>,
    /// The same was asked for before, under the same key: this is what came of it then.
    pub repeated: bool,
}

impl Engine {
    /// Brings a declared counter to 0 by a correction, which can be reverted.
    pub async fn clear(&self, request: ClearRequest) -> Result<Cleared, CorrectionError> {
        let ClearRequest { reach, grounds, if_generation, key } = request;
        let (id, ids) = match reach {
            Reach::One(target) => (target.text().into_owned(), vec![target.id.into_owned()]),
            Reach::All(name) => (name.to_string(), self.keys_to_clear(&name).await?),
        };
        let asked = format!("{if_generation:?}");
        let content = ["clear", &id, &grounds.reason, &grounds.author, &asked].map(str::as_bytes);
        let once = key.map(|key| Request::new(&self.hasher(), key.as_bytes(), &content));
        let remedy = Remedy::Clear { ids, grounds, if_generation };
        let (made, repeated) = match self.corrected(CorrectionRequest { remedy, once }).await {
            Ok(Corrected { correction, repeated }) => (Some(correction), repeated),
            Err(CorrectionError::Unfit(Unfit::Nothing)) => (None, false),
            // Nothing came of it then.
            Err(CorrectionError::Unfit(Unfit::Repeated(0))) => (None, true),
            Err(error) => return Err(error),
        };
        Ok(Cleared { id, made, repeated })
    }

    /// The ids of a counter's keys that are not 0.
    async fn keys_to_clear(&self, name: &str) -> Result<Vec<Vec<u8>>, CorrectionError> {
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
