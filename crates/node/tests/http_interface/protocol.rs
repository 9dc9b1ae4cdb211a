//! What HTTP itself demands: both versions, errors that explain themselves, an orderly end.

use crate::support::{TestNode, read_answer};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::io::{Read, Write};
use tally_node::worker::Spawner;

#[tokio::test]
async fn http2_with_prior_knowledge_is_served_on_the_same_port() {
    let node = TestNode::start();
    let stream = tokio::net::TcpStream::connect(node.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Full<bytes::Bytes>>(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    let connection = tasks.spawn(async { drop(connection.await) });
    let request = |n: usize| {
        let mut sender = sender.clone();
        async move {
            let body = format!("{{\"type\":\"video.viewed\",\"dimensions\":{{\"video\":\"v{n}\"}}}}\n").repeat(100);
            let request = Request::post("http://t/v1/events")
                .header("content-type", "application/json")
                .body(Full::from(body))
                .unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!((answer.status(), answer.version()), (200.try_into().unwrap(), hyper::Version::HTTP_2));
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<Value>(&body).unwrap()
        }
    };
    let (a, b, c) = tokio::join!(request(1), request(2), request(1));
    for outcome in [a, b, c] {
        assert_eq!((&outcome["events"], &outcome["counted"]), (&json!(100), &json!(100)));
    }
    drop(sender);
    connection.abort();
    tasks.join_next().await;
    tasks.spawn_blocking(move || {
        assert_eq!(node.value("views:v1"), 200);
        assert_eq!(node.value("views:v2"), 100);
    });
    tasks.join_next().await.unwrap().unwrap();
}

#[test]
fn every_error_is_a_problem() {
    let node = TestNode::start();
    assert!(node.get("/nowhere").problem(404, "not-found").contains("/nowhere"));
    node.get("/v1/counters/").problem(404, "not-found");
    node.get("/docs/no-such-file").problem(404, "http");
    let refused = node.send("PUT", "/v1/counters/a", &[], b"");
    assert!(refused.problem(405, "method-not-allowed").contains("PUT"));
    assert!(refused.header("allow").unwrap().contains("GET"), "{refused:?}");
    node.send("GET", "/v1/events", &[], b"").problem(405, "method-not-allowed");
}

#[test]
fn the_node_says_how_it_is() {
    let node = TestNode::start();
    assert_eq!(node.get("/healthz").text(), "ok\n");
    assert_eq!(node.get("/readyz").text(), "ready\n");
    assert_eq!(node.send("HEAD", "/healthz", &[], b"").status, 200);
}

#[test]
fn the_description_has_every_route_and_a_page_without_foreign_scripts() {
    let node = TestNode::start();
    let description = node.get("/openapi.json").ok();
    for (path, method) in [
        ("/v1/events", "post"),
        ("/v1/counters/{id}", "get"),
        ("/v1/counters/{id}", "delete"),
        ("/v1/counters/{id}/increment", "post"),
        ("/v1/counters/{id}/decrement", "post"),
        ("/v1/counters/{id}/aggregate", "get"),
        ("/v1/counters/get", "post"),
        ("/v1/counters/{id}/explain", "get"),
        ("/v1/duplicates", "get"),
        ("/v1/balance", "get"),
        ("/v1/counters/{id}/history", "get"),
        ("/v1/corrections", "get"),
        ("/v1/corrections/{n}", "get"),
        ("/v1/corrections/{n}", "delete"),
        ("/v1/corrections/{n}/preview", "get"),
        ("/v1/corrections/{n}/preview", "post"),
        ("/v1/corrections/{n}/apply", "post"),
        ("/v1/corrections/{n}/revert", "post"),
        ("/v1/commits", "get"),
        ("/healthz", "get"),
        ("/readyz", "get"),
        ("/metrics", "get"),
    ] {
        let operation = &description["paths"][path][method];
        assert!(operation["responses"]["200"]["description"].is_string(), "{method} {path} is missing");
        let problem = &operation["responses"]["default"]["content"]["application/problem+json"]["schema"]["$ref"];
        let never_fails = ["/healthz", "/metrics"].contains(&path);
        assert!(never_fails || problem == "#/components/schemas/Problem", "{method} {path}: {operation}");
    }
    assert!(description["paths"]["/v1/corrections"]["post"]["responses"]["201"].is_object(), "proposing is missing");
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for schema in ["Envelope", "Outcome", "Problem", "Aggregate"] {
        assert!(schemas.contains_key(schema), "{schema} is missing in {:?}", schemas.keys());
    }
    let page = node.get("/docs/");
    assert_eq!(page.status, 200);
    assert!(!page.text().contains("src=\"http"), "{}", page.text());
}

#[test]
fn one_connection_carries_many_requests_even_at_once() {
    let node = TestNode::start();
    let mut stream = node.connect();
    let request = "POST /v1/counters/a/increment HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(request.repeat(10).as_bytes()).unwrap();
    let values: Vec<_> = (0..10).map(|_| read_answer(&mut stream).unwrap().ok()["value"].as_i64().unwrap()).collect();
    assert_eq!(values, (1..=10).collect::<Vec<_>>());
}

#[test]
fn a_node_that_stops_finishes_the_request_under_way() {
    let node = TestNode::start();
    let mut stream = node.connect();
    let body = r#"{"type":"video.viewed","dimensions":{"video":"last"}}"#;
    let (first, second) = body.split_at(20);
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The interim answer proves that the handler waits for the body.
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(first.as_bytes()).unwrap();
    let address = node.address;
    let stopping = Spawner::thread("stop", move || node.stop()).unwrap();
    // The listener is closed first: from now on the node is stopping.
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    stream.write_all(second.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).unwrap().ok()["counted"], 1);
    stopping.join().unwrap();
}
