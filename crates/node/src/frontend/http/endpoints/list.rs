//! `GET /v1/counters`: which counters there are, a page at a time.
//!
//! By name it is an ordered walk through the store, for any pattern. By value and by change it is about one declared counter, from
//! what memory keeps up to date, and up to a bound.

mod rows;

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tally_core::counter::{Declarations, Pattern};
use tally_core::database::Space;
use tally_core::limits::{LIST_NAMES_MAX, LISTED_KEYS_MAX, PAGE_ROWS_MAX};

use crate::frontend::http::Api;
use crate::frontend::http::words::cursor::{Cursor, Order};
use crate::frontend::http::words::envelope::ReadKind;
use crate::frontend::http::words::format::{self, CSV, Format, JSON};
use crate::frontend::http::words::parameters::{Parameters, limit, refused};
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use rows::{Fields, ListedCounter, ListedRow};

const PARAMETERS: [&str; 6] = ["match", "order", "limit", "cursor", "fields", "format"];
const TALLY_CURSOR: HeaderName = HeaderName::from_static("tally-cursor");

/// A page of counters.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct CounterList {
    counters: Vec<ListedCounter>,
    /// The `cursor` of the next page; `null` on the last one.
    cursor: Option<String>,
    /// `name`, `value` or `changed`
    #[schema(example = "name")]
    order: &'static str,
    kind: ReadKind,
    /// Only for an `estimate`: no counter that is not listed so far has more than this; `null` if nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    bound: Option<Option<i64>>,
}

/// What a request asks for.
struct ListRequest {
    pattern: Pattern,
    order: Order,
    limit: usize,
    behind: Option<Cursor>,
    fields: Fields,
    format: Format,
    /// The one declared counter that the pattern stands for, if it does.
    counter: Option<String>,
}

/// A page before it is told.
struct ListPage {
    rows: Vec<ListedRow>,
    /// What the next page goes on behind: the last id that was looked at, and what it has in this order.
    next: Option<(Vec<u8>, i64)>,
    /// Why it is an estimate, if it is one: what no other counter has more than.
    estimated: Option<Option<i64>>,
}

/// Lists counters
///
/// By name every counter that is there all the time is listed once. By value, and by the time of the last change, the keys of
/// one declared counter are listed, up to 1,000. With `Accept: text/csv` or `format=csv` it is CSV, with the cursor in the
/// header `Tally-Cursor`.
#[utoipa::path(get, path = "/v1/counters", tag = "counters",
    params(("match" = Option<String>, Query, description = "A pattern; `*`, which is all, if left out. The bare name of a declared counter is all of its keys", example = "views:*"),
        ("order" = Option<String>, Query, description = "`name`, `value` (the greatest first) or `changed` (the last first)"),
        ("limit" = Option<u64>, Query, description = "Rows of the page; 100 if left out"),
        ("cursor" = Option<String>, Query, description = "The `cursor` of the page before"),
        ("fields" = Option<String>, Query, description = "Which of `id`, `value`, `generation` and `changedAt` to tell, with commas; all if left out", example = "id,value"),
        ("format" = Option<String>, Query, description = "`json` or `csv`, whatever `Accept` says")),
    responses((status = 200, description = "A page of counters", content((CounterList = "application/json"), (String = "text/csv"))), Problem))]
pub async fn list(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let request = ListRequest::read(&api.counters.declarations(), &uri, &headers)?;
    let page = match (request.order, &request.counter) {
        (Order::Name, _) => request.by_name(&api).await?,
        (Order::Value, Some(counter)) => request.by_value(&api, counter).await?,
        (Order::Changed, Some(counter)) => request.by_change(&api, counter).await?,
        (_, None) => return Err(request.not_one()),
    };
    Ok(request.respond(page))
}

impl ListRequest {
    fn read(declarations: &Declarations, uri: &Uri, headers: &HeaderMap) -> Result<ListRequest, Problem> {
        let parameters = Parameters::read(uri, &PARAMETERS)?;
        let asked = parameters.text("match").unwrap_or("*");
        let index = declarations.find(asked.strip_suffix(":*").unwrap_or(asked).as_bytes());
        let counter = index.map(|index| declarations.counter(index));
        let counter = counter.filter(|counter| counter.has_keys() || *counter.name == *asked);
        let pattern = match counter {
            Some(counter) if counter.has_keys() => format!("{}:*", counter.name),
            _ => asked.to_owned(),
        };
        let pattern = Pattern::resolve(declarations, &pattern)?;
        let order = order(&parameters)?;
        let shown = pattern.to_string();
        let behind = parameters.text("cursor").map(|text| Cursor::read(text, order, &shown)).transpose()?;
        Ok(ListRequest {
            pattern,
            order,
            limit: limit(&parameters)?,
            behind,
            fields: Fields::read(parameters.text("fields"))?,
            format: format::chosen(&parameters, headers, &[JSON, CSV])?,
            counter: counter.map(|counter| counter.name.to_string()),
        })
    }

    fn not_one(&self) -> Problem {
        let fix = format!(
            "order={} is for the keys of one declared counter, such as match=views:*; list others by name",
            self.order.name()
        );
        refused("match", &self.pattern.to_string(), &fix)
    }

