//! Most events look like the one before: the same fields in the same order, the same dimensions, the same spaces.
//!
//! A layout is what an event has between its values, learnt from one that was read in full. An event in which all of
//! that stands again to the byte needs no look at its names: only its values are read, by the same code as ever.
//! Whatever is different, or wrong, is read in full. So a layout changes how fast an event is read and never what is read.

use super::Event;
use super::error::EventError;
use super::json::{EventField, check_size, parse_into, scan_dimension, scan_field};
use super::scan::Scanner;
use std::borrow::Cow;

/// Events that are read in full without learning from them, after a layout that was of no use.
const PAUSE: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct Layout {
    parts: Vec<LayoutPart>,
    end: Literal,
    /// Whether an event had this layout since it was learnt.
    was_useful: bool,
    pause: u32,
}

/// What stands before a value, and which value it is.
#[derive(Debug)]
struct LayoutPart {
    before: Literal,
    value: LayoutValue,
}

#[derive(Clone, Copy, Debug)]
enum LayoutValue {
    Field(EventField),
    /// Its name is in the literal before it, at this place.
    Dimension {
        name_at: usize,
        name_end: usize,
    },
}

impl Layout {
    /// [`parse_into`], faster for an event that looks like the one before.
    #[inline]
    pub fn parse_into<'a>(
        &mut self,
        text: &'a str,
        received_at_ms: u64,
        event: &mut Event<'a>,
    ) -> Result<(), EventError> {
        check_size(text.len())?;
        if self.read(text, received_at_ms, event).is_some() {
            self.was_useful = true;
            return Ok(());
        }
        parse_into(text, received_at_ms, event)?;
        self.learn(text);
        Ok(())
    }

    /// Reads an event of this layout; `None` if it has another, or a value is not what it should be.
    #[inline]
    fn read<'a>(&self, text: &'a str, received_at_ms: u64, event: &mut Event<'a>) -> Option<()> {
        if self.parts.is_empty() {
            return None;
        }
        event.reset(received_at_ms);
        let mut scanner = Scanner::new(text);
        for part in &self.parts {
            let start = scanner.at();
            self.take(&mut scanner, &part.before)?;
            match part.value {
                LayoutValue::Field(field) => scan_field(&mut scanner, field, event).ok()?,
                LayoutValue::Dimension { name_at, name_end } => {
                    let name = text.get(start + name_at..start + name_end)?;
                    let value = scan_dimension(&mut scanner, name).ok()?;
                    event.dimensions.push((Cow::Borrowed(name), value));
                }
            }
        }
        self.take(&mut scanner, &self.end)?;
        scanner.peek().is_none().then_some(())
    }

    #[inline(always)]
    fn take(&self, scanner: &mut Scanner<'_>, literal: &Literal) -> Option<()> {
        literal.is_at(scanner.rest()).then(|| scanner.skip(literal.bytes.len()))
    }

    /// Takes over the layout of an event that was read without a fault.
    #[cold]
    fn learn(&mut self, text: &str) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        if !self.was_useful && !self.parts.is_empty() {
            self.pause = PAUSE;
        }
        self.was_useful = false;
        self.parts.clear();
        if self.learn_parts(text).is_none() {
            self.parts.clear();
        }
    }

    /// `None` if the event is written in a way that is not worth learning.
    fn learn_parts(&mut self, text: &str) -> Option<()> {
        let mut scanner = Scanner::new(text);
        let mut learnt = 0;
        let mut more = scanner.first_member().ok()?;
        while more {
            let name = plain_key(&mut scanner)?;
            let field = EventField::known(name.text)?;
            if matches!(field, EventField::Dimensions) {
                self.learn_dimensions(&mut scanner, text, &mut learnt)?;
            } else {
                self.learn_value(&mut scanner, text, &mut learnt, LayoutValue::Field(field))?;
            }
            more = scanner.next_member().ok()?;
        }
        self.end = Literal::new(&text[learnt..]);
        Some(())
    }

    fn learn_dimensions(&mut self, scanner: &mut Scanner<'_>, text: &str, learnt: &mut usize) -> Option<()> {
        let mut more = scanner.first_member().ok()?;
        while more {
            let name = plain_key(scanner)?;
            let name_at = name.at - *learnt;
            let value = LayoutValue::Dimension { name_at, name_end: name_at + name.text.len() };
            self.learn_value(scanner, text, learnt, value)?;
            more = scanner.next_member().ok()?;
        }
        Some(())
    }

    /// Adds what stands between the last value, which ended at `learnt`, and this one.
    fn learn_value(
        &mut self,
        scanner: &mut Scanner<'_>,
        text: &str,
        learnt: &mut usize,
        value: LayoutValue,
    ) -> Option<()> {
        scanner.next_token();
        let before = Literal::new(&text[*learnt..scanner.at()]);
        scanner.value().ok()?;
        *learnt = scanner.at();
        self.parts.push(LayoutPart { before, value });
        Some(())
    }
}

