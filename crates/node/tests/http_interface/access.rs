//! Who is let in: names of the server, pages of other sites, types of bodies, tokens.

use crate::support::{Answer, TestNode, connect_to, read_answer};
use serde_json::json;
use std::io::Write;
use tally_node::frontend::Password;

const TOKEN: &str = "a-token-of-some-length";

/// Asks with a `Host` of the test's choice.
fn ask(node: &TestNode, host: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = node.connect();
    let extra: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n{extra}\r\n", body.len());
    stream.write_all((head + body).as_bytes()).unwrap();
    read_answer(&mut stream).expect("an answer")
}

#[test]
fn a_page_that_has_moved_its_name_here_reads_and_writes_nothing() {
    let node = TestNode::start();
    node.post("/v1/counters/secret/increment", r#"{"delta":7}"#).ok();
    let host = format!("evil.example:{}", node.address.port());
    let origin = format!("http://{host}");
    // What a browser sends for a page whose name has been moved: everything is of the page's own origin.
    let same = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin"), ("content-type", "application/json")];
    for (method, path, body) in [
        ("GET", "/v1/counters/secret", ""),
        ("GET", "/v1/counters/*/aggregate", ""),
        ("GET", "/v1/commits", ""),
        ("GET", "/metrics", ""),
        ("POST", "/v1/counters/secret/increment", ""),
        ("POST", "/v1/counters/secret/increment", r#"{"delta":5}"#),
        ("DELETE", "/v1/counters/secret", ""),
    ] {
        let refused = ask(&node, &host, method, path, &same, body);
        assert!(refused.problem(421, "unknown-host").contains("--allow-host evil.example"), "{method} {path}");
    }
    for own in ["localhost", "127.0.0.1", "[::1]"] {
        let host = format!("{own}:{}", node.address.port());
        assert_eq!(ask(&node, &host, "GET", "/v1/counters/secret", &[], "").ok()["value"], 7);
    }
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let node = TestNode::start();
    let text = ("content-type", "text/plain");
    let proposal = r#"{"reason":"x","author":"y","deltas":[{"id":"a","delta":1000000}]}"#;
    for foreign in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        for (method, path, body) in [
            ("POST", "/v1/corrections", proposal),
            ("POST", "/v1/corrections/1/apply", ""),
            ("POST", "/v1/counters/a/increment", ""),
            ("POST", "/v1/events", r#"{"type":"video.viewed","dimensions":{"video":"a","country":"b"}}"#),
            ("DELETE", "/v1/counters/a", ""),
            ("OPTIONS", "/v1/counters/a", ""),
            ("GET", "/v1/counters/a", ""),
        ] {
            let answer = node.send(method, path, &[foreign, text], body.as_bytes());
            assert!(answer.problem(403, "foreign-origin").contains("--allow-origin"), "{method} {path} {foreign:?}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    assert_eq!(node.get("/v1/counters/*/aggregate").ok()["counters"], 0);
    assert_eq!(node.get("/v1/corrections").ok()["corrections"], json!([]));
}

#[test]
fn a_body_that_does_not_say_it_is_json_is_refused_with_the_fix() {
    let node = TestNode::start();
    for content_type in ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""] {
        let headers = [("content-type", content_type)];
        for path in ["/v1/counters/a/increment", "/v1/events", "/v1/corrections", "/v1/counters/get"] {
            let detail = node.send("POST", path, &headers, b"{}").problem(415, "unsupported-media-type");
            assert!(detail.contains("-H 'content-type: application/json'"), "{path}: {detail}");
        }
    }
    let typeless = ask(&node, "localhost", "POST", "/v1/counters/a/increment", &[], "{}");
    assert!(typeless.problem(415, "unsupported-media-type").contains("Content-Type is missing"));
    assert_eq!(node.send("POST", "/v1/counters/a/increment", &[("content-type", "text/plain")], b"").ok()["value"], 1);
}

#[test]
fn a_page_that_the_operator_names_may_ask_and_read() {
    let page = "https://app.example.com";
    let node = TestNode::start_with(|options| {
        options.http_options.access.origins = vec![page.parse().unwrap()];
        options.http_options.access.token = Password::new(TOKEN);
    });
    let preflight = [("origin", page), ("access-control-request-method", "POST"), ("sec-fetch-site", "cross-site")];
    let answer = node.send("OPTIONS", "/v1/counters/a/increment", &preflight, b"");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some(page));
    assert!(answer.header("access-control-allow-headers").unwrap().contains("idempotency-key"));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("DELETE"));
    assert!(answer.header("vary").unwrap().contains("origin"));

    let bearer = format!("Bearer {TOKEN}");
    let asked = [("origin", page), ("sec-fetch-site", "cross-site"), ("authorization", &bearer)];
    let answer = node.send("POST", "/v1/counters/a/increment", &asked, b"");
    assert_eq!((&answer.ok()["value"], answer.header("access-control-allow-origin")), (&json!(1), Some(page)));
    assert!(answer.header("access-control-expose-headers").unwrap().contains("etag"));
    let json = [&asked[..], &[("content-type", "application/json")]].concat();
    let answer = node.send("POST", "/v1/events", &json, br#"{"type":"unheard"}"#);
    assert_eq!((&answer.ok()["unmatched"], answer.header("access-control-allow-origin")), (&json!(1), Some(page)));
    let other = [("origin", "https://other.example.com"), ("authorization", &bearer)];
    for path in ["/v1/counters/a/increment", "/v1/events"] {
        let refused = node.send("POST", path, &asked[..2], b"");
        refused.problem(401, "unauthorized");
        assert_eq!(refused.header("access-control-allow-origin"), Some(page), "the page may read why");
        node.send("POST", path, &other, b"").problem(403, "foreign-origin");
    }
}

#[test]
fn a_token_is_asked_for_and_health_and_metrics_may_have_an_address_without_one() {
    let node = TestNode::start_with(|options| {
        options.http_options.access.token = Password::new(TOKEN);
        options.watch = Some("127.0.0.1:0".parse().unwrap());
    });
    let wrong = &[("authorization", "Bearer wrong")];
    for (method, path, headers) in [
        ("GET", "/v1/counters/a", &[][..]),
        ("GET", "/metrics", &[]),
        ("GET", "/v1/counters/a", wrong),
        ("POST", "/v1/events", &[]),
        ("POST", "/v1/events", wrong),
    ] {
        let refused = node.send(method, path, headers, b"");
        refused.problem(401, "unauthorized");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"tally\""));
    }
    let bearer = format!("Bearer {TOKEN}");
    let counted = node.send("POST", "/v1/counters/a/increment", &[("authorization", &bearer)], b"").ok();
    assert_eq!(counted["value"], 1);
    // Somebody who knows the token knows the server, whatever they call it.
    assert_eq!(
        ask(&node, "tally.internal", "GET", "/v1/counters/a", &[("authorization", &bearer)], "").ok()["value"],
        1
    );
    let description = node.get("/openapi.json").ok();
    assert_eq!(description["components"]["securitySchemes"]["token"]["scheme"], "bearer");

    let watch = || connect_to(node.node().watch_addr().unwrap());
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/v1/counters/a", 404)] {
        let mut stream = watch();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).unwrap().status, status, "{path}");
    }
    let mut stream = watch();
    stream.write_all(b"POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").unwrap();
    read_answer(&mut stream).unwrap().problem(404, "not-found");
    let mut stream = watch();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: evil.example\r\n\r\n").unwrap();
    read_answer(&mut stream).unwrap().problem(421, "unknown-host");
}
