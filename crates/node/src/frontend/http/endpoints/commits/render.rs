//! Commits as server-sent events.

use bytes::Bytes;
use serde::Serialize;
use tally_core::commit::{AuditRow, Commit, CounterDelta, NamedException, ToldCorrection};
use tally_core::counter::Declarations;
use tally_core::position::Position;

use super::super::corrections::{CauseName, CorrectionKind, DeltaView, reverts};
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::pattern::Pattern;
use crate::frontend::http::words::problem::Problem;

/// What a subscriber is told of a commit.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommitView<'a> {
    partition: u32,
    from: String,
    to: String,
    log_time: String,
    generation: u64,
    /// The highest version of the rules that its batches are judged by.
    rules: u32,
    digest: String,
    /// Every counter was forgotten before these deltas.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    flushed: bool,
    /// Counters that changed and whose ids are not known.
    #[serde(skip_serializing_if = "is_zero")]
    unnamed: u64,
    deltas: Vec<CounterView<'a>>,
    exceptions: Vec<ExceptionView<'a>>,
    /// Event ids that came again, and how many there are if those are not all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audit: Vec<AuditView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_count: Option<u64>,
    /// Batches that stood before, and of which nothing counts.
    #[serde(rename = "void", skip_serializing_if = "Vec::is_empty")]
    voids: Vec<VoidView>,
}

/// What happened to one counter.
#[derive(Serialize)]
struct CounterView<'a> {
    id: std::borrow::Cow<'a, str>,
    /// Of the true sum.
    delta: i128,
    /// What a read shows; `null` if there is no such counter any more.
    value: Option<i64>,
    /// The true sum, where a read shows 0 for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<i64>,
}

#[derive(Serialize)]
struct ExceptionView<'a> {
    at: String,
    counter: std::borrow::Cow<'a, str>,
    fate: &'static str,
}

/// An event whose id stood before; its entries are the exceptions of the same position.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditView<'a> {
    at: String,
    event_id: std::borrow::Cow<'a, str>,
    first_seen: String,
    conflict: bool,
}

#[derive(Serialize)]
struct VoidView {
    at: String,
    why: &'static str,
}

/// What a subscriber is told of a correction, so that whoever used the wrong number can make up for it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CountCorrection {
    generation: u64,
    number: u64,
    cause: CauseName,
    kind: CorrectionKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    reverts: Option<u64>,
    reason: String,
    author: String,
    applied_by: String,
    at: String,
    delta_count: u64,
    /// The first of them; `GET /v1/corrections/{number}` has them all.
    deltas: Vec<DeltaView>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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
    put(&mut text, None, "problem", |out| out.extend_from_slice(&problem.body()));
    text.into()
}

/// A commit that was followed; of the counters that match, if a pattern is given.
pub fn commit(commit: &Commit, declarations: &Declarations, pattern: Option<&Pattern>, out: &mut Vec<u8>) {
    for told in &commit.corrections {
        // Without an id of its own: only the commit says that everything in it was told.
        put_json(out, None, "count_correction", &correction(told));
    }
    let to = commit.to.to_string();
    let deltas = commit.deltas.as_ref();
    let counters = deltas.into_iter().flat_map(|deltas| deltas.counters.iter());
    let wanted = counters.filter(|counter| pattern.is_none_or(|pattern| pattern.matches(counter.id)));
    let at = |offset| Position { offset, ..commit.to }.to_string();
    let (audit, audited) = (commit.audit.rows(), commit.audit.count());
    let view = CommitView {
        partition: commit.to.log,
        from: commit.from.to_string(),
        to: to.clone(),
        log_time: rfc3339(commit.log_time_ms),
        generation: commit.generation,
        rules: commit.rules,
        digest: commit.digest.to_string(),
        flushed: deltas.is_some_and(|deltas| deltas.flushed),
        unnamed: deltas.map_or(0, |deltas| deltas.unnamed),
        deltas: wanted.map(|counter| counter_view(&counter, declarations)).collect(),
        exceptions: commit.exceptions.iter().map(|exception| exception_view(exception, at(exception.offset))).collect(),
        audit: audit.iter().map(|row| audit_view(row, at(row.offset))).collect(),
        audit_count: (audited > audit.len() as u64).then_some(audited),
        voids: commit.voids.iter().map(|void| VoidView { at: at(void.offset), why: void.why.name() }).collect(),
    };
    put_json(out, Some(&to), "commit", &view);
}

