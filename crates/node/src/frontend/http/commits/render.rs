//! Batches of the log as server-sent events.

use bytes::Bytes;
use serde::Serialize;
use tally_core::ledger::{Correction, Row};
use tally_core::limits::DELTAS_TOLD_MAX;
use tally_core::position::Position;
use tally_core::record::{DecodeError, Record};
use tally_storage::log::Batch;

use super::super::corrections::{CauseName, DeltaView, reverts};
use super::super::envelope::rfc3339;
use super::super::problem::Problem;

/// What a subscriber is told of a commit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Commit {
    from: String,
    to: String,
    log_time_ms: u64,
    records: u32,
    events: u32,
}

/// What a subscriber is told of a correction, so that whoever used the wrong number can make up for it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CountCorrection {
    generation: u64,
    number: u64,
    cause: CauseName,
    #[serde(skip_serializing_if = "Option::is_none")]
    reverts: Option<u64>,
    reason: String,
    author: String,
    applied_by: String,
    at: String,
    delta_count: usize,
    /// The first of them; `GET /v1/corrections/{number}` has them all.
    deltas: Vec<DeltaView>,
}

/// The first word: it is answered at once, and a client that reconnects from now on knows from where.
pub fn greeting(from: Position) -> Bytes {
    format!(": subscribed\nid: {from}\n\n").into()
}

/// A comment, so that nobody on the way takes the connection for dead.
pub fn heartbeat() -> Bytes {
    Bytes::from_static(b": nothing new\n\n")
}

/// The last word.
pub fn problem(problem: &Problem) -> Bytes {
    let mut text = Vec::new();
    put(&mut text, None, "problem", &problem.body());
    text.into()
}

/// The records of a batch from an offset on, of which there is at least one.
pub fn commit(batch: &Batch<'_>, from: u64, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let at = |offset| Position { offset, ..batch.position }.to_string();
    let from = from.max(batch.position.offset);
    let skipped = (from - batch.position.offset) as u32;
    let mut commit = Commit {
        from: at(from),
        to: at(batch.end_offset()),
        log_time_ms: batch.log_time_ms,
        records: batch.count - skipped,
        events: 0,
    };
    let mut records = batch.records;
    for index in 0..batch.count {
        match Record::decode(&mut records)? {
            _ if index < skipped => {}
            Record::Event(_) => commit.events += 1,
            // Without an id of its own: only the commit says that everything in it was told.
            Record::Correct(bytes) => put_json(out, None, "count_correction", &correction(bytes, batch.log_time_ms)?),
            _ => {}
        }
    }
    put_json(out, Some(&commit.to), "commit", &commit);
    Ok(())
}

/// The record was written before its time was known: it is that of the batch.
fn correction(bytes: &[u8], log_time_ms: u64) -> Result<CountCorrection, DecodeError> {
    let correction = Correction::decode(bytes)?;
    Ok(CountCorrection {
        generation: correction.generation,
        number: correction.number,
        cause: CauseName::of(correction.cause),
        reverts: reverts(correction.cause),
        reason: correction.reason,
        author: correction.author,
        applied_by: correction.applied_by,
        at: rfc3339(log_time_ms),
        delta_count: correction.deltas.len(),
        deltas: correction.deltas.iter().take(DELTAS_TOLD_MAX).map(DeltaView::of).collect(),
    })
}

fn put_json(out: &mut Vec<u8>, id: Option<&str>, event: &str, data: &impl Serialize) {
    put(out, id, event, &serde_json::to_vec(data).expect("strings and numbers are JSON"));
}

/// Data is one line, as JSON is unless somebody makes it pretty.
fn put(out: &mut Vec<u8>, id: Option<&str>, event: &str, data: &[u8]) {
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::event::Event;
    use tally_core::ledger::{Cause, Delta};

    fn batch<'a>(records: &'a mut Vec<u8>, of: &[Record<'_>]) -> Batch<'a> {
        of.iter().for_each(|record| record.encode(records));
        let position = Position { epoch: 2, log: 0, offset: 10 };
        Batch { position, count: of.len() as u32, log_time_ms: 1_794_765_600_000, records }
    }

    fn check(records: &[Record<'_>], from: u64, expected: &str) {
        let mut out = Vec::new();
        commit(&batch(&mut Vec::new(), records), from, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_commit_says_what_it_covers() {
        let event = Record::Event(Event::new("video.viewed", 0));
        let records = [Record::Add { name: b"a", delta: 1 }, event.clone(), Record::Tick, event];
        check(
            &records,
            3,
            "id: 2-0-14\nevent: commit\ndata: {\"from\":\"2-0-10\",\"to\":\"2-0-14\",\"logTimeMs\":1794765600000,\"records\":4,\"events\":2}\n\n",
        );
    }

    #[test]
    fn records_before_the_position_are_left_out() {
        let event = Record::Event(Event::new("video.viewed", 0));
        let records = [event.clone(), Record::Tick, event];
        check(
            &records,
            11,
            "id: 2-0-13\nevent: commit\ndata: {\"from\":\"2-0-11\",\"to\":\"2-0-13\",\"logTimeMs\":1794765600000,\"records\":2,\"events\":1}\n\n",
        );
    }

    #[test]
    fn a_correction_is_told_before_its_commit_and_without_an_id() {
        let delta = |index: usize| Delta { id: format!("a{index}\n").into(), bucket_ms: Some(0), delta: -5 };
        let correction = Correction {
            number: 7,
            generation: 3,
            cause: Cause::Revert(4),
            reason: "two\nlines".into(),
            author: "ops".into(),
            at_ms: 0,
            deltas: vec![delta(1)],
            applied_by: "boss".into(),
            proposed_ms: None,
            reverted_generation: None,
        };
        check(
            &[Record::Correct(&correction.to_bytes())],
            0,
            concat!(
                "event: count_correction\ndata: {\"generation\":3,\"number\":7,\"cause\":\"revert\",\"reverts\":4,",
                "\"reason\":\"two\\nlines\",\"author\":\"ops\",\"appliedBy\":\"boss\",\"at\":\"2026-11-15T18:00:00.000Z\",\"deltaCount\":1,",
                "\"deltas\":[{\"id\":\"a1\\n\",\"bucket\":\"1970-01-01T00:00:00.000Z\",\"delta\":-5}]}\n\n",
                "id: 2-0-11\nevent: commit\ndata: {\"from\":\"2-0-10\",\"to\":\"2-0-11\",\"logTimeMs\":1794765600000,\"records\":1,\"events\":0}\n\n",
            ),
        );
        let deltas = (0..DELTAS_TOLD_MAX + 1).map(delta).collect();
        let bytes = Correction { deltas, ..correction }.to_bytes();
        let told = super::correction(&bytes, 0).unwrap();
        assert_eq!((told.delta_count, told.deltas.len()), (DELTAS_TOLD_MAX + 1, DELTAS_TOLD_MAX));
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_an_error() {
        let mut records = Vec::new();
        let batch = Batch { count: 2, ..batch(&mut records, &[Record::Tick]) };
        assert_eq!(commit(&batch, 0, &mut Vec::new()), Err(DecodeError::Truncated));
    }
}
