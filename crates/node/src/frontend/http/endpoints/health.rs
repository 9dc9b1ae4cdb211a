//! For machines that watch the node: is it alive, does it take writes, how is it doing?

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::response::IntoResponse;
use axum::routing::get;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

use crate::frontend::http::Api;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::metrics::text;

/// How long a scrape waits for the writer and for the disk. One that hangs is what people look at metrics for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the address for machines that watch offers.
pub fn routes() -> Router<Api> {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).route("/metrics", get(metrics))
}

/// Whether the process lives
#[utoipa::path(get, path = "/healthz", tag = "node", responses((status = 200, description = "It is well", body = String, content_type = "text/plain")))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the node takes writes, and what is wrong with it
///
/// The first line says `ready`; a line for each trouble follows that refuses some writes or may soon. A trouble that refuses all writes is
/// a 503 that names it.
#[utoipa::path(get, path = "/readyz", tag = "node",
    responses((status = 200, description = "It is well", body = String, content_type = "text/plain"), Problem))]
pub async fn readyz(State(api): State<Api>) -> Result<String, Problem> {
    api.counters.health()?;
    let mut text = "ready\n".to_owned();
    for (trouble, what) in api.host.troubles.lasting() {
        if trouble.refuses_all_writes() {
            return Err(Problem::new(ProblemKind::NotReady, &*what).with("trouble", trouble.name()));
        }
        text.push_str(&format!("{}: {what}\n", trouble.name()));
    }
    Ok(text)
}

/// What the node counts about itself, for Prometheus
///
/// OpenMetrics for those who ask for it in `Accept`, the older text format for everybody else. The boxes are those of one moment. If the
/// writer or the disk does not answer within a second, the figures are those of the last scrape.
#[utoipa::path(get, path = "/metrics", tag = "node", responses((status = 200, description = "It is well", content(
    (String = "text/plain"), (String = "application/openmetrics-text")))))]
pub async fn metrics(State(api): State<Api>, headers: HeaderMap) -> impl IntoResponse {
    let balances = api.counters.balances();
    let metrics = Arc::clone(&api.host.metrics);
    let measured = api.host.spawner.blocking(move || metrics.disk.measure());
    let (balances, _) = tokio::join!(timeout(PATIENCE, balances), timeout(PATIENCE, measured));
    if let Ok(Ok((balances, _))) = balances {
        api.host.metrics.balances.set(balances);
    }
    api.host.metrics.memory.clients_bytes.set(api.budget.held_bytes() as i64);
    let text = api.host.metrics.encode();
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match accepted.into_iter().any(text::wants_openmetrics) {
        true => ([(CONTENT_TYPE, text::OPENMETRICS), (VARY, "accept")], text),
        false => ([(CONTENT_TYPE, text::PLAIN), (VARY, "accept")], text::plain(&text)),
    }
}
