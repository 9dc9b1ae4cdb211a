//! Lists of counters, the greatest keys, totals and the configuration.

use crate::support::{Answer, TestNode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Counts so many views of some videos, in one request.
fn view(node: &TestNode, videos: &[(&str, i64)]) {
    let event =
        |(video, delta): &(&str, i64)| json!({"type": "video.viewed", "dimensions": {"video": video}, "delta": delta});
    let events: Vec<Value> = videos.iter().map(event).collect();
    node.post("/v1/events", json!(events).to_string()).ok();
}

/// The ids of a list with their values.
fn rows(list: &Value, name: &str) -> Vec<(String, i64)> {
    let row = |row: &Value| (row["id"].as_str().unwrap().to_owned(), row["value"].as_i64().unwrap());
    list[name].as_array().unwrap().iter().map(row).collect()
}

/// Ids of all pages of a list, a page at a time.
fn pages(node: &TestNode, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let list = node.get(&format!("/v1/counters?{query}{cursor}")).ok();
        pages.push(rows(&list, "counters").into_iter().map(|(id, _)| id).collect());
        match list["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pages,
        }
    }
}

fn listed(pages: &[(&str, i64)]) -> Vec<(String, i64)> {
    pages.iter().map(|(id, value)| ((*id).to_owned(), *value)).collect()
}

#[test]
fn counters_are_listed_by_name_with_what_is_known_of_them() {
    let node = TestNode::start();
    view(&node, &[("b", 2), ("a", 5)]);
    node.post("/v1/counters/visits/increment", "").ok();
    let list = node.get("/v1/counters").ok();
    let expected = [("visits", 1), ("views:a", 5), ("views:b", 2)];
    assert_eq!(rows(&list, "counters").into_iter().collect::<BTreeSet<_>>(), listed(&expected).into_iter().collect());
    assert_eq!((&list["order"], &list["kind"], &list["cursor"]), (&json!("name"), &json!("exact"), &json!(null)));
    let views = node.get("/v1/counters?match=views:*").ok();
    let first = &views["counters"][0];
    assert_eq!((&first["id"], &first["value"], &first["generation"]), (&json!("views:a"), &json!(5), &json!(0)));
    assert!(first["changedAt"].as_str().unwrap().ends_with('Z'), "{first}");
    assert_eq!(list["counters"][2], json!({"id": "visits", "value": 1, "generation": 0, "changedAt": null}));
    assert_eq!(node.get("/v1/counters?match=views").ok(), views, "a bare name is all of its keys");
    let some = node.get("/v1/counters?match=views:*&fields=value,id&limit=1").ok();
    assert_eq!(some["counters"], json!([{"id": "views:a", "value": 5}]));
    assert_eq!(node.get("/v1/counters?match=none*").ok()["counters"], json!([]));
}

