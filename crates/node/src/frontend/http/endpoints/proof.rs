//! `GET /v1/counters/{id}/proof`: what a stranger needs to check that a key's value followed from the log.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use tally_core::contract::Contract;

use super::archive::archive;
use super::roots::unreadable;
use super::series::moment;
use crate::counters::Refusal;
use crate::frontend::http::Api;
use crate::frontend::http::words::id::{self, ID, IdPath};
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::proof::{CannotProve, Proof, Wanted, make};

/// Proves what a key of a `persistent` counter is worth
///
/// The events that make it up, by their ids and without their payloads, the commits that they are in, and the ways to the roots of
/// their hours. Check it with `tally verify-proof`, or with the program in the guide, against an anchor that you have from elsewhere.
#[utoipa::path(get, path = "/v1/counters/{id}/proof", tag = "counters",
    params(("id" = String, Path, description = ID, example = "billed:acme"),
        ("at" = Option<String>, Query, description = "Only roots that end by then: RFC 3339, or a duration before now such as `-24h`; the newest root if left out"),
        ("from" = Option<String>, Query, description = "Only what came in this hour or later: RFC 3339, or a duration before now")),
    responses((status = 200, description = "The proof", body = serde_json::Value), Problem))]
pub async fn proof(State(api): State<Api>, IdPath(id): IdPath, uri: Uri) -> Result<Json<Proof>, Problem> {
    let wanted = wanted(&api, id, &uri)?;
    let archive = archive(&api)?;
    let place = archive.proofs().clone().try_acquire_owned().map_err(|_| Refusal::busy())?;
    let tables = archive.tables().await?.map_err(unreadable)?;
    let make = move || {
        let _place = place;
        make(&tables, &wanted)
    };
    let made = api.host.spawner.blocking(make).await.ok_or(Refusal::ShuttingDown)?;
    made.map(Json).map_err(|error| match error {
        CannotProve::NoRoot(what) | CannotProve::TooMuch(what) | CannotProve::NotKept(what) => {
            Problem::new(ProblemKind::NotProvable, what)
        }
        CannotProve::Archive(error) => unreadable(error),
        changed @ CannotProve::Changed(_) => Refusal::ArchiveFailed(changed.to_string().into()).into(),
    })
}

fn wanted(api: &Api, id: String, uri: &Uri) -> Result<Wanted, Problem> {
    let parameters = Parameters::read(uri, &["at", "from"])?;
    let now_ms = api.host.clock.now_ms();
    let time = |name: &str| parameters.text(name).map(|text| moment(name, text, now_ms)).transpose();
    let (from_ms, at_ms) = (time("from")?, time("at")?);
    if from_ms.zip(at_ms).is_some_and(|(from, at)| from >= at) {
        return Err(refused("at", parameters.text("at").unwrap_or_default(), "it must be later than from"));
    }
    let declarations = api.counters.declarations();
    id::target(&declarations, &api.counters.hasher(), &id)?;
    let not_provable = |what: String| Problem::new(ProblemKind::NotProvable, what).with("id", id.clone());
    let Some(counter) = declarations.counter_of(id.as_bytes()) else {
        return Err(not_provable(format!("{id} is no key of a declared counter, and only their events are archived")));
    };
    let name = &counter.name;
    if !matches!(counter.contract, Contract::Persistent(_)) {
        let mode = counter.mode().name();
        return Err(not_provable(format!(
            "{name} is a {mode} counter: only for persistent ones the ids of events decide what counts. GET /v1/counters/{{id}}/explain \
             says where its value comes from"
        )));
    }
    if !counter.is_archived {
        return Err(not_provable(format!("the events of {name} are not archived: its archive is none")));
    }
    let dimensions = counter.dimensions.iter().map(|dimension| dimension.to_string()).collect();
    Ok(Wanted { counter: name.to_string(), dimensions, from_ms, at_ms, id })
}
