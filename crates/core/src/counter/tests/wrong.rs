//! Configurations as people get them wrong, and exactly what they are told: the file `wrong.txt` beside this one.
//!
//! A case is a line `=== name`, a configuration, a line `--- says`, and the errors. `{modes}` is the list of all modes.

use super::super::*;
use super::modes;

const CASES: &str = include_str!("wrong.txt");

/// What somebody is told about a configuration.
fn says(yaml: &str) -> String {
    let errors = Declarations::parse(yaml).expect_err(yaml);
    let lines = errors.shown.iter().map(|error| {
        let (line, column) = (error.line, error.column);
        format!("{line}:{column}: {}\n  fix: {}\n", error.message, error.fix)
    });
    lines.collect()
}

#[test]
fn whoever_gets_it_wrong_is_told_where_and_what_to_do() {
    let all = CASES.replace("{modes}", &modes());
    let cases: Vec<&str> = all.split("=== ").skip(1).collect();
    assert!(cases.len() > 40, "the file was read");
    // What it would say now, to be looked at and copied when a text changes.
    let mut now = String::new();
    for case in &cases {
        let (name, rest) = case.split_once('\n').expect("a case has a name");
        let (yaml, _) = rest.split_once("--- says\n").expect("a case says something");
        now.push_str(&format!("=== {name}\n{yaml}--- says\n{}", says(yaml)));
    }
    assert_eq!(now, all, "\n{now}");
}

#[test]
fn a_snippet_marks_the_place_below_the_line() {
    let errors = Declarations::parse("counters:\n  - counterName: views\n    mode: displai\n").unwrap_err();
    assert_eq!(
        errors.to_string(),
        "line 3, column 11: \"displai\" is not a mode\n  3 |     mode: displai\n    |           ^\n  fix: did you mean \"display\"?"
    );
}

#[test]
fn many_errors_are_told_up_to_a_bound() {
    let yaml: String = (0..100).map(|n| format!("  - {{counterName: c{n}, mode: no}}\n")).collect();
    let errors = Declarations::parse(&format!("counters:\n{yaml}")).unwrap_err();
    assert_eq!((errors.shown.len(), errors.more), (20, 80));
    assert!(errors.to_string().ends_with("and 80 more"));
}
