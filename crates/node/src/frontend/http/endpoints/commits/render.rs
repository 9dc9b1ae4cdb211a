//! Commits as server-sent events.

use bytes::Bytes;
use serde::Serialize;
use tally_core::commit::{AuditRow, Commit, CounterDelta, NamedException, ToldCorrection};
use tally_core::counter::{Declarations, Pattern};
use tally_core::position::Position;

use super::super::corrections::{CauseName, CorrectionKind, DeltaView, reverts};
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::problem::Problem;

/// What a subscriber is told of a commit before its deltas.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommitHead {
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
}

/// And behind its deltas and exceptions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommitTail<'a> {
    /// Event ids that came again, and how many there are if those are not all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    audit: Vec<AuditView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_count: Option<u64>,
    /// Batches that stood before, and of which nothing counts.
    #[serde(rename = "void", skip_serializing_if = "Vec::is_empty")]
    voids: Vec<VoidView>,
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
    put_begin(&mut text, None, "problem");
    text.extend_from_slice(&problem.body());
    put_end(&mut text);
    text.into()
}

/// A commit that is being told, piece by piece: it may have changed very many counters.
pub struct Telling {
    commit: Commit,
    stage: Stage,
}

/// What is told next.
#[derive(Clone, Copy)]
enum Stage {
    Head,
    /// The deltas that begin at `at`.
    Deltas {
        at: usize,
        is_first: bool,
    },
    /// From this one on.
    Exceptions(usize),
}

impl Telling {
    pub fn new(commit: Commit) -> Telling {
        Telling { commit, stage: Stage::Head }
    }

    pub fn commit(&self) -> &Commit {
        &self.commit
    }

    /// What it keeps in memory, about.
    pub fn bytes(&self) -> usize {
        let deltas = self.commit.deltas.as_ref().map_or(0, |deltas| deltas.counters.bytes());
        deltas + self.commit.exceptions.len() * size_of::<NamedException>()
    }

    /// Goes on until the text is `enough` bytes long; answers whether all is told. Of the counters that match, if a pattern is
    /// given.
    pub fn go_on(
        &mut self,
        declarations: &Declarations,
        pattern: Option<&Pattern>,
        enough: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        while out.len() < enough {
            self.stage = match self.stage {
                Stage::Head => self.head(out),
                Stage::Deltas { at, is_first } => self.deltas(at, is_first, declarations, pattern, enough, out),
                Stage::Exceptions(next) if next < self.commit.exceptions.len() => self.exceptions(next, enough, out),
                Stage::Exceptions(_) => {
                    self.tail(out);
                    return true;
                }
            };
        }
        false
    }

    fn head(&self, out: &mut Vec<u8>) -> Stage {
        let commit = &self.commit;
        for told in &commit.corrections {
            // Without an id of its own: only the commit says that everything in it was told.
            put_json(out, None, "count_correction", &correction(told));
        }
        let (to, deltas) = (commit.to.to_string(), commit.deltas.as_ref());
        put_begin(out, Some(&to), "commit");
        let head = CommitHead {
            partition: commit.to.log,
            from: commit.from.to_string(),
            to,
            log_time: rfc3339(commit.log_time_ms),
            generation: commit.generation,
            rules: commit.rules,
            digest: commit.digest.to_string(),
            flushed: deltas.is_some_and(|deltas| deltas.flushed),
            unnamed: deltas.map_or(0, |deltas| deltas.unnamed),
        };
        put_value(out, &head);
        // The object goes on.
        out.pop();
        out.extend_from_slice(b",\"deltas\":[");
        Stage::Deltas { at: 0, is_first: true }
    }

    fn deltas(
        &self,
        mut at: usize,
        mut is_first: bool,
        declarations: &Declarations,
        pattern: Option<&Pattern>,
        enough: usize,
        out: &mut Vec<u8>,
    ) -> Stage {
        while out.len() < enough {
            let Some(counter) = self.commit.deltas.as_ref().and_then(|deltas| deltas.counters.next(&mut at)) else {
                out.extend_from_slice(b"],\"exceptions\":[");
                return Stage::Exceptions(0);
            };
            if pattern.is_none_or(|pattern| pattern.matches(counter.id)) {
                put_comma(out, std::mem::take(&mut is_first));
                put_counter(out, &counter, declarations);
            }
        }
        Stage::Deltas { at, is_first }
    }

