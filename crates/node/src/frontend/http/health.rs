//! For machines that watch the node: is it alive, does it take writes, how is it doing?

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Api;
use super::problem::Problem;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the process lives
#[utoipa::path(get, path = "/healthz", tag = "node", responses((status = 200, description = "It is well", body = String, content_type = "text/plain")))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the node takes writes
#[utoipa::path(get, path = "/readyz", tag = "node",
    responses((status = 200, description = "It is well", body = String, content_type = "text/plain"), Problem))]
pub async fn readyz(State(api): State<Api>) -> Result<&'static str, Problem> {
    api.engine.health()?;
    Ok("ready\n")
}

/// What the node counts about itself, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "node", responses((status = 200, description = "It is well", body = String, content_type = "text/plain")))]
pub async fn metrics(State(api): State<Api>) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPENMETRICS)], api.metrics.encode())
}
