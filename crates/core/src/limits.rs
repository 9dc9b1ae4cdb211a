//! Every bound of the system in one place. Each has an error that names it when a user reaches it.

/// Longest counter id, in bytes.
pub const ID_BYTES_MAX: usize = 4096;

/// Longest text of one event in JSON, in bytes.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;
/// What a thread keeps of how events have looked, for as many requests as are read beside each other.
pub const LAYOUTS_KEPT_MAX: usize = 4;

/// Events in one HTTP request.
pub const EVENTS_PER_REQUEST_MAX: usize = tally_batch::EVENTS_MAX;

/// Body of one HTTP request after decompression, in bytes.
pub const BODY_BYTES_MAX: usize = tally_batch::BATCH_BYTES_MAX;

/// Nesting of a JSON document.
pub const JSON_DEPTH_MAX: usize = 64;

/// Dimensions in one event.
pub const DIMENSIONS_PER_EVENT_MAX: usize = tally_batch::DIMENSIONS_MAX;

/// A number given as a dimension, in characters of its plain decimal form: enough for every 64-bit float as it is commonly written.
pub const NUMBER_BYTES_MAX: usize = 512;

/// The name of a declared counter, of a dimension or of an event type in a configuration, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Declared counters in one configuration.
pub const COUNTERS_MAX: usize = 4096;

/// Dimensions that form one counter's key.
pub const KEY_DIMENSIONS_MAX: usize = 16;

/// Roll-ups of one counter.
pub const ROLLUPS_MAX: usize = 16;

/// Dimensions of one roll-up, beside the bucket of time.
pub const ROLLUP_DIMENSIONS_MAX: usize = 4;

/// Parts that one key has in one bucket of one roll-up; what comes then is `other`.
pub const PARTS_PER_ROW_MAX: usize = 10_000;

/// Old buckets of keys that one checkpoint rolls up: so many stretches of them, rows and bytes, and the row that is one too many.
pub const FOLDS_PER_CUT_MAX: usize = 8_192;
pub const FOLDED_ROWS_PER_CUT_MAX: usize = 65_536;
pub const FOLDED_BYTES_PER_CUT_MAX: usize = 16 << 20;

/// Points of one series.
pub const SERIES_POINTS_MAX: usize = 10_000;

/// Numbers of one series: points times parts.
pub const SERIES_NUMBERS_MAX: usize = 1_000_000;

/// Series in one request.
pub const SERIES_IDS_MAX: usize = 100;

/// Keys that the series of one request add up; the writer looks at each of them.
pub const SERIES_KEYS_MAX: usize = 1_000;

/// Ids that are looked through for the keys that match a pattern.
pub const SERIES_NAMES_MAX: usize = 1_000_000;

/// Numbers that the keys of one series come to before only a top of them is told.
pub const SERIES_SUMS_MAX: usize = 10_000_000;

/// Hours for which it is kept which keys came to most, the running one included and one more than can be asked for.
pub const BOARD_HOURS_KEPT: u32 = 25;

/// Hours for which that is kept of one roll-up at a time, those of the future included.
pub const BOARDS_PER_LINE_MAX: usize = 64;

/// Memory of that, of all counters together, in bytes. Beyond it boards grow no more, and more answers are estimates.
pub const BOARDS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Keys whose parts are added up for a top of a window or by a dimension, beside those that are asked for.
pub const TOP_KEYS_BESIDE: usize = 100;

/// Values of a dimension that a top is told for.
pub const TOP_VALUES_MAX: usize = 20;

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

/// One record of the log, in bytes. A configuration, and what is asked for about the past, may have more and are in parts then.
pub const RECORD_BYTES_MAX: usize = 512 * 1024;

/// Submissions from other threads that may wait for the writer.
pub const QUEUE_SUBMISSIONS_MAX: usize = 256;

/// Bytes of submissions from other threads that may wait for the writer.
pub const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Slots of the table that a cut looks at between two commits; of one segment, if that has more.
pub const COLLECT_SLOTS: usize = 8 * 1024;

