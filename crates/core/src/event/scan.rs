//! The lexical level of JSON, over text that is known to be UTF-8.
//!
//! Strict as RFC 8259: no trailing commas, no control characters in strings, no lone surrogates. Strings are borrowed
//! unless they have escapes; their ends are found eight bytes at a time.

use super::error::EventError;
use crate::limits::JSON_DEPTH_MAX;
use std::borrow::Cow;

/// Why reading stopped. Small, since it is part of every result on the hot path.
#[derive(Debug)]
pub(super) enum Fault {
    /// The text is not JSON.
    Syntax { at: usize, expected: &'static str },
    /// The text is nested deeper than [`JSON_DEPTH_MAX`].
    TooDeep { at: usize },
    /// JSON, but not an event.
    Shape(Box<EventError>),
}

impl From<EventError> for Fault {
    #[cold]
    fn from(error: EventError) -> Fault {
        Fault::Shape(Box::new(error))
    }
}

pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    pub fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space and shows the byte behind it.
    #[inline]
    pub fn next_token(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    #[cold]
    pub fn syntax(&self, expected: &'static str) -> Fault {
        Fault::Syntax { at: self.at, expected }
    }

    /// Steps over the token `byte`, behind white space.
    #[inline]
    pub fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Fault> {
        if self.next_token() != Some(byte) {
            return Err(self.syntax(expected));
        }
        self.at += 1;
        Ok(())
    }

    /// Steps into an object and over its first key; false if it has none.
    #[inline]
    pub fn first_member(&mut self) -> Result<Option<Cow<'a, str>>, Fault> {
        self.expect(b'{', "an object, {…}")?;
        if self.next_token() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        self.key().map(Some)
    }

    /// Steps over a comma and the next key, or out of the object.
    #[inline]
    pub fn next_member(&mut self) -> Result<Option<Cow<'a, str>>, Fault> {
        match self.next_token() {
            Some(b',') => {
                self.at += 1;
                self.key().map(Some)
            }
            Some(b'}') => {
                self.at += 1;
                Ok(None)
            }
            _ => Err(self.syntax("',' or '}'")),
        }
    }

    #[inline]
    fn key(&mut self) -> Result<Cow<'a, str>, Fault> {
        if self.next_token() != Some(b'"') {
            return Err(self.syntax("a field name in double quotes"));
        }
        let key = self.string()?;
        self.expect(b':', "':'")?;
        Ok(key)
    }

    /// Reads a string; the scanner stands on its opening quote.
    #[inline]
    pub fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        let start = self.at;
        let end = find_special(self.text.as_bytes(), start + 1);
        if self.text.as_bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Cow::Borrowed(&self.text[start + 1..end]));
        }
        self.string_with_escapes(start)
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize) -> Result<Cow<'a, str>, Fault> {
        self.skip_string()?;
        match serde_json::from_str::<String>(self.since(start)) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(_) => Err(Fault::Syntax { at: start, expected: "a string" }),
        }
    }

    fn skip_string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            self.at = find_special(self.text.as_bytes(), self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.skip_escape()?,
                Some(_) => return Err(self.syntax("no control character in a string (write it as \\u00XX)")),
                None => return Err(self.syntax("the closing quote of a string")),
            }
        }
    }

    fn skip_escape(&mut self) -> Result<(), Fault> {
        const PAIR: &str = "a pair of surrogates, such as \\ud83d\\ude00";
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => match self.hex_escape()? {
                0xd800..0xdc00 => {
                    if self.text.as_bytes().get(self.at..self.at + 2) != Some(b"\\u") {
                        return Err(self.syntax(PAIR));
                    }
                    self.at += 1;
                    if !(0xdc00..0xe000).contains(&self.hex_escape()?) {
                        return Err(self.syntax(PAIR));
                    }
                }
                0xdc00..0xe000 => return Err(self.syntax(PAIR)),
                _ => {}
            },
            _ => return Err(self.syntax("an escape such as \\n or \\u00e9")),
        }
        Ok(())
    }

    /// Reads `uXXXX`.
    fn hex_escape(&mut self) -> Result<u32, Fault> {
        let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
        let value = digits.and_then(|digits| {
            digits.iter().try_fold(0, |value, byte| Some(value * 16 + char::from(*byte).to_digit(16)?))
        });
        let value = value.ok_or_else(|| self.syntax("four hexadecimal digits"))?;
        self.at += 5;
        Ok(value)
    }

    /// Reads a number; the scanner stands on its first character.
    #[inline]
    pub fn number(&mut self) -> Result<&'a str, Fault> {
        let start = self.at;
        self.skip(b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.skip_digits()?,
        }
        if self.skip(b'.') {
            self.skip_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if !self.skip(b'+') {
                self.skip(b'-');
            }
            self.skip_digits()?;
        }
        Ok(self.since(start))
    }

    #[inline]
    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline]
    fn skip_digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.syntax("a digit")) } else { Ok(()) }
    }

    pub fn literal(&mut self, literal: &'static str) -> Result<&'a str, Fault> {
        let start = self.at;
        if !self.text.as_bytes()[start..].starts_with(literal.as_bytes()) {
            return Err(self.syntax("a JSON value"));
        }
        self.at += literal.len();
        Ok(self.since(start))
    }

    /// Steps over one value of any kind and answers its text.
    #[inline]
    pub fn value(&mut self) -> Result<&'a str, Fault> {
        self.next_token();
        let start = self.at;
        self.skip_value(JSON_DEPTH_MAX)?;
        Ok(self.since(start))
    }

    fn skip_value(&mut self, depth_left: usize) -> Result<(), Fault> {
        match self.next_token() {
            Some(b'{') => self.skip_object(depth_left),
            Some(b'[') => self.skip_array(depth_left),
            Some(b'"') => self.skip_string(),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            Some(b't') => self.literal("true").map(drop),
            Some(b'f') => self.literal("false").map(drop),
            Some(b'n') => self.literal("null").map(drop),
            _ => Err(self.syntax("a JSON value")),
        }
    }

    fn skip_object(&mut self, depth_left: usize) -> Result<(), Fault> {
        let depth_left = depth_left.checked_sub(1).ok_or(Fault::TooDeep { at: self.at })?;
        self.at += 1;
        if self.next_token() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.next_token() != Some(b'"') {
                return Err(self.syntax("a field name in double quotes"));
            }
            self.skip_string()?;
            self.expect(b':', "':'")?;
            self.skip_value(depth_left)?;
            match self.next_token() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.syntax("',' or '}'")),
            }
        }
    }

    fn skip_array(&mut self, depth_left: usize) -> Result<(), Fault> {
        let depth_left = depth_left.checked_sub(1).ok_or(Fault::TooDeep { at: self.at })?;
        self.at += 1;
        if self.next_token() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_value(depth_left)?;
            match self.next_token() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.syntax("',' or ']'")),
            }
        }
    }
}

