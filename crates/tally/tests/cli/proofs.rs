//! Proofs, as a stranger checks them: with `tally verify-proof`, and with the program that the guide prints.

use crate::support::{Served, exchange, stderr, stdout, tally};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const YAML: &str = "
counters:
  - {counterName: billed, mode: persistent, dimensions: [customer],
     rules: [{on: used, op: increment}, {on: refunded, op: decrement}]}
  - {counterName: views, mode: display, dimensions: [customer], rules: [{on: used, op: increment}]}
";
const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/proofs.md");

struct Stranger<'d> {
    dir: &'d Path,
    server: Served,
    http: String,
}

impl Stranger<'_> {
    fn start(dir: &Path) -> Stranger<'_> {
        let (config, data, key) = (dir.join("c.yaml"), dir.join("data"), dir.join("sign.key"));
        std::fs::write(&config, YAML).unwrap();
        let [config, data, key] = [&config, &data, &key].map(|path| path.to_str().unwrap());
        let made = tally(&["keygen", key]);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        std::fs::write(dir.join("public"), stdout(&made)).unwrap();
        let args = ["serve", "--memory", "256MiB", "--data", data, "--config", config, "--sign-key", key];
        let server = Served::start_with(&args, Stdio::null());
        let http = server.banner.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
        Stranger { http: http.trim_end_matches('/').to_owned(), dir, server }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.http);
        let body = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let answer = exchange(&self.http, &(head + &body));
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        (status, serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap())
    }

    fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, "");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn send(&self, kind: &str, id: &str, customer: &str) {
        let event = json!({"type": kind, "eventId": id, "session": "s", "payload": {"secret": id},
            "dimensions": {"customer": customer, "zone": "é:%"}});
        let (status, answer) = self.ask("POST", "/v1/events", &event.to_string());
        assert_eq!(status, 200, "{answer}");
    }

    fn written(&self, name: &str, value: &Value) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path
    }

    /// What both programs say of a proof: whether it holds, and their words.
    fn check(&self, proof: &Value, roots: &Value) -> [(bool, String); 2] {
        let (proof, roots) = (self.written("proof.json", proof), self.written("roots.json", roots));
        let guide = std::fs::read_to_string(GUIDE).unwrap();
        let program = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert!(program.lines().count() <= 60, "the guide says that it is short");
        let ours = tally(&["verify-proof", proof.to_str().unwrap(), "--roots", roots.to_str().unwrap()]);
        let theirs = Command::new("python3").arg("-c").arg(program).args([&proof, &roots]).output().unwrap();
        [ours, theirs].map(|output| (output.status.success(), stdout(&output) + &stderr(&output)))
    }

    fn holds(&self, proof: &Value, roots: &Value, begins: &str) {
        for (holds, words) in self.check(proof, roots) {
            assert!(holds && words.starts_with(begins), "{words}");
        }
    }

    fn fails(&self, proof: &Value, roots: &Value, what: &str) {
        let found = self.check(proof, roots);
        assert!(found.iter().all(|(holds, _)| !holds), "{what}: {found:?}");
    }
}

/// Another value of the same kind.
fn other(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > 32 => {
            let last = if text.ends_with('0') { '1' } else { '0' };
            Value::String(format!("{}{last}", &text[..text.len() - 1]))
        }
        Value::String(text) => Value::String(format!("{text}x")),
        Value::Number(number) => json!(number.as_i64().unwrap() + 1),
        Value::Null => json!(7),
        other => panic!("{other} is not changed here"),
    }
}

