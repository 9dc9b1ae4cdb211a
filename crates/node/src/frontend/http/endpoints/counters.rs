//! Single counters: read, add, subtract, delete; and reads of many by their ids.

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tally_core::counter::{Direction, Intent, Reach, Target};
use tally_core::fact;
use tally_core::limits::{BODY_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX, IDS_PER_READ_MAX, SMALL_BODY_BYTES_MAX};
use tally_core::op::{Answer, Submission};

use super::corrections::{self, ClearedView};
use super::{history, total};
use crate::counters::Committed;
use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::at_least::{self, AtLeast};
use crate::frontend::http::words::document::{given, parse};
use crate::frontend::http::words::envelope::Envelope;
use crate::frontend::http::words::id::{self, ID, IdPath};
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// By how much to change a counter; an empty body means 1.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Change)]
pub struct ChangeBody<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = Option<i64>, example = 1)]
    delta: Option<&'a RawValue>,
}

/// A counter after a change.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Changed {
    value: i64,
    #[schema(example = "ok")]
    status: &'static str,
    /// Only when the same `Idempotency-Key` was answered before, and then `true`: this is the answer it got then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
    /// The position in the log behind the change.
    #[schema(example = "1-0-4711")]
    token: String,
}

#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Ids {
    ids: Vec<String>,
    /// A token to wait for, as the parameter of the same name.
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "1-0-4711")]
    at_least: Option<String>,
    /// How long to wait for it at most.
    #[serde(default, deserialize_with = "given")]
    wait_ms: Option<u64>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct Envelopes {
    /// One for each id, in the order of the request.
    counters: Vec<Envelope>,
}

/// What is left of a counter that somebody deleted.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Deleted {
    /// An ad-hoc counter is forgotten.
    Forgotten {
        id: String,
        /// Whether there was such a counter.
        deleted: bool,
        /// The position in the log behind the change.
        #[schema(example = "1-0-4711")]
        token: String,
    },
    /// A declared one is brought to 0 by a correction.
    Cleared(ClearedView),
}

/// Adds to a counter and answers its new value
///
/// The counter begins at 0. The answer comes when the change is durable.
#[utoipa::path(post, path = "/v1/counters/{id}/increment", tag = "counters",
    params(("id" = String, Path, description = ID, example = "likes")), request_body(content = Option<ChangeBody>),
    responses((status = 200, description = "The new value", body = Changed), Problem))]
pub async fn increment(
    State(api): State<Api>,
    IdPath(id): IdPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Changed>, Problem> {
    change(&api, &id, Direction::Increment, &headers, body).await
}

/// Subtracts from a counter and answers its new value
#[utoipa::path(post, path = "/v1/counters/{id}/decrement", tag = "counters",
    params(("id" = String, Path, description = ID, example = "likes")), request_body(content = Option<ChangeBody>),
    responses((status = 200, description = "The new value", body = Changed), Problem))]
pub async fn decrement(
    State(api): State<Api>,
    IdPath(id): IdPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Changed>, Problem> {
    change(&api, &id, Direction::Decrement, &headers, body).await
}

/// Reads a counter
///
/// A counter that does not exist reads as 0 with `"exists": false`. The bare name of a declared counter that has keys reads as what all of
/// them come to, with `"total": true`.
#[utoipa::path(get, path = "/v1/counters/{id}", tag = "counters",
    params(("id" = String, Path, description = ID, example = "likes"),
        ("consistency" = Option<String>, Query, description = "`cached` or `latest`; the same on a single node"),
        ("at_least" = Option<String>, Query, description = at_least::TOKEN, example = "1-0-4711"),
        ("wait_ms" = Option<u64>, Query, description = at_least::WAIT),
        ("generation" = Option<u64>, Query, description = "What this generation last said, instead of what is true now")),
    responses((status = 200, description = "The value and what it is worth", body = Envelope), (status = 304, description = "The value is as If-None-Match says"),
        Problem))]
