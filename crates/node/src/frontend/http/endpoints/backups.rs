//! `GET /v1/backups` and `POST /v1/backups`: which backups there are, and having one taken. Where they are kept is said at the start of the
//! server, and by nobody else.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use crate::backup::{BackupHandle, BackupStatus, EndedBackup, ManifestName, Progress};
use crate::frontend::http::Api;
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::problem::{Problem, ProblemKind};

/// A backup that is there.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptBackup {
    /// What `tally restore --at` takes
    #[schema(example = "20261118T010000.000Z_0123456789abcdef_1-0-4711_6f1f0b3a9c55d2e7.json")]
    name: String,
    #[schema(example = "2026-11-18T01:00:00.000Z")]
    time: String,
    /// Everything before it is in the backup, nothing behind it is
    #[schema(example = "1-0-4711")]
    position: String,
}

/// How much a backup has.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupProgress {
    /// Rows of counters, of their ids, and of what is remembered beside them
    rows: u64,
    objects: u64,
    /// Before they are compressed
    bytes: u64,
    /// Objects that no backup before had
    written_objects: u64,
    /// What they take
    written_bytes: u64,
    /// Counters that there are
    counters: u64,
}

/// What became of the last run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastBackup {
    run: u64,
    #[schema(example = "2026-11-18T01:00:00.000Z")]
    at: String,
    took_ms: u64,
    /// The backup; `null` if it failed
    backup: Option<KeptBackup>,
    /// How much it has; `null` if it failed
    size: Option<BackupProgress>,
    /// Why it failed
    error: Option<String>,
}

/// Backups of this server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupsState {
    /// Where they are kept
    #[schema(example = "/srv/backups")]
    place: String,
    /// Those that are there, the oldest first
    backups: Vec<KeptBackup>,
    /// How far the one under way is; `null` if there is none
    running: Option<BackupProgress>,
    /// How the last run since the start ended; `null` if there was none
    last: Option<LastBackup>,
}

/// A backup that will be taken.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct BackupRun {
    /// `GET /v1/backups` has it as `last.run` when it has ended
    #[schema(example = 1)]
    run: u64,
}

impl KeptBackup {
    fn new(name: &ManifestName) -> KeptBackup {
        KeptBackup { name: name.name.clone(), time: rfc3339(name.time_ms), position: name.position.to_string() }
    }
}

impl From<Progress> for BackupProgress {
    fn from(progress: Progress) -> BackupProgress {
        let Progress { rows, objects, bytes, written_objects, written_bytes, counters } = progress;
        BackupProgress { rows, objects, bytes, written_objects, written_bytes, counters }
    }
}

impl LastBackup {
    fn new(EndedBackup { run, at_ms, took, made }: EndedBackup) -> LastBackup {
        let (at, took_ms) = (rfc3339(at_ms), took.as_millis() as u64);
        let (backup, size, error) = match made {
            Ok((name, size)) => (Some(KeptBackup::new(&name)), Some(size.into()), None),
            Err(error) => (None, None, Some(error)),
        };
        LastBackup { run, at, took_ms, backup, size, error }
    }
}

impl BackupsState {
    fn new(BackupStatus { place, running, last, kept, .. }: BackupStatus) -> BackupsState {
        BackupsState {
            place: place.to_string(),
            backups: kept.iter().map(KeptBackup::new).collect(),
            running: running.map(BackupProgress::from),
            last: last.map(LastBackup::new),
        }
    }
}

fn backups(api: &Api) -> Result<&BackupHandle, Problem> {
    api.host.backups.as_ref().ok_or_else(|| {
        Problem::new(
            ProblemKind::NoBackups,
            "this server takes no backups: start it with --backup and a directory or s3://bucket/prefix",
        )
    })
}

/// Which backups there are
///
/// Those that are there, how far one under way is, and how the last run ended.
#[utoipa::path(get, path = "/v1/backups", tag = "node",
    responses((status = 200, description = "Backups", body = BackupsState), Problem))]
pub async fn list(State(api): State<Api>) -> Result<Json<BackupsState>, Problem> {
    Ok(Json(BackupsState::new(backups(&api)?.status())))
}

/// Take a backup
///
/// Has one taken of everything that is acknowledged now, and does not wait for it. If one is under way, another follows.
#[utoipa::path(post, path = "/v1/backups", tag = "node",
    responses((status = 202, description = "It will be taken", body = BackupRun), Problem))]
pub async fn take(State(api): State<Api>) -> Result<(StatusCode, Json<BackupRun>), Problem> {
    Ok((StatusCode::ACCEPTED, Json(BackupRun { run: backups(&api)?.ask() })))
}