/// Where the next quote, backslash or control character stands, from `at` on; the length if there is none.
#[inline]
fn find_special(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = special_bytes(u64::from_le_bytes(*word));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while at < bytes.len() && !matches!(bytes[at], b'"' | b'\\' | 0..0x20) {
        at += 1;
    }
    at
}

/// Sets the top bit of the lowest byte that is a quote, a backslash or below 0x20. Bytes above that one may be marked
/// wrongly, because a subtraction borrows from them.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let is_quote = quote.wrapping_sub(ONES) & !quote;
    let is_backslash = backslash.wrapping_sub(ONES) & !backslash;
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_quote | is_backslash | is_control) & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A well-formed document in the eyes of serde_json; the grammar only, as for a payload.
    fn oracle(text: &str) -> bool {
        // `Value` checks surrogates, and a raw value does not limit numbers to what a float can hold.
        let numbers_are_fine = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
        let value = serde_json::from_str::<serde_json::Value>(text);
        numbers_are_fine && value.map_or_else(|error| error.to_string().contains("number out of range"), |_| true)
    }

    fn accepts(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.value().is_ok() && scanner.next_token().is_none()
    }

    proptest! {
        #[test]
        fn the_next_special_byte_is_found_wherever_it_stands(bytes in proptest::collection::vec(any::<u8>(), 0..40), at in 0usize..40) {
            let naive = (at..bytes.len()).find(|i| matches!(bytes[*i], b'"' | b'\\' | 0..0x20));
            prop_assert_eq!(find_special(&bytes, at), naive.unwrap_or(bytes.len().max(at)));
        }

        #[test]
        fn any_text_is_json_iff_serde_json_says_so(text in r#"[\[\]{}",:\\ \n0-9eE.+\-truefalsn/b\u{1}é]{0,24}"#) {
            prop_assert_eq!(accepts(&text), oracle(&text), "{:?}", text);
        }

        #[test]
        fn any_string_is_json_iff_serde_json_says_so(text in r#"(\\u[dD8][89abcfABCF][0-9a-fg]{2}|\\[bfnrtux"/]|[a-z\u{0}-\u{22}é😀]){0,12}"#) {
            let text = format!("\"{text}\"");
            let expected = serde_json::from_str::<String>(&text).ok();
            let mut scanner = Scanner::new(&text);
            let found = scanner.string().ok().filter(|_| scanner.next_token().is_none());
            prop_assert_eq!(found.as_deref(), expected.as_deref(), "{:?}", text);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(accepts(&nested(JSON_DEPTH_MAX)));
        assert!(matches!(
            Scanner::new(&nested(JSON_DEPTH_MAX + 1)).value(),
            Err(Fault::TooDeep { at: JSON_DEPTH_MAX })
        ));
        assert!(matches!(Scanner::new(&"{\"a\":".repeat(1_000_000)).value(), Err(Fault::TooDeep { .. })));
    }
}
