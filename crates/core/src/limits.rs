//! Every bound of the system in one place. Each has an error that names it when a user reaches it.

/// Longest counter id, in bytes.
pub const ID_BYTES_MAX: usize = 4096;

/// Longest text of one event in JSON, in bytes.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

/// Events in one HTTP request.
pub const EVENTS_PER_REQUEST_MAX: usize = 100_000;

/// Body of one HTTP request after decompression, in bytes.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Nesting of a JSON document.
pub const JSON_DEPTH_MAX: usize = 64;

/// Dimensions in one event.
pub const DIMENSIONS_PER_EVENT_MAX: usize = 64;

/// Declared counters in one configuration.
pub const COUNTERS_MAX: usize = 4096;

/// Dimensions that form one counter's key.
pub const KEY_DIMENSIONS_MAX: usize = 16;

/// Counters that one event may feed.
pub const ENTRIES_PER_EVENT_MAX: usize = 256;

/// A configuration file, in bytes.
pub const CONFIG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Counter ids in one batch read over HTTP.
pub const IDS_PER_READ_MAX: usize = 10_000;

/// Counters that one pattern read walks through before it asks the caller to narrow the pattern.
pub const SCAN_NAMES_MAX: usize = 10_000_000;

/// Log bytes of one commit; whatever is ready beyond it waits for the next one.
pub const COMMIT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Submissions from other threads that may wait for the writer.
pub const QUEUE_SUBMISSIONS_MAX: usize = 256;

/// Bytes of submissions from other threads that may wait for the writer.
pub const QUEUE_BYTES_MAX: usize = 128 * 1024 * 1024;
