//! An id in which `*` stands for any text, also for none.

use super::Declarations;
use crate::id::{SEPARATOR, decode_part, encode_part};
use std::fmt;

/// A pattern of a declared counter in whose key a `%` stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pattern {0} has a % without two hexadecimal digits behind it; write a % in a key as %25, in a path as %2525"
)]
pub struct BadPattern(pub String);

/// An id with `*` in it.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The literals around the stars, as ids have them: one more than there are stars.
    literals: Vec<Vec<u8>>,
    /// It is one of a declared counter, in whose keys `%` and two digits stand for a byte.
    is_declared: bool,
}

impl Pattern {
    /// Behind the name of a declared counter a pattern is brought into the form that ids have: any `%XX` is decoded, and `:` and
    /// `%` are written as in a key. So `%2A` is a star that stands for itself. All other patterns are taken as they are.
    pub fn resolve(declarations: &Declarations, text: &str) -> Result<Pattern, BadPattern> {
        let is_declared = text.split_once(':').is_some_and(|(name, _)| declarations.find(name.as_bytes()).is_some());
        let literals = text.split('*').map(|literal| match is_declared {
            true => canonical(literal, text),
            false => Ok(literal.into()),
        });
        Ok(Pattern { literals: literals.collect::<Result<_, _>>()?, is_declared })
    }

    /// Every id that matches begins with this.
    pub fn prefix(&self) -> &[u8] {
        &self.literals[0]
    }

    /// Whether every id that begins so matches.
    pub fn is_prefix(&self) -> bool {
        matches!(self.literals.as_slice(), [_, last] if last.is_empty())
    }

    pub fn matches(&self, id: &[u8]) -> bool {
        let Some(mut rest) = id.strip_prefix(self.prefix()) else { return false };
        let [_, middle @ .., last] = self.literals.as_slice() else { return rest.is_empty() };
        // The earliest place of each literal leaves the most room for the next, so nothing is ever tried twice.
        for literal in middle {
            let Some(at) = find(rest, literal) else { return false };
            rest = &rest[at + literal.len()..];
        }
        rest.ends_with(last)
    }
}

/// A piece of a pattern as the canonical form of ids has it. What separates the parts of a key stays as it is.
fn canonical(literal: &str, pattern: &str) -> Result<Vec<u8>, BadPattern> {
    let mut canonical = Vec::with_capacity(literal.len());
    for (n, part) in literal.split(':').enumerate() {
        let value = decode_part(part.as_bytes()).map_err(|_| BadPattern(pattern.to_owned()))?;
        canonical.extend((n > 0).then_some(SEPARATOR));
        encode_part(&value, &mut canonical);
    }
    Ok(canonical)
}

/// As it would be written: the canonical form of what was asked for.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, literal) in self.literals.iter().enumerate() {
            let literal = String::from_utf8_lossy(literal);
            let star = if n > 0 { "*" } else { "" };
            match self.is_declared {
                true => write!(f, "{star}{}", literal.replace('*', "%2A"))?,
                false => write!(f, "{star}{literal}")?,
            }
        }
        Ok(())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolve(pattern: &str) -> Result<Pattern, BadPattern> {
        let yaml = "counters:\n  - {counterName: views, mode: simple, dimensions: [video, country]}\n";
        Pattern::resolve(&Declarations::parse(yaml).unwrap(), pattern)
    }

    fn check(pattern: &str, id: &str, expected: bool) {
        assert_eq!(resolve(pattern).unwrap().matches(id.as_bytes()), expected, "{pattern} on {id}");
    }

    #[test]
    fn a_star_stands_for_any_text() {
        check("views:*", "views:v42", true);
        check("views:*", "views:", true);
        check("views:*", "view", false);
        check("*:DE", "views:v42:DE", true);
        check("*:DE", "views:v42:DEX", false);
        check("a*b*c", "abc", true);
        check("a*b*c", "aXbXbXc", true);
        check("a*b*c", "acb", false);
        check("**", "", true);
    }

    #[test]
    fn without_a_star_a_pattern_is_an_id() {
        check("views", "views", true);
        check("views", "views2", false);
    }

    #[test]
    fn the_parts_around_a_star_do_not_overlap() {
        check("aba*ba", "aba", false);
        check("aba*ba", "ababa", true);
        check("*ab*ab*", "abab", true);
        check("*ab*ab*", "aba", false);
    }

    #[test]
    fn a_pattern_of_a_declared_counter_is_canonical_as_its_ids_are() {
        for (pattern, shown) in [
            ("views:%41*", "views:A*"),
            ("views:a%3ab:*", "views:a%3Ab:*"),
            ("views:*:%44%45", "views:*:DE"),
            ("views:50%25*", "views:50%25*"),
            ("views:%2a*", "views:%2A*"),
            ("views:*%C3%A9*", "views:*é*"),
            // Nothing is known about these.
            ("viewers:%41*", "viewers:%41*"),
            ("*:%41", "*:%41"),
        ] {
            assert_eq!(resolve(pattern).unwrap().to_string(), shown);
            assert_eq!(resolve(shown).unwrap().to_string(), shown, "the form of a form is itself");
        }
        check("views:%41*", "views:Ab:DE", true);
        check("views:a%3ab:*", "views:a%3Ab:DE", true);
        check("views:%2A:*", "views:*:DE", true);
        check("views:%2A:*", "views:x:DE", false);
        check("viewers:%41*", "viewers:Ab", false);
        for bad in ["views:5%", "views:%zz*", "views:%*41"] {
            assert_eq!(resolve(bad).unwrap_err(), BadPattern(bad.to_owned()));
        }
    }

    /// The definition, tried in every way.
    fn naive(pattern: &[u8], id: &[u8]) -> bool {
        match pattern.split_first() {
            None => id.is_empty(),
            Some((b'*', rest)) => (0..=id.len()).any(|skip| naive(rest, &id[skip..])),
            Some((first, rest)) => id.first() == Some(first) && naive(rest, &id[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_its_definition_says(pattern in "[ab*]{0,7}", id in "[ab]{0,9}") {
            prop_assert_eq!(resolve(&pattern).unwrap().matches(id.as_bytes()), naive(pattern.as_bytes(), id.as_bytes()));
        }
    }
}
