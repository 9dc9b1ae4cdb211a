//! Series over the keys that match a pattern. A pattern is of one declared counter: its name, `:`, and what its keys look like.
//!
//! In an id `*` is always a star here; a key that has one is written with `%2A`.

use tally_core::counter::{Counter, Declarations, Pattern};
use tally_core::id::SEPARATOR;

use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

/// Counters that a refusal names.
const NAMED_MAX: usize = 10;

/// The pattern that an id is, with its counter. `None` if it is none, or stands for the counter as a whole.
pub fn read<'d>(declarations: &'d Declarations, id: &str) -> Result<Option<(Pattern, &'d Counter)>, Problem> {
    if !id.contains('*') || of_whole(declarations, id).is_some() {
        return Ok(None);
    }
    let name = id.split_once(':').map(|(name, _)| name).filter(|name| !name.contains('*'));
    let index = name.and_then(|name| declarations.find(name.as_bytes())).ok_or_else(|| not_one(declarations, id))?;
    Ok(Some((Pattern::resolve(declarations, id)?, declarations.counter(index))))
}

/// The bare name of the counter whose keys all match.
pub fn of_whole<'i>(declarations: &Declarations, id: &'i str) -> Option<&'i str> {
    let (name, keys) = id.split_once(SEPARATOR as char)?;
    let counter = declarations.counter(declarations.find(name.as_bytes())?);
    (!keys.is_empty() && keys.bytes().all(|byte| byte == b'*') && counter.has_keys()).then_some(name)
}

/// It does not begin with the name of one declared counter.
fn not_one(declarations: &Declarations, id: &str) -> Problem {
    let before = id.split('*').next().unwrap_or(id);
    let reached = declarations.counters().iter().map(|counter| &*counter.name).filter(|name| name.starts_with(before));
    let reached: Vec<&str> = reached.take(NAMED_MAX).collect();
    let reached = if reached.is_empty() { String::new() } else { format!(" (it may reach {})", reached.join(", ")) };
    let pattern = quoted(id);
    let detail = format!(
        "a series adds up keys of one declared counter, and {pattern} does not begin with the name of one and a colon{reached}; name it, such as views:v*, or ask for several ids with GET /v1/series"
    );
    Problem::new(ProblemKind::InvalidId, detail).with("value", pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Declarations {
        let yaml = "counters:\n  - {counterName: views, mode: simple, dimensions: [video]}\n  - {counterName: visits, mode: simple}\n";
        Declarations::parse(yaml).unwrap()
    }

    #[test]
    fn a_pattern_is_of_one_declared_counter() {
        let declared = declared();
        let shown = |id: &str| read(&declared, id).map(|found| found.map(|(pattern, _)| pattern.to_string()));
        assert_eq!(shown("views:v*").unwrap().as_deref(), Some("views:v*"));
        assert_eq!(shown("views:*:x").unwrap().as_deref(), Some("views:*:x"));
        for id in ["views:v42", "views", "views:%2A", "adhoc", "views:*", "views:**"] {
            assert_eq!(shown(id).unwrap(), None, "{id}");
        }
        for (id, named) in [("v*", "may reach views, visits"), ("*:v1", "may reach views, visits"), ("x:v*", "x:v*")] {
            let detail = shown(id).unwrap_err().detail;
            assert!(detail.contains(named), "{detail}");
        }
    }

    #[test]
    fn a_star_alone_is_the_counter_as_a_whole() {
        let declared = declared();
        for (id, expected) in [
            ("views:*", Some("views")),
            ("views:**", Some("views")),
            ("views:", None),
            ("views:v*", None),
            ("visits:*", None),
        ] {
            assert_eq!(of_whole(&declared, id), expected, "{id}");
        }
    }
}
