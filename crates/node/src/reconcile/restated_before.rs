//! What restatements under other configurations have done to a counter already: it is taken off what the next one does, so that asking
//! twice changes nothing twice.
//!
//! Such a correction is known by its reason, which ends with the range that was counted again.

use super::recount::{At, Recount, text};
use super::scene::{Scene, numbers, texts};
use super::{ReconcileError, Reconciler};
use crate::sql::Answer;
use arrow_array::RecordBatch;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Range;
use tally_core::counter::Counter;

/// What stands in the reason of a restatement under another configuration, behind the range.
pub const UNDER_ANOTHER: &str = "was counted again under another configuration at";

/// What was done to a counter, and not taken back since.
#[derive(Debug, Default)]
pub struct RestatedBefore {
    all: Vec<Made>,
}

/// One restatement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    number: u64,
    /// Its own number, that of what reverted it, of what reverted that, and so on.
    numbers: Vec<u64>,
    range_ms: Range<u64>,
    /// It named no buckets, so only its range says for when it was.
    is_whole: bool,
}

/// A correction, as the archive tells it.
struct Told {
    number: u64,
    of: u64,
    is_revert: bool,
    is_whole: bool,
    reason: String,
}

impl Reconciler {
    pub(super) async fn restated_before(
        &self,
        scene: &Scene,
        counter: &Counter,
    ) -> Result<RestatedBefore, ReconcileError> {
        let found = self.ask(scene, scene.recount(counter).adjustments()).await?;
        if found.is_truncated {
            let (name, found) = (&counter.name, found.rows.iter().map(RecordBatch::num_rows).sum::<usize>());
            let words = format!(
                "{name} was restated more than {found} times, which is more than can be looked at; revert some of it first"
            );
            return Err(ReconcileError::Wrong(words.into()));
        }
        Ok(RestatedBefore::of(&told(&found)))
    }
}

fn told(answer: &Answer) -> Vec<Told> {
    let mut all = Vec::new();
    for batch in &answer.rows {
        let [number, of, is_revert, is_whole] = [0, 1, 2, 3].map(|column| numbers(batch, column));
        let reasons = texts(batch, 4).into_iter().enumerate();
        all.extend(reasons.map(|(row, reason)| Told {
            number: number[row] as u64,
            of: of[row] as u64,
            is_revert: is_revert[row] != 0,
            is_whole: is_whole[row] != 0,
            reason,
        }));
    }
    all
}

impl RestatedBefore {
    fn of(told: &[Told]) -> RestatedBefore {
        let reverts: BTreeMap<u64, u64> = told.iter().filter(|it| it.is_revert).map(|it| (it.of, it.number)).collect();
        let made = |it: &Told| {
            let range_ms = range_of(&it.reason)?;
            let numbers: Vec<u64> =
                std::iter::successors(Some(it.number), |number| reverts.get(number).copied()).collect();
            // Every other one takes back what the one before has done.
            (numbers.len() % 2 == 1).then_some(Made { number: it.number, numbers, range_ms, is_whole: it.is_whole })
        };
        RestatedBefore { all: told.iter().filter(|it| !it.is_revert).filter_map(made).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Why what was done in a range cannot be told, if so. Without buckets it is known for the same range alone.
    pub fn is_unclear(&self, range_ms: &Range<u64>, has_buckets: bool) -> Option<String> {
        let overlaps = |it: &&Made| it.range_ms.start < range_ms.end && range_ms.start < it.range_ms.end;
        let is_unclear = |it: &&Made| it.is_whole && (has_buckets || it.range_ms != *range_ms);
        let Made { number, range_ms: Range { start, end }, .. } = self.all.iter().filter(overlaps).find(is_unclear)?;
        let [from, to] = [*start, *end].map(|ms| Timestamp::from_millisecond(ms as i64).unwrap_or_default());
        Some(format!(
            "correction {number} has restated {from} to {to}, and not by buckets; revert it first, or restate just that"
        ))
    }

    /// Rows (`id`, `bucket`, `value`): what was done in a range.
    pub fn done(&self, recount: &Recount<'_>, at: Option<At<'_>>, range_ms: &Range<u64>) -> Option<String> {
        let is_meant = |it: &&Made| if at.is_some() { !it.is_whole } else { it.range_ms == *range_ms };
        let numbers = self.all.iter().filter(is_meant).flat_map(|it| &it.numbers);
        let numbers = numbers.map(u64::to_string).collect::<Vec<_>>().join(", ");
        let bucket = at.map_or(range_ms.start.to_string(), |at| at.of("bucket"));
        let own = recount.own_ids("counter");
        (!numbers.is_empty()).then(|| {
            format!("SELECT counter AS id, {bucket} AS bucket, delta AS value FROM corrections WHERE number IN ({numbers}) AND {own}")
        })
    }
}

impl Recount<'_> {
    /// Rows (`number`, `of`, whether it is a revert, whether it named no bucket, `reason`): restatements under other configurations, and
    /// whatever was reverted.
    fn adjustments(&self) -> String {
        format!(
            "SELECT number, coalesce(max(\"of\"), 0), max(CASE cause WHEN 'revert' THEN 1 ELSE 0 END),
    max(CASE WHEN bucket IS NULL THEN 1 ELSE 0 END), max(reason)
  FROM corrections WHERE purpose = 'adjust' AND {own} AND \"offset\" <= {to}
    AND (cause = 'revert' OR cause = 'proposal' AND reason LIKE {restated}) GROUP BY number ORDER BY number",
            own = self.own_ids("counter"),
            to = self.to,
            restated = text(&format!("%{UNDER_ANOTHER}%")),
        )
    }
}

/// The range that a reason names.
fn range_of(reason: &str) -> Option<Range<u64>> {
    let (before, _) = reason.rsplit_once(UNDER_ANOTHER)?;
    let mut words = before.split_whitespace().rev();
    let mut moment = || words.next()?.parse::<Timestamp>().ok()?.as_millisecond().try_into().ok();
    let end = moment()?;
    let start = words.nth(1)?.parse::<Timestamp>().ok()?.as_millisecond().try_into().ok()?;
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: &str = "once a session: 1970-01-01T00:00:01Z to 1970-01-01T00:00:02Z was counted again under another configuration at 1-0-7";

    fn told(number: u64, of: Option<u64>, reason: &str) -> Told {
        Told { number, of: of.unwrap_or(0), is_revert: of.is_some(), is_whole: true, reason: reason.to_owned() }
    }

    #[test]
    fn the_range_of_a_restatement_is_read_from_its_reason() {
        assert_eq!(range_of(REASON), Some(1000..2000));
        assert_eq!(range_of("a crawler"), None);
    }

    #[test]
    fn what_was_reverted_is_not_in_force_and_what_reverts_that_brings_it_back() {
        let all = [
            told(1, None, REASON),
            told(2, Some(1), "no"),
            told(3, None, REASON),
            told(4, Some(3), "no"),
            told(5, Some(4), "yes"),
        ];
        let before = RestatedBefore::of(&all);
        assert_eq!(before.all.iter().map(|it| it.numbers.clone()).collect::<Vec<_>>(), [vec![3, 4, 5]]);
        assert!(before.is_unclear(&(1000..2000), false).is_none() && before.is_unclear(&(2000..3000), false).is_none());
        assert!(before.is_unclear(&(0..1500), false).unwrap().contains("correction 3 has restated"));
        assert!(before.is_unclear(&(1000..2000), true).is_some());
    }
}
