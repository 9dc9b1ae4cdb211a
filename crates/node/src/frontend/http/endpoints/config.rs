//! `GET /v1/config`: the declarations in force, with what each counter comes to.

use std::collections::BTreeMap;

use crate::frontend::http::words::envelope::rfc3339;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tally_core::counter::Counter;
use tally_core::values::KeptRollup;

use crate::frontend::http::Api;
use crate::frontend::http::words::format::{self, JSON, YAML};
use crate::frontend::http::words::parameters::Parameters;
use crate::frontend::http::words::problem::Problem;

const TALLY_CONFIG_VERSION: HeaderName = HeaderName::from_static("tally-config-version");

/// The declarations in force.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Config {
    /// Counts the configurations that were ever in force.
    #[schema(example = "3")]
    version: String,
    /// In the order of the file.
    counters: Vec<DeclaredCounter>,
}

/// A declared counter.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredCounter {
    #[schema(example = "views")]
    counter_name: String,
    #[schema(example = "display")]
    mode: &'static str,
    #[schema(example = "sum")]
    measure: &'static str,
    dimensions: Vec<String>,
    rollups: Vec<DeclaredRollup>,
    /// The time zone of its buckets of time.
    #[schema(example = "UTC")]
    timezone: String,
    /// How long buckets of each unit are kept before they are rolled into the next one; `null`: forever.
    #[schema(example = json!({"hour": "90d", "month": "forever"}))]
    retention: Option<BTreeMap<&'static str, String>>,
    /// What all of its keys come to; `null` if it is not known or does not fit into 64 bits.
    total: Option<i64>,
}

/// Parts that a counter keeps beside its keys.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredRollup {
    by: Vec<String>,
    /// From when on it is complete; `null`: from the beginning.
    since: Option<String>,
    /// Why what was counted before that is not filled from the archive, if it cannot be.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_filled: Option<String>,
}

/// The configuration in force
///
/// With `Accept: application/yaml` or `format=yaml` it is the text that was read, and its version is in the header `Tally-Config-Version`.
#[utoipa::path(get, path = "/v1/config", tag = "node",
    params(("format" = Option<String>, Query, description = "`json` or `yaml`, whatever `Accept` says")),
    responses((status = 200, description = "The declarations", content((Config = "application/json"), (Value = "application/yaml"))), Problem))]
pub async fn config(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let parameters = Parameters::read(&uri, &["format"])?;
    let format = format::chosen(&parameters, &headers, &[JSON, YAML])?;
    let declarations = api.counters.declarations();
    let version = declarations.version();
    let mut response = match format {
        YAML => declarations.yaml().to_owned().into_response(),
        _ => {
            let totals = totals(&api).await?;
            let reconcile = api.host.reconcile.as_ref();
            let not_filled = |counter: &str, number| reconcile?.not_filled(counter, number);
            let counter = |counter: &Counter| {
                DeclaredCounter::new(counter, declarations.rollups_of(&counter.name), &totals, not_filled)
            };
            let counters = declarations.counters().iter().map(counter).collect();
            axum::Json(Config { version: version.to_string(), counters }).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.1));
    headers.insert(VARY, HeaderValue::from_static("accept"));
    headers.insert(TALLY_CONFIG_VERSION, HeaderValue::from(version));
    Ok(response)
}

/// What each counter comes to, where it is known.
async fn totals(api: &Api) -> Result<BTreeMap<Box<str>, i64>, Problem> {
    let (balances, _) = api.counters.balances().await?;
    let total = |sums: tally_core::values::Sums| i64::try_from(sums.counted + sums.corrected()).ok();
    Ok(balances.into_iter().filter_map(|balance| Some((balance.name, total(balance.sums?)?))).collect())
}

impl DeclaredCounter {
    fn new(
        counter: &Counter,
        rollups: &[KeptRollup],
        totals: &BTreeMap<Box<str>, i64>,
        not_filled: impl Fn(&str, u16) -> Option<String>,
    ) -> DeclaredCounter {
        let rollup = |kept: &KeptRollup| DeclaredRollup {
            by: kept.rollup.words().map(str::to_owned).collect(),
            since: kept.since_ms.map(rfc3339),
            not_filled: not_filled(&counter.name, kept.number),
        };
        DeclaredCounter {
            counter_name: counter.name.to_string(),
            mode: counter.mode().name(),
            measure: counter.measure.name(),
            dimensions: counter.dimensions.iter().map(|name| name.to_string()).collect(),
            rollups: rollups.iter().map(rollup).collect(),
            timezone: rollups.first().map_or("UTC".to_owned(), |kept| kept.zone.name().to_owned()),
            retention: retention(counter),
            total: totals.get(&counter.name).copied(),
        }
    }
}

fn retention(counter: &Counter) -> Option<BTreeMap<&'static str, String>> {
    let keeps = counter.rollups.retention.keeps();
    (!keeps.is_empty()).then(|| keeps.iter().map(|keep| (keep.unit.name(), keep.length())).collect())
}
