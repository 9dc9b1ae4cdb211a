//! Lists, tops, totals and series from a shell.

use crate::support::{Served, stderr, stdout, tally};
use std::process::{Output, Stdio};

const YAML: &str = "counters: [{counterName: stock, mode: simple, dimensions: [item], rollups: [[hour]]}]";

/// A server with some stock, and the address of its HTTP.
fn served(dir: &tempfile::TempDir) -> (Served, String) {
    let config = dir.path().join("counters.yaml");
    std::fs::write(&config, YAML).unwrap();
    let (config, data) = (config.to_str().unwrap(), dir.path().join("data"));
    let command = ["serve", "--memory", "256MiB", "--data", data.to_str().unwrap(), "--config", config];
    let server = Served::start_with(&command, Stdio::null());
    let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let http = http.trim_end_matches('/').to_owned();
    for (id, count) in [("stock:nails", "500"), ("stock:\"a, b\"", "7"), ("stock:bolts", "90"), ("visits", "3")] {
        assert!(server.client(&["add", id, count]).status.success());
    }
    (server, http)
}

fn ask(http: &str, args: &[&str]) -> Output {
    tally(&[args, &["--server", http]].concat())
}

#[test]
fn counters_are_listed_in_every_order_and_form() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, http) = served(&dir);
    let all = stdout(&ask(&http, &["list"]));
    let ids: Vec<&str> = all.lines().map(|line| line.rsplitn(3, "  ").last().unwrap().trim_end()).collect();
    assert_eq!(ids, ["stock:\"a, b\"", "stock:bolts", "stock:nails", "visits"]);
    assert!(all.ends_with("visits          3  -\n"), "{all}");

    let json = stdout(&ask(&http, &["list", "stock", "--order", "value", "--json", "--limit", "2"]));
    let rows: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&rows[0]["id"], &rows[1]["id"]), (&"stock:nails".into(), &"stock:bolts".into()));
    assert!(rows[0]["changedAt"].is_string(), "{json}");

    let csv = ask(&http, &["list", "stock:*", "--order", "changed", "--csv", "--limit", "2"]);
    let text = stdout(&csv);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "id,value,generation,changedAt");
    assert!(lines[1].starts_with("stock:bolts,90,0,") && lines[2].starts_with("\"stock:\"\"a, b\"\"\",7,0,"), "{text}");
    assert_eq!(lines.len(), 3);
    assert!(stderr(&csv).contains("--limit"), "{}", stderr(&csv));

    let none = ask(&http, &["list", "likes:*"]);
    assert_eq!((none.status.code(), &*stdout(&none)), (Some(3), ""));
    assert!(stderr(&none).contains("no counter matches likes:*"), "{}", stderr(&none));
    let refused = ask(&http, &["list", "*", "--order", "value"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("one declared counter"), "{}", stderr(&refused));
    assert_eq!(tally(&["list", "--csv", "--json"]).status.code(), Some(2));
}

#[test]
fn what_a_terminal_would_take_for_a_command_is_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let (server, http) = served(&dir);
    assert!(server.client(&["add", "stock:\u{1b}[31mred", "9999"]).status.success());
    for command in [&["top", "stock"][..], &["list", "stock"], &["series", "stock:\u{1b}[31mred"]] {
        let shown = stdout(&ask(&http, command));
        assert!(shown.contains("stock:\\x1b[31mred") && !shown.contains('\u{1b}'), "{command:?}: {shown:?}");
    }
}

#[test]
fn the_greatest_keys_and_the_total_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let (server, http) = served(&dir);
    assert_eq!(stdout(&ask(&http, &["top", "stock", "-k", "2"])), "stock:nails  500\nstock:bolts  90\n");
    let json = stdout(&ask(&http, &["top", "stock", "-k", "1", "--json"]));
    assert_eq!(json, "{\"id\":\"stock:nails\",\"value\":500}\n");
    assert_eq!(stdout(&ask(&http, &["top", "stock", "-k", "1", "--window", "24h"])), "stock:nails  500\n");
    let missing = ask(&http, &["top", "stock", "--by", "colour"]);
    assert!(stderr(&missing).contains("declare [colour] among the rollups of stock"), "{}", stderr(&missing));
    assert_eq!(stdout(&ask(&http, &["total", "stock"])), "597\n");
    assert_eq!(stdout(&ask(&http, &["total", "stock", "--json"])), "{\"id\":\"stock\",\"value\":597}\n");
    assert_eq!(ask(&http, &["total", "nobody"]).status.code(), Some(3));
    let wrong = ask(&http, &["top", "stok"]);
    assert!(stderr(&wrong).contains("did you mean stock?"), "{}", stderr(&wrong));
    let redis = ask(&server.resp, &["top", "stock"]);
    assert!(stderr(&redis).contains("--server"), "{}", stderr(&redis));
    drop(server);
    let gone = ask(&http, &["total", "stock"]);
    assert!(stderr(&gone).contains("no server answers at"), "{}", stderr(&gone));
}

#[test]
fn a_series_is_bars_or_lines_and_names_the_roll_up_that_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, http) = served(&dir);
    let bars = stdout(&ask(&http, &["series", "stock:nails"]));
    let lines: Vec<&str> = bars.lines().collect();
    assert_eq!(lines.len(), 25, "{bars}");
    assert!(lines[0].starts_with("stock:nails  ▁") && lines[0].ends_with("█  500"), "{bars}");
    assert!(lines[24].ends_with(&format!("  500  {}", "█".repeat(40))), "{bars}");
    let csv = stdout(&ask(&http, &["series", "stock", "--step", "1d", "--from", "-1h", "--csv"]));
    assert!(csv.starts_with("at,value\r\n") && csv.contains("T00:00:00.000Z,"), "{csv}");
    let json = stdout(&ask(&http, &["series", "stock", "--json"]));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["rollup"], serde_json::json!(["hour"]));
    let several = stdout(&ask(&http, &["series", "stock:nails", "stock:*s", "--step", "1d", "--from", "-1h"]));
    let heads: Vec<&str> = several.lines().filter(|line| line.starts_with("stock:")).collect();
    assert!(heads.len() == 2 && heads[0].ends_with("  500") && heads[1].starts_with("stock:*s  "), "{several}");
    let csv = stdout(&ask(&http, &["series", "stock:nails", "stock", "--csv"]));
    assert!(csv.starts_with("id,at,value\r\nstock:nails,"), "{csv}");
    let refused = ask(&http, &["series", "stock:nails", "--by", "colour"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("declare [colour, hour] among the rollups of stock"), "{}", stderr(&refused));
}
