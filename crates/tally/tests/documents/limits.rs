//! Limits: what the guide tells users, word for word with the numbers of `limits.rs`.

use crate::page::Page;
use tally_core::limits::*;
use tally_node::frontend::http;

/// `4,096`.
fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

fn n(value: usize) -> String {
    number(value as u64)
}

/// In the largest unit that divides it.
fn bytes(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", number(bytes as u64 >> 20)),
        _ if bytes.is_multiple_of(1 << 10) && bytes > 4096 => format!("{} KiB", bytes >> 10),
        _ => format!("{} bytes", n(bytes)),
    }
}

/// One part in so many.
fn part(parts: u64) -> &'static str {
    match parts {
        4 => "a quarter",
        8 => "an eighth",
        10 => "a tenth",
        _ => unreachable!("{parts} has no name here"),
    }
}

/// Sentences, or parts of them, that a section must have.
#[track_caller]
fn assert_said(document: &str, heading: &str, said: &[String]) {
    let section = Page::open(document).section(heading);
    let missing: Vec<&String> = said.iter().filter(|words| !section.text().contains(&***words)).collect();
    assert!(missing.is_empty(), "{} should say (as limits.rs has it) {missing:#?}", section.name);
}

#[test]
fn the_limits_of_http_are_those_of_the_code() {
    let times = http::HttpOptions::default();
    let seconds = |time: std::time::Duration| time.as_secs();
    let said = [
        format!(
            "| body, decompressed | {} for events and for reads of many; {} for an increment |",
            bytes(BODY_BYTES_MAX),
            bytes(SMALL_BODY_BYTES_MAX)
        ),
        format!("| events, entries in a request | {}; {} |", n(EVENTS_PER_REQUEST_MAX), n(ENTRIES_PER_REQUEST_MAX)),
        format!(
            "| one event | {}, {DIMENSIONS_PER_EVENT_MAX} dimensions, a nesting of {JSON_DEPTH_MAX} |",
            bytes(EVENT_BYTES_MAX)
        ),
        format!("| ids in a read of many | {} |", n(IDS_PER_READ_MAX)),
        format!("| ids that a pattern walks through | {} |", n(SCAN_NAMES_MAX)),
        format!("| ids that a page of a list by name looks at | {} |", n(LIST_NAMES_MAX)),
        format!("| keys in a top, and in a list by value or by change | {} |", n(LISTED_KEYS_MAX)),
        format!("| an id | {} |", bytes(ID_BYTES_MAX)),
        format!(
            "| connections; requests at once on an HTTP/2 connection | {}; {HTTP_STREAMS_MAX} |",
            n(HTTP_CONNECTIONS_MAX)
        ),
        format!(
            "| the head of a request | {}; over HTTP/2 {} |",
            bytes(HTTP_READ_BUFFER_BYTES_MAX),
            bytes(HTTP_HEAD_BYTES_MAX as usize)
        ),
        format!(
            "| what all clients hold | {} of `--memory`; [beyond it](operations.md#clients) 503 |",
            part(CLIENT_PARTS)
        ),
        format!(
            "| time | {} s for a head, {} s between two parts of a body, {} min for all of it, {} s idle, {} s without taking anything of an answer |",
            seconds(times.head_timeout),
            seconds(times.body_idle_timeout),
            seconds(times.body_timeout) / 60,
            seconds(times.idle_timeout),
            seconds(times.write_timeout)
        ),
    ];
    assert_said("docs/guide/http.md", "## Limits", &said);
}

#[test]
fn the_shares_of_memory_are_those_of_the_code() {
    let share = |parts, bytes_max: u64| format!("| {}, at most {} |", part(parts), gib_or_mib(bytes_max));
    let said = [
        share(CLIENT_PARTS, CLIENT_BYTES_MAX),
        share(STORE_CACHE_PARTS, STORE_CACHE_BYTES_MAX),
        share(WORK_PARTS, WORK_BYTES_MAX),
        format!(
            "at most 1.{} times `--memory` and {} of the machine's memory, and {} more with an archive",
            10 / BEYOND_PARTS,
            bytes(BEYOND_BYTES as usize),
            bytes(BEYOND_ARCHIVE_BYTES as usize)
        ),
    ];
    assert_said("docs/guide/operations.md", "## Memory", &said);
    let said = [
        format!("beyond {} (or a quarter of what clients have)", bytes(LARGE_BYTES_UNDER_WAY_MAX)),
        format!("are not read for up to {} s", LARGE_WAIT_MS_MAX / 1000),
        format!("While somebody waits for {} s", LARGE_LINE_MS_MAX / 1000),
    ];
    assert_said("docs/guide/operations.md", "## Clients", &said);
}