/// Slots of the table that are thinned out between two commits, likewise: so many that as many cells can leave as a full commit
/// brings in.
pub const THIN_OUT_SLOTS: usize = 32 * 1024;

/// Rows of the last cut that each layer of the ledger keeps in memory as a cache; a larger cut is forgotten.
pub const SETTLED_MAX: usize = 256 * 1024;

/// What is hashed (cells, event ids, entities) falls into so many slots, ranges of which partitions own.
pub const SLOTS: usize = 1 << 14;

/// Cells for which something was counted before their row has come from the store; beyond it entries wait for rows. One commit
/// may go beyond by what it has.
pub const UNSETTLED_CELLS_MAX: usize = 16 * 1024;

/// Memory of one filter that tells fresh keys from known ones, in bytes, unless it is set otherwise; beyond it there is no
/// filter, and every key is looked up.
pub const FILTER_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Arguments of one RESP command.
pub const RESP_ARGUMENTS_MAX: i64 = 1024 * 1024;

/// Arguments of one RESP command before `AUTH`.
pub const RESP_ARGUMENTS_STRANGER_MAX: i64 = 10;

/// One argument of a RESP command, in bytes.
pub const RESP_BULK_BYTES_MAX: i64 = 1024 * 1024;

/// One argument of a RESP command before `AUTH`, in bytes.
pub const RESP_BULK_BYTES_STRANGER_MAX: i64 = 16 * 1024;

/// An inline command, or the line that holds a length, in bytes.
pub const RESP_INLINE_BYTES_MAX: usize = 64 * 1024;

/// One RESP command with all its arguments, in bytes.
pub const RESP_QUERY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The same before `AUTH`.
pub const RESP_QUERY_BYTES_STRANGER_MAX: usize = 64 * 1024;

/// How a RESP client is called, and what it says of its library, in bytes each.
pub const RESP_CLIENT_NAME_BYTES_MAX: usize = 256;

/// What is read from a RESP connection at once, in bytes.
pub const RESP_READ_BYTES: usize = 64 * 1024;

/// Operations that a RESP connection commits at once; the rest of its pipeline waits for the next commit.
pub const RESP_SLICE_OPS: usize = 4096;

/// Log or reply bytes at which a RESP connection commits and sends before it goes on with its pipeline.
pub const RESP_SLICE_BYTES: usize = 1024 * 1024;

/// Replies that wait for a RESP client to read them, in bytes; beyond it the connection is closed.
pub const RESP_OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What every RESP connection may hold in any case, in bytes: the beginning of a short command.
pub const RESP_HELD_BYTES_FREE: usize = 4 * 1024;

/// The least `--memory` that a node can do with, in bytes.
pub const MEMORY_BYTES_MIN: u64 = 256 << 20;

/// What all clients together may make the node hold: one part in so many of `--memory`, at most so many bytes.
pub const CLIENT_PARTS: u64 = 4;
pub const CLIENT_BYTES_MAX: u64 = 1 << 30;

/// The store's cache: one part in so many of `--memory`, at most so many bytes, which is enough for the filters and indexes of a
/// hundred million counters.
pub const STORE_CACHE_PARTS: u64 = 8;
pub const STORE_CACHE_BYTES_MAX: u64 = 256 << 20;

/// A checkpoint under way, rows that are looked up, buffers of the log: one part in so many of `--memory`, at most so many bytes.
pub const WORK_PARTS: u64 = 8;
pub const WORK_BYTES_MAX: u64 = 256 << 20;

/// What the process may take beyond `--memory`, for its code, its threads and what the allocator has not given back: one part in so
/// many of it, and so many bytes.
pub const BEYOND_PARTS: u64 = 10;
pub const BEYOND_BYTES: u64 = 64 << 20;
/// And with an archive: rows and pages on their way into files, and what its thread reads of the log.
pub const BEYOND_ARCHIVE_BYTES: u64 = 64 << 20;

/// Bytes of new ids after which a checkpoint is due, unless memory is small.
pub const NAMES_BYTES_MAX: usize = 16 << 20;

/// A batch that was larger is given back after use, in bytes.
pub const BATCH_BYTES_KEPT: usize = 8 << 20;

