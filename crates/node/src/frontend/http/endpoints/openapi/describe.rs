//! What the description says beyond what can be read off the handlers: names of operations, the bounds of parameters and
//! fields, the event.
//!
//! A parameter of one name means the same in every operation, so its bounds stand here once. Programs are made from the
//! description and tests are drawn from it, so what it allows is what the server takes.

use serde_json::{Map, Value, json};
use tally_core::limits::{
    ANOMALY_FACTOR_MAX, ANOMALY_FACTOR_MIN, AT_LEAST_WAIT_MS_MAX, AUTHOR_BYTES_MAX, CORRECTION_DELTAS_MAX,
    DIMENSIONS_PER_EVENT_MAX, EVENT_DELTA_MAX, EVENTS_PER_REQUEST_MAX, ID_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX,
    IDS_PER_READ_MAX, LISTED_KEYS_MAX, PAGE_ROWS_MAX, PARTS_PER_ROW_MAX, REASON_BYTES_MAX, SERIES_IDS_MAX,
    SQL_ROWS_MAX, SQL_TIME_MS_MAX,
};

/// Each operation by its method and path: programs made from the description call their functions so.
const OPERATIONS: [(&str, &str, &str); 49] = [
    ("post", "/v1/events", "sendEvents"),
    ("post", "/v1/events/stream", "streamEvents"),
    ("get", "/v1/duplicates", "listDuplicates"),
    ("get", "/v1/balance", "getBalance"),
    ("get", "/v1/workers", "listWorkers"),
    ("get", "/v1/probes", "getProbes"),
    ("get", "/v1/archive", "getArchive"),
    ("post", "/v1/archive/flush", "flushArchive"),
    ("get", "/v1/roots", "listRoots"),
    ("post", "/v1/roots", "closeRoot"),
    ("get", "/v1/counters/{id}/proof", "proveCounter"),
    ("post", "/v1/sql", "askSql"),
    ("get", "/v1/reconciliation", "listReconciliations"),
    ("post", "/v1/reconciliation", "reconcile"),
    ("post", "/v1/restatements", "restate"),
    ("get", "/v1/anomalies", "listAnomalies"),
    ("get", "/v1/anomalies/expected", "listExpected"),
    ("post", "/v1/anomalies/expected", "expectAnomalies"),
    ("delete", "/v1/anomalies/expected/{n}", "forgetExpected"),
    ("get", "/v1/backups", "listBackups"),
    ("post", "/v1/backups", "takeBackup"),
    ("get", "/v1/config", "getConfig"),
    ("get", "/v1/counters", "listCounters"),
    ("get", "/v1/counters/{id}", "getCounter"),
    ("delete", "/v1/counters/{id}", "deleteCounter"),
    ("post", "/v1/counters/get", "getCounters"),
    ("post", "/v1/counters/{id}/increment", "incrementCounter"),
    ("post", "/v1/counters/{id}/decrement", "decrementCounter"),
    ("get", "/v1/counters/{id}/aggregate", "aggregateCounters"),
    ("get", "/v1/top/{counter}", "getTop"),
    ("get", "/v1/counters/{id}/explain", "explainCounter"),
    ("get", "/v1/counters/{id}/history", "getCounterHistory"),
    ("get", "/v1/counters/{id}/series", "getCounterSeries"),
    ("get", "/v1/series", "getSeries"),
    ("get", "/v1/counters/{id}/watch", "watchCounter"),
    ("get", "/v1/counters/watch", "watchCounters"),
    ("get", "/v1/snapshot", "getSnapshot"),
    ("get", "/v1/corrections", "listCorrections"),
    ("post", "/v1/corrections", "proposeCorrection"),
    ("get", "/v1/corrections/{n}", "getCorrection"),
    ("delete", "/v1/corrections/{n}", "withdrawCorrection"),
    ("get", "/v1/corrections/{n}/preview", "previewCorrection"),
    ("post", "/v1/corrections/{n}/preview", "previewCorrectionByPost"),
    ("post", "/v1/corrections/{n}/apply", "applyCorrection"),
    ("post", "/v1/corrections/{n}/revert", "revertCorrection"),
    ("get", "/v1/commits", "followCommits"),
    ("get", "/healthz", "getHealth"),
    ("get", "/readyz", "getReadiness"),
    ("get", "/metrics", "getMetrics"),
];

