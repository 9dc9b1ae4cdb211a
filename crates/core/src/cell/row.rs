//! The bytes of a row in the store (`docs/formats/keys.md`).

use super::{Mark, Row, RowExpiry};
use crate::record::{DecodeError, put_signed, put_varint, take_byte, take_signed, take_varint};

/// Which extras follow the value.
mod extra {
    pub const EXPIRY: u8 = 1;
    pub const MARK: u8 = 2;
}

impl Row {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let marked = self.mark != Mark::default();
        let expiry = if self.expiry.is_some() { extra::EXPIRY } else { 0 };
        out.push(if marked { expiry | extra::MARK } else { expiry });
        put_signed(out, self.value);
        if marked {
            put_varint(out, self.mark.generation);
            put_varint(out, self.mark.cleared);
        }
        if let Some(expiry) = &self.expiry {
            put_varint(out, expiry.at_ms);
            out.extend_from_slice(&expiry.id);
        }
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Row, DecodeError> {
        let bytes = &mut bytes;
        let extras = take_byte(bytes)?;
        if extras & !(extra::EXPIRY | extra::MARK) != 0 {
            return Err(DecodeError::BadValue { field: "row extras", value: extras.into() });
        }
        let mut row = Row::plain(take_signed(bytes)?);
        if extras & extra::MARK != 0 {
            row.mark = Mark { generation: take_varint(bytes)?, cleared: take_varint(bytes)? };
        }
        if extras & extra::EXPIRY != 0 {
            row.expiry = Some(RowExpiry { at_ms: take_varint(bytes)?, id: (*bytes).into() });
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_row_survives_its_bytes(
            value: i64, generation in 0..3u64, cleared: u64, expiry in proptest::option::of((any::<u64>(), any::<Vec<u8>>()))
        ) {
            let mark = if generation == 0 { Mark::default() } else { Mark { generation, cleared } };
            let row = Row { value, mark, expiry: expiry.map(|(at_ms, id)| RowExpiry { at_ms, id: id.into() }) };
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            prop_assert_eq!(Row::decode(&bytes).unwrap(), row);
        }
    }

    #[test]
    fn the_bytes_of_a_row_are_pinned() {
        let mut bytes = Vec::new();
        let expiry = || Some(RowExpiry { at_ms: 5, id: (*b"a").into() });
        Row::plain(-3).encode(&mut bytes);
        Row { expiry: expiry(), ..Row::plain(300) }.encode(&mut bytes);
        Row { mark: Mark { generation: 7, cleared: 3 }, ..Row::plain(1) }.encode(&mut bytes);
        Row { mark: Mark { generation: 7, cleared: 0 }, expiry: expiry(), ..Row::plain(1) }.encode(&mut bytes);
        assert_eq!(bytes, b"\x00\x05\x01\xd8\x04\x05a\x02\x02\x07\x03\x03\x02\x07\x00\x05a");
    }
}
