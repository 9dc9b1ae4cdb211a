//! What is told of backups.

use super::{counter, gauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

#[derive(Debug)]
pub struct BackupMetrics {
    /// When the newest that is there was taken, since 1970; 0 if there is none.
    pub timestamp_seconds: Gauge<f64, AtomicU64>,
    /// What the newest has, before it is compressed.
    pub bytes: Gauge,
    pub written_bytes: Counter,
    pub failures: Counter,
}

impl BackupMetrics {
    pub(super) fn register(registry: &mut Registry) -> BackupMetrics {
        let timestamp_seconds = Gauge::default();
        let help = "When the newest backup was taken, since 1970; 0 if there is none";
        registry.register_with_unit("backup_last_timestamp", help, Unit::Seconds, timestamp_seconds.clone());
        BackupMetrics {
            timestamp_seconds,
            bytes: gauge(registry, "backup_bytes", "Bytes of the last backup, before they are compressed"),
            written_bytes: counter(registry, "backup_written_bytes", "Bytes that backups have written"),
            failures: counter(registry, "backup_failures", "Backups that failed"),
        }
    }
}
