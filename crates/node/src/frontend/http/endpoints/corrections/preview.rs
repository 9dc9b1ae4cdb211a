//! Before and after, as the interface shows them.

use serde::Serialize;

use super::view::{CorrectionState, CorrectionView};
use crate::counters::{CorrectionEffects, CounterEffect, FoundCorrection};
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// What a correction does to each counter that it touches. The values are true sums: a counter with a floor shows less.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    number: u64,
    state: CorrectionState,
    generation: Option<u64>,
    /// In the order of their ids.
    counters: Vec<Effect>,
    /// The `after` of the next page; left out on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What it does to one counter.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Effect {
    #[schema(example = "views:v42")]
    id: String,
    before: i64,
    delta: i64,
    after: i64,
}

impl Preview {
    pub fn new(found: &FoundCorrection, (effects, next): CorrectionEffects) -> Result<Preview, Problem> {
        let CorrectionView { number, state, generation, .. } = CorrectionView::of(found);
        let counters = effects.into_iter().map(Effect::new).collect::<Result<_, _>>()?;
        Ok(Preview { number, state, generation, counters, next: next.map(|id| text(&id)) })
    }
}

impl Effect {
    fn new(CounterEffect { id, before, delta: sum }: CounterEffect) -> Result<Effect, Problem> {
        let id = text(&id);
        let fits = (i64::try_from(sum), i64::try_from(i128::from(before) + sum));
        if let (Ok(delta), Ok(after)) = fits {
            return Ok(Effect { id, before, delta, after });
        }
        let detail = format!(
            "{id} is {before} and cannot be corrected by {sum}: it does not fit into 64 bits; correct it by less"
        );
        Err(Problem::new(ProblemKind::Overflow, detail).with("id", id))
    }
}

fn text(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}
