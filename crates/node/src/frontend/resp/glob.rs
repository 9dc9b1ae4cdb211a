//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`: `*`, `?`, `[a-z]`, `[^x]` and `\` before a byte that means itself.
//!
//! The answers are those of Redis, its quirks included: a class that is never closed ends with the pattern, ranges
//! compare signed bytes and may be written backwards, and nothing but the empty pattern matches the empty text.
//!
//! Everything but a `*` stands for exactly one byte. So a pattern is a row of *pieces* of fixed length between its stars:
//! the first stands at the beginning of the text, the last at its end, and each of the others is taken where it is found
//! first, because whatever a star swallows, the next one can swallow as well. A long piece is searched for with one bit
//! per byte of it (shift-and). So the time is that of the text's length, times one 64th of a piece's.

use tally_core::limits::ID_BYTES_MAX;

/// Pieces up to this length are compared at every place; it takes less than to prepare a search.
const SHORT_PIECE_BYTES: usize = 8;

/// The bits of the longest piece that any text can have.
const WORDS_MAX: usize = ID_BYTES_MAX.div_ceil(64);

/// A pattern, ready to be compared with many texts.
pub struct Glob {
    /// Between the stars; at least one.
    pieces: Vec<Piece>,
    /// The shortest text that can match.
    bytes_min: usize,
}

impl Glob {
    pub fn new(pattern: &[u8]) -> Glob {
        let mut pieces = vec![Piece::default()];
        let mut rest = pattern;
        while let [first, behind @ ..] = rest {
            if *first == b'*' {
                pieces.push(Piece::default());
                rest = behind;
                continue;
            }
            let (bytes, behind) = one(rest);
            pieces.last_mut().expect("there is a first piece").places.push(bytes);
            rest = behind;
        }
        let last = pieces.len() - 1;
        // Of stars in a row, one does.
        let pieces: Vec<Piece> = pieces
            .into_iter()
            .enumerate()
            .filter(|(at, piece)| *at == 0 || *at == last || !piece.places.is_empty())
            .map(|(_, piece)| piece)
            .collect();
        let bytes_min = pieces.iter().map(|piece| piece.places.len()).sum();
        let mut glob = Glob { pieces, bytes_min };
        if bytes_min <= ID_BYTES_MAX
            && let [_, middle @ .., _] = &mut glob.pieces[..]
        {
            middle.iter_mut().for_each(Piece::prepare);
        }
        glob
    }

    /// Whether the pattern matches all of `text`.
    pub fn matches(&self, text: &[u8]) -> bool {
        let [first, rest @ ..] = &self.pieces[..] else { unreachable!("there is a first piece") };
        let Some((last, middle)) = rest.split_last() else {
            return text.len() == self.bytes_min && first.is_at_start(text);
        };
        // A star matches the empty text, but the pattern does not.
        if text.len() < self.bytes_min || text.is_empty() || !first.is_at_start(text) {
            return false;
        }
        let end = text.len() - last.places.len();
        let mut between = &text[first.places.len()..end];
        for piece in middle {
            match piece.find_end(between) {
                Some(end) => between = &between[end..],
                None => return false,
            }
        }
        last.is_at_start(&text[end..])
    }
}

/// Whether `pattern` matches all of `text`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    Glob::new(pattern).matches(text)
}

/// The bytes that every match begins with.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    &pattern[..end]
}

/// What stands between two stars.
#[derive(Default)]
struct Piece {
    /// Which bytes may stand at each of its places.
    places: Vec<GlobBytes>,
    /// For each byte the places where it may stand, a bit each, `words` of them; only of long pieces that can be anywhere.
    masks: Vec<u64>,
}

impl Piece {
    fn prepare(&mut self) {
        if self.places.len() <= SHORT_PIECE_BYTES {
            return;
        }
        let words = self.words();
        self.masks = vec![0; 256 * words];
        for (place, bytes) in self.places.iter().enumerate() {
            for byte in (0..=255).filter(|&byte| bytes.has(byte)) {
                self.masks[usize::from(byte) * words + place / 64] |= 1 << (place % 64);
            }
        }
    }

    fn words(&self) -> usize {
        self.places.len().div_ceil(64)
    }

    fn is_at_start(&self, text: &[u8]) -> bool {
        self.places.iter().zip(text).all(|(bytes, &byte)| bytes.has(byte))
    }

    /// The end of the first place in `text` where it stands.
    fn find_end(&self, text: &[u8]) -> Option<usize> {
        if text.len() < self.places.len() {
            return None;
        }
        if self.masks.is_empty() {
            let start = text.windows(self.places.len()).position(|window| self.is_at_start(window))?;
            return Some(start + self.places.len());
        }
        let words = self.words();
        let last = (self.places.len() - 1) % 64;
        // A bit is set where the piece, up to that place, ends at the byte that was read last.
        let mut standing = [0_u64; WORDS_MAX];
        let standing = &mut standing[..words];
        let found = text.iter().position(|&byte| {
            let masks = &self.masks[usize::from(byte) * words..][..words];
            let mut carried = 1;
            for (word, mask) in standing.iter_mut().zip(masks) {
                let next = *word >> 63;
                *word = (*word << 1 | carried) & mask;
                carried = next;
            }
            standing[words - 1] >> last & 1 == 1
        });
        found.map(|at| at + 1)
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Default)]
struct GlobBytes([u64; 4]);