pub async fn get(
    State(api): State<Api>,
    IdPath(id): IdPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    check_query(&uri)?;
    let reach = id::reach(&api.counters.declarations(), &api.counters.hasher(), &id)?;
    let parameters = Parameters::read(&uri, &["consistency", "generation", "at_least", "wait_ms"])?;
    wait(&api, AtLeast::of(&parameters)?).await?;
    let target = match reach {
        Reach::One(target) => target,
        Reach::All(name) => return total::read(&api, &name, &uri, &headers).await,
    };
    if let Some(generation) = generation(&uri)? {
        return Ok(history::read_generation(&api, &target, generation).await?.respond(&headers));
    }
    Ok(read(&api, &target).await?.respond(&headers))
}

/// Reads many counters
///
/// All of them as of one generation: a correction is seen in all that it changes, or in none.
#[utoipa::path(post, path = "/v1/counters/get", tag = "counters", request_body = Ids,
    params(("at_least" = Option<String>, Query, description = at_least::TOKEN, example = "1-0-4711"),
        ("wait_ms" = Option<u64>, Query, description = at_least::WAIT)),
    responses((status = 200, description = "The values", body = Envelopes), Problem))]
pub async fn get_many(
    State(api): State<Api>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Envelopes>, Problem> {
    let asked = AtLeast::query(&uri)?;
    let body = Pieces::new(&api, &headers, body, BODY_BYTES_MAX)?.collect().await?;
    let Ids { ids, at_least, wait_ms } = parse(&body, r#"{"ids":["a","b"]}"#)?;
    if ids.len() > IDS_PER_READ_MAX {
        return Err(Problem::too_large("there are too many ids", IDS_PER_READ_MAX, "read them in several requests"));
    }
    let declarations = api.counters.declarations();
    let hasher = api.counters.hasher();
    let targets = ids.iter().map(|id| id::target(&declarations, &hasher, id)).collect::<Result<Vec<_>, _>>()?;
    for at_least in [asked, AtLeast::new(at_least.as_deref(), wait_ms)?] {
        wait(&api, at_least).await?;
    }
    let cells: Vec<_> = targets.iter().map(|target| target.cell).collect();
    let (readings, now_ms) = (api.counters.see(&cells).await?, api.host.clock.now_ms());
    let node = api.counters.durability();
    let counters = targets.iter().zip(readings).map(|(target, seen)| Envelope::new(target, seen, now_ms, node));
    Ok(Json(Envelopes { counters: counters.collect() }))
}

/// Forgets an ad-hoc counter, or clears a declared one
///
/// Clearing is a correction: it makes a generation, says why, and can be reverted. The bare name of a declared counter clears
/// all of its keys at once.
#[utoipa::path(delete, path = "/v1/counters/{id}", tag = "counters",
    params(("id" = String, Path, description = ID, example = "likes"),
        ("reason" = Option<String>, Query, description = "Why a declared counter is cleared; `cleared` if left out"),
        ("author" = Option<String>, Query, description = "Who clears it; `anonymous` if left out")),
    responses((status = 200, description = "It is gone, or 0", body = Deleted), Problem))]
