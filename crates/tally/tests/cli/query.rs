//! Questions in SQL from a shell, to a server with an archive.

use crate::support::{Served, exchange, stderr, stdout, tally};
use std::io::Write;
use std::net::TcpStream;
use std::process::{Output, Stdio};
use tally_core::limits::SQL_QUESTIONS_MAX;

const YAML: &str = "
counters:
  - {counterName: impressions, mode: persistent, dimensions: [ad], rollups: [[country], [country, hour]],
     rules: [{on: shown, op: increment}]}
";
/// It would take hours.
const LONG: &str =
    "select sum(a.value * b.value) from generate_series(1, 10000) a cross join generate_series(1, 1000000000) b";

pub struct Asked {
    _server: Served,
    pub http: String,
    _dir: tempfile::TempDir,
}

impl Asked {
    /// A server with an archive that has three impressions, one of them sent twice.
    pub fn start() -> Asked {
        let dir = tempfile::tempdir().unwrap();
        let (config, data, archive) = (dir.path().join("c.yaml"), dir.path().join("data"), dir.path().join("archive"));
        std::fs::write(&config, YAML).unwrap();
        let [config, data, archive] = [&config, &data, &archive].map(|path| path.to_str().unwrap());
        let command = ["serve", "--memory", "256MiB", "--data", data, "--config", config, "--archive", archive];
        let server = Served::start_with(&command, Stdio::null());
        let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        let asked = Asked { http: http.trim_end_matches('/').to_owned(), _server: server, _dir: dir };
        for (id, ad, country) in [("1", "a", "DE"), ("2", "a", "FR"), ("1", "a", "DE"), ("3", "b", "DE")] {
            let event = format!(
                r#"{{"type":"shown","eventId":"{id}","dimensions":{{"ad":"{ad}","country":"{country}","page":"p"}}}}"#
            );
            asked.post("/v1/events", &event);
        }
        asked.post("/v1/archive/flush", "");
        asked
    }

    pub fn post(&self, path: &str, body: &str) -> String {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.http);
        let body = format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}");
        let answer = exchange(&self.http, &(head + &body));
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
        answer
    }

    fn ask(&self, args: &[&str]) -> Output {
        tally(&[&["query", "--server", &self.http], args].concat())
    }

    fn table(&self, statement: &str) -> String {
        let output = self.ask(&[statement]);
        assert!(output.status.success(), "{statement}: {}", stderr(&output));
        stdout(&output)
    }

    fn refused(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stdout(&output));
        stderr(&output)
    }
}

