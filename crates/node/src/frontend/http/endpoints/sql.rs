//! `POST /v1/sql`: questions in SQL over the archive and over what counters say now, read only.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tally_core::limits::{SMALL_BODY_BYTES_MAX, SQL_ROWS, SQL_ROWS_MAX, SQL_TIME_MS, SQL_TIME_MS_MAX};

use crate::clock::Stopwatch;
use crate::frontend::http::Api;
use crate::frontend::http::transport::body::Pieces;
use crate::frontend::http::words::document::{given_number, parse};
use crate::frontend::http::words::format::{self, CSV, Format, JSON};
use crate::frontend::http::words::parameters::Parameters;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::sql::{Asker, Column, Form, Question, SqlError, Written};

const ARROW: Format = ("arrow", "application/vnd.apache.arrow.stream");
const TALLY_TRUNCATED: HeaderName = HeaderName::from_static("tally-truncated");
const EXAMPLE: &str = r#"{"query":"select counter, sum(value) from counters group by counter"}"#;

/// A question in SQL.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SqlRequest)]
pub struct SqlBody {
    /// One statement that reads
    #[schema(example = "select counter, sum(value) from counters group by counter")]
    query: String,
    /// How many rows are answered at most; 10,000 if left out
    #[serde(default, deserialize_with = "given_number")]
    #[schema(example = 100)]
    max_rows: Option<u64>,
    /// How long it may take; a minute if left out
    #[serde(default, deserialize_with = "given_number")]
    #[schema(example = 30_000)]
    timeout_ms: Option<u64>,
}

/// An answer in rows.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SqlAnswer {
    columns: Vec<SqlColumn>,
    #[schema(value_type = Vec<Object>)]
    rows: Box<RawValue>,
    row_count: u64,
    /// There are more rows than were asked for, or than an answer may have
    truncated: bool,
    /// If the archive was asked: every event before it was seen, and none behind it
    #[schema(example = "1-0-4711")]
    archived_to: Option<String>,
    /// If counters or their parts were asked for: the position that they are as of
    #[schema(example = "1-0-4711")]
    live_at: Option<String>,
    took_ms: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct SqlColumn {
    #[schema(example = "counter")]
    name: String,
    /// `text`, `integer`, `number`, `boolean`, `time`, or what the engine calls it
    #[schema(example = "text")]
    r#type: String,
}

/// Ask in SQL
///
/// The tables are `events`, `fates`, `corrections`, `base`, `configurations`, `chain` and `roots` of the archive, and `counters`, `parts`,
/// `parked`, `parked_parts`, `boxes` and `commits` as they are now. It only reads. With `Accept` or `format` the answer is `text/csv` or a stream of Arrow; whether there is more is then in
/// the header `Tally-Truncated`. Whoever hangs up ends the question.
#[utoipa::path(post, path = "/v1/sql", tag = "archive", request_body = SqlBody,
    params(("format" = Option<String>, Query, description = "`json`, `csv` or `arrow`, whatever `Accept` says")),
    responses((status = 200, description = "Rows", content((SqlAnswer = "application/json"), (String = "text/csv"), (Value = "application/vnd.apache.arrow.stream"))), Problem))]
pub async fn sql(State(api): State<Api>, uri: Uri, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let parameters = Parameters::read(&uri, &["format"])?;
    let format = format::chosen(&parameters, &headers, &[JSON, CSV, ARROW])?;
    let body = Pieces::new(&api, &headers, body, SMALL_BODY_BYTES_MAX)?.collect().await?;
    let question = question(parse(&body, EXAMPLE)?)?;
    let engine = api.host.sql.as_ref().ok_or_else(|| {
        Problem::new(ProblemKind::NotFound, "this server was built without SQL: use the program tally")
    })?;
    let watch = Stopwatch::start();
    let written = engine.write(question, form(format)).await?;
    let truncated = HeaderValue::from_static(if written.is_truncated { "true" } else { "false" });
    let bytes = match format {
        JSON => in_json(written, watch)?,
        _ => written.bytes,
    };
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(format.1)), (TALLY_TRUNCATED, truncated)];
    Ok((headers, bytes).into_response())
}

fn form(format: Format) -> Form {
    match format {
        CSV => Form::Csv,
        ARROW => Form::Arrow,
        _ => Form::Json,
    }
}

fn question(body: SqlBody) -> Result<Question, Problem> {
    let rows_max = within("maxRows", body.max_rows, SQL_ROWS as u64, SQL_ROWS_MAX as u64)? as usize;
    let time = Duration::from_millis(within("timeoutMs", body.timeout_ms, SQL_TIME_MS, SQL_TIME_MS_MAX)?);
    Ok(Question { statement: body.query, rows_max, time, snapshot: None, asker: Asker::Client })
}

fn within(field: &str, given: Option<u64>, otherwise: u64, most: u64) -> Result<u64, Problem> {
    match given {
        None => Ok(otherwise),
        Some(number) if (1..=most).contains(&number) => Ok(number),
        Some(number) => Err(Problem::field(field, &number.to_string(), &format!("send a number from 1 to {most}"))),
    }
}

fn in_json(written: Written, watch: Stopwatch) -> Result<Vec<u8>, Problem> {
    let Written { columns, bytes, row_count, is_truncated, archive, live } = written;
    let rows = String::from_utf8(bytes).ok().and_then(|text| RawValue::from_string(text).ok());
    let rows = rows.ok_or_else(|| {
        let fix = "select other columns, or cast them to text";
        Problem::new(ProblemKind::InvalidQuery, format!("the answer cannot be written as json; {fix}"))
    })?;
    let column = |column: Column| SqlColumn { name: column.name, r#type: column.kind };
    let answer = SqlAnswer {
        columns: columns.into_iter().map(column).collect(),
        rows,
        row_count,
        truncated: is_truncated,
        archived_to: archive.map(|position| position.to_string()),
        live_at: live.map(|position| position.to_string()),
        took_ms: watch.elapsed().as_millis() as u64,
    };
    Ok(serde_json::to_vec(&answer).expect("strings and numbers are JSON"))
}

impl From<SqlError> for Problem {
    fn from(error: SqlError) -> Problem {
        match error {
            SqlError::Wrong(what) | SqlError::Broke(what) => Problem::new(ProblemKind::InvalidQuery, what),
            SqlError::TooLong(time) => {
                let fix = "ask for less, or allow more with timeoutMs";
                let limit_ms = time.as_millis() as u64;
                let detail = format!("no answer was found within {limit_ms} ms; {fix}");
                Problem::new(ProblemKind::QueryTimeout, detail).with("limit", limit_ms)
            }
            SqlError::TooMuch(what) => {
                let fix = "ask for less at a time, or give the node more --memory";
                Problem::new(ProblemKind::QueryTooLarge, format!("{what}; {fix}"))
            }
            SqlError::Refused(refusal) => refusal.into(),
        }
    }
}