    fn exceptions(&self, mut next: usize, enough: usize, out: &mut Vec<u8>) -> Stage {
        while out.len() < enough
            && let Some(exception) = self.commit.exceptions.get(next)
        {
            put_comma(out, next == 0);
            put_value(out, &exception_view(exception, self.at(exception.offset)));
            next += 1;
        }
        Stage::Exceptions(next)
    }

    fn tail(&self, out: &mut Vec<u8>) {
        let (rows, count) = (self.commit.audit.rows(), self.commit.audit.count());
        let voids = self.commit.voids.iter();
        let tail = CommitTail {
            audit: rows.iter().map(|row| audit_view(row, self.at(row.offset))).collect(),
            audit_count: (count > rows.len() as u64).then_some(count),
            voids: voids.map(|void| VoidView { at: self.at(void.offset), why: void.why.name() }).collect(),
        };
        out.push(b']');
        let begin = out.len();
        put_value(out, &tail);
        // The object goes on with what it has.
        out[begin] = b',';
        if out[begin..] == *b",}" {
            out.remove(begin);
        }
        put_end(out);
    }

    fn at(&self, offset: u64) -> String {
        Position { offset, ..self.commit.to }.to_string()
    }
}

fn put_comma(out: &mut Vec<u8>, is_first: bool) {
    if !is_first {
        out.push(b',');
    }
}

/// What happened to one counter: `delta` is of the true sum; `value` is what a read shows, `null` if there is no such counter any
/// more; `sum` is the true sum, where a read shows 0 for it. By hand, because a commit has very many.
fn put_counter(out: &mut Vec<u8>, counter: &CounterDelta<'_>, declarations: &Declarations) {
    out.extend_from_slice(b"{\"id\":");
    put_text(out, counter.id);
    out.extend_from_slice(b",\"delta\":");
    match i64::try_from(counter.delta) {
        Ok(delta) => put_number(out, delta),
        Err(_) => put_value(out, &counter.delta),
    }
    out.extend_from_slice(b",\"value\":");
    match counter.value {
        None => out.extend_from_slice(b"null"),
        Some(sum) => {
            let value = declarations.shown(counter.id, sum);
            put_number(out, value);
            if value != sum {
                out.extend_from_slice(b",\"sum\":");
                put_number(out, sum);
            }
        }
    }
    out.push(b'}');
}

fn put_number(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Most ids have nothing in them that JSON would write differently.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = text.iter().all(|byte| matches!(byte, 0x20..0x7f) && !matches!(byte, b'"' | b'\\'));
    if is_plain {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    } else {
        put_value(out, &String::from_utf8_lossy(text));
    }
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
    put_begin(out, id, event);
    put_value(out, data);
    put_end(out);
}

/// What stands before the data, which is one line, as JSON is unless somebody makes it pretty.
fn put_begin(out: &mut Vec<u8>, id: Option<&str>, event: &str) {
    if let Some(id) = id {
        out.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    out.extend_from_slice(format!("event: {event}\ndata: ").as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("strings and numbers are JSON, and memory takes them");
}

fn put_end(out: &mut Vec<u8>) {
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
        assert!(Telling::new(commit.clone()).go_on(&declarations, pattern.as_ref(), usize::MAX, &mut out));
        // In pieces, each as small as may be, it is the same.
        let (mut telling, mut pieces, mut is_told) = (Telling::new(commit.clone()), Vec::new(), false);
        while !is_told {
            let mut piece = Vec::new();
            is_told = telling.go_on(&declarations, pattern.as_ref(), 1, &mut piece);
            pieces.append(&mut piece);
        }
        assert_eq!(pieces, out);
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
    fn an_id_is_text_whatever_is_in_it() {
        for id in [&b"plain:%3A~"[..], b"say \"a\"", b"back\\slash", b"\x01", b"\x7f", "é".as_bytes(), b"\xff", b""] {
            let mut out = Vec::new();
            put_text(&mut out, id);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), String::from_utf8_lossy(id));
        }
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