#[test]
fn a_proof_holds_for_a_stranger_and_not_any_more_when_anything_in_it_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let stranger = Stranger::start(dir.path());
    let (status, none) = stranger.ask("GET", "/v1/counters/billed:acme/proof", "");
    assert_eq!((status, &none["type"]), (422, &json!("/problems/not-provable")), "{none}");
    stranger.send("used", "a", "acme");
    stranger.send("used", "b", "acme");
    stranger.send("used", "e", "acme");
    stranger.ask("POST", "/v1/roots", "");
    stranger.send("used", "c", "else");
    let (_, second) = stranger.ask("POST", "/v1/roots", "");
    stranger.send("used", "a", "acme"); // Again: it does not count.
    stranger.send("refunded", "d", "acme");
    let proposal = json!({"reason": "a gift", "author": "ann", "deltas": [{"id": "billed:acme", "delta": -1}]});
    let (_, proposed) = stranger.ask("POST", "/v1/corrections", &proposal.to_string());
    stranger.ask("POST", &format!("/v1/corrections/{}/apply", proposed["number"]), "");
    let (status, newest) = stranger.ask("POST", "/v1/roots", "");
    assert_eq!((status, &newest["roots"][0]["number"]), (200, &json!(2)), "{newest}");

    let (proof, roots) = (stranger.get("/v1/counters/billed:acme/proof"), stranger.get("/v1/roots"));
    assert_eq!((&proof["value"], &stranger.get("/v1/counters/billed:acme")["value"]), (&json!(1), &json!(1)));
    assert_eq!(proof["start"], json!({"kind": "beginning", "offset": 0, "value": 0}), "{proof}");
    assert!(!proof.to_string().contains("secret"), "payloads are not shown");
    assert_eq!(roots["roots"].as_array().map(Vec::len), Some(3));
    stranger.holds(&proof, &roots, "billed:acme is 1: 4 events");
    assert!(proof["chain"][1]["body"].is_string(), "of a root without the key there is the hash alone: {proof}");

    // Whoever kept the root that it ends with has enough. By another one it does not hold: what is behind that may be made up.
    stranger.holds(&proof, &newest, "billed:acme is 1");
    stranger.fails(&proof, &second, "a root that comes behind all that are known");
    let second_at = second["roots"][0]["logTimeMs"].as_u64().unwrap();
    let at = tally_node::clock::rfc3339(second_at);
    let earlier = stranger.get(&format!("/v1/counters/billed:acme/proof?at={at}"));
    stranger.holds(&earlier, &second, "billed:acme is 3: 3 events");
    let file = stranger.written("proof.json", &proof);
    let ends = |anchor: &Value| {
        tally(&["verify-proof", file.to_str().unwrap(), "--anchor", anchor.as_str().unwrap()]).status.success()
    };
    assert!(ends(&newest["roots"][0]["anchor"]) && !ends(&second["roots"][0]["anchor"]));
    let mut forged = newest.clone();
    forged["roots"][0]["counts"]["billed"]["received"] = json!(99);
    stranger.fails(&proof, &forged, "a count of a kept root");
    let key = std::fs::read_to_string(dir.path().join("public")).unwrap();
    let signed = |key: &str| tally(&["verify-proof", file.to_str().unwrap(), "--key", key]);
    assert!(signed(key.trim()).status.success(), "{}", stderr(&signed(key.trim())));
    assert!(stderr(&signed(&"0".repeat(64))).contains("signed by"));

    let pointers = [
        "/value",
        "/id",
        "/to",
        "/before",
        "/start/value",
        "/start/offset",
        "/chain/0/root/number",
        "/chain/0/root/root",
        "/chain/0/root/counts/billed/received",
        "/chain/0/root/logId",
        "/chain/1/body",
        "/chain/2/root/before",
        "/chain/2/root/digest",
        "/chain/2/root/events",
        "/commits/0/root",
        "/commits/0/path/0",
        "/commits/0/commit/from",
        "/commits/0/commit/head",
        "/commits/0/commit/events",
        "/commits/0/commit/fatesRoot",
        "/commits/0/commit/eventsRoot",
        "/commits/0/events/0/eventId",
        "/commits/0/events/0/delta",
        "/commits/0/events/0/offset",
        "/commits/0/events/0/type",
        "/commits/0/events/0/session",
        "/commits/0/events/0/payloadHash",
        "/commits/0/events/0/receivedAtMs",
        "/commits/0/events/0/occurredAtMs",
        "/commits/0/events/0/configVersion",
        "/commits/0/events/0/dimensions/customer",
        "/commits/0/events/0/dimensions/zone",
    ];
    for pointer in pointers {
        // A path may be empty, where there is one alone.
        let mut changed = proof.clone();
        let Some(field) = changed.pointer_mut(pointer) else {
            assert!(pointer.contains("/path/"), "{pointer} is not in {proof}");
            continue;
        };
        *field = other(field);
        stranger.fails(&changed, &roots, pointer);
    }
    let last =
        proof["commits"].as_array().unwrap().iter().position(|commit| commit["corrections"] != json!([])).unwrap();
    for field in ["delta", "reason", "counter", "number", "appliedBy"] {
        let mut changed = proof.clone();
        let field = changed.pointer_mut(&format!("/commits/{last}/corrections/0/{field}")).unwrap();
        *field = other(field);
        stranger.fails(&changed, &roots, "a correction");
    }
    let mut twice = proof.clone();
    let commit = twice["commits"][0].clone();
    twice["commits"].as_array_mut().unwrap().push(commit);
    twice["value"] = json!(2);
    stranger.fails(&twice, &roots, "an event twice");
    let mut twice = proof.clone();
    let mut commit = twice["commits"][last].clone();
    commit["events"] = json!([]);
    twice["commits"].as_array_mut().unwrap().push(commit);
    twice["value"] = json!(0);
    stranger.fails(&twice, &roots, "a correction twice");
    let mut less = proof.clone();
    less["commits"].as_array_mut().unwrap().remove(0);
    stranger.fails(&less, &roots, "an event less");

    // What came in one hour and since begins with nothing.
    let since = stranger.get("/v1/counters/billed:acme/proof?from=-1h");
    stranger.holds(&since, &roots, "billed:acme is 1: 4 events");
    assert_eq!(since["start"]["kind"], "time", "{}", since["start"]);
    for kind in ["time", "beginning", "gift"] {
        let mut more = since.clone();
        (more["start"]["kind"], more["start"]["value"], more["value"]) = (json!(kind), json!(1000), json!(1001));
        stranger.fails(&more, &roots, "a start that is worth something");
    }
    let mut before = since.clone();
    before["start"]["offset"] = json!(1_000_000);
    stranger.fails(&before, &roots, "a start behind all roots");
    let mut longer = proof.clone();
    let hash = longer["commits"][0]["events"][0]["payloadHash"].as_str().unwrap().to_owned() + "00";
    longer["commits"][0]["events"][0]["payloadHash"] = json!(hash);
    stranger.fails(&longer, &roots, "a hash that is longer");

    let (status, other_mode) = stranger.ask("GET", "/v1/counters/views:acme/proof", "");
    assert_eq!(status, 422, "{other_mode}");
    assert!(other_mode["detail"].as_str().unwrap().contains("display counter"), "{other_mode}");
    drop(stranger.server);
}