/// Sets of buffers kept for RESP connections that wake up.
pub const RESP_BUFFERS_KEPT: usize = 256;

/// A larger buffer is given back to the system after use, in bytes.
pub const RESP_BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// A longer list of arguments or operations is given back to the system after use.
pub const RESP_ARGUMENTS_KEPT: usize = 4096;

/// RESP connections, unless the configuration says otherwise.
pub const RESP_CLIENTS_MAX: usize = 10_000;

/// Commands that wait for `EXEC` on one RESP connection, in bytes of memory.
pub const RESP_QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Counters that `FLUSHDB` deletes one by one, which it does in database 0 while other databases have counters.
pub const RESP_FLUSH_KEYS_MAX: usize = 512 * 1024;

/// Operations of one transaction.
pub const RESP_TRANSACTION_OPS_MAX: usize = 1024 * 1024;

/// Keys that all clients together watch, in bytes of memory.
pub const WATCHED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// `SCAN` iterations under way; the one that rested longest is forgotten for a new one.
pub const RESP_SCANS_MAX: usize = 1024;

/// Names that one step of `SCAN` looks at.
pub const RESP_SCAN_COUNT_MAX: usize = 4096;

/// Threads for HTTP.
pub const HTTP_THREADS_MAX: usize = 256;

/// The least log after which a checkpoint is taken, in bytes.
pub const CHECKPOINT_LOG_BYTES_MIN: u64 = 4096;

/// HTTP connections, unless the configuration says otherwise.
pub const HTTP_CONNECTIONS_MAX: usize = 4096;

/// Connections to the address for machines that watch.
pub const WATCH_CONNECTIONS_MAX: usize = 64;

/// Batches of one stream of events that are under way at a time.
pub const HTTP_BATCHES_MAX: usize = 4;

/// Requests that one HTTP/2 connection may have under way.
pub const HTTP_STREAMS_MAX: u32 = 128;

/// What one HTTP/1 connection reads ahead, and so also the longest head of a request, in bytes.
pub const HTTP_READ_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The head of one HTTP/2 request, in bytes.
pub const HTTP_HEAD_BYTES_MAX: u32 = 64 * 1024;

/// How much is still read from a sender whose request was refused, so that he gets to read why, in bytes.
pub const HTTP_DRAIN_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// HTTP connections beyond the bound that are listened to until they have read so; the others are told and closed at once.
pub const HTTP_TURNED_AWAY_MAX: usize = 64;

/// What every HTTP connection is charged for the buffers that it has in any case, in bytes.
pub const HTTP_CONNECTION_BYTES: usize = 16 * 1024;

/// What an HTTP/2 connection may send ahead of being read, and is charged for in addition, in bytes.
pub const HTTP_WINDOW_BYTES: u32 = 256 * 1024;

/// Larger answers are charged while their client takes them, and are handed to it in pieces of this many bytes.
pub const HTTP_ANSWER_BYTES: usize = 64 * 1024;

/// What is done of a body before other requests of the same thread have a turn, in bytes.
pub const HTTP_SLICE_BYTES: usize = 64 * 1024;

/// Bodies up to this size wait for nobody's turn, in bytes.
pub const HTTP_AT_ONCE_BYTES: usize = 16 * 1024;

/// Large bodies that are read or wait for their commit, in bytes of the memory they take: enough that the writer never waits for them.
/// At most a quarter of what clients have.
pub const LARGE_BYTES_UNDER_WAY_MAX: usize = 16 * 1024 * 1024;

/// How long others wait for that, in milliseconds. Once somebody has waited so long as the first number, nobody joins the line.
pub const LARGE_LINE_MS_MAX: u64 = 2_000;
pub const LARGE_WAIT_MS_MAX: u64 = 3_000;

/// How long the sender of a large body may pause before others are read in its place, in milliseconds.
pub const LARGE_PAUSE_MS_MAX: u64 = 250;

/// What a large body is taken for whose sender does not say how large it is, in bytes; and how many times its size if it is compressed.
pub const LARGE_BYTES_UNKNOWN: usize = 1024 * 1024;
pub const LARGE_TIMES_COMPRESSED: usize = 8;

