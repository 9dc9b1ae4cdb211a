//! The lexical level of JSON, over text that is known to be UTF-8.
//!
//! Strict as RFC 8259: no trailing commas, no control characters in strings, no lone surrogates. Strings are borrowed
//! unless they have escapes; their ends are found eight bytes at a time.

use super::error::EventError;
use super::special::skip_ordinary;
use crate::limits::JSON_DEPTH_MAX;
use std::borrow::Cow;

/// Why reading stopped; a pointer, since it is part of every result on the hot path.
pub(super) type ScanFault = Box<ScanTrouble>;

#[derive(Debug)]
pub(super) enum ScanTrouble {
    /// The text is not JSON.
    Syntax { at: usize, expected: &'static str },
    /// The text is nested deeper than [`JSON_DEPTH_MAX`].
    TooDeep { at: usize },
    /// JSON, but not an event.
    Shape(EventError),
}

impl From<EventError> for Box<ScanTrouble> {
    #[cold]
    fn from(error: EventError) -> ScanFault {
        Box::new(ScanTrouble::Shape(error))
    }
}

/// Walks through a text; everything before `rest` has been read.
pub(super) struct Scanner<'a> {
    text: &'a str,
    rest: &'a [u8],
    /// Whether what is read ends with its line.
    on_line: bool,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Scanner<'a> {
        Scanner { text, rest: text.as_bytes(), on_line: false }
    }

    /// For text that has more lines behind the one that is read.
    #[inline(always)]
    pub fn on_line(text: &'a str) -> Scanner<'a> {
        Scanner { text, rest: text.as_bytes(), on_line: true }
    }

    /// How many bytes have been read.
    #[inline(always)]
    pub fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    pub fn rewind(&mut self, at: usize) {
        self.rest = &self.text.as_bytes()[at..];
    }

    /// What has been read since `start`.
    #[inline(always)]
    pub fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at()]
    }

    /// What has not been read, as text.
    pub fn rest_text(&self) -> &'a str {
        &self.text[self.at()..]
    }

    /// What has not been read.
    #[inline(always)]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Steps over so many bytes of what is left.
    #[inline(always)]
    pub fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    #[inline(always)]
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    #[inline(always)]
    pub fn peek_at(&self, distance: usize) -> Option<u8> {
        self.rest.get(distance).copied()
    }

    /// Steps over one byte, if it is the one given.
    #[inline(always)]
    pub fn take_byte(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Steps over `token`, if it is what comes next to the byte.
    #[inline(always)]
    pub fn take<const N: usize>(&mut self, token: &[u8; N]) -> bool {
        match self.rest.split_first_chunk() {
            Some((first, rest)) if first == token => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Skips white space and shows the byte behind it.
    #[inline(always)]
    pub fn next_token(&mut self) -> Option<u8> {
        match self.rest {
            [byte, ..] if *byte > b' ' => Some(*byte),
            _ => self.next_token_behind_space(),
        }
    }

    #[inline(never)]
    fn next_token_behind_space(&mut self) -> Option<u8> {
        while let [space @ (b' ' | b'\t' | b'\n' | b'\r'), rest @ ..] = self.rest
            && !(self.on_line && *space == b'\n')
        {
            self.rest = rest;
        }
        self.peek()
    }

    /// Steps over the token `byte`, behind white space, if it is what comes next.
    #[inline(always)]
    pub fn take_token(&mut self, byte: u8) -> bool {
        self.take_byte(byte) || self.next_token() == Some(byte) && self.take_byte(byte)
    }

    #[inline(always)]
    pub fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), ScanFault> {
        if self.take_token(byte) { Ok(()) } else { Err(self.syntax(expected)) }
    }

    #[cold]
    pub fn syntax(&self, expected: &'static str) -> ScanFault {
        Box::new(ScanTrouble::Syntax { at: self.at(), expected })
    }

    #[cold]
    fn too_deep(&self) -> ScanFault {
        Box::new(ScanTrouble::TooDeep { at: self.at() })
    }

    /// Steps into an object and stands on its first key; false if it has none and has been stepped over.
    #[inline(always)]
    pub fn first_member(&mut self) -> Result<bool, ScanFault> {
        self.expect(b'{', "an object, {…}")?;
        match self.next_token() {
            Some(b'"') => Ok(true),
            _ if self.take_byte(b'}') => Ok(false),
            _ => Err(self.syntax("a field name in double quotes, or '}'")),
        }
    }

    /// Steps over a comma and stands on the next key, or steps out of the object.
    #[inline(always)]
    pub fn next_member(&mut self) -> Result<bool, ScanFault> {
        if self.take_token(b',') {
            return match self.next_token() {
                Some(b'"') => Ok(true),
                _ => Err(self.syntax("a field name in double quotes")),
            };
        }
        if self.take_byte(b'}') { Ok(false) } else { Err(self.syntax("',' or '}'")) }
    }

    /// Steps into an array; false if it has no elements and has been stepped over.
    pub fn first_element(&mut self) -> Result<bool, ScanFault> {
        self.expect(b'[', "an array, […]")?;
        Ok(!self.take_token(b']'))
    }

    /// Steps over a comma, or out of the array.
    pub fn next_element(&mut self) -> Result<bool, ScanFault> {
        if self.take_token(b',') {
            return Ok(true);
        }
        if self.take_byte(b']') { Ok(false) } else { Err(self.syntax("',' or ']'")) }
    }

    /// Reads a key and its colon; the scanner stands on its opening quote.
    #[inline(always)]
    pub fn key(&mut self) -> Result<Cow<'a, str>, ScanFault> {
        let key = self.string()?;
        self.expect(b':', "':'")?;
        Ok(key)
    }

    /// Reads a string; the scanner stands on its opening quote.
    #[inline(always)]
    pub fn string(&mut self) -> Result<Cow<'a, str>, ScanFault> {
        let start = self.at();
        self.skip_string_start();
        if self.take_byte(b'"') {
            return Ok(Cow::Borrowed(&self.text[start + 1..self.at() - 1]));
        }
        self.string_with_escapes(start)
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize) -> Result<Cow<'a, str>, ScanFault> {
        self.skip_string_end()?;
        match serde_json::from_str::<String>(self.since(start)) {
            Ok(text) => Ok(Cow::Owned(text)),
            Err(_) => Err(Box::new(ScanTrouble::Syntax { at: start, expected: "a string" })),
        }
    }

    #[inline(always)]
    fn skip_string(&mut self) -> Result<(), ScanFault> {
        self.skip_string_start();
        if self.take_byte(b'"') { Ok(()) } else { self.skip_string_end() }
    }

    /// Steps over the opening quote and to the closing one, or to something that needs attention before it.
    #[inline(always)]
    fn skip_string_start(&mut self) {
        self.rest = skip_ordinary(self.rest.get(1..).unwrap_or_default());
    }

    #[cold]
    fn skip_string_end(&mut self) -> Result<(), ScanFault> {
        loop {
            match self.peek() {
                Some(b'\\') => self.skip_escape()?,
                Some(b'"') => {
                    self.take_byte(b'"');
                    return Ok(());
                }
                Some(_) => return Err(self.syntax("no control character in a string (write it as \\u00XX)")),
                None => return Err(self.syntax("the closing quote of a string")),
            }
            self.rest = skip_ordinary(self.rest);
        }
    }

    fn skip_escape(&mut self) -> Result<(), ScanFault> {
        const PAIR: &str = "a pair of surrogates, such as \\ud83d\\ude00";
        if self.take(b"\\u") {
            return match self.hex_digits()? {
                0xd800..0xdc00 if !self.take(b"\\u") => Err(self.syntax(PAIR)),
                0xd800..0xdc00 if !(0xdc00..0xe000).contains(&self.hex_digits()?) => Err(self.syntax(PAIR)),
                0xdc00..0xe000 => Err(self.syntax(PAIR)),
                _ => Ok(()),
            };
        }
        match self.rest {
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => self.rest = rest,
            _ => return Err(self.syntax("an escape such as \\n or \\u00e9")),
        }
        Ok(())
    }

    fn hex_digits(&mut self) -> Result<u32, ScanFault> {
        let Some((digits, rest)) = self.rest.split_first_chunk::<4>() else {
            return Err(self.syntax("four hexadecimal digits"));
        };
        let value = digits.iter().try_fold(0, |value, byte| Some(value * 16 + char::from(*byte).to_digit(16)?));
        let value = value.ok_or_else(|| self.syntax("four hexadecimal digits"))?;
        self.rest = rest;
        Ok(value)
    }

    /// Steps to the next quote, backslash or control character, and answers what stands before it.
    #[inline(always)]
    pub fn plain_text(&mut self) -> &'a [u8] {
        let before = self.rest;
        self.rest = skip_ordinary(before);
        &before[..before.len() - self.rest.len()]
    }

    /// Reads the digits of a whole number without a sign, up to 19 of them; `None` if it is not written so.
    #[inline(always)]
    pub fn plain_whole(&mut self) -> Option<u64> {
        let before = self.rest;
        let mut value = 0u64;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.rest = rest;
        }
        let digits = before.len() - self.rest.len();
        let is_plain = (1..=19).contains(&digits) && (digits == 1 || before[0] != b'0');
        is_plain.then_some(value)
    }

    /// Reads a number; the scanner stands on its first character.
    #[inline(always)]
    pub fn number(&mut self) -> Result<&'a str, ScanFault> {
        let start = self.at();
        self.take_byte(b'-');
        if !self.take_byte(b'0') {
            self.skip_digits()?;
        }
        if self.take_byte(b'.') {
            self.skip_digits()?;
        }
        if self.take_byte(b'e') || self.take_byte(b'E') {
            let _signed = self.take_byte(b'+') || self.take_byte(b'-');
            self.skip_digits()?;
        }
        Ok(self.since(start))
    }

    #[inline(always)]
    fn skip_digits(&mut self) -> Result<(), ScanFault> {
        let before = self.rest.len();
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.len() == before { Err(self.syntax("a digit")) } else { Ok(()) }
    }

    pub fn literal<const N: usize>(&mut self, literal: &'static [u8; N]) -> Result<&'a str, ScanFault> {
        let start = self.at();
        if self.take(literal) { Ok(self.since(start)) } else { Err(self.syntax("a JSON value")) }
    }

    /// Steps over one value of any kind and answers its text.
    #[inline(always)]
    pub fn value(&mut self) -> Result<&'a str, ScanFault> {
        self.next_token();
        let start = self.at();
        self.skip_value(JSON_DEPTH_MAX)?;
        Ok(self.since(start))
    }

    fn skip_value(&mut self, depth_left: usize) -> Result<(), ScanFault> {
        match self.next_token() {
            Some(b'{') => self.skip_object(depth_left),
            Some(b'[') => self.skip_array(depth_left),
            Some(b'"') => self.skip_string(),
            Some(b'-' | b'0'..=b'9') => self.number().map(drop),
            Some(b't') => self.literal(b"true").map(drop),
            Some(b'f') => self.literal(b"false").map(drop),
            Some(b'n') => self.literal(b"null").map(drop),
            _ => Err(self.syntax("a JSON value")),
        }
    }

    fn skip_object(&mut self, depth_left: usize) -> Result<(), ScanFault> {
        let depth_left = depth_left.checked_sub(1).ok_or_else(|| self.too_deep())?;
        let mut more = self.first_member()?;
        while more {
            self.skip_string()?;
            self.expect(b':', "':'")?;
            self.skip_value(depth_left)?;
            more = self.next_member()?;
        }
        Ok(())
    }

    fn skip_array(&mut self, depth_left: usize) -> Result<(), ScanFault> {
        let depth_left = depth_left.checked_sub(1).ok_or_else(|| self.too_deep())?;
        let mut more = self.first_element()?;
        while more {
            self.skip_value(depth_left)?;
            more = self.next_element()?;
        }
        Ok(())
    }
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
            prop_assert_eq!(accepts(&text), expected.is_some(), "{:?}", text);
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(accepts(&nested(JSON_DEPTH_MAX)));
        assert!(matches!(
            Scanner::new(&nested(JSON_DEPTH_MAX + 1)).value(),
            Err(trouble) if matches!(*trouble, ScanTrouble::TooDeep { at: JSON_DEPTH_MAX })
        ));
        assert!(
            matches!(Scanner::new(&"{\"a\":".repeat(1_000_000)).value(), Err(trouble) if matches!(*trouble, ScanTrouble::TooDeep { .. }))
        );
    }
}