pub async fn delete(
    State(api): State<Api>,
    IdPath(id): IdPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Deleted>, Problem> {
    let key = idempotency_key(&headers)?;
    let target = match id::reach(&api.counters.declarations(), &api.counters.hasher(), &id)? {
        Reach::One(target) if target.is_ad_hoc() => target,
        reach => return Ok(Json(Deleted::Cleared(corrections::clear(&api, reach, &uri, key).await?))),
    };
    let id = target.text().into_owned();
    if let Some(query) = uri.query().filter(|query| !query.is_empty()) {
        let fix = format!("leave it out: {id} is ad hoc, and is forgotten without a reason");
        return Err(refused("the query", query, &fix));
    }
    if let Some(key) = key {
        let fix = format!("leave it out: {id} is ad hoc, and what is forgotten stays forgotten");
        return Err(Problem::field("Idempotency-Key", key, &fix));
    }
    let mut submission = Submission::default();
    submission.delete(target.cell, &target.id);
    let (answer, committed) = commit(&api, submission).await?;
    let (deleted, token) = (matches!(answer, Answer::Value(_)), committed.position.to_string());
    Ok(Json(Deleted::Forgotten { id, deleted, token }))
}

/// Adds what a request asks for, or takes it away.
async fn change(
    api: &Api,
    id: &str,
    direction: Direction,
    headers: &HeaderMap,
    body: Body,
) -> Result<Json<Changed>, Problem> {
    let key = idempotency_key(headers)?;
    let asked = delta(api, headers, body).await?;
    let delta = direction.apply(asked).ok_or_else(|| delta_out_of_range(&asked.to_string()))?;
    let declarations = api.counters.declarations();
    let to = id::target(&declarations, &api.counters.hasher(), id)?;
    declarations.permit(&to, Intent::Count).map_err(|why| id::forbidden(&to, why))?;
    let mut submission = Submission::default();
    match key {
        Some(key) => {
            let hashed = fact::answer_key(&api.counters.hasher(), &to.id, key.as_bytes());
            submission.add_once(&to, delta, hashed, key.as_bytes());
        }
        None => submission.add_to(&to, delta),
    }
    let (answer, committed) = commit(api, submission).await?;
    let changed = |sum, repeated| {
        let value = to.shown(sum);
        Ok(Json(Changed { value, status: "ok", repeated, token: committed.position.to_string() }))
    };
    match answer {
        Answer::Value(value) => changed(value, false),
        Answer::Repeated(value) => changed(value, true),
        refused => Err(not_added(refused, to.text().into_owned(), delta, declarations.idempotency().keys_max)),
    }
}

fn not_added(answer: Answer, id: String, delta: i64, keys_max: u64) -> Problem {
    let problem = match answer {
        Answer::OtherDelta(first) => {
            let detail = format!(
                "this Idempotency-Key has changed {id} by {first} before, and now asks for {delta}; use a new key for a new change"
            );
            Problem::new(ProblemKind::IdempotencyConflict, detail).with("firstDelta", first)
        }
        Answer::Full => {
            let detail = format!(
                "{keys_max} idempotency keys are kept, which is the bound; try again later, or raise idempotency.maxKeys"
            );
            Problem::new(ProblemKind::IdempotencyFull, detail).with("limit", keys_max)
        }
        _ => {
            let detail = format!("{id} cannot be changed by {delta}: the result does not fit into 64 bits");
            Problem::new(ProblemKind::Overflow, detail)
        }
    };
    problem.with("id", id).with("delta", delta)
}

/// The key under which a change is made once; quotes around it, as the standard to be has them, do not belong to it.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refused = |value: &str, fix: &str| Err(Problem::field("Idempotency-Key", value, fix));
    let Ok(text) = value.to_str() else { return refused("not text", "send visible ASCII characters") };
    let key = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if values.next().is_some() {
        return refused(key, "send the header once");
    }
    let says_nothing = key.bytes().all(|byte| byte.is_ascii_whitespace() || byte == b'"');
    if says_nothing || key.len() > IDEMPOTENCY_KEY_BYTES_MAX {
        return refused(key, &format!("send 1 to {IDEMPOTENCY_KEY_BYTES_MAX} characters that are not only blanks"));
    }
    Ok(Some(key))
}

/// Commits a submission of one operation.
async fn commit(api: &Api, submission: Submission) -> Result<(Answer, Committed), Problem> {
    let committed = api.counters.submit(submission).await?;
    let answer = *committed.answers.first().expect("one operation has one answer");
    Ok((answer, committed))
}

async fn read(api: &Api, target: &Target<'_>) -> Result<Envelope, Problem> {
    let seen = api.counters.see(&[target.cell]).await?;
    Ok(Envelope::new(target, seen[0], api.host.clock.now_ms(), api.counters.durability()))
}

async fn wait(api: &Api, at_least: Option<AtLeast>) -> Result<(), Problem> {
    match at_least {
        Some(at_least) => at_least.reached(&*api.counters).await,
        None => Ok(()),
    }
}

/// What the request asks for, strictly: whatever is not understood is refused, never ignored.
async fn delta(api: &Api, headers: &HeaderMap, body: Body) -> Result<i64, Problem> {
    let body = Pieces::new(api, headers, body, SMALL_BODY_BYTES_MAX)?.collect().await?;
    parse_delta(&body)
}

