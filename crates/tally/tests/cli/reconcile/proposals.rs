//! What a recount proposes: one proposal at a time, and a report even if there cannot be any.

use super::{Asked, YAML, stdout, traffic};
use rustix::process::Signal;

impl Asked {
    /// The numbers of proposals that are open, the newest first.
    fn open(&self) -> Vec<u64> {
        let page = self.get("/v1/corrections?limit=1000");
        let open = page["corrections"].as_array().unwrap().iter().filter(|it| it["state"] == "proposed");
        open.map(|it| it["number"].as_u64().unwrap()).collect()
    }
}

#[test]
fn a_proposal_makes_way_for_the_next_after_a_restart_too_and_only_if_all_of_it_was_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    asked.correct("restore", "views:a:DE", 5);
    asked.correct("restore", "impressions:a", 2);
    assert_eq!(asked.reconcile(&[]).status.code(), Some(3));
    let first = asked.open();
    asked.server.stop(Signal::KILL);
    let asked = Asked::start(dir.path(), YAML);
    asked.reconcile(&[]);
    let second = asked.open();
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    // A run for one counter has not looked at the others.
    asked.reconcile(&["likes"]);
    assert_eq!(asked.open(), second);
    asked.reconcile(&["views"]);
    asked.reconcile(&["views"]);
    assert_eq!((asked.open().len(), asked.open()[1]), (2, second[0]));
    let applied = asked.reconcile(&["--apply"]);
    assert_eq!((applied.status.code(), asked.open().len()), (Some(0), 0), "{}", stdout(&applied));
}

#[test]
fn a_recount_that_cannot_propose_anything_reports_what_it_found_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let asked = Asked::start(dir.path(), YAML);
    asked.post("/v1/events", &traffic(0));
    asked.correct("restore", "views:a:DE", 5);
    for _ in 0..100 {
        let proposal =
            r#"{"reason":"a test","author":"reconciliation","kind":"adjust","deltas":[{"id":"stock:x","delta":1}]}"#;
        asked.post("/v1/corrections", proposal);
    }
    let differs = asked.reconcile(&[]);
    let text = stdout(&differs);
    assert_eq!((differs.status.code(), asked.open().len()), (Some(3), 100), "{text}");
    assert!(text.contains("55 instead of 50") && text.contains("not put right: "), "{text}");
}