fn gib_or_mib(size: u64) -> String {
    if size.is_multiple_of(1 << 30) { format!("{} GiB", size >> 30) } else { bytes(size as usize) }
}

#[test]
fn the_bounds_of_lists_are_those_of_the_code() {
    let said =
        [format!("at most {}. `window`", n(LISTED_KEYS_MAX)), format!("(they share {})", bytes(LISTS_BYTES_MAX))];
    assert_said("docs/guide/http.md", "## The greatest keys", &said);
    let said = [
        format!("rows of a page: 100, at most {} |", n(PAGE_ROWS_MAX)),
        format!("A page looks at {} ids at most", n(LIST_NAMES_MAX)),
        format!("up to {} keys, then 422", n(LISTED_KEYS_MAX)),
    ];
    assert_said("docs/guide/http.md", "## Lists", &said);
}

#[test]
fn the_bounds_of_tops_are_those_of_the_code() {
    let said = [format!("for up to {TOP_VALUES_MAX} countries"), format!("(they share {})", bytes(BOARDS_BYTES_MAX))];
    assert_said("docs/guide/rollups.md", "## Tops", &said);
    let adr = "docs/adr/0026-boards-bound-what-they-do-not-name.md";
    let said = [
        format!("They are kept for {BOARD_HOURS_KEPT} hours"),
        format!("all of them together have {}", bytes(BOARDS_BYTES_MAX)),
        format!("more than {BOARDS_PER_LINE_MAX} different hours"),
    ];
    assert_said(adr, "# 26. Boards bound what they do not name", &said);
}

#[test]
fn the_bounds_of_series_are_those_of_the_code() {
    assert_eq!(SERIES_NAMES_MAX, 1_000_000, "the guide says a million");
    let said = [
        format!("At most {} keys are added up", n(SERIES_KEYS_MAX)),
        format!("At most {SERIES_IDS_MAX} ids, with {} keys together", n(SERIES_KEYS_MAX)),
        format!("At most {} points", n(SERIES_POINTS_MAX)),
    ];
    assert_said("docs/guide/rollups.md", "## Series", &said);
}

#[test]
fn the_limits_of_the_redis_protocol_are_those_of_the_code() {
    let said = [
        format!(
            "An id has {}, an argument {} (Redis: 512 MiB), a command {} and {} arguments. {} clients.",
            bytes(ID_BYTES_MAX),
            bytes(RESP_BULK_BYTES_MAX as usize),
            bytes(RESP_QUERY_BYTES_MAX),
            number(RESP_ARGUMENTS_MAX as u64),
            n(RESP_CLIENTS_MAX)
        ),
        format!("Replies that a client does not read: {}", bytes(RESP_OUTPUT_BYTES_MAX)),
        format!("{RESP_ARGUMENTS_STRANGER_MAX} arguments of {}", bytes(RESP_BULK_BYTES_STRANGER_MAX as usize)),
        format!("the last {} iterations are", n(RESP_SCANS_MAX)),
    ];
    assert_said("docs/guide/redis.md", "## What differs from Redis, and why", &said);
    let said = [format!("An id has 1 to {}", bytes(IDEMPOTENCY_KEY_BYTES_MAX))];
    assert_said("docs/guide/redis.md", "## Counting once", &said);
    let said = [format!("more than {} of them are refused", n(RESP_FLUSH_KEYS_MAX))];
    assert_said("docs/guide/redis.md", "## Databases", &said);
    let said = [format!(
        "the queued commands of a connection have {}, a transaction {} operations, and the watched keys of all clients {} of memory",
        bytes(RESP_QUEUED_BYTES_MAX),
        n(RESP_TRANSACTION_OPS_MAX),
        bytes(WATCHED_BYTES_MAX)
    )];
    assert_said("docs/guide/redis.md", "## Transactions", &said);
}