/// How many times its size a compact batch takes in memory: its records are those of the log there.
pub const LARGE_TIMES_COMPACT: usize = 6;

/// Files of the store that are kept open.
pub const STORE_FILES_MAX: usize = 256;

/// File descriptors that clients never get: they are for the log, the store and whoever reads them.
pub const DESCRIPTORS_RESERVED: usize = 1024;

/// What the system may keep for a client that does not read, in bytes; it takes twice as much for itself.
pub const SEND_BUFFER_BYTES: usize = 256 * 1024;

/// The token of HTTP, in bytes: anybody who can connect may guess.
pub const TOKEN_BYTES_MIN: usize = 16;

/// A file with a password or a token, in bytes.
pub const SECRET_BYTES_MAX: usize = 4096;

/// Reads over a pattern that go on at the same time; the others wait for their turn.
pub const HTTP_WALKS_MAX: usize = 8;

/// Body of a request that needs only a few fields, in bytes.
pub const SMALL_BODY_BYTES_MAX: usize = 16 * 1024;

/// Entries that the events of one HTTP request may make.
pub const ENTRIES_PER_REQUEST_MAX: usize = 1_000_000;

/// Rejections that one answer spells out; the rest is counted.
pub const REJECTIONS_SHOWN_MAX: usize = 100;

/// Event types that one answer names because no counter listens to them; the events are counted all the same.
pub const UNMATCHED_TYPES_SHOWN_MAX: usize = 20;

/// Event types without a counter that have a metric of their own; those that come later share one.
pub const UNMATCHED_TYPES_KEPT_MAX: usize = 100;

/// How much of a client's own text a RESP error repeats, in bytes.
pub const RESP_ECHO_BYTES_MAX: usize = 128;

/// Names that one step of `SCAN` looks at, unless it says otherwise.
pub const RESP_SCAN_COUNT: usize = 10;

/// Names that `KEYS` reads at once.
pub const RESP_KEYS_PAGE: usize = 4096;

/// A pattern of `KEYS` or `SCAN`, in bytes.
pub const RESP_PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Names that are matched without leaving the writer's thread, in bytes.
pub const RESP_MATCH_INLINE_BYTES: usize = 16 * 1024;

/// Pages of names that are read and matched for RESP clients at the same time; the others wait for their turn.
pub const RESP_WALKS_MAX: usize = 4;

// Settings of a declaration.

/// Fields that `dedup.by` or `entity` may name.
pub const IDENTITY_FIELDS_MAX: usize = 16;

/// `dedup.window`, in milliseconds.
pub const DEDUP_WINDOW_MS_MIN: u64 = 1_000;
pub const DEDUP_WINDOW_MS_MAX: u64 = 3_600_000;

/// `lateness.allowed` and `lateness.corrected`, in milliseconds: 30 days.
pub const LATENESS_MS_MAX: u64 = 30 * 86_400_000;

/// `lateness.every` and `lateness.restated`, in milliseconds: a second to 7 days.
pub const LATENESS_RUN_MS_MIN: u64 = 1_000;
pub const LATENESS_RUN_MS_MAX: u64 = 7 * 86_400_000;

/// How long a bucket of time is kept at least and at most, if it is not forever.
pub const RETENTION_MS_MIN: u64 = 60_000;
pub const RETENTION_MS_MAX: u64 = 100 * 365 * 86_400_000;

/// `idempotency.keep`, in milliseconds: a second to 30 days.
pub const IDEMPOTENCY_KEEP_MS_MIN: u64 = 1_000;
pub const IDEMPOTENCY_KEEP_MS_MAX: u64 = 30 * 86_400_000;

/// Errors of a configuration that are told in one run.
pub const CONFIG_ERRORS_MAX: usize = 20;

/// Counters that were ever declared in a data directory, those that are not any more included.
pub const NAMES_EVER_MAX: usize = 32_768;

/// `idempotency.maxKeys`.
pub const IDEMPOTENCY_KEYS_MAX: u64 = 1_000_000_000;

/// `clocks.ahead`, in milliseconds: up to a day.
pub const CLOCK_AHEAD_MS_MAX: u64 = 86_400_000;