#[test]
fn a_walk_by_name_sees_every_counter_that_is_there_all_the_time_once() {
    let node = TestNode::start();
    let ids: Vec<String> = (0..25).map(|n| format!("page:{n:02}:{}", if n % 2 == 0 { "tv" } else { "web" })).collect();
    ids.iter().for_each(|id| drop(node.post(&format!("/v1/counters/{id}/increment"), "").ok()));
    assert_eq!(pages(&node, "match=page:*&limit=7").iter().map(Vec::len).collect::<Vec<_>>(), [7, 7, 7, 4]);
    let (mut seen, mut cursor) = (Vec::new(), None);
    for round in 0.. {
        let go_on = cursor.map_or(String::new(), |cursor: String| format!("&cursor={cursor}"));
        let list = node.get(&format!("/v1/counters?match=page:*:tv&limit=3{go_on}")).ok();
        seen.extend(rows(&list, "counters").into_iter().map(|(id, _)| id));
        // Others come and go meanwhile, on either side.
        node.post(&format!("/v1/counters/page:{:02}:tvx/increment", round * 5), "").ok();
        node.post(&format!("/v1/counters/page:00{round}:tv/increment"), "").ok();
        match list["cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    let there: Vec<_> = seen.iter().filter(|id| ids.contains(id)).collect();
    assert_eq!(there, ids.iter().step_by(2).collect::<Vec<_>>());
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "{seen:?}");
}

#[test]
fn a_list_is_told_as_csv_to_those_who_want_it() {
    let node = TestNode::start();
    view(&node, &[("a,b", 2), ("c", 1)]);
    let check = |answer: &Answer| {
        assert_eq!(answer.header("content-type"), Some("text/csv"));
        assert_eq!(answer.text(), "id,value\n\"views:a,b\",2\n");
        assert!(answer.header("tally-cursor").is_some());
    };
    let path = "/v1/counters?match=views&fields=id,value&limit=1";
    check(&node.get(&format!("{path}&format=csv")));
    check(&node.send("GET", path, &[("accept", "text/csv")], b""));
    assert_eq!(node.get(path).header("content-type"), Some("application/json"));
    let rest = format!("{path}&format=csv&cursor={}", node.get(path).header("tally-cursor").unwrap());
    let rest = node.get(&rest);
    assert_eq!((rest.text(), rest.header("tally-cursor")), ("id,value\nviews:c,1\n", None));
}

#[test]
fn a_list_that_cannot_be_made_is_refused_by_name() {
    let node = TestNode::start();
    view(&node, &[("a", 2), ("b", 1)]);
    let cursor = node.get("/v1/counters?match=views&limit=1").ok()["cursor"].as_str().unwrap().to_owned();
    for (query, named) in [
        ("order=size", "order is size; send name, value or changed"),
        ("limit=0", "limit is 0"),
        ("fields=id,price", "fields is id,price; send some of id, value, generation, changedAt"),
        ("fields=id,id", "fields is id,id"),
        ("format=xml", "format is xml; send json or csv"),
        ("sort=id", "the parameter sort is not known"),
        ("order=value", "match is *; order=value is for the keys of one declared counter"),
        ("order=changed&match=views:a*", "match is views:a*; order=changed"),
        ("order=value&match=visits", "match is visits"),
        ("cursor=00", "cursor is 00; send the cursor of the page before as it was"),
    ] {
        let detail = node.get(&format!("/v1/counters?{query}")).problem(400, "invalid-parameter");
        assert!(detail.starts_with(named), "{query}: {detail}");
    }
    let other = node.get(&format!("/v1/counters?match=views&order=value&cursor={cursor}"));
    let detail = other.problem(400, "invalid-parameter");
    assert!(detail.contains("it belongs to match=views:* and order=name"), "{detail}");
    node.get("/v1/counters?match=views:%25zz*").problem(400, "invalid-id");
}

#[test]
fn the_greatest_come_first_in_a_top_and_in_a_list_by_value() {
    let node = TestNode::start();
    view(&node, &[("a", 5), ("b", 9), ("c", 1), ("d", 5)]);
    view(&node, &[("c", 6), ("b", -5)]);
    let top = node.get("/v1/top/views?k=3").ok();
    let expected = listed(&[("views:c", 7), ("views:a", 5), ("views:d", 5)]);
    assert_eq!(rows(&top, "top"), expected);
    let told = ["counter", "window", "k", "total", "kind", "generation"].map(|field| top[field].clone());
    assert_eq!(told, [json!("views"), json!("all"), json!(3), json!(21), json!("exact"), json!(0)]);
    assert!(top["asOf"].is_string() && top.get("bound").is_none(), "{top}");
    let list = node.get("/v1/counters?match=views:*&order=value").ok();
    assert_eq!(rows(&list, "counters")[..3], expected);
    assert_eq!((&list["order"], &list["kind"], &list["cursor"]), (&json!("value"), &json!("exact"), &json!(null)));
    assert!(list["counters"][0]["changedAt"].is_string(), "{list}");
    let by_value = pages(&node, "match=views&order=value&limit=3").concat();
    assert_eq!(by_value, ["views:c", "views:a", "views:d", "views:b"]);
    assert_eq!(rows(&node.get("/v1/top/views?window=all").ok(), "top").len(), 4);
}

#[test]
fn a_top_that_cannot_be_told_is_refused_by_name() {
    let node = TestNode::start();
    for (path, kind, named) in [
        ("views?k=0", "invalid-parameter", "k is 0; send 1 to 1000"),
        ("views?k=1001", "invalid-parameter", "k is 1001"),
        ("views?window=7d", "invalid-parameter", "window is 7d; send all"),
        ("views?n=3", "invalid-parameter", "the parameter n is not known"),
        ("veiws", "invalid-id", "veiws is no declared counter; did you mean views?"),
        ("views:a", "invalid-id", "views:a is no declared counter"),
    ] {
        let detail = node.get(&format!("/v1/top/{path}")).problem(400, kind);
        assert!(detail.starts_with(named), "{path}: {detail}");
    }
}

#[test]
fn corrections_are_in_a_top_and_in_a_total() {
    let node = TestNode::start();
    view(&node, &[("a", 5), ("b", 9), ("c", 1)]);
    node.send("DELETE", "/v1/counters/views:b", &[], b"").ok();
    let top = node.get("/v1/top/views").ok();
    assert_eq!(rows(&top, "top"), listed(&[("views:a", 5), ("views:c", 1), ("views:b", 0)]));
    assert_eq!((&top["total"], &top["generation"], &top["kind"]), (&json!(6), &json!(1), &json!("exact")));
    let total = node.get("/v1/counters/views").ok();
    assert_eq!((&total["value"], &total["generation"]), (&json!(6), &json!(1)));
    let changed = node.get("/v1/counters?match=views&order=changed&limit=1").ok();
    assert_eq!(rows(&changed, "counters"), listed(&[("views:b", 0)]), "what was corrected has changed");
}

#[test]
fn the_bare_name_of_a_counter_is_its_total() {
    let node = TestNode::start();
    assert_eq!(node.get("/v1/counters/views").ok()["value"], 0);
    view(&node, &[("a", 5), ("b", 9)]);
    let answer = node.get("/v1/counters/views");
    assert_eq!((answer.header("etag"), answer.header("tally-generation")), (Some("\"0-14\""), Some("0")));
    let total = answer.ok();
    let told = ["id", "value", "kind", "total", "durability"].map(|field| total[field].clone());
    assert_eq!(told, [json!("views"), json!(14), json!("exact"), json!(true), json!("sync")]);
    assert!(total.get("exists").is_none() && total["asOf"].is_string(), "{total}");
    let again = node.send("GET", "/v1/counters/views", &[("if-none-match", "\"0-14\"")], b"");
    assert_eq!(again.status, 304);
    let detail = node.get("/v1/counters/views?generation=0").problem(400, "invalid-parameter");
    assert!(detail.contains("total of its keys"), "{detail}");
    node.get("/v1/counters/views?sum=1").problem(400, "invalid-parameter");
    assert!(node.get("/v1/counters/views:a").ok().get("total").is_none());
    node.post("/v1/counters/get", r#"{"ids":["views"]}"#).problem(400, "invalid-id");
}

#[test]
fn a_total_has_the_debts_below_a_floor_in_it() {
    let yaml = "counters: [{counterName: seats, mode: simple, dimensions: [room], floorAtZero: true}]";
    let node = TestNode::start_with(|options| options.config = Some(yaml.to_owned()));
    node.post("/v1/counters/seats:a/increment", r#"{"delta":5}"#).ok();
    node.post("/v1/counters/seats:b/decrement", r#"{"delta":7}"#).ok();
    assert_eq!(node.get("/v1/counters/seats").ok()["value"], -2);
    assert_eq!(node.get("/v1/counters/seats:*/aggregate").ok()["value"], 5, "what reads show");
    let top = node.get("/v1/top/seats").ok();
    assert_eq!((rows(&top, "top"), &top["total"]), (listed(&[("seats:a", 5), ("seats:b", 0)]), &json!(-2)));
}

#[test]
fn those_that_changed_last_come_first() {
    let node = TestNode::start();
    for video in ["a", "b", "c", "a"] {
        view(&node, &[(video, 1)]);
    }
    let list = node.get("/v1/counters?match=views&order=changed").ok();
    assert_eq!(rows(&list, "counters"), listed(&[("views:a", 2), ("views:c", 1), ("views:b", 1)]));
    let times: Vec<_> = list["counters"].as_array().unwrap().iter().map(|row| row["changedAt"].as_str()).collect();
    assert!(times.iter().all(Option::is_some) && times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(pages(&node, "match=views&order=changed&limit=2"), [vec!["views:a", "views:c"], vec!["views:b"]]);
    // What was not counted has not changed anything.
    let like =
        |seq| json!({"type": "video.viewed", "dimensions": {"video": "b"}, "session": "s", "seq": seq}).to_string();
    node.post("/v1/events", like(1)).ok();
    view(&node, &[("c", 1)]);
    assert_eq!(node.post("/v1/events", like(1)).ok()["duplicate"], 1);
    assert_eq!(pages(&node, "match=views&order=changed").concat(), ["views:c", "views:b", "views:a"]);
}

#[test]
fn a_list_by_value_ends_at_its_bound() {
    let node = TestNode::start();
    for part in 0..3 {
        let videos: Vec<String> = (0..500).map(|n| format!("{part}-{n}")).collect();
        view(&node, &videos.iter().map(|video| (&**video, 1)).collect::<Vec<_>>());
    }
    let first = node.get("/v1/counters?match=views&order=value&limit=1000&fields=id").ok();
    assert_eq!((first["counters"].as_array().unwrap().len(), &first["kind"]), (1000, &json!("exact")));
    let cursor = first["cursor"].as_str().unwrap();
    let behind = node.get(&format!("/v1/counters?match=views&order=value&cursor={cursor}"));
    let detail = behind.problem(422, "too-many-counters");
    assert!(detail.contains("the first 1000 keys") && detail.contains("order=name"), "{detail}");
    assert_eq!(pages(&node, "match=views&limit=1000").concat().len(), 1500);
}

#[test]
fn lists_and_totals_are_the_same_after_a_stop_and_after_a_crash() {
    let node = TestNode::start();
    view(&node, &[("a", 5), ("b", 9)]);
    view(&node, &[("c", 7)]);
    let asked = ["/v1/top/views", "/v1/counters?match=views&order=changed", "/v1/counters?match=views&order=value"];
    let told = |node: &TestNode| {
        asked.map(|path| {
            let mut answer = node.get(path).ok();
            answer["asOf"] = json!(null);
            answer
        })
    };
    let before = told(&node);
    assert_eq!(before[0]["kind"], "exact");
    assert_eq!(told(&node.after_a_crash(|_| {})), before, "as the log says");
    let node = node.restarted();
    assert_eq!(told(&node), before, "as the checkpoint says");
    view(&node, &[("d", 8)]);
    assert_eq!(rows(&node.get("/v1/top/views?k=2").ok(), "top"), listed(&[("views:b", 9), ("views:d", 8)]));
    let total = node.after_a_crash(|_| {}).get("/v1/counters/views").ok();
    assert_eq!(total["value"], 29);
}

#[test]
fn the_configuration_in_force_is_told_as_json_and_as_it_was_written() {
    let node = TestNode::start();
    view(&node, &[("a", 5), ("b", 9)]);
    let answer = node.get("/v1/config");
    let version = answer.header("tally-config-version").unwrap().to_owned();
    let config = answer.ok();
    assert_eq!(config["version"], json!(version));
    let views = json!({"counterName": "views", "mode": "display", "measure": "sum", "dimensions": ["video"],
        "rollups": [], "timezone": "UTC", "retention": null, "total": 14});
    assert_eq!(config["counters"][0], views);
    assert_eq!(config["counters"][2]["total"], 0);
    for answer in
        [node.get("/v1/config?format=yaml"), node.send("GET", "/v1/config", &[("accept", "application/yaml")], b"")]
    {
        assert_eq!(answer.header("content-type"), Some("application/yaml"));
        assert_eq!(answer.header("tally-config-version"), Some(&*version));
        assert_eq!(answer.text(), crate::support::YAML);
    }
    node.get("/v1/config?format=toml").problem(400, "invalid-parameter");
}
