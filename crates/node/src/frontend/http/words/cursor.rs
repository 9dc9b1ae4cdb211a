//! Where a list goes on: a text that means nothing to anybody else, knows which list it belongs to, and notices if it was changed.

use tally_core::id::CellHasher;
use tally_core::record::{
    DecodeError, put_bytes, put_signed, put_varint, take_byte, take_bytes, take_signed, take_str, take_varint,
};

use super::parameters::refused;
use super::problem::{Problem, quoted};

/// The first byte of all of them.
const VERSION: u8 = 1;
/// Bytes of a hash at the end.
const CHECK_BYTES: usize = 4;

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Name = 0,
    Value = 1,
    Changed = 2,
}

impl Order {
    pub const ALL: [Order; 3] = [Order::Name, Order::Value, Order::Changed];

    pub fn name(self) -> &'static str {
        match self {
            Order::Name => "name",
            Order::Value => "value",
            Order::Changed => "changed",
        }
    }
}

/// The last row of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub order: Order,
    /// What the list is of.
    pub pattern: String,
    pub id: Vec<u8>,
    /// Its value, or the offset of its change; 0 in a list by name.
    pub number: i64,
    /// Rows of this page and those before it.
    pub listed: u64,
}

impl Cursor {
    pub fn encode(&self) -> String {
        let mut bytes = vec![VERSION, self.order as u8];
        put_bytes(&mut bytes, self.pattern.as_bytes());
        put_bytes(&mut bytes, &self.id);
        put_signed(&mut bytes, self.number);
        put_varint(&mut bytes, self.listed);
        let check = check(&bytes);
        bytes.extend_from_slice(&check);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads the cursor of a list.
    pub fn read(text: &str, order: Order, pattern: &str) -> Result<Cursor, Problem> {
        let unreadable =
            || refused("cursor", text, "send the cursor of the page before as it was, or begin without one");
        let cursor = Cursor::decode(text).ok_or_else(unreadable)?;
        if (cursor.order, &*cursor.pattern) != (order, pattern) {
            let (of, by) = (quoted(&cursor.pattern), cursor.order.name());
            let fix = format!("it belongs to match={of} and order={by}: ask with those, or begin without one");
            return Err(refused("cursor", text, &fix));
        }
        Ok(cursor)
    }

    fn decode(text: &str) -> Option<Cursor> {
        let digits = text.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        let bytes: Vec<u8> = digits.collect::<Option<_>>()?;
        let (bytes, found) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_BYTES)?)?;
        if *found != check(bytes) || !text.len().is_multiple_of(2) {
            return None;
        }
        Cursor::take(bytes).ok().flatten()
    }

    fn take(mut bytes: &[u8]) -> Result<Option<Cursor>, DecodeError> {
        let bytes = &mut bytes;
        let (version, order) = (take_byte(bytes)?, take_byte(bytes)?);
        let Some(order) = Order::ALL.into_iter().find(|known| *known as u8 == order) else { return Ok(None) };
        let (pattern, id) = (take_str(bytes)?.to_owned(), take_bytes(bytes)?.to_vec());
        let (number, listed) = (take_signed(bytes)?, take_varint(bytes)?);
        Ok((version == VERSION && bytes.is_empty()).then_some(Cursor { order, pattern, id, number, listed }))
    }
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = CellHasher::new(u64::from(VERSION)).key(bytes).to_bytes();
    *hash.first_chunk().expect("a hash has 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> Cursor {
        let (order, pattern) = (Order::Value, "views:*".to_owned());
        Cursor { order, pattern, id: b"views:\xff".to_vec(), number: -7, listed: 100 }
    }

    #[test]
    fn a_cursor_survives_its_text() {
        assert_eq!(Cursor::read(&cursor().encode(), Order::Value, "views:*").unwrap(), cursor());
    }

    #[test]
    fn a_cursor_of_another_list_says_which_it_belongs_to() {
        for (order, pattern) in [(Order::Name, "views:*"), (Order::Value, "likes:*")] {
            let detail = Cursor::read(&cursor().encode(), order, pattern).unwrap_err().detail;
            assert!(detail.contains("match=views:* and order=value"), "{detail}");
        }
    }

    #[test]
    fn every_changed_letter_is_noticed() {
        let text = cursor().encode();
        for at in 0..text.len() {
            let other = if &text[at..=at] == "0" { "1" } else { "0" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            let detail = Cursor::read(&changed, Order::Value, "views:*").unwrap_err().detail;
            assert!(detail.contains("as it was"), "{detail}");
        }
        for strange in ["", "0", "zz", "0102", "é", &text[2..], &text[..text.len() - 1], &format!("{text}00")] {
            assert!(Cursor::read(strange, Order::Value, "views:*").is_err(), "{strange}");
        }
    }
}
