//! Inline commands: words separated by spaces, quoted as in a shell.
//!
//! In double quotes `\n \r \t \b \a`, `\xHH` and any other escaped byte mean what they mean in C; in single quotes only
//! `\'` is an escape. A closing quote must be followed by a space or the end of the line.

/// Splits `line` into words, appends each to `words` and names it by its bounds there. Answers whether every quote is
/// closed properly.
pub fn split(line: &[u8], words: &mut Vec<u8>, mut word: impl FnMut(usize, usize)) -> bool {
    let mut rest = line;
    loop {
        rest = skip_spaces(rest);
        if rest.is_empty() {
            return true;
        }
        let start = words.len();
        match take_word(rest, words) {
            Some(behind) => rest = behind,
            None => return false,
        }
        word(start, words.len());
    }
}

/// Unquotes the word at the front of `rest` into `words` and answers what stands behind it.
fn take_word<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match *rest {
            // A NUL ends the line, as it does in Redis.
            [] | [0, ..] => return Some(&[]),
            [byte, ref behind @ ..] if is_space(byte) => return Some(behind),
            [b'"', ref quoted @ ..] => return take_double_quoted(quoted, words),
            [b'\'', ref quoted @ ..] => return take_single_quoted(quoted, words),
            [byte, ref behind @ ..] => {
                words.push(byte);
                rest = behind;
            }
        }
    }
}

fn take_double_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match *rest {
            [b'\\', b'x', high, low, ref behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                words.push(hex(high) << 4 | hex(low));
                rest = behind;
            }
            [b'\\', escaped, ref behind @ ..] => {
                words.push(unescape(escaped));
                rest = behind;
            }
            [b'"', ref behind @ ..] => return behind_quote(behind),
            [] | [0, ..] => return None,
            [byte, ref behind @ ..] => {
                words.push(byte);
                rest = behind;
            }
        }
    }
}

fn take_single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match *rest {
            [b'\\', b'\'', ref behind @ ..] => {
                words.push(b'\'');
                rest = behind;
            }
            [b'\'', ref behind @ ..] => return behind_quote(behind),
            [] | [0, ..] => return None,
            [byte, ref behind @ ..] => {
                words.push(byte);
                rest = behind;
            }
        }
    }
}

fn behind_quote(rest: &[u8]) -> Option<&[u8]> {
    match rest.first() {
        None | Some(0) => Some(&[]),
        Some(&byte) if is_space(byte) => Some(rest),
        Some(_) => None,
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// What C's `isspace` calls a space.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn skip_spaces(line: &[u8]) -> &[u8] {
    let spaces = line.iter().take_while(|&&byte| is_space(byte)).count();
    match line[spaces..] {
        [0, ..] => &[],
        ref rest => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut bytes = Vec::new();
        let mut bounds = Vec::new();
        let balanced = split(line, &mut bytes, |start, end| bounds.push((start, end)));
        balanced.then(|| bounds.into_iter().map(|(start, end)| bytes[start..end].to_vec()).collect())
    }

    fn check(line: &str, expected: &[&[u8]]) {
        assert_eq!(
            words(line.as_bytes()).as_deref(),
            Some(&expected.iter().map(|w| w.to_vec()).collect::<Vec<_>>()[..]),
            "{line}"
        );
    }

    #[test]
    fn words_are_separated_by_any_run_of_spaces() {
        check("", &[]);
        check("   ", &[]);
        check(" \t INCR \x0b a\r", &[b"INCR", b"a"]);
    }

    #[test]
    fn quotes_hold_spaces_and_escapes() {
        check(r#"ECHO "a b" "" 'c "d"'"#, &[b"ECHO", b"a b", b"", b"c \"d\""]);
        check(r#""\n\r\t\b\a\x00\xfF\q\"""#, &[b"\n\r\t\x08\x07\x00\xffq\""]);
        check(r"'it\'s' '\n'", &[b"it's", b"\\n"]);
        check(r#""\xg1""#, &[b"xg1"]);
        check(r#"a"b c""#, &[b"ab c"]);
    }

    #[test]
    fn an_open_quote_or_text_right_behind_a_quote_is_unbalanced() {
        for line in [r#"""#, r#"a "b"#, r#""a"b"#, "'", "'a'b", r#""\"#, r#""a\""#] {
            assert_eq!(words(line.as_bytes()), None, "{line}");
        }
    }
}