    async fn by_name(&self, api: &Api) -> Result<ListPage, Problem> {
        // Whoever waits for a turn holds nothing.
        let _turn = api.walks.acquire().await;
        let mut after = self.behind.as_ref().map(|cursor| cursor.id.clone());
        let (mut found, mut looked_at) = (Vec::new(), 0);
        // One more than fits says whether there is another page.
        while found.len() <= self.limit && looked_at < LIST_NAMES_MAX {
            let missing = self.limit + 1 - found.len();
            let names = if self.pattern.is_prefix() { missing } else { PAGE_ROWS_MAX };
            let page = api.counters.scan(Space::MAIN, self.pattern.prefix().to_vec(), after, names).await?;
            looked_at += names;
            found.extend(page.counters.into_iter().filter(|(id, _)| self.pattern.matches(id)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if found.len() > self.limit {
            found.truncate(self.limit);
            after = found.last().map(|(id, _)| id.clone());
        }
        let rows =
            self.rows(api, found.into_iter().map(|(id, reading)| (id, reading.value, reading.generation))).await?;
        Ok(ListPage { rows, next: after.map(|id| (id, 0)), estimated: None })
    }

    async fn by_value(&self, api: &Api, counter: &str) -> Result<ListPage, Problem> {
        let limit = self.limit.min(LISTED_KEYS_MAX - self.listed()?);
        let behind = self.behind.as_ref().map(|cursor| (cursor.number, cursor.id.clone()));
        let greatest = api.counters.greatest(counter, behind, limit).await?.map(|ranking| ranking.greatest);
        let greatest = greatest.unwrap_or_default();
        let last = greatest.keys.last().filter(|_| greatest.keys.len() == limit);
        let next = last.map(|key| (key.id.to_vec(), key.value));
        let keys = greatest.keys.into_iter().map(|key| (key.id.into_vec(), key.value, key.generation));
        let rows = self.rows(api, keys).await?;
        Ok(ListPage { rows, next, estimated: (!greatest.is_exact).then_some(greatest.bound) })
    }

    async fn by_change(&self, api: &Api, counter: &str) -> Result<ListPage, Problem> {
        let limit = self.limit.min(LISTED_KEYS_MAX - self.listed()?);
        let behind = self.behind.as_ref().map(|cursor| (cursor.number as u64, cursor.id.clone()));
        let changed = api.counters.changed_last(counter, behind, limit).await?.unwrap_or_default();
        let last = changed.last().filter(|_| changed.len() == limit);
        let next = last.map(|key| (key.id.to_vec(), key.offset as i64));
        let (declarations, hasher) = (api.counters.declarations(), api.counters.hasher());
        let cells: Vec<_> = changed.iter().map(|key| hasher.key(&key.id)).collect();
        let seen = api.counters.see(&cells).await?;
        let there = changed.into_iter().zip(seen).filter_map(|(key, seen)| Some((key, seen.reading?)));
        let row = |(key, reading)| ListedRow::new(&declarations, key, reading);
        Ok(ListPage { rows: there.map(row).collect(), next, estimated: None })
    }

    /// How many rows were told before, if there may be more.
    fn listed(&self) -> Result<usize, Problem> {
        let listed = self.behind.as_ref().map_or(0, |cursor| cursor.listed as usize);
        if listed < LISTED_KEYS_MAX {
            return Ok(listed);
        }
        let detail = format!(
            "order={} lists the first {LISTED_KEYS_MAX} keys of a counter, and this cursor is behind them; list all of them with order=name",
            self.order.name()
        );
        Err(Problem::new(ProblemKind::TooManyCounters, detail).with("limit", LISTED_KEYS_MAX))
    }

    /// What is told of counters with their values and generations.
    async fn rows(
        &self,
        api: &Api,
        counters: impl Iterator<Item = (Vec<u8>, i64, u64)>,
    ) -> Result<Vec<ListedRow>, Problem> {
        let declarations = api.counters.declarations();
        let row = |(id, sum, generation): (Vec<u8>, i64, u64)| {
            let value = declarations.shown(&id, sum);
            ListedRow { id, value, generation, changed_at_ms: None }
        };
        let mut rows: Vec<_> = counters.map(row).collect();
        if self.fields.changed_at && !rows.is_empty() {
            let ids = rows.iter().map(|row| row.id.clone()).collect();
            for (row, at_ms) in rows.iter_mut().zip(api.counters.changed_at_ms(ids).await?) {
                row.changed_at_ms = at_ms;
            }
        }
        Ok(rows)
    }

    fn respond(&self, page: ListPage) -> Response {
        let listed = self.behind.as_ref().map_or(0, |cursor| cursor.listed) + page.rows.len() as u64;
        let cursor = page.next.map(|(id, number)| {
            Cursor { order: self.order, pattern: self.pattern.to_string(), id, number, listed }.encode()
        });
        let mut response = match self.format {
            CSV => self.fields.csv(&page.rows).into_response(),
            _ => axum::Json(CounterList {
                counters: page.rows.iter().map(|row| self.fields.view(row)).collect(),
                cursor: cursor.clone(),
                order: self.order.name(),
                kind: if page.estimated.is_some() { ReadKind::Estimate } else { ReadKind::Exact },
                bound: page.estimated,
            })
            .into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.format.1));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        if let Some(cursor) = cursor {
            headers.insert(TALLY_CURSOR, HeaderValue::try_from(cursor).expect("digits are a header value"));
        }
        response
    }
}

fn order(parameters: &Parameters) -> Result<Order, Problem> {
    let Some(asked) = parameters.text("order") else { return Ok(Order::Name) };
    let known = Order::ALL.into_iter().find(|order| order.name() == asked);
    known.ok_or_else(|| refused("order", asked, "send name, value or changed"))
}
