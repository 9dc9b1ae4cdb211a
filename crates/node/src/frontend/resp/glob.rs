//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`: `*`, `?`, `[a-z]`, `[^x]` and `\` before a byte that means itself.
//!
//! The answers are those of Redis, its quirks included: a class that is never closed ends with the pattern, ranges
//! compare signed bytes and may be written backwards, and nothing but the empty pattern matches the empty text. The
//! time is bounded by the product of both lengths: a mismatch goes back to the last `*` only, because whatever an
//! earlier one could swallow in addition, the last one can as well.

/// Whether `pattern` matches all of `text`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut at = (pattern, text);
    // Behind the last `*`: the pattern, and the text where it is being tried.
    let mut retry: Option<(&[u8], &[u8])> = None;
    while let (pattern, [byte, behind @ ..]) = at {
        if let [b'*', rest @ ..] = pattern {
            at.0 = rest;
            retry = Some(at);
            if skip_stars(rest).is_empty() {
                return true;
            }
            continue;
        }
        at = match (one(pattern, *byte), retry) {
            (Some(rest), _) => (rest, behind),
            (None, Some((pattern, [_, later @ ..]))) => {
                retry = Some((pattern, later));
                (pattern, later)
            }
            (None, _) => return false,
        };
    }
    let rest = if text.is_empty() { pattern } else { skip_stars(at.0) };
    rest.is_empty()
}

/// The bytes that every match begins with.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    &pattern[..end]
}

fn skip_stars(pattern: &[u8]) -> &[u8] {
    let stars = pattern.iter().take_while(|&&byte| byte == b'*').count();
    &pattern[stars..]
}

/// Matches one byte with the front of the pattern, which is not a `*`, and answers the rest of the pattern.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match *pattern {
        [] => None,
        [b'?', ref rest @ ..] => Some(rest),
        [b'[', ref class @ ..] => one_of(class, byte),
        [b'\\', literal, ref rest @ ..] | [literal, ref rest @ ..] => (literal == byte).then_some(rest),
    }
}

/// Matches one byte with a class, of which the `[` has been read.
fn one_of(class: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut class) = match class {
        [b'^', class @ ..] => (true, class),
        class => (false, class),
    };
    let mut found = false;
    let rest = loop {
        match *class {
            [b'\\', literal, ref rest @ ..] => {
                found |= literal == byte;
                class = rest;
            }
            [b']', ref rest @ ..] => break rest,
            [] => break class,
            [from, b'-', to, ref rest @ ..] => {
                let (from, to, byte) = (from as i8, to as i8, byte as i8);
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                class = rest;
            }
            [literal, ref rest @ ..] => {
                found |= literal == byte;
                class = rest;
            }
        }
    };
    (found != negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: a star is tried with every length.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|len| naive(rest, &text[len..])),
            (_, []) => pattern.is_empty(),
            (_, [byte, behind @ ..]) => one(pattern, *byte).is_some_and(|rest| naive(rest, behind)),
        }
    }

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        for text in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} should match {text}");
        }
        for text in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn wildcards_match_what_redis_says_they_match() {
        check("views:*", &["views:", "views:1"], &["view", "xviews:1"]);
        check("h?llo", &["hello", "hallo"], &["hllo", "heello"]);
        check("h[ae]llo", &["hello", "hallo"], &["hillo"]);
        check("h[^e]llo", &["hallo"], &["hello", "hllo"]);
        check("h[a-b]llo", &["hallo", "hbllo"], &["hcllo"]);
        check("h[b-a]llo", &["hallo", "hbllo"], &["hcllo"]);
        check(r"a\*", &["a*"], &["ab"]);
        check(r"a\", &[r"a\"], &["a"]);
        check("a**b", &["ab", "axb"], &["a"]);
    }

    #[test]
    fn the_quirks_are_kept() {
        check("[abc", &["a", "c"], &["d", "[abc"]);
        check("[", &[], &["[", "a"]);
        check("[^", &["a", "["], &[]);
        check("[]", &[], &["]", "a"]);
        check("[a-", &["a", "-"], &["b"]);
        check(r"[\]]", &["]"], &["\\"]);
        // Only the empty pattern matches the empty text.
        check("", &[""], &["a"]);
        check("*", &["a"], &[""]);
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_more_time_than_both_lengths_allow() {
        let pattern = b"a*".repeat(500);
        let text = vec![b'a'; 4000];
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
        assert!(matches(&pattern, &text));
    }

    #[test]
    fn the_literal_prefix_ends_before_the_first_special_byte() {
        for (pattern, prefix) in
            [("views:*", "views:"), ("*", ""), ("a?b", "a"), ("a[b]", "a"), (r"a\*", "a"), ("abc", "abc")]
        {
            assert_eq!(literal_prefix(pattern.as_bytes()), prefix.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn the_quick_way_agrees_with_the_definition(pattern in r"[ab*?\[\]^\\-]{0,10}", text in "[ab\\]^-]{1,12}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes()),
                "{} on {}", pattern, text
            );
        }

        #[test]
        fn whatever_matches_begins_with_the_literal_prefix(pattern in r"[ab*?\[\]\\-]{0,6}", text in "[ab]{1,6}") {
            if matches(pattern.as_bytes(), text.as_bytes()) {
                prop_assert!(text.as_bytes().starts_with(literal_prefix(pattern.as_bytes())));
            }
        }
    }
}
