//! For machines that watch the node: is it alive, does it take writes, how is it doing?

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use std::time::Duration;

use super::Api;
use super::problem::{Kind, Problem};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a scrape waits for the writer. One that hangs on its disk is what people look at metrics for.
const WRITER_PATIENCE: Duration = Duration::from_secs(1);

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
    api.engine.health()?;
    let mut text = "ready\n".to_owned();
    for (trouble, what) in api.engine.troubles().lasting() {
        if trouble.refuses_all_writes() {
            return Err(Problem::new(Kind::NotReady, &*what).with("trouble", trouble.name()));
        }
        text.push_str(&format!("{}: {what}\n", trouble.name()));
    }
    Ok(text)
}

/// What the node counts about itself, for Prometheus
///
/// The boxes are those of one moment. If the writer does not answer within a second, they are those of the last scrape.
#[utoipa::path(get, path = "/metrics", tag = "node", responses((status = 200, description = "It is well", body = String, content_type = "text/plain")))]
pub async fn metrics(State(api): State<Api>) -> impl IntoResponse {
    let balances = api.engine.visit(|state| state.contracts.balances());
    if let Ok(Ok(balances)) = tokio::time::timeout(WRITER_PATIENCE, balances).await {
        api.metrics.balances.set(balances);
    }
    ([(CONTENT_TYPE, OPENMETRICS)], api.metrics.encode())
}
