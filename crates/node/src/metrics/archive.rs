//! What is told of the archive.

use super::gauge;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug)]
pub struct ArchiveMetrics {
    /// Behind the last record that can be read in it. What `tally_log_end_offset` is ahead of it is its lag.
    pub offset: Gauge,
    pub bytes: Gauge,
}

impl ArchiveMetrics {
    pub(super) fn register(registry: &mut Registry) -> ArchiveMetrics {
        ArchiveMetrics {
            offset: gauge(registry, "archive_offset", "Offset behind the last record that the archive has"),
            bytes: gauge(registry, "archive_bytes", "Bytes of the archive on disk"),
        }
    }
}
