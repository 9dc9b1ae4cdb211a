//! The process that a frontend runs in: what is not about counters.

use crate::anomalies::AnomaliesHandle;
use crate::archive::ArchiveHandle;
use crate::backup::BackupHandle;
use crate::clock::Clock;
use crate::engine::Troubles;
use crate::metrics::Metrics;
use crate::probe::ProbeHandle;
use crate::reconcile::ReconcileHandle;
use crate::sql::Sql;
use crate::worker::Spawner;
use std::sync::Arc;

/// Time, figures, troubles, threads, the archive, who answers questions about it, and backups. Clones are the same.
#[derive(Clone)]
pub struct Host {
    /// The time of the node, from which log time is taken.
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    /// What is wrong at the moment.
    pub troubles: Arc<Troubles>,
    /// Where what may wait for a disk is done.
    pub spawner: Spawner,
    /// Where every event is kept, if it is.
    pub archive: Option<ArchiveHandle>,
    /// Who answers questions in SQL, if anybody does.
    pub sql: Option<Arc<dyn Sql>>,
    /// Who counts again, if there is something to count from.
    pub reconcile: Option<ReconcileHandle>,
    /// Who looks for rates that jump.
    pub anomalies: Option<AnomaliesHandle>,
    /// Who takes backups, if somebody does.
    pub backups: Option<BackupHandle>,
    /// Who sends probes, if somebody does.
    pub probes: Option<ProbeHandle>,
}