fn counter_view<'a>(counter: &CounterDelta<'a>, declarations: &Declarations) -> CounterView<'a> {
    let value = counter.value.map(|sum| shown(declarations, counter.id, sum));
    CounterView {
        id: String::from_utf8_lossy(counter.id),
        delta: counter.delta,
        value,
        sum: counter.value.filter(|sum| value != Some(*sum)),
    }
}

/// What a read shows of a sum.
pub fn shown(declarations: &Declarations, id: &[u8], sum: i64) -> i64 {
    declarations.index_of(id).map_or(sum, |index| declarations.counter(index).shown(sum))
}

fn exception_view(exception: &NamedException, at: String) -> ExceptionView<'_> {
    ExceptionView { at, counter: String::from_utf8_lossy(&exception.counter), fate: exception.fate.name() }
}

fn audit_view(row: &AuditRow, at: String) -> AuditView<'_> {
    AuditView {
        at,
        event_id: String::from_utf8_lossy(&row.event_id),
        first_seen: rfc3339(row.first_seen_ms),
        conflict: row.conflict,
    }
}

fn correction(told: &ToldCorrection) -> CountCorrection {
    let correction = &told.correction;
    CountCorrection {
        generation: correction.generation,
        number: correction.number,
        cause: CauseName::of(correction.cause),
        kind: CorrectionKind::of(correction.purpose),
        reverts: reverts(correction.cause),
        reason: correction.reason.clone(),
        author: correction.author.clone(),
        applied_by: correction.applied_by.clone(),
        at: rfc3339(correction.at_ms),
        delta_count: told.delta_count,
        deltas: correction.deltas.iter().map(DeltaView::of).collect(),
    }
}

pub fn put_json(out: &mut Vec<u8>, id: Option<&str>, event: &str, data: &impl Serialize) {
    put(out, id, event, |out| {
        serde_json::to_writer(out, data).expect("strings and numbers are JSON, and memory takes them")
    });
}