/// How far the wall clock may step ahead of the time of the log and be followed at once, in milliseconds; and how far it may
/// be behind at a start.
pub const CLOCK_STEP_MS_MAX: u64 = 5 * 60 * 1000;
/// How long it has to stay there to be followed if it leaps further, in milliseconds.
pub const CLOCK_SETTLE_MS: u64 = 60 * 1000;
/// A leap that is not followed unless somebody says that it is right, in milliseconds: no node stands still for so long.
pub const CLOCK_LEAP_MS_MAX: u64 = 31 * 24 * 60 * 60 * 1000;
/// How far apart wall clock and log time are when it is told as a trouble, in milliseconds.
pub const CLOCK_TOLD_MS: u64 = 60 * 1000;

/// An idempotency key, in bytes.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 256;

/// Log and operation bytes that other threads get into one commit, at least and at most: in between it is what a short commit
/// holds. A submission that is larger by itself is taken all the same.
pub const COMMIT_SHARE_BYTES_MIN: usize = 256 * 1024;
pub const COMMIT_SHARE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Counters that one correction changes.
pub const CORRECTION_DELTAS_MAX: usize = 100_000;

/// Parts that a roll-up which is filled gets of one look at the archive, and what one record has of them, in bytes: others write as well.
pub const FILL_ROWS_MAX: usize = 200_000;
pub const FILL_RECORD_BYTES: usize = 128 << 10;

/// Clears of one key that can still be reverted, about: beyond it the oldest are joined.
pub const SPANS_MAX: usize = 64;

/// How far from 0 a declared counter goes by anything but events, so that an entry always has room.
pub const DECLARED_MAX: i64 = 1 << 62;

/// The `delta` of an event, either way: so a counter stays within 64 bits whatever is sent.
pub const EVENT_DELTA_MAX: i64 = 1 << 31;

/// The reason of a correction, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

/// The author of a correction, in bytes.
pub const AUTHOR_BYTES_MAX: usize = 256;

/// Proposals that wait to be applied or withdrawn.
pub const PROPOSALS_OPEN_MAX: usize = 100;

/// Bytes of all proposals that wait, together.
pub const PROPOSALS_OPEN_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The record of one correction, in bytes.
pub const CORRECTION_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of late entries that one run applies; the rest is for the next run, which follows at once.
pub const LATE_RUN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One value of a store, in bytes: larger ones could be written and not be read.
pub const STORE_VALUE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Calls that a faulty topic or view holds back at most.
pub const DELAYED_APPENDS_MAX: usize = 64;

/// Rows in one call to a view, written or read.
pub const VIEW_ROWS_MAX: usize = 1_000;

/// Sums of late entries that wait for their run; when there are so many, the run comes early.
pub const PARKED_MAX: usize = 50_000;

/// Bytes of ids among them; when there are so many, the run comes early.
pub const PARKED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Rows that one page of a listing has.
pub const PAGE_ROWS_MAX: usize = 1000;

/// Audit rows that one request looks through for those it wants; `next` says where to go on.
pub const AUDIT_ROWS_LOOKED_AT_MAX: usize = 20_000;
/// Subscribers to the commits of a node, unless the configuration says otherwise.
pub const SUBSCRIBERS_MAX: usize = 128;

/// Deltas of a correction that a subscriber is told; the correction itself has them all.
pub const DELTAS_TOLD_MAX: usize = 1000;

/// Event ids that came again, of one commit, that it has rows for; it says how many there are, and the audit itself has them all.
pub const AUDIT_TOLD_MAX: usize = 1000;

/// Corrections of one counter that `explain` lists, the newest; all of them are in the sums.
pub const STEPS_SHOWN_MAX: usize = 100;

/// Keys of a counter that `explain` adds up while the writer waits; more of them are added up when somebody asks for it, as of a
/// checkpoint.
pub const KEYS_SUMMED_MAX: usize = 10_000;

/// How long a read waits for what it was told to wait for, in milliseconds.
pub const AT_LEAST_WAIT_MS_MAX: u64 = 5_000;