/// Operations that make a change once per `Idempotency-Key`.
const ONCE: [&str; 6] = [
    "incrementCounter",
    "decrementCounter",
    "deleteCounter",
    "proposeCorrection",
    "applyCorrection",
    "revertCorrection",
];

/// Schemas of what is sent to the server. Nothing in them is null: what is not there is left out.
const SENT: [&str; 7] =
    ["Change", "Ids", "ProposalRequest", "DeltaRequest", "ApplyRequest", "RevertRequest", "ExpectedRequest"];

const POSITION: &str = r"^(0|[1-9][0-9]{0,8})-(0|[1-9][0-9]{0,8})-(0|[1-9][0-9]{0,17})$";

/// A time, or a duration before now.
const MOMENT: &str = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})|-[0-9]{1,9}(ms|s|m|h|d))$";

/// Finishes the description that the handlers make.
pub fn finish(description: &utoipa::openapi::OpenApi) -> Value {
    let mut description = serde_json::to_value(description).expect("a description is JSON");
    description["components"]["schemas"]["Event"] = event();
    for (method, path, id) in OPERATIONS {
        let operation =
            description["paths"][path][method].as_object_mut().expect("an operation that has a name exists");
        finish_operation(operation, id);
    }
    description["paths"]["/v1/events"]["post"]["requestBody"] = events_body();
    // A scrape says which of the two it wants.
    description["paths"]["/metrics"]["get"]["responses"]["200"]["content"]["application/openmetrics-text"] =
        json!({"schema": {"type": "string"}});
    for schema in SENT {
        let fields = description["components"]["schemas"][schema]["properties"].as_object_mut();
        fields.expect("a schema of what is sent has fields").values_mut().for_each(|field| bound(field, json!({})));
    }
    for (schema, field, bounds) in field_bounds() {
        let field = &mut description["components"]["schemas"][schema]["properties"][field];
        if field.is_object() {
            bound(field, bounds);
        }
    }
    description
}

fn finish_operation(operation: &mut Map<String, Value>, id: &str) {
    operation.insert("operationId".to_owned(), id.into());
    let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
    let parameters = parameters.as_array_mut().expect("parameters are a list");
    let is_there = parameters.iter().any(|parameter| parameter["name"] == "Idempotency-Key");
    if ONCE.contains(&id) && !is_there {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false, "schema": {"type": "string"},
            "description": "Makes the change once, however often it is sent with this key",
        }));
    }
    for parameter in parameters.iter_mut() {
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        bound(&mut parameter["schema"], parameter_bounds(id, &name));
    }
    // A body that may be left out is left out, and not null.
    if let Some(body) = operation.get_mut("requestBody")
        && let Some(schema) = body.pointer("/content/application~1json/schema/oneOf/0").cloned()
    {
        body["content"]["application/json"]["schema"] = schema;
    }
}

/// Adds bounds to a schema, and takes away that it may be null: what is sent to the server never is.
fn bound(schema: &mut Value, bounds: Value) {
    if let Some(kinds) = schema["type"].as_array() {
        let kind = kinds.iter().find(|kind| **kind != "null").cloned();
        schema["type"] = kind.unwrap_or_default();
    }
    if let (Some(schema), Value::Object(bounds)) = (schema.as_object_mut(), bounds) {
        schema.extend(bounds);
        schema.retain(|_, value| !value.is_null());
    }
}