#[test]
fn one_statement_asks_the_archive_and_the_counters() {
    let asked = Asked::start();
    let recount = "
        select c.id, c.value, r.n from counters c join (
          select ad, count(*) as n from (
            select ad, row_number() over (partition by event_id order by \"offset\") as nth from events) e
          where nth = 1 group by ad) r
        on c.counter = 'impressions' and c.key = r.ad order by 1";
    assert_eq!(asked.table(recount), "id             value  n\nimpressions:a      2  2\nimpressions:b      1  1\n");
    let fates = "select counter, fate, event_id from fates";
    assert_eq!(asked.table(fates), "counter      fate       event_id\nimpressions  duplicate  1\n");
    let map = "select dimensions['page'] as page, count(*) as n from events group by 1";
    assert_eq!(asked.table(map), "page  n\np     4\n");
    assert_eq!(asked.table("select count(*) as n from corrections"), "n\n0\n");
}

#[test]
fn parts_boxes_and_commits_are_tables() {
    let asked = Asked::start();
    let parts = "select id, dimensions['country'] as country, value from parts
                 where rollup = 'country' and counter = 'impressions' order by 1, 2";
    let expected = "id             country  value\nimpressions:a  DE           1\nimpressions:a  FR           1\nimpressions:b  DE           1\n";
    assert_eq!(asked.table(parts), expected);
    let hours = "select id, unit, sum(value) as n, min(bucket) = date_trunc('hour', min(bucket)) as whole
                 from parts where unit is not null group by 1, 2 order by 1";
    let expected = "id             unit  n  whole\nimpressions:a  hour  2  true\nimpressions:b  hour  1  true\n";
    assert_eq!(asked.table(hours), expected);
    let boxes = "select counter, received, counted, duplicate, stream from boxes";
    let expected =
        "counter      received  counted  duplicate  stream\nimpressions         4        3          1  persistent\n";
    assert_eq!(asked.table(boxes), expected);
    // Each begins where the one before it ends, and the archive is where the last one does.
    let chain = "select count(*) as gaps from (
        select from_offset, lag(to_offset) over (order by from_offset) as before from commits) c
        where before <> from_offset";
    assert_eq!(asked.table(chain), "gaps\n   0\n");
    assert_eq!(asked.table("select max(to_offset) > 4 as told from commits"), "told\ntrue\n");
}

#[test]
fn a_key_may_have_more_parts_than_are_handed_on_at_once() {
    let asked = Asked::start();
    let event = |n| format!(r#"{{"type":"shown","eventId":"many{n}","dimensions":{{"ad":"many","country":"c{n}"}}}}"#);
    let events: Vec<String> = (0..9000).map(event).collect();
    asked.post("/v1/events", &format!("[{}]", events.join(",")));
    let parts = "select count(*) as n, count(distinct dimensions['country']) as others, sum(value) as value
                 from parts where id = 'impressions:many' and rollup = 'country'";
    assert_eq!(asked.table(parts), "   n  others  value\n9000    9000   9000\n");
    assert_eq!(asked.table("select value from parts where id = 'impressions:many' limit 1"), "value\n    1\n");
}

#[test]
fn an_answer_comes_in_every_form() {
    let asked = Asked::start();
    let statement = "select ad, min(log_time) as first, null as nothing from events group by ad order by ad";
    let json = stdout(&asked.ask(&["--format", "json", statement]));
    let rows: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["ad"], &rows[1]["ad"], rows.len()), (&"a".into(), &"b".into(), 2), "{json}");
    assert!(rows[0]["nothing"].is_null() && rows[0]["first"].as_str().unwrap().ends_with('Z'), "{json}");
    let csv = stdout(&asked.ask(&["--format", "csv", "select ad, country from events where event_id = '2'"]));
    assert_eq!(csv, "ad,country\na,FR\n");
    assert_eq!(stdout(&asked.ask(&["--format", "csv", "select ad from events where ad = 'c'"])), "ad\n");
    assert_eq!(asked.table("select ad from events where ad = 'c'"), "ad\n");
    let arrow = asked.post("/v1/sql?format=csv", r#"{"query":"select 1 as one"}"#);
    assert!(arrow.contains("content-type: text/csv") && arrow.contains("tally-truncated: false"), "{arrow}");
    let whole = asked.post("/v1/sql", r#"{"query":"select count(*) as n from events, counters"}"#);
    let body: serde_json::Value = serde_json::from_str(whole.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body["columns"], serde_json::json!([{"name": "n", "type": "integer"}]), "{body}");
    assert!(body["archivedTo"].is_string() && body["liveAt"].is_string(), "{body}");
}

#[test]
fn how_far_the_archive_was_is_not_told_by_tables_that_something_is_seldom_put_into() {
    let asked = Asked::start();
    let archived_to = |tables: &str| {
        let told = asked.post("/v1/sql", &format!(r#"{{"query":"select count(*) as n from {tables}"}}"#));
        let body: serde_json::Value = serde_json::from_str(told.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        body["archivedTo"].clone()
    };
    let events = archived_to("events");
    assert!(events.is_string(), "{events}");
    assert_eq!((archived_to("events, base, configurations"), archived_to("base")), (events, serde_json::Value::Null));
}

#[test]
fn a_question_reads_and_nothing_else() {
    let asked = Asked::start();
    let file = asked._dir.path().join("leak.csv");
    let copy = format!("copy (select * from events) to '{}' stored as csv", file.display());
    let external = format!("create external table t stored as csv location '{}'", file.display());
    for statement in [
        "insert into counters values ('x', null, null, 1, 1, 0)",
        "create table t as select 1",
        "create view v as select 1",
        "drop table events",
        "delete from events",
        "update counters set value = 0",
        "set datafusion.execution.batch_size = 1",
        &copy,
        &external,
    ] {
        let text = asked.refused(&[statement]);
        assert!(
            text.contains("not supported") || text.contains("not allowed") || text.contains("read"),
            "{statement}: {text}"
        );
    }
    assert!(!file.exists());
    assert!(asked.refused(&["select * from '/etc/passwd'"]).contains("passwd"));
    assert_eq!(asked.table("select count(*) as n from events"), "n\n4\n");
}

#[test]
fn what_is_wrong_is_said_in_words() {
    let asked = Asked::start();
    assert!(asked.refused(&["selec 1"]).contains("selec"));
    assert!(asked.refused(&["select vidoe from events"]).contains("vidoe"));
    assert!(asked.refused(&["select * from evnts"]).contains("evnts"));
    assert!(asked.refused(&["--rows", "0", "select 1"]).contains("maxRows is 0"));
    let dir = tempfile::tempdir().unwrap();
    let server = Served::on(dir.path());
    let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let without = tally(&["query", "--server", http.trim_end_matches('/'), "select * from events"]);
    assert!(stderr(&without).contains("keeps no archive"), "{}", stderr(&without));
}

#[test]
fn a_question_is_bounded_in_rows_and_time_and_beyond_memory_it_goes_to_disk() {
    let asked = Asked::start();
    let cut = asked.ask(&["--rows", "2", "select value from generate_series(1, 100)"]);
    assert_eq!(stdout(&cut).lines().count(), 3);
    assert!(stderr(&cut).contains("more rows"), "{}", stderr(&cut));
    assert!(asked.refused(&["--timeout", "200ms", LONG]).contains("200 ms"));
    // A quarter of the memory is for clients, and three quarters of that for questions: this is several times as much.
    let sorted = "select max(nth) as n from (select row_number() over (order by x) as nth from (
        select cast(value as varchar) || 'abcdefghijklmnop' as x from generate_series(1, 1000000)) d) e";
    assert_eq!(asked.table(sorted), "n\n1000000\n".replace("n\n", "      n\n"));
}

#[test]
fn whoever_hangs_up_ends_the_question() {
    let asked = Asked::start();
    let body = format!(r#"{{"query":"{LONG}","timeoutMs":3600000}}"#);
    let head = format!("POST /v1/sql HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n", asked.http);
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut hung = Vec::new();
    // All places are taken, sooner or later; one that was refused, since somebody else had its place, is asked for again.
    while hung.len() < SQL_QUESTIONS_MAX || asked.ask(&["select 1"]).status.success() {
        let mut stream = TcpStream::connect(&asked.http).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        hung.push(stream);
    }
    drop(hung);
    while !asked.ask(&["select 1"]).status.success() {}
}

#[test]
fn a_statement_that_breaks_the_engine_breaks_nothing_else() {
    let asked = Asked::start();
    for (statement, words) in [
        // Panics of the engine, and of whoever it calls.
        ("select range(9223372036854775807)", "broke"),
        ("select date '2020-01-01' + interval '2147483647 days'", "broke"),
        (
            "select sum(value) over (order by value groups between 1 preceding and 18446744073709551615 following) from counters",
            "broke",
        ),
        // Memory that nobody counts.
        ("select array_length(range(1, 1000000000))", "memory"),
        // What has no words.
        ("select from_unixtime(9223372036854775807)", "cannot be written"),
        ("select c.id, d.id from counters c, counters d", "AS"),
    ] {
        let text = asked.refused(&[statement]);
        assert!(text.contains(words), "{statement}: {text}");
    }
    // It does not look at the time by itself.
    let busy = "select levenshtein(repeat('a', 30000), repeat('b', 30000)) + value from generate_series(1, 100000)";
    assert!(asked.refused(&["--timeout", "500ms", busy]).contains("500 ms"));
    assert_eq!(asked.table("select count(*) as n from events"), "n\n4\n");
}

#[test]
fn a_statement_may_be_as_deep_as_it_is_long() {
    let asked = Asked::start();
    let sum = format!("select {} as n", ["1"; 500].join("+"));
    assert_eq!(asked.table(&sum), "  n\n500\n");
    let any = (0..500).map(|n| format!("id = 'impressions:{n}'")).collect::<Vec<_>>().join(" or ");
    assert_eq!(asked.table(&format!("select count(*) as n from counters where {any}")), "n\n0\n");
    let inner = (0..20).fold("select 1 as n".to_owned(), |inner, _| format!("select * from ({inner}) t"));
    assert_eq!(asked.table(&inner), "n\n1\n");
}

#[test]
fn rows_are_called_as_their_columns_are_and_an_answer_ends() {
    let asked = Asked::start();
    let recursive = "with recursive t as (select 1 as n union all select n + 1 from t) select * from t limit 3";
    let json = stdout(&asked.ask(&["--format", "json", recursive]));
    assert_eq!(json, "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    let body = r#"{"query":"select repeat('x', 1000000) as x from generate_series(1, 200)"}"#;
    let answer = asked.post("/v1/sql?format=csv", body);
    assert!(answer.contains("tally-truncated: true"), "{}", &answer[..300]);
    assert!((32..40).contains(&(answer.len() >> 20)), "{} MiB", answer.len() >> 20);
}
