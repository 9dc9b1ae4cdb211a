//! The bytes of a row in the store (`docs/formats/keys.md`).

use super::{Row, RowExpiry};
use crate::record::{DecodeError, put_signed, put_varint, take_byte, take_signed, take_varint};

mod kind {
    pub const PLAIN: u8 = 0;
    pub const EXPIRING: u8 = 1;
}

impl Row {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.expiry {
            None => {
                out.push(kind::PLAIN);
                put_signed(out, self.value);
            }
            Some(expiry) => {
                out.push(kind::EXPIRING);
                put_signed(out, self.value);
                put_varint(out, expiry.at_ms);
                out.extend_from_slice(&expiry.id);
            }
        }
    }

    pub fn decode(mut bytes: &[u8]) -> Result<Row, DecodeError> {
        let bytes = &mut bytes;
        let kind = take_byte(bytes)?;
        let value = take_signed(bytes)?;
        let expiry = match kind {
            kind::PLAIN => None,
            kind::EXPIRING => Some(RowExpiry { at_ms: take_varint(bytes)?, id: (*bytes).into() }),
            other => return Err(DecodeError::BadValue { field: "row kind", value: other.into() }),
        };
        Ok(Row { value, expiry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_row_survives_its_bytes(value: i64, expiry in proptest::option::of((any::<u64>(), any::<Vec<u8>>()))) {
            let row = Row { value, expiry: expiry.map(|(at_ms, id)| RowExpiry { at_ms, id: id.into() }) };
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            prop_assert_eq!(Row::decode(&bytes).unwrap(), row);
        }
    }

    #[test]
    fn the_bytes_of_a_row_are_pinned() {
        let mut bytes = Vec::new();
        Row { value: -3, expiry: None }.encode(&mut bytes);
        Row { value: 300, expiry: Some(RowExpiry { at_ms: 5, id: (*b"a").into() }) }.encode(&mut bytes);
        assert_eq!(bytes, b"\x00\x05\x01\xd8\x04\x05a");
    }
}
