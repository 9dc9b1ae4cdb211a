//! `GET /v1/roots`, `POST /v1/roots`: what the hours of the log came to, each as one hash that is chained to all before it.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use serde::Serialize;
use std::sync::Arc;
use tally_archive::{ArchiveError, SignedRoot};

use super::archive::archive;
use crate::archive::ArchiveHandle;
use crate::counters::Refusal;
use crate::frontend::http::Api;
use crate::frontend::http::words::parameters::Paging;
use crate::frontend::http::words::problem::Problem;
use crate::proof::RootView;

/// A page of roots.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Roots)]
pub struct RootPage {
    /// The newest first. Each has the hour and the position it ends at, how many commits and events it has, what became of the entries
    /// of each counter, the root of its tree, the anchor before it and its own; and if the server has a key, its signature
    #[schema(value_type = Vec<Object>)]
    roots: Vec<RootView>,
    /// The `before` of the next page; left out on the last one
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = 4711)]
    next: Option<u64>,
}

/// Lists roots, the newest first
///
/// A root is closed when an hour of log time is over. Its anchor stands for everything in the log up to its end.
#[utoipa::path(get, path = "/v1/roots", tag = "archive",
    params(("limit" = Option<u64>, Query, description = "How many, at most 1000; 100 if left out"),
        ("before" = Option<u64>, Query, description = "The `next` of the page before")),
    responses((status = 200, description = "A page of roots", body = RootPage), Problem))]
pub async fn list(State(api): State<Api>, uri: Uri) -> Result<Json<RootPage>, Problem> {
    let paging = Paging::read(&uri)?;
    Ok(Json(page(&api, archive(&api)?, paging).await?))
}

/// Closes a root here
///
/// Everything that was acknowledged before is in it, or in one before it, when this answers; the hour need not be over.
#[utoipa::path(post, path = "/v1/roots", tag = "archive",
    responses((status = 200, description = "The newest root", body = RootPage), Problem))]
pub async fn close(State(api): State<Api>) -> Result<Json<RootPage>, Problem> {
    let archive = archive(&api)?;
    archive.anchor().await?;
    let newest = page(&api, archive, Paging { limit: 1, before: u64::MAX }).await?;
    Ok(Json(RootPage { next: None, ..newest }))
}

async fn page(api: &Api, archive: &ArchiveHandle, Paging { limit, before }: Paging) -> Result<RootPage, Problem> {
    let tables = archive.tables_of_roots().await?.map_err(unreadable)?;
    let read = move || -> Result<Vec<SignedRoot>, ArchiveError> {
        let is_older = |found: &Result<SignedRoot, ArchiveError>| match found {
            Ok(found) => found.root.number < before,
            Err(_) => true,
        };
        tables.roots_newest_first().filter(is_older).take(limit + 1).collect()
    };
    let found = api.host.spawner.blocking(read).await.ok_or(Refusal::ShuttingDown)?;
    let mut found = found.map_err(unreadable)?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().map(|last| last.root.number).filter(|_| has_more);
    let view = |SignedRoot { root, anchor, signature, .. }| RootView { root, anchor, signature };
    Ok(RootPage { roots: found.into_iter().map(view).collect(), next })
}

/// The archive cannot be read.
pub fn unreadable(error: ArchiveError) -> Problem {
    Refusal::ArchiveFailed(Arc::from(error.to_string())).into()
}