/// Snapshots that are held for those who read them.
pub const SNAPSHOTS_MAX: usize = 4;

/// How long a snapshot is held that nobody reads, in milliseconds.
pub const SNAPSHOT_KEPT_MS: u64 = 600_000;

/// The same once all of it was told: its end may have got lost on the way.
pub const SNAPSHOT_KEPT_TOLD_MS: u64 = 60_000;

/// Counters that a watch over a pattern tells at first.
pub const WATCHED_AT_FIRST_MAX: usize = 10_000;

/// A commit is what the log took in so many milliseconds of its time.
pub const COMMIT_SLOT_MS: u64 = 100;

/// How far log time may be ahead of the clock of whoever appended the batch, in milliseconds.
pub const APPENDED_AHEAD_MS_MAX: u64 = 5 * 60 * 1000;

/// Senders of batches that a log remembers. One that was silent for long enough is forgotten for a new one.
pub const SENDERS_MAX: usize = 16_384;

/// How long a sender is silent before it may be forgotten, in milliseconds: 7 days.
pub const SENDER_KEPT_MS: u64 = 7 * 86_400_000;

/// Lives of one sender that are remembered.
pub const INCARNATIONS_MAX: usize = 8;

/// Batches of one life of a sender that may be sent again.
pub const UNSETTLED_MAX: usize = 4096;

/// Additions by name that one record stands for.
pub const COMBINED_MAX: u32 = 1 << 20;

/// Void batches that are remembered because the log is still needed where they stand.
pub const VOIDS_MAX: usize = 65_536;

/// How far ahead of their time counters that end are looked up, if only the store has them.
pub const ENDINGS_AHEAD_MS: u64 = 60 * 1000;

/// Keys of a counter that can be asked for in the order of their values, or of their last changes. Up to twice as many are remembered.
pub const LISTED_KEYS_MAX: usize = 1_000;

/// Memory of what is remembered for that, of all counters together, in bytes. Each has the same part of it.
pub const LISTS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Keys that were not among those that changed last and are noted for one batch, whose ids have to be made: it bounds what a batch costs.
pub const CHANGED_PER_BATCH_MAX: usize = 32;

/// Ids that one page of a list by name looks at; `cursor` says where to go on.
pub const LIST_NAMES_MAX: usize = 100_000;

/// How long events are kept in the archive at least, if they are kept: whole hours go.
pub const ARCHIVE_KEEP_MS_MIN: u64 = 3_600_000;
/// Who may wait for the archive at the same time.
pub const ARCHIVE_FLUSHES_MAX: usize = 64;
/// Commits whose hashes the archive holds before it makes them visible, whatever else there is.
pub const ARCHIVE_COMMITS_MAX: u64 = 36_000;

/// Events that a proof shows at most: whoever needs more asks for a shorter time.
pub const PROOF_EVENTS_MAX: usize = 10_000;
/// Roots that the chain of a proof has at most: more than a year of hours.
pub const PROOF_ROOTS_MAX: usize = 10_000;
/// Proofs that are made at the same time; further ones are told to come again.
pub const PROOFS_MAX: usize = 2;
/// What is told of an archive that is not as it was.
pub const VERIFY_DIFFERENCES_MAX: usize = 1000;

/// How often a backup is taken by itself, in milliseconds, and how many are kept.
pub const BACKUP_EVERY_MS_MIN: u64 = 60_000;
pub const BACKUP_EVERY_MS_MAX: u64 = 90 * 86_400_000;
pub const BACKUP_KEEP_MAX: u64 = 10_000;

