//! The bytes of a row in the store (`docs/formats/keys.md`).

use super::{CellRow, Mark, RowExpiry, Spans};
use crate::record::{DecodeError, put_signed, put_varint, take_byte, take_signed, take_varint};

/// Which extras follow the value.
mod extra {
    pub const EXPIRY: u8 = 1;
    /// As earlier versions wrote a mark: with the last clear instead of spans.
    pub const PLAIN_MARK: u8 = 2;
    pub const MARK: u8 = 4;
}

impl CellRow {
    pub fn encode(&self, out: &mut Vec<u8>) {
        let marked = self.mark != Mark::default();
        let expiry = if self.expiry.is_some() { extra::EXPIRY } else { 0 };
        out.push(if marked { expiry | extra::MARK } else { expiry });
        put_signed(out, self.value);
        if marked {
            put_varint(out, self.mark.generation);
            self.mark.spans.encode(out);
        }
        if let Some(expiry) = &self.expiry {
            put_varint(out, expiry.at_ms);
            out.extend_from_slice(&expiry.id);
        }
    }

    pub fn decode(mut bytes: &[u8]) -> Result<CellRow, DecodeError> {
        let bytes = &mut bytes;
        let extras = take_byte(bytes)?;
        if extras & !(extra::EXPIRY | extra::PLAIN_MARK | extra::MARK) != 0 {
            return Err(DecodeError::BadValue { field: "row extras", value: extras.into() });
        }
        let mut row = CellRow::plain(take_signed(bytes)?);
        if extras & extra::PLAIN_MARK != 0 {
            row.mark = Mark { generation: take_varint(bytes)?, spans: Spans::of_last_clear(take_varint(bytes)?) };
        }
        if extras & extra::MARK != 0 {
            row.mark = Mark { generation: take_varint(bytes)?, spans: Spans::decode(bytes)? };
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
            value: i64, generation in 0..3u64, cleared in 0..3u64, expiry in proptest::option::of((any::<u64>(), any::<Vec<u8>>()))
        ) {
            let spans = Spans::of_last_clear(cleared);
            let mark = if generation == 0 { Mark::default() } else { Mark { generation, spans } };
            let row = CellRow { value, mark, expiry: expiry.map(|(at_ms, id)| RowExpiry { at_ms, id: id.into() }) };
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            prop_assert_eq!(CellRow::decode(&bytes).unwrap(), row);
        }
    }

    #[test]
    fn the_bytes_of_a_row_are_pinned() {
        let mut bytes = Vec::new();
        let expiry = || Some(RowExpiry { at_ms: 5, id: (*b"a").into() });
        CellRow::plain(-3).encode(&mut bytes);
        CellRow { expiry: expiry(), ..CellRow::plain(300) }.encode(&mut bytes);
        let mark = |cleared| Mark { generation: 7, spans: Spans::of_last_clear(cleared) };
        CellRow { mark: mark(3), ..CellRow::plain(1) }.encode(&mut bytes);
        CellRow { mark: mark(0), expiry: expiry(), ..CellRow::plain(1) }.encode(&mut bytes);
        let cleared = b"\x04\x02\x07\x02\x00\x03\x01\x00\x03\x00\x00\x00";
        assert_eq!(bytes, [b"\x00\x05\x01\xd8\x04\x05a", &cleared[..], b"\x05\x02\x07\x00\x05a"].concat());
    }

    #[test]
    fn a_row_of_format_2_is_still_read() {
        let mark = Mark { generation: 7, spans: Spans::of_last_clear(3) };
        assert_eq!(CellRow::decode(b"\x02\x02\x07\x03").unwrap(), CellRow { mark, ..CellRow::plain(1) });
    }
}
