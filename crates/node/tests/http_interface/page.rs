//! The page at `/` as a browser gets it. Whether it was built or not is the machine's affair: what is promised holds for both.

use crate::support::{Answer, TestNode};
use tally_node::frontend::Password;

/// The names of the assets that the page loads; none if it is the plain one.
fn assets(page: &Answer) -> Vec<String> {
    let names = page.text().split("assets/").skip(1);
    names.map(|rest| format!("/assets/{}", rest.split('"').next().unwrap())).collect()
}

fn check_headers(answer: &Answer) {
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
}

#[test]
fn the_page_and_its_files_come_from_here_with_a_strict_policy() {
    let node = TestNode::start();
    let page = node.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    check_headers(&page);
    assert!(page.text().contains("<title>Tally</title>") && page.text().contains("docs/"), "{}", page.text());
    assert!(!page.text().contains("http:") && !page.text().contains("https:"), "{}", page.text());
    for path in assets(&page) {
        let plain = node.get(&path);
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{path}");
        assert_eq!(plain.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(plain.header("vary"), Some("accept-encoding"));
        check_headers(&plain);
        let gzip = node.send("GET", &path, &[("accept-encoding", "gzip, deflate, br")], b"");
        assert_eq!((gzip.status, gzip.header("content-encoding")), (200, Some("gzip")), "{path}");
        assert!(gzip.body.len() < plain.body.len() || plain.body.len() < 500, "{path}");
        assert_ne!(gzip.header("etag"), plain.header("etag"));
        assert_eq!(gzip.header("content-type"), plain.header("content-type"));
    }
}

#[test]
fn who_has_the_page_is_not_sent_it_again_and_head_tells_its_size() {
    let node = TestNode::start();
    let page = node.get("/");
    for path in [vec!["/".to_owned()], assets(&page)].concat() {
        let known = node.get(&path).header("etag").unwrap().to_owned();
        let again = node.send("GET", &path, &[("if-none-match", &known)], b"");
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        assert_eq!(again.header("etag"), Some(known.as_str()));
        let head = node.send("HEAD", &path, &[], b"");
        assert_eq!(head.header("content-length"), Some(&*node.get(&path).body.len().to_string()), "{path}");
        node.send("POST", &path, &[], b"").problem(405, "method-not-allowed");
    }
}

#[test]
fn what_is_not_there_is_a_problem_as_everywhere() {
    let node = TestNode::start();
    for path in ["/assets/none.js", "/assets/", "/assets", "/index.html", "/favicon.ico"] {
        assert!(node.get(path).problem(404, "not-found").contains(path), "{path}");
    }
}

#[test]
fn a_node_with_a_token_shows_the_page_that_asks_for_it_and_nothing_else() {
    let open = TestNode::start();
    let guarded = TestNode::start_with(|options| {
        options.http_options.access.token = Password::new("a-token-of-some-length");
    });
    let (said, asked) = (open.get("/"), guarded.get("/"));
    assert_eq!((said.status, asked.status), (200, 200));
    for path in assets(&asked) {
        assert_eq!(guarded.get(&path).status, 200, "{path}");
    }
    let is_built = !assets(&said).is_empty();
    assert_eq!(asked.text().contains(r#"name="tally-token" content="asked""#), is_built);
    assert!(!said.text().contains(r#"content="asked""#));
    assert_eq!(said.header("etag") != asked.header("etag"), is_built);
    for path in ["/v1/config", "/v1/balance", "/v1/counters/a", "/v1/counters/a/watch", "/assets"] {
        guarded.get(path).problem(401, "unauthorized");
    }
}
