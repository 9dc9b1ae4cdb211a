//! Stories about contracts, as text: what is sent, what it is answered, what the counters say then.
//!
//! ```text
//! # A title; each story has a node of its own.
//! > {"eventId":"E1", …}                 one event, sent by itself
//! < counted 2                           the boxes of the answer that are not zero
//! ! part of a reason                    the answer's first rejection says this
//! = active_connections:m1 1             what a counter says
//! ? duplicates E1 1                     how many audit rows an event id has
//! restart                               the node is stopped and started again
//! ```

use crate::support::TestNode;
use serde_json::Value;

const STORIES: [(&str, &str); 3] = [
    ("persistent", include_str!("scenarios/persistent.txt")),
    ("transition", include_str!("scenarios/transition.txt")),
    ("display", include_str!("scenarios/display.txt")),
];

const BOXES: [&str; 6] = ["counted", "duplicate", "conflict", "rejectedCount", "ignored", "late"];

#[test]
fn every_story_goes_as_it_is_told() {
    for (file, text) in STORIES {
        let (yaml, stories) = text.split_once("---\n").expect("a configuration, and stories behind it");
        for story in stories.split("\n# ").filter(|story| !story.trim().is_empty()) {
            Story { file, node: start(yaml), answer: Value::Null }.tell(yaml, story);
        }
    }
}

fn start(yaml: &str) -> TestNode {
    TestNode::start_with(|options| options.config = Some(yaml.to_owned()))
}

struct Story<'a> {
    file: &'a str,
    node: TestNode,
    answer: Value,
}

impl Story<'_> {
    fn tell(mut self, yaml: &str, story: &str) {
        let mut lines = story.lines();
        let title = lines.next().unwrap_or_default().trim_start_matches("# ");
        for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
            let place = format!("{}: {title}: {line}", self.file);
            let (sign, rest) = line.split_once(' ').unwrap_or((line, ""));
            match sign {
                ">" => self.answer = self.node.post("/v1/events", rest).ok(),
                "<" => assert_eq!(told(&self.answer), rest, "{place}: {}", self.answer),
                "!" => {
                    let reason = self.answer["rejected"][0]["reason"].as_str().unwrap_or_default();
                    assert!(reason.contains(rest), "{place}: {reason}");
                }
                "=" => {
                    let (id, value) = rest.split_once(' ').expect("an id and a value");
                    assert_eq!(self.node.value(id).to_string(), value, "{place}");
                }
                "?" => {
                    let (id, rows) =
                        rest.trim_start_matches("duplicates ").split_once(' ').expect("an id and a number");
                    let found = self.node.get(&format!("/v1/duplicates?eventId={id}")).ok();
                    assert_eq!(
                        found["duplicates"].as_array().map_or(0, Vec::len).to_string(),
                        rows,
                        "{place}: {found}"
                    );
                }
                "restart" => self.node = self.node.restart(|options| options.config = Some(yaml.to_owned())),
                other => panic!("{place}: {other:?} is no sign"),
            }
        }
    }
}

/// The boxes of an answer that are not zero.
fn told(answer: &Value) -> String {
    let filled =
        BOXES.iter().filter_map(|name| answer[name].as_u64().filter(|n| *n > 0).map(|n| format!("{name} {n}")));
    filled.collect::<Vec<_>>().join(", ")
}