fn parameter_bounds(operation: &str, name: &str) -> Value {
    match (operation, name) {
        ("getSeries", "id") => {
            json!({"items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": SERIES_IDS_MAX})
        }
        (_, "id") | ("getTop", "counter") => json!({"minLength": 1}),
        ("getTop", "k") => json!({"minimum": 1, "maximum": LISTED_KEYS_MAX}),
        ("getTop", "window") => json!({"enum": ["all", "1h", "24h"]}),
        ("listCounters", "order") => json!({"enum": ["name", "value", "changed"]}),
        ("listCounters", "format") => json!({"enum": ["json", "csv"]}),
        ("askSql", "format") => json!({"enum": ["json", "csv", "arrow"]}),
        ("getConfig", "format") => json!({"enum": ["json", "yaml"]}),
        ("listCounters", "fields") => {
            let name = "(id|value|generation|changedAt)";
            json!({"pattern": format!("^{name}(,{name})*$")})
        }
        ("getCounterSeries" | "getSeries", "from" | "to") | ("proveCounter", "from" | "at") => {
            json!({"pattern": MOMENT})
        }
        ("getCounterSeries" | "getSeries", "step") => {
            json!({"enum": ["1m", "5m", "15m", "30m", "1h", "6h", "12h", "1d", "1w", "1mo"]})
        }
        ("getCounterSeries" | "getSeries" | "getTop", "by") => json!({"minLength": 1}),
        ("getCounterSeries" | "getSeries", "fill") => json!({"enum": ["zero"]}),
        ("getCounterSeries" | "getSeries", "format") => json!({"enum": ["json", "csv"]}),
        ("getCounterSeries" | "getSeries", "top") => json!({"minimum": 0, "maximum": PARTS_PER_ROW_MAX}),
        (_, "limit") => json!({"minimum": 1, "maximum": PAGE_ROWS_MAX}),
        (_, "wait_ms") => json!({"maximum": AT_LEAST_WAIT_MS_MAX}),
        (_, "at_least" | "from" | "Last-Event-ID") => json!({"pattern": POSITION}),
        (_, "consistency") => json!({"enum": ["cached", "latest"]}),
        ("explainCounter", "values") => json!({"enum": ["all"]}),
        ("listDuplicates", "before") => json!({"pattern": r"^(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,8})$"}),
        (_, "reason") => text(REASON_BYTES_MAX),
        (_, "author") => text(AUTHOR_BYTES_MAX),
        (_, "Idempotency-Key") => {
            json!({"minLength": 1, "maxLength": IDEMPOTENCY_KEY_BYTES_MAX, "pattern": r"^[\t -~]*[!#-~][\t -~]*$"})
        }
        _ => json!({}),
    }
}

/// Text of so many bytes, and not only blanks.
fn text(bytes_max: usize) -> Value {
    json!({"minLength": 1, "maxLength": bytes_max, "pattern": r"\S"})
}

/// The bounds of fields in bodies.
fn field_bounds() -> Vec<(&'static str, &'static str, Value)> {
    let delta = json!({"minimum": -i64::MAX, "maximum": i64::MAX});
    let items = |schema: Value, max: usize| json!({"items": schema, "maxItems": max});
    let deltas = json!({"minItems": 1, "maxItems": CORRECTION_DELTAS_MAX});
    let not_zero = json!({"minimum": -i64::MAX, "maximum": i64::MAX, "not": {"const": 0}});
    vec![
        ("Change", "delta", delta),
        ("Ids", "ids", items(json!({"type": "string", "minLength": 1}), IDS_PER_READ_MAX)),
        ("Ids", "at_least", json!({"pattern": POSITION})),
        ("Ids", "wait_ms", json!({"maximum": AT_LEAST_WAIT_MS_MAX})),
        ("ProposalRequest", "reason", text(REASON_BYTES_MAX)),
        ("ProposalRequest", "author", text(AUTHOR_BYTES_MAX)),
        ("ProposalRequest", "deltas", deltas),
        ("DeltaRequest", "id", json!({"minLength": 1})),
        ("DeltaRequest", "bucket", json!({"format": "date-time"})),
        ("DeltaRequest", "delta", not_zero),
        ("RevertRequest", "reason", text(REASON_BYTES_MAX)),
        ("RevertRequest", "author", text(AUTHOR_BYTES_MAX)),
        ("ApplyRequest", "author", text(AUTHOR_BYTES_MAX)),
        ("SqlRequest", "query", json!({"minLength": 1})),
        ("SqlRequest", "maxRows", json!({"minimum": 1, "maximum": SQL_ROWS_MAX})),
        ("SqlRequest", "timeoutMs", json!({"minimum": 1, "maximum": SQL_TIME_MS_MAX})),
        ("ExpectedRequest", "match", text(ID_BYTES_MAX)),
        ("ExpectedRequest", "from", json!({"format": "date-time"})),
        ("ExpectedRequest", "to", json!({"format": "date-time"})),
        ("ExpectedRequest", "reason", text(REASON_BYTES_MAX)),
        ("ExpectedRequest", "factor", json!({"minimum": ANOMALY_FACTOR_MIN, "maximum": ANOMALY_FACTOR_MAX})),
        ("ReconciliationRequest", "counter", json!({"minLength": 1})),
        ("ReconciliationRequest", "author", text(AUTHOR_BYTES_MAX)),
    ]
}

