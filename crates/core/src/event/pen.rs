//! Writes the record of an event into room that was made for all of it, so that nothing is asked again for each field.

/// Texts up to this long are copied as a block of this size, of which the rest is written over by what follows: that takes
/// fewer instructions than a copy of just so many bytes.
const BLOCK: usize = 40;

/// The most that a varint takes.
const VARINT_BYTES_MAX: usize = 10;

pub(super) struct Pen<'a> {
    room: &'a mut [u8],
    at: usize,
}

/// Bytes that are written again and again.
#[derive(Debug)]
pub(super) struct Stamped {
    bytes: Vec<u8>,
    block: [u8; BLOCK],
}

impl Stamped {
    pub fn new(bytes: Vec<u8>) -> Stamped {
        let mut block = [0; BLOCK];
        let len = bytes.len().min(BLOCK);
        block[..len].copy_from_slice(&bytes[..len]);
        Stamped { bytes, block }
    }
}

impl Pen<'_> {
    /// Appends to `out` what `write` writes: texts of at most `text_bytes` in all, and at most `numbers` numbers.
    #[inline(always)]
    pub fn append(out: &mut Vec<u8>, text_bytes: usize, numbers: usize, write: impl FnOnce(&mut Pen<'_>)) {
        let start = out.len();
        out.resize(start + text_bytes + numbers * VARINT_BYTES_MAX + BLOCK, 0);
        let mut pen = Pen { room: &mut out[start..], at: 0 };
        write(&mut pen);
        let end = start + pen.at;
        out.truncate(end);
    }

    #[inline(always)]
    pub fn stamp(&mut self, stamped: &Stamped) {
        let len = stamped.bytes.len();
        match self.room[self.at..].first_chunk_mut() {
            Some(room) if len <= BLOCK => *room = stamped.block,
            _ => self.room[self.at..][..len].copy_from_slice(&stamped.bytes),
        }
        self.at += len;
    }

    /// The first `len` bytes of `text`, behind their length.
    #[inline(always)]
    pub fn text(&mut self, text: &[u8], len: usize) {
        match (text.first_chunk::<BLOCK>(), self.room[self.at..].first_chunk_mut::<{ BLOCK + 1 }>()) {
            (Some(block), Some(room)) if len <= BLOCK => {
                room[0] = len as u8;
                room[1..].copy_from_slice(block);
                self.at += 1 + len;
            }
            _ => self.long_text(&text[..len]),
        }
    }

    #[inline(never)]
    fn long_text(&mut self, text: &[u8]) {
        self.varint(text.len() as u64);
        self.room[self.at..][..text.len()].copy_from_slice(text);
        self.at += text.len();
    }

    #[inline(always)]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.room[self.at] = value as u8 | 0x80;
            self.at += 1;
            value >>= 7;
        }
        self.room[self.at] = value as u8;
        self.at += 1;
    }

    #[inline(always)]
    pub fn signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Sets bits of a byte that was written.
    #[inline]
    pub fn set(&mut self, at: usize, bits: u8) {
        self.room[at] |= bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{put_bytes, put_signed, put_varint};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pen_writes_what_is_put_elsewhere(
            texts in proptest::collection::vec(".{0,60}", 0..6), number: u64, behind in ".{0,50}",
        ) {
            let (mut written, mut put) = (b"before".to_vec(), b"before".to_vec());
            let bytes = texts.iter().map(String::len).sum::<usize>() * 2;
            Pen::append(&mut written, bytes, texts.len() + 2, |pen| {
                pen.varint(number);
                pen.signed(number as i64);
                for text in &texts {
                    pen.text(format!("{text}{behind}").as_bytes(), text.len());
                    pen.stamp(&Stamped::new(text.as_bytes().to_vec()));
                }
            });
            put_varint(&mut put, number);
            put_signed(&mut put, number as i64);
            for text in &texts {
                put_bytes(&mut put, text.as_bytes());
                put.extend_from_slice(text.as_bytes());
            }
            prop_assert_eq!(written, put);
        }
    }
}