fn parse_delta(body: &[u8]) -> Result<i64, Problem> {
    if body.is_empty() {
        return Ok(1);
    }
    let ChangeBody { delta } = parse(body, r#"{"delta":1}"#)?;
    delta.map_or(Ok(1), |delta| delta.get().parse().map_err(|_| delta_out_of_range(delta.get())))
}

fn delta_out_of_range(delta: &str) -> Problem {
    Problem::field("delta", delta, "send an integer between -9223372036854775807 and 9223372036854775807")
}

/// The generation that a read asks for; [`check_query`] has read the query before.
fn generation(uri: &Uri) -> Result<Option<u64>, Problem> {
    let Ok(Query(parameters)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else { return Ok(None) };
    let asked = parameters.into_iter().find(|(name, _)| name == "generation");
    let number = |(name, value): (String, String)| {
        let fix = "send a number such as 0, which is before all corrections";
        value.parse().map_err(|_| refused(&name, &value, fix))
    };
    asked.map(number).transpose()
}

fn check_query(uri: &Uri) -> Result<(), Problem> {
    let refused = |detail: String| Problem::new(ProblemKind::InvalidParameter, detail);
    let Query(parameters) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|error| refused(format!("the query cannot be read: {error}")))?;
    for (name, value) in &parameters {
        let (name, value) = (quoted(name), quoted(value));
        match (name.as_str(), value.as_str()) {
            ("consistency", "cached" | "latest") => {}
            ("consistency", _) => {
                let detail = format!("consistency is {value}; it can be cached or latest");
                return Err(refused(detail).with("parameter", name).with("value", value));
            }
            ("at_least" | "wait_ms" | "generation", _) => {}
            _ => {
                let detail = format!("{name} is not known; use consistency, generation, at_least or wait_ms");
                return Err(refused(detail).with("parameter", name));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_an_integer_and_one_if_nobody_says_otherwise() {
        for (body, expected) in [
            ("", 1),
            ("{}", 1),
            (r#"{"delta":5}"#, 5),
            (r#" {"delta" : -7 } "#, -7),
            (r#"{"delta":9223372036854775807}"#, i64::MAX),
        ] {
            assert_eq!(parse_delta(body.as_bytes()).unwrap(), expected, "{body}");
        }
        assert!(parse_delta(b" \n").is_err(), "blanks are no JSON");
    }

    #[test]
    fn a_delta_that_is_no_integer_is_refused_by_name() {
        let long = format!("{{\"delta\":{}}}", "9".repeat(1_000_000));
        for body in [
            r#"{"delta":1.5}"#,
            r#"{"delta":1e3}"#,
            r#"{"delta":"1"}"#,
            r#"{"delta":9223372036854775808}"#,
            r#"{"delta":true}"#,
            r#"{"delta":null}"#,
            r#"{"delta":[[[[1]]]]}"#,
            &long,
        ] {
            let problem = parse_delta(body.as_bytes()).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::InvalidField, "{}", quoted(body));
            assert!(problem.detail.starts_with("delta is "), "{}", problem.detail);
            assert!(problem.detail.len() < 300, "{}", problem.detail);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let deep = "[".repeat(100_000);
        for (body, kind) in [
            (r#"{"dleta":5}"#, ProblemKind::UnknownField),
            (r#"{"delta":1,"delta":2}"#, ProblemKind::InvalidBody),
            (r#"{"delta":NaN}"#, ProblemKind::InvalidBody),
            (r#"{"delta":1"#, ProblemKind::InvalidBody),
            ("5", ProblemKind::InvalidBody),
            ("[]", ProblemKind::InvalidBody),
            ("[5]", ProblemKind::InvalidBody),
            ("null", ProblemKind::InvalidBody),
            ("{\"delta\":\"\u{0}\"", ProblemKind::InvalidBody),
            (&deep, ProblemKind::InvalidBody),
        ] {
            assert_eq!(parse_delta(body.as_bytes()).unwrap_err().kind, kind, "{}", quoted(body));
        }
        assert_eq!(parse_delta(b"{\"delta\":\xff}").unwrap_err().kind, ProblemKind::InvalidBody);
    }

    #[test]
    fn a_query_says_how_consistent_the_read_must_be() {
        let check = |query: &str| check_query(&format!("/v1/counters/a{query}").parse().unwrap());
        for query in ["", "?", "?consistency=cached", "?consistency=latest", "?generation=3"] {
            check(query).unwrap();
        }
        for query in ["?consistency=eventual", "?generations=3", "?consistency"] {
            assert_eq!(check(query).unwrap_err().kind, ProblemKind::InvalidParameter, "{query}");
        }
    }
}