#[test]
fn the_bounds_of_corrections_are_those_of_the_code() {
    let said = [
        format!("| deltas of a correction, keys that one clearing changes | {} |", n(CORRECTION_DELTAS_MAX)),
        format!("| one correction or proposal | {} |", bytes(CORRECTION_BYTES_MAX)),
        format!("| open proposals | {} |", n(PROPOSALS_OPEN_MAX)),
        format!("| all open proposals together | {} |", bytes(PROPOSALS_OPEN_BYTES_MAX)),
        format!("| reason, author | {} and {} |", n(REASON_BYTES_MAX), bytes(AUTHOR_BYTES_MAX)),
        format!("| rows of a page | {};", n(PAGE_ROWS_MAX)),
    ];
    assert_said("docs/guide/corrections.md", "## Propose, look, apply, revert", &said);
    let said =
        [format!("the first {} are told", n(DELTAS_TOLD_MAX)), format!("{SUBSCRIBERS_MAX} subscriptions may be open")];
    assert_said("docs/guide/corrections.md", "## The subscription", &said);
    let said = [format!("No record has more than {}", bytes(RECORD_BYTES_MAX))];
    assert_said("docs/formats/wal.md", "### Remedy", &said);
    let said = [format!("({} sums, {})", n(PARKED_MAX), bytes(LATE_RUN_BYTES_MAX))];
    assert_said("docs/guide/contracts.md", "## Late events", &said);
}

#[test]
fn the_bounds_of_anomalies_and_webhooks_are_those_of_the_code() {
    const PAGE: &str = "docs/guide/anomalies.md";
    let rule = format!(
        "`factor` is from {ANOMALY_FACTOR_MIN} to {}, `least` from 1 to {}",
        number(ANOMALY_FACTOR_MAX),
        number(ANOMALY_LEAST_MAX)
    );
    assert_said(PAGE, "## What is a jump", &[rule]);
    let cost = [
        format!(
            "{} keys of the running minute (and {} of their ids)",
            n(ANOMALY_KEYS_MAX),
            bytes(ANOMALY_ID_BYTES_MAX)
        ),
        format!("what {} used to come to", n(ANOMALY_HISTORY_MAX)),
        format!("Up to {} records", number(ANOMALY_RECORDS_MAX)),
    ];
    assert_said(PAGE, "## What it costs", &cost);
    let expected = format!("There are {EXPECTED_MAX} at most, of up to {} days", EXPECTED_MS_MAX / 86_400_000);
    assert_said(PAGE, "## Told in advance", &[expected]);
    let told = format!(
        "the last {}, through restarts. Of one minute the {ANOMALIES_PER_MINUTE_MAX} steepest",
        n(ANOMALIES_KEPT_MAX)
    );
    assert_said(PAGE, "## Where it is told", &[told]);
    let webhooks = [
        format!("(up to {WEBHOOKS_MAX} times)"),
        format!("within {} s means", WEBHOOK_WAIT_MS_MAX / 1000),
        format!("{WEBHOOK_ATTEMPTS_MAX} times in all"),
        format!("{WEBHOOK_MESSAGES_MAX} messages may wait"),
    ];
    assert_said(PAGE, "## Webhooks", &webhooks);
}

#[test]
fn the_bounds_of_a_configuration_are_those_of_the_code() {
    let said = [
        format!("list of counters, up to {}", n(COUNTERS_MAX)),
        format!("1 to {}, no", bytes(NAME_BYTES_MAX)),
        format!("list of names, up to {KEY_DIMENSIONS_MAX}"),
        format!("At most {ENTRIES_PER_EVENT_MAX} counters on one event type, {} of YAML", bytes(CONFIG_BYTES_MAX)),
        format!("up to {IDENTITY_FIELDS_MAX} of"),
    ];
    assert_said("docs/guide/counters.md", "## The configuration", &said);
}