struct LayoutKey<'a> {
    at: usize,
    text: &'a str,
}

/// A name written without escapes.
fn plain_key<'a>(scanner: &mut Scanner<'a>) -> Option<LayoutKey<'a>> {
    let at = scanner.at() + 1;
    match scanner.key().ok()? {
        Cow::Borrowed(text) => Some(LayoutKey { at, text }),
        Cow::Owned(_) => None,
    }
}

/// Bytes to be recognised; up to 32 of them at a stroke.
#[derive(Debug, Default)]
struct Literal {
    bytes: Vec<u8>,
    words: [u64; 4],
    mask: [u64; 4],
}

impl Literal {
    fn new(text: &str) -> Literal {
        let mut literal = Literal { bytes: text.as_bytes().to_vec(), ..Literal::default() };
        for (at, byte) in literal.bytes.iter().enumerate().take(32) {
            literal.words[at / 8] |= u64::from(*byte) << (at % 8 * 8);
            literal.mask[at / 8] |= 0xff << (at % 8 * 8);
        }
        literal
    }

    #[inline(always)]
    fn is_at(&self, rest: &[u8]) -> bool {
        match rest.first_chunk::<32>() {
            Some(chunk) if self.bytes.len() <= 32 => {
                let (words, _) = chunk.as_chunks::<8>();
                let differs = |at: usize| (u64::from_le_bytes(words[at]) ^ self.words[at]) & self.mask[at];
                differs(0) | differs(1) | differs(2) | differs(3) == 0
            }
            _ => rest.starts_with(&self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;
    use proptest::prelude::*;

    fn event() -> impl Strategy<Value = String> {
        let text =
            prop_oneof![4 => "[a-z0-9é ]{0,20}", 1 => Just("\\n\\u00e9".to_owned()), 1 => Just("bad\u{1}".to_owned())];
        let number = prop_oneof![4 => "[1-9][0-9]{0,9}", 1 => Just("1.50".to_owned()), 1 => Just("-".to_owned())];
        let shape = proptest::sample::select(vec![
            r#"{"type":"T","session":"S","seq":N,"dimensions":{"video":"V","country":"C"}}"#,
            r#"{"type":"T","session":"S","seq":N,"dimensions":{"video":"V","country":N},"payload":{"a":[N,"S"]}}"#,
            r#"{"type":"T", "occurredAt":"2026-11-15T18:00:0NZ","delta":N}"#,
            r#"{"type":"T","dimensions":{}}"#,
            r#"{"dimensions":{"vid\u0065o":"V"},"type":"T"}"#,
            r#"{"type":"T","type":"T"}"#,
            r#"{"type":"T","sesion":"S"}"#,
            r#"{"eventId":"T"}"#,
            "{\"type\":\"T\",\"session\":\"S\",\"a_name_that_is_much_longer_than_thirty_two_bytes\":N}",
        ]);
        (shape, text, number).prop_map(|(shape, text, number)| {
            shape.replace(['T', 'S', 'V', 'C'], if text.is_empty() { "x" } else { &text }).replace('N', &number)
        })
    }

    proptest! {
        #[test]
        fn a_layout_never_changes_what_is_read(
            events in proptest::collection::vec((event(), 1usize..4), 1..12),
            mutations in proptest::collection::vec((0usize..40, any::<prop::sample::Index>(), " -~"), 0..6),
        ) {
            let mut lines: Vec<String> = events.into_iter().flat_map(|(event, times)| vec![event; times]).collect();
            for (line, at, with) in mutations {
                let line = line % lines.len();
                let chars: Vec<char> = lines[line].chars().collect();
                let at = at.index(chars.len());
                lines[line] = chars.iter().enumerate().map(|(n, c)| if n == at { with.clone() } else { c.to_string() }).collect();
            }
            let mut layout = Layout::default();
            for line in &lines {
                let mut event = Event::new("", 7);
                let read = layout.parse_into(line, 7, &mut event).map(|()| event);
                prop_assert_eq!(read, parse(line, 7), "{}", line);
            }
        }
    }

    #[test]
    fn the_second_of_two_like_events_is_read_by_its_layout() {
        let mut layout = Layout::default();
        let line = |n: u32| format!(r#"{{"type":"t", "seq":{n},"dimensions":{{"video":"v{n}"}},"payload":[{n}]}}"#);
        layout.parse_into(&line(1), 0, &mut Event::new("", 0)).unwrap();
        let second = line(23456);
        let mut event = Event::new("", 0);
        assert!(layout.read(&second, 0, &mut event).is_some());
        assert_eq!(event, parse(&second, 0).unwrap());
        assert!(layout.read(r#"{"type":"t"}"#, 0, &mut Event::new("", 0)).is_none());
    }
}