/// An event, as `docs/formats/events.md` has it.
fn event() -> Value {
    json!({
        "type": "object",
        "description": "Something that happened.",
        "required": ["type"],
        "additionalProperties": false,
        "properties": {
            "type": {"type": "string", "minLength": 1, "description": "What happened; counters listen to it.", "example": "video.viewed"},
            "eventId": {"type": "string", "minLength": 1, "description": "The client's own id of the event. Persistent counters count each id once."},
            "occurredAt": {"type": "string", "format": "date-time", "description": "The client's time.", "example": "2026-11-15T18:00:00Z"},
            "session": {"type": "string", "minLength": 1, "description": "Who did it."},
            "seq": {"type": "integer", "minimum": 0, "maximum": u64::MAX, "description": "The number of the event within its session."},
            "delta": {"type": "integer", "format": "int64", "minimum": -EVENT_DELTA_MAX, "maximum": EVENT_DELTA_MAX, "description": "How many it counts for; 1 if left out."},
            "dimensions": {
                "type": "object", "maxProperties": DIMENSIONS_PER_EVENT_MAX, "description": "What it is counted by: texts, numbers and booleans.",
                "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]},
                "example": {"video": "v42"},
            },
            "payload": {"description": "Any JSON; kept as it is, never looked at."},
        },
        "example": {"type": "video.viewed", "dimensions": {"video": "v42", "country": "DE"}},
    })
}

fn events_body() -> Value {
    let event = json!({"$ref": "#/components/schemas/Event"});
    let many = json!({"type": "array", "items": event, "minItems": 1, "maxItems": EVENTS_PER_REQUEST_MAX});
    let example = json!([{"type": "video.viewed", "dimensions": {"video": "v42", "country": "DE"}}]);
    json!({
        "required": true,
        "description": "One event, an array of events, or one event per line.",
        "content": {
            "application/json": {"schema": {"oneOf": [event, many]}, "example": example},
            "application/x-ndjson": {"schema": {"type": "string", "minLength": 1}, "example": "{\"type\":\"video.viewed\",\"dimensions\":{\"video\":\"v42\"}}\n"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let description = super::super::description(&Default::default());
        let mut ids = Vec::new();
        for (path, operations) in description["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap_or_default();
                let known = OPERATIONS.iter().any(|known| *known == (method, path, id));
                assert!(known, "{method} {path} is called {id:?}; give it a name in OPERATIONS");
                ids.push(id.to_owned());
            }
        }
        ids.sort();
        let described = ids.len();
        ids.dedup();
        assert_eq!((ids.len(), described), (described, OPERATIONS.len()), "{ids:?}");
    }

    #[test]
    fn every_bounded_field_exists() {
        let description = super::super::description(&Default::default());
        for (schema, field, _) in field_bounds() {
            let found = &description["components"]["schemas"][schema]["properties"][field];
            assert!(found.is_object() && found["type"].is_string(), "{schema}.{field}: {found}");
        }
    }
}