/// How often probes are sent: if nobody says otherwise, and within which bounds.
pub const PROBE_EVERY_MS: u64 = 10_000;
pub const PROBE_EVERY_MS_MIN: u64 = 1_000;
pub const PROBE_EVERY_MS_MAX: u64 = 3_600_000;
/// After how long a probe is missing that is not acknowledged, applied or told, or not archived, if nobody says otherwise, and within which
/// bounds.
pub const PROBE_WITHIN_MS: u64 = 10_000;
pub const PROBE_ARCHIVED_MS: u64 = 15 * 60_000;
pub const PROBE_WAIT_MS_MIN: u64 = 1_000;
pub const PROBE_WAIT_MS_MAX: u64 = 3_600_000;
/// Probes that are followed at the same time: those of an hour, if they come as often as they may and none arrives.
pub const PROBES_UNDER_WAY_MAX: usize = (PROBE_WAIT_MS_MAX / PROBE_EVERY_MS_MIN) as usize + 1;
/// Bytes of an answer that a probe reads.
pub const PROBE_ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Questions in SQL that are answered at the same time; further ones are told to come again.
pub const SQL_QUESTIONS_MAX: usize = 4;
/// Tables that are told to one question at the same time, each by a thread and over a socket.
pub const SQL_TABLES_MAX: usize = 32;
/// What a question in SQL may count on at least, and what its process may take beside what is counted: code that plans, buffers of those who
/// read, stacks; in bytes.
pub const SQL_MEMORY_BYTES_MIN: usize = 48 << 20;
pub const SQL_UNCOUNTED_BYTES_MAX: usize = 256 << 20;

/// What an answer in SQL may take in memory before it ends with what it has, in bytes.
pub const SQL_ANSWER_BYTES_MAX: usize = 32 << 20;
/// Rows of an answer: if nobody says otherwise, and at most.
pub const SQL_ROWS: usize = 10_000;
pub const SQL_ROWS_MAX: usize = 1_000_000;
/// How long a question may take: if nobody says otherwise, and at most.
pub const SQL_TIME_MS: u64 = 60_000;
pub const SQL_TIME_MS_MAX: u64 = 60 * 60_000;

/// Who may wait for a recount at the same time, and reports of recounts that are kept: a week of hours, each with so many differences of a
/// counter. Whoever asks for a recount is told all.
pub const RECONCILE_ASKS_MAX: usize = 16;
pub const RECONCILE_REPORTS_MAX: usize = 168;
pub const RECONCILE_DIFFERENCES_KEPT: usize = 100;
/// Hours that a report tells of each counter: the last ones in any case, and with those that differ.
pub const RECONCILE_HOURS: usize = 24;
pub const RECONCILE_HOURS_MAX: usize = 100;

/// Keys whose entries of the running minute are counted by themselves, and bytes of their ids; beyond it the small ones are let go of, and
/// what they came to at most is known.
pub const ANOMALY_KEYS_MAX: usize = 32 * 1024;
pub const ANOMALY_ID_BYTES_MAX: usize = 4 << 20;
/// Keys of which it is known what they used to come to in a minute; all others came to less.
pub const ANOMALY_HISTORY_MAX: usize = 64 * 1024;
/// Records of one commit that are looked at; of a larger one only every so many-th is, as a sample.
pub const ANOMALY_RECORDS_MAX: u64 = 5_000;
/// Anomalies of one minute that are kept and told, the largest; all are counted.
pub const ANOMALIES_PER_MINUTE_MAX: usize = 100;
/// Anomalies that are kept, the newest.
pub const ANOMALIES_KEPT_MAX: usize = 1_000;
/// `anomalies.factor` and `anomalies.least`.
pub const ANOMALY_FACTOR_MIN: u64 = 2;
pub const ANOMALY_FACTOR_MAX: u64 = 1_000_000;
pub const ANOMALY_LEAST_MAX: u64 = 1_000_000_000_000;
/// Trends that are told in advance, how long one may last (400 days), and who may wait to tell one.
pub const EXPECTED_MAX: usize = 100;
pub const EXPECTED_MS_MAX: u64 = 400 * 86_400_000;
pub const EXPECTED_ASKS_MAX: usize = 16;

/// Webhooks of a node, messages that wait for one of them, how often each is tried, and how long it is waited for.
pub const WEBHOOKS_MAX: usize = 8;
pub const WEBHOOK_MESSAGES_MAX: usize = 256;
pub const WEBHOOK_ATTEMPTS_MAX: u32 = 8;
pub const WEBHOOK_WAIT_MS_MAX: u64 = 5_000;

/// What each check of `tally verify` names; the rest it counts.
pub const VERIFY_FINDINGS_MAX: usize = 1_000;
