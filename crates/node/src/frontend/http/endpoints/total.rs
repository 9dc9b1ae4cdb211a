//! What all keys of a declared counter come to: a read of its bare name.
//!
//! It is summed where values change, and not added up for the answer, so it costs the same for any number of keys.

use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::Envelope;
use crate::frontend::http::words::parameters::{Parameters, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// Reads the total of a counter that has keys. The caller has read the query, and waited as it asks.
pub async fn read(api: &Api, name: &str, uri: &Uri, headers: &HeaderMap) -> Result<Response, Problem> {
    let parameters = Parameters::read(uri, &["consistency", "generation", "at_least", "wait_ms"])?;
    if let Some(generation) = parameters.text("generation") {
        let fix = format!("leave it out: {name} alone is the total of its keys, of which only the present is kept");
        return Err(refused("generation", generation, &fix));
    }
    let total = api.counters.total(name).await?.unwrap_or_default();
    let value = total.value.ok_or_else(|| unknown(name))?;
    let value = i64::try_from(value).map_err(|_| {
        let detail = format!("the keys of {name} come to {value}, which does not fit into 64 bits; read them by id");
        Problem::new(ProblemKind::Overflow, detail).with("value", value.to_string())
    })?;
    let declarations = api.counters.declarations();
    let own = declarations.counter_of(name.as_bytes()).and_then(|counter| counter.durability);
    let durability = own.unwrap_or_else(|| api.counters.durability());
    Ok(Envelope::of_total(name, value, &total, api.host.clock.now_ms(), durability).respond(headers))
}

fn unknown(name: &str) -> Problem {
    let detail = format!(
        "{name} counted under a version of Tally that kept no total; add its keys up with GET /v1/counters/{name}:*/aggregate"
    );
    Problem::new(ProblemKind::TooManyCounters, detail).with("id", name)
}