impl GlobBytes {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    fn of(byte: u8) -> GlobBytes {
        let mut bytes = GlobBytes::default();
        bytes.add(byte);
        bytes
    }
}

/// What the front of the pattern, which is not a `*`, stands for, and the rest of the pattern.
fn one(pattern: &[u8]) -> (GlobBytes, &[u8]) {
    match *pattern {
        [] => unreachable!("there is a byte"),
        [b'?', ref rest @ ..] => (GlobBytes([u64::MAX; 4]), rest),
        [b'[', ref class @ ..] => one_of(class),
        [b'\\', literal, ref rest @ ..] | [literal, ref rest @ ..] => (GlobBytes::of(literal), rest),
    }
}

/// Reads a class, of which the `[` has been read.
fn one_of(class: &[u8]) -> (GlobBytes, &[u8]) {
    let (negated, mut class) = match class {
        [b'^', class @ ..] => (true, class),
        class => (false, class),
    };
    let mut bytes = GlobBytes::default();
    let rest = loop {
        match *class {
            [b'\\', literal, ref rest @ ..] => {
                bytes.add(literal);
                class = rest;
            }
            [b']', ref rest @ ..] => break rest,
            [] => break class,
            [from, b'-', to, ref rest @ ..] => {
                let (from, to) = (from as i8, to as i8);
                (from.min(to)..=from.max(to)).for_each(|byte| bytes.add(byte as u8));
                class = rest;
            }
            [literal, ref rest @ ..] => {
                bytes.add(literal);
                class = rest;
            }
        }
    };
    if negated {
        bytes = GlobBytes(bytes.0.map(|word| !word));
    }
    (bytes, rest)
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
            ([], _) => false,
            (_, [byte, behind @ ..]) => {
                let (bytes, rest) = one(pattern);
                bytes.has(*byte) && naive(rest, behind)
            }
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

    /// Compared place by place, each of these takes some ten billion steps.
    #[test]
    fn a_nasty_pattern_takes_the_time_of_the_text() {
        let text = vec![b'a'; ID_BYTES_MAX];
        let class = [&b"*["[..], &b"b".repeat(2000), b"]*c"].concat();
        for pattern in [
            [&b"*"[..], &b"a".repeat(2000), b"b*"].concat(),
            [&b"*"[..], &b"?".repeat(1900), b"b*b"].concat(),
            [&b"a*".repeat(1000)[..], b"b"].concat(),
            class,
        ] {
            let glob = Glob::new(&pattern);
            assert!((0..300).all(|_| !glob.matches(&text)), "{}", String::from_utf8_lossy(&pattern[..20]));
        }
        assert!(Glob::new(&[&b"*"[..], &b"a".repeat(2000), b"*"].concat()).matches(&text));
        assert!(Glob::new(&b"a*".repeat(1000)).matches(&text));
    }

    #[test]
    fn a_pattern_longer_than_any_text_matches_none() {
        let pattern = [b'?'; ID_BYTES_MAX + 1];
        assert!(!Glob::new(&pattern).matches(&[b'a'; ID_BYTES_MAX]));
        assert!(!Glob::new(&[b"*", &pattern[..], b"*"].concat()).matches(&[b'a'; ID_BYTES_MAX]));
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

        /// Pieces of more than 64 places, which take more than one word of bits.
        #[test]
        fn long_pieces_are_found_where_they_are(
            before in "[ab]{0,100}", piece in "[ab?]{9,200}", filled in "[ab]{200}", behind in "[ab]{0,100}",
        ) {
            let there: String = piece.chars().zip(filled.chars()).map(|(c, f)| if c == '?' { f } else { c }).collect();
            let pattern = format!("*{piece}*");
            let text = format!("{before}{there}{behind}");
            prop_assert!(matches(pattern.as_bytes(), text.as_bytes()));
            let elsewhere = format!("{before}{filled}{behind}");
            let found = elsewhere.as_bytes().windows(piece.len()).any(|window| naive(piece.as_bytes(), window));
            prop_assert_eq!(matches(pattern.as_bytes(), elsewhere.as_bytes()), found);
        }

        #[test]
        fn whatever_matches_begins_with_the_literal_prefix(pattern in r"[ab*?\[\]\\-]{0,6}", text in "[ab]{1,6}") {
            if matches(pattern.as_bytes(), text.as_bytes()) {
                prop_assert!(text.as_bytes().starts_with(literal_prefix(pattern.as_bytes())));
            }
        }
    }
}
