//! The routes, and their description: made from the same lines, so that they cannot disagree.

mod describe;

use axum::Router;
use axum::routing;
use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::SwaggerUi;

use super::{
    aggregate, anomalies, archive, backups, balance, commits, config, corrections, counters, duplicates, events,
    explain, health, history, list, live, probes, proof, reconciliation, restatements, roots, series, snapshot, sql,
    top, workers,
};
use crate::frontend::http::Api;
use crate::frontend::http::transport::guard::Access;
use crate::frontend::http::words::problem::ProblemBody;

#[derive(OpenApi)]
#[openapi(
    info(title = "Tally", description = "Counts events and answers how many."),
    components(schemas(ProblemBody)),
    tags(
        (name = "events", description = "What happened"),
        (name = "counters", description = "How many"),
        (name = "corrections", description = "What was wrong, and why"),
        (name = "archive", description = "Every event, in tables that other engines read"),
        (name = "node", description = "The node itself"),
    )
)]
struct Description;

/// Every path there is.
pub fn routes(access: &Access) -> Router<Api> {
    let (router, _) = described();
    router
        // A counter may be called `get`.
        .route("/v1/counters/get", routing::get(counters::get).delete(counters::delete))
        .merge(SwaggerUi::new("/docs").external_url_unchecked("/openapi.json", description(access)))
}

/// What programs and people read about them.
fn description(access: &Access) -> Value {
    let (_, mut description) = described();
    if access.token.is_some() {
        ask_for_token(&mut description);
    }
    describe::finish(&description)
}

fn described() -> (Router<Api>, utoipa::openapi::OpenApi) {
    OpenApiRouter::<Api>::with_openapi(Description::openapi())
        .routes(routes!(events::events))
        .routes(routes!(events::stream::stream_events))
        .routes(routes!(list::list))
        .routes(routes!(counters::get, counters::delete))
        .routes(routes!(counters::increment))
        .routes(routes!(counters::decrement))
        .routes(routes!(counters::get_many))
        .routes(routes!(aggregate::aggregate))
        .routes(routes!(top::top))
        .routes(routes!(explain::explain))
        .routes(routes!(duplicates::duplicates))
        .routes(routes!(balance::balance))
        .routes(routes!(workers::workers))
        .routes(routes!(probes::probes))
        .routes(routes!(config::config))
        .routes(routes!(history::history))
        .routes(routes!(series::series))
        .routes(routes!(series::many::series_many))
        .routes(routes!(corrections::list, corrections::propose))
        .routes(routes!(corrections::get, corrections::withdraw))
        .routes(routes!(corrections::preview))
        .routes(routes!(corrections::apply))
        .routes(routes!(corrections::revert))
        .routes(routes!(archive::status))
        .routes(routes!(archive::flush))
        .routes(routes!(roots::list, roots::close))
        .routes(routes!(proof::proof))
        .routes(routes!(sql::sql))
        .routes(routes!(reconciliation::list, reconciliation::run))
        .routes(routes!(restatements::restate))
        .routes(routes!(anomalies::list))
        .routes(routes!(anomalies::list_expected, anomalies::expect))
        .routes(routes!(anomalies::forget))
        .routes(routes!(backups::list, backups::take))
        .routes(routes!(commits::commits))
        .routes(routes!(snapshot::snapshot))
        .routes(routes!(live::watch_all))
        .routes(routes!(live::watch))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .split_for_parts()
}

/// Programs made from the description, and the page at `/docs`, then know that they have to send a token.
fn ask_for_token(description: &mut utoipa::openapi::OpenApi) {
    const NAME: &str = "token";
    let scheme =
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("What --http-token-file has")).build();
    let components = description.components.get_or_insert_default();
    components.security_schemes.insert(NAME.to_owned(), SecurityScheme::Http(scheme).into());
    description.security = Some(vec![SecurityRequirement::new(NAME, [""; 0])]);
}
