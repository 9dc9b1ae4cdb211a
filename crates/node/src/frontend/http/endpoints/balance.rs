//! `GET /v1/balance`: every entry ended in exactly one box, for each counter, for each stream and in total.
//!
//! Entries are counted when they come, before anybody looks at them; boxes are counted when their fate is decided. That the
//! two agree is the check, and `holds` is its outcome.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tally_core::fates::Balance;
use tally_core::ledger::Boxes;

use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::{rfc3339, rfc3339_signed};
use crate::frontend::http::words::problem::Problem;
use crate::metrics::{BoxSum, BoxSums};

/// How many entries came, and where they ended: `received = counted + duplicate + conflict + rejected + ignored + late`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Account {
    received: u64,
    counted: i64,
    duplicate: i64,
    conflict: i64,
    rejected: i64,
    ignored: i64,
    /// Those that wait for their run; it makes them counted ones.
    late: i64,
    /// Whether the boxes add up to what was received.
    holds: bool,
}

impl Account {
    pub fn new(received: u64, boxes: &Boxes) -> Account {
        Account {
            received,
            counted: boxes.counted,
            duplicate: boxes.duplicate,
            conflict: boxes.conflict,
            rejected: boxes.rejected,
            ignored: boxes.ignored,
            late: boxes.late,
            holds: u64::try_from(boxes.received()) == Ok(received),
        }
    }

    pub fn holds(&self) -> bool {
        self.holds
    }
}

/// The account of a counter.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CounterAccount {
    #[schema(example = "views")]
    counter: String,
    #[schema(example = "display")]
    stream: &'static str,
    #[serde(flatten)]
    account: Account,
    /// The latest time of an entry; none where lateness is not declared.
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    watermark: Option<String>,
}

/// The balance of a node.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Balances {
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    as_of: String,
    /// Everything before this position is in it.
    #[schema(example = "1-0-4711")]
    position: String,
    /// Whether it holds in total and for every stream and counter.
    holds: bool,
    total: Account,
    streams: BTreeMap<&'static str, Account>,
    /// Every counter there ever was, declared or not any more.
    counters: Vec<CounterAccount>,
}

/// The boxes of every counter, of every stream and in total
///
/// As of one position of the log. They are part of the committed state, so a restart does not set them back.
#[utoipa::path(get, path = "/v1/balance", tag = "node",
    responses((status = 200, description = "Where all entries ended", body = Balances), Problem))]
pub async fn balance(State(api): State<Api>) -> Result<Json<Balances>, Problem> {
    let (balances, position) = api.counters.balances().await?;
    let as_of = rfc3339(api.host.clock.now_ms());
    Ok(Json(Balances { as_of, position: position.to_string(), ..Balances::new(&balances) }))
}

impl Balances {
    fn new(balances: &[Balance]) -> Balances {
        let sums = BoxSums::of(balances);
        let counters: Vec<_> = balances.iter().map(CounterAccount::new).collect();
        let streams: BTreeMap<_, _> = sums.streams.iter().map(|(stream, sum)| (*stream, account(sum))).collect();
        let total = account(&sums.total);
        let parts_hold = counters.iter().map(|counter| &counter.account).chain(streams.values()).all(Account::holds);
        Balances {
            as_of: String::new(),
            position: String::new(),
            holds: total.holds && parts_hold,
            total,
            streams,
            counters,
        }
    }
}

impl CounterAccount {
    fn new(balance: &Balance) -> CounterAccount {
        CounterAccount {
            counter: balance.name.to_string(),
            stream: balance.stream.name(),
            account: Account::new(balance.received, &balance.boxes),
            watermark: balance.watermark_ms.map(rfc3339_signed),
        }
    }
}

fn account(sum: &BoxSum) -> Account {
    Account::new(sum.received, &sum.boxes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::op::Stream;

    fn balance(stream: Stream, received: u64, counted: i64, late: i64) -> Balance {
        let boxes = Boxes { counted, late, ..Boxes::default() };
        Balance { name: "x".into(), stream, received, boxes, watermark_ms: None, sums: None }
    }

    #[test]
    fn counters_add_up_to_streams_and_streams_to_the_total() {
        let balances = [
            balance(Stream::Display, 5, 3, 2),
            balance(Stream::Display, 1, 1, 0),
            balance(Stream::Persistent, 7, 7, 0),
        ];
        let all = Balances::new(&balances);
        assert!(all.holds);
        assert_eq!((all.total.received, all.total.counted, all.total.late), (13, 11, 2));
        assert_eq!((all.streams["display"].received, all.streams["persistent"].received), (6, 7));
    }

    #[test]
    fn an_entry_that_is_in_no_box_or_in_two_is_noticed() {
        for wrong in [balance(Stream::Simple, 5, 4, 0), balance(Stream::Simple, 5, 5, 1)] {
            let all = Balances::new(&[balance(Stream::Display, 2, 2, 0), wrong]);
            assert!(!all.holds && !all.total.holds && !all.streams["simple"].holds && all.streams["display"].holds);
        }
        let too_many_and_too_few = [balance(Stream::Display, 5, 4, 0), balance(Stream::Display, 5, 6, 0)];
        let all = Balances::new(&too_many_and_too_few);
        assert!(all.total.holds && !all.holds, "the sum may hide what the parts show");
    }
}
