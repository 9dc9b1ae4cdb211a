//! Clearing a declared counter: a correction that brings it to 0, or all keys of it at once.

use axum::http::Uri;
use serde::Serialize;
use tally_core::ledger::{Correction, Grounds, Remedy};
use tally_core::machine::Unfit;

use super::{ANONYMOUS, made_before, once, request};
use crate::engine::{CorrectionError, CorrectionRequest};
use crate::frontend::http::Api;
use crate::frontend::http::words::id;
use crate::frontend::http::words::parameters::Parameters;
use crate::frontend::http::words::problem::Problem;

/// A declared counter after it was cleared.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cleared {
    id: String,
    /// Whether there was anything to clear.
    cleared: bool,
    /// How many keys were not 0.
    counters: usize,
    /// The generation that the clearing made.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// The number of the correction; reverting it brings back what was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "1-0-4711")]
    token: Option<String>,
    /// Only when the same `Idempotency-Key` was answered before, and then `true`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// Clears what a declared counter has under an id: one key, or all of them if the id is its bare name. `None` if the id is
/// an ad-hoc counter's.
pub async fn clear(api: &Api, id: &str, uri: &Uri, key: Option<&str>) -> Result<Option<Cleared>, Problem> {
    let declarations = api.engine.declarations();
    let (id, ids) = if api.engine.is_all_of(id) {
        // Whoever waits for a turn holds nothing.
        let _turn = api.walks.acquire().await;
        (id.to_owned(), api.engine.keys_to_clear(id).await?)
    } else {
        let target = id::target(&declarations, &api.engine.hasher(), id)?;
        if target.is_ad_hoc() {
            return Ok(None);
        }
        (target.text().into_owned(), vec![target.id.into_owned()])
    };
    let parameters = Parameters::read(uri, &["reason", "author", "ifGeneration"])?;
    let if_generation = parameters.number("ifGeneration")?;
    let reason = parameters.text("reason").unwrap_or("cleared").to_owned();
    let author = parameters.text("author").unwrap_or(ANONYMOUS).to_owned();
    request::check_why(&reason, &author)?;
    let once = once(api, key, &["clear", &id, &reason, &author, &format!("{if_generation:?}")]);
    let remedy = Remedy::Clear { ids, grounds: Grounds { reason, author }, if_generation };
    match api.engine.correct(CorrectionRequest { remedy, once }).await {
        Ok(made) => Ok(Some(Cleared::by(api, id, &made, false))),
        Err(CorrectionError::Unfit(Unfit::Nothing)) => Ok(Some(Cleared::nothing(id, false))),
        Err(CorrectionError::Unfit(Unfit::Repeated(0))) => Ok(Some(Cleared::nothing(id, true))),
        Err(CorrectionError::Unfit(Unfit::Repeated(number))) => {
            Ok(Some(Cleared::by(api, id, &made_before(api, number).await?, true)))
        }
        Err(error) => Err(error.into()),
    }
}

impl Cleared {
    fn by(api: &Api, id: String, made: &Correction, repeated: bool) -> Cleared {
        Cleared {
            id,
            cleared: true,
            counters: made.deltas.len(),
            generation: Some(made.generation),
            number: Some(made.number),
            token: Some(api.engine.applied().to_string()),
            repeated,
        }
    }

    fn nothing(id: String, repeated: bool) -> Cleared {
        Cleared { id, cleared: false, counters: 0, generation: None, number: None, token: None, repeated }
    }
}
