//! Numbers and texts as they stand in a batch.

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Small numbers are short, whatever their sign.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// A text of the dictionary.
pub fn put_entry(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A text in a record, spelt out.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, (text.len() as u64) << 1);
    out.extend_from_slice(text.as_bytes());
}

/// A text in a record, by its number in the dictionary.
pub fn put_known(out: &mut Vec<u8>, number: u32) {
    put_varint(out, u64::from(number) << 1 | 1);
}
