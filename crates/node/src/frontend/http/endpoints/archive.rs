//! `GET /v1/archive` and `POST /v1/archive/flush`: how far the archive is, and bringing it up to now.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tally_archive::Reached;

use crate::archive::ArchiveHandle;
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// How far the archive is.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveState {
    /// The directory with the catalog and the tables
    #[schema(example = "/srv/tally/archive")]
    directory: String,
    /// Everything before it can be read in the archive; `null` until it has begun
    #[schema(example = "1-0-4711")]
    position: Option<String>,
    /// The log time of that position
    #[schema(example = "2026-11-15T18:00:00.000Z")]
    log_time: Option<String>,
    /// The digest of the commit that ends there, which is chained to all before it
    #[schema(example = "6f1f0b3a9c55d2e7a0c1b2d3e4f50617")]
    digest: Option<String>,
    /// Records of the log behind that position
    #[schema(example = 12)]
    lag_records: u64,
    /// Events that can be read
    #[schema(example = 4700)]
    events: u64,
    /// Data files of all tables
    #[schema(example = 8)]
    files: u64,
    /// What all of it takes on disk, as of the last look at all files
    #[schema(example = 65536)]
    bytes: u64,
    /// What of its upkeep failed when it was last tried: what is not of use any more may stay on disk. `null` if nothing did
    #[schema(example = json!(null))]
    trouble: Option<String>,
}

impl ArchiveState {
    fn new(archive: &ArchiveHandle) -> ArchiveState {
        let status = archive.status();
        let of = |tell: fn(&Reached) -> String| status.reached.as_ref().map(tell);
        ArchiveState {
            directory: status.directory.display().to_string(),
            position: of(|reached| reached.to.to_string()),
            log_time: of(|reached| rfc3339(reached.log_time_ms)),
            digest: of(|reached| reached.digest.to_string()),
            lag_records: archive.lag(),
            events: status.events,
            files: status.files,
            bytes: status.bytes,
            trouble: status.trouble,
        }
    }
}

/// The archive, or in words why there is none.
pub(super) fn archive(api: &Api) -> Result<&ArchiveHandle, Problem> {
    api.host.archive.as_ref().ok_or_else(|| {
        Problem::new(
            ProblemKind::NoArchive,
            "this server keeps no archive: it has no declared counters, or `archive: none` or --archive none says so",
        )
    })
}

/// How far the archive is
///
/// Which part of the log can be read in the tables of the archive, and what they take on disk.
#[utoipa::path(get, path = "/v1/archive", tag = "archive",
    responses((status = 200, description = "How far it is", body = ArchiveState), Problem))]
pub async fn status(State(api): State<Api>) -> Result<Json<ArchiveState>, Problem> {
    Ok(Json(ArchiveState::new(archive(&api)?)))
}

/// Archive up to now
///
/// Waits until everything that was acknowledged before can be read in the tables of the archive.
#[utoipa::path(post, path = "/v1/archive/flush", tag = "archive",
    responses((status = 200, description = "How far it is then", body = ArchiveState), Problem))]
pub async fn flush(State(api): State<Api>) -> Result<Json<ArchiveState>, Problem> {
    let archive = archive(&api)?;
    archive.flush().await?;
    Ok(Json(ArchiveState::new(archive)))
}