/// Data is one line, as JSON is unless somebody makes it pretty.
fn put(out: &mut Vec<u8>, id: Option<&str>, event: &str, data: impl FnOnce(&mut Vec<u8>)) {
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
    data(out);
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::commit::{Audit, CounterDeltas, Deltas, Digest, VoidBatch};
    use tally_core::fates::Void;
    use tally_core::ledger::{BoxKind, Cause, Correction, Delta, Purpose};
    use tally_core::limits::AUDIT_TOLD_MAX;

    const CONFIG: &str = "counters: [{counterName: likes, mode: transition, dimensions: [video], entity: [user, video], floorAtZero: true, rules: [{on: liked, op: increment}]}]";

    fn sample() -> Commit {
        let at = |offset| Position { epoch: 2, log: 0, offset };
        let counter = |id: &'static str, delta, value| CounterDelta { id: id.as_bytes(), delta, value };
        Commit {
            from: at(10),
            to: at(14),
            log_time_ms: 1_794_765_600_000,
            generation: 3,
            exceptions: vec![NamedException { offset: 12, counter: b"views"[..].into(), fate: BoxKind::Duplicate }],
            corrections: Vec::new(),
            rules: 1,
            voids: Vec::new(),
            audit: Audit::default(),
            digest: Digest(255),
            deltas: Some(Deltas {
                flushed: false,
                unnamed: 0,
                counters: CounterDeltas::from_iter([
                    counter("gone", -4, None),
                    counter("likes:v", -3, Some(-2)),
                    counter("views:v1", 3, Some(10)),
                ]),
            }),
        }
    }

    fn told(commit: &Commit, pattern: Option<&str>) -> String {
        let declarations = Declarations::parse(CONFIG).unwrap();
        let pattern = pattern.map(|text| Pattern::resolve(&declarations, text).unwrap());
        let mut out = Vec::new();
        super::commit(commit, &declarations, pattern.as_ref(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_commit_says_what_it_did() {
        let head = concat!(
            "id: 2-0-14\nevent: commit\ndata: {\"partition\":0,\"from\":\"2-0-10\",\"to\":\"2-0-14\",",
            "\"logTime\":\"2026-11-15T18:00:00.000Z\",\"generation\":3,\"rules\":1,\"digest\":\"000000000000000000000000000000ff\",",
        );
        let tail = "\"exceptions\":[{\"at\":\"2-0-12\",\"counter\":\"views\",\"fate\":\"duplicate\"}]}\n\n";
        let views = "{\"id\":\"views:v1\",\"delta\":3,\"value\":10}";
        let all = format!(
            "{head}\"deltas\":[{{\"id\":\"gone\",\"delta\":-4,\"value\":null}},{{\"id\":\"likes:v\",\"delta\":-3,\"value\":0,\"sum\":-2}},{views}],{tail}"
        );
        assert_eq!(told(&sample(), None), all);
        assert_eq!(told(&sample(), Some("views:*")), format!("{head}\"deltas\":[{views}],{tail}"));
        let flushed = Commit {
            exceptions: Vec::new(),
            deltas: Some(Deltas { flushed: true, unnamed: 2, counters: CounterDeltas::default() }),
            ..sample()
        };
        let tail = "\"flushed\":true,\"unnamed\":2,\"deltas\":[],\"exceptions\":[]}\n\n";
        assert_eq!(told(&flushed, None), format!("{head}{tail}"));
        let mut audit = Audit::default();
        audit.push(|| AuditRow { offset: 12, event_id: b"e1"[..].into(), first_seen_ms: 0, conflict: true });
        let audited = told(&Commit { audit: audit.clone(), ..flushed.clone() }, None);
        let row = "{\"at\":\"2-0-12\",\"eventId\":\"e1\",\"firstSeen\":\"1970-01-01T00:00:00.000Z\",\"conflict\":true}";
        assert!(audited.ends_with(&format!("\"exceptions\":[],\"audit\":[{row}]}}\n\n")), "{audited}");
        while audit.rows().len() as u64 == audit.count() {
            audit.push(|| AuditRow { offset: 12, event_id: b"e"[..].into(), first_seen_ms: 0, conflict: false });
        }
        let more = told(&Commit { audit, ..flushed.clone() }, None);
        assert!(more.ends_with(&format!("],\"auditCount\":{}}}\n\n", AUDIT_TOLD_MAX + 1)), "more than are told");
        let void = VoidBatch { offset: 12, why: Void::Repeated };
        let told = told(&Commit { voids: vec![void], ..flushed }, None);
        assert!(told.ends_with("\"exceptions\":[],\"void\":[{\"at\":\"2-0-12\",\"why\":\"repeated\"}]}\n\n"), "{told}");
    }

    #[test]
    fn a_correction_is_told_before_its_commit_and_without_an_id() {
        let correction = Correction {
            number: 7,
            generation: 3,
            cause: Cause::Revert(4),
            purpose: Purpose::Restore,
            reason: "two\nlines".into(),
            author: "ops".into(),
            at_ms: 1_794_765_600_000,
            deltas: vec![Delta { id: b"a1\n".to_vec(), bucket_ms: Some(0), delta: -5 }],
            applied_by: "boss".into(),
            proposed_ms: None,
            reverted_generation: None,
        };
        let told = told(&Commit { corrections: vec![ToldCorrection { delta_count: 9, correction }], ..sample() }, None);
        let expected = concat!(
            "event: count_correction\ndata: {\"generation\":3,\"number\":7,\"cause\":\"revert\",\"kind\":\"restore\",\"reverts\":4,",
            "\"reason\":\"two\\nlines\",\"author\":\"ops\",\"appliedBy\":\"boss\",\"at\":\"2026-11-15T18:00:00.000Z\",\"deltaCount\":9,",
            "\"deltas\":[{\"id\":\"a1\\n\",\"bucket\":\"1970-01-01T00:00:00.000Z\",\"delta\":-5}]}\n\nid: 2-0-14\nevent: commit\n",
        );
        assert!(told.starts_with(expected), "{told}");
    }
}
