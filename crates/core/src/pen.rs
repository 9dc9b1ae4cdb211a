//! Puts bytes together from short texts in room that was made for all of them, so that nothing is asked again for each text: the
//! record of an event, the id of a counter, what makes an event unique.

/// Texts up to this long are copied as a block of this size, of which the rest is written over by what follows: that takes
/// fewer instructions than a copy of just so many bytes.
const BLOCK: usize = 40;

/// The most that a varint takes.
const VARINT_BYTES_MAX: usize = 10;

/// A text, and what stands behind it where it was received: as long as there is enough of that, a whole block can be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    from: &'a [u8],
    len: usize,
}

impl<'a> Part<'a> {
    /// A text with nothing behind it.
    #[inline(always)]
    pub fn exactly(bytes: &'a [u8]) -> Part<'a> {
        Part { from: bytes, len: bytes.len() }
    }

    /// The first `len` bytes.
    #[inline(always)]
    pub fn first(from: &'a [u8], len: usize) -> Part<'a> {
        debug_assert!(len <= from.len());
        Part { from, len }
    }

    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        &self.from[..self.len]
    }

    #[inline(always)]
    pub fn len(self) -> usize {
        self.len
    }
}

/// A text that is written again and again.
#[derive(Clone, Debug)]
pub(crate) struct Stamped {
    bytes: Vec<u8>,
    len: usize,
}

impl Stamped {
    pub fn new(mut bytes: Vec<u8>) -> Stamped {
        let len = bytes.len();
        bytes.resize(len.max(BLOCK), 0);
        Stamped { bytes, len }
    }

    #[inline(always)]
    pub fn part(&self) -> Part<'_> {
        Part::first(&self.bytes, self.len)
    }
}

/// Room that is written in again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    room: Vec<u8>,
}

impl Scratch {
    /// A pen for texts of at most `text_bytes` in all, and at most `numbers` numbers.
    #[inline(always)]
    pub fn pen(&mut self, text_bytes: usize, numbers: usize) -> Pen<'_> {
        let room = room(text_bytes, numbers);
        if self.room.len() < room {
            self.grow(room);
        }
        Pen { room: &mut self.room, at: 0 }
    }

    #[cold]
    fn grow(&mut self, room: usize) {
        self.room.resize(room.next_power_of_two(), 0);
    }
}

/// What has to be there for so many bytes of texts and so many numbers, if the last of them is a block.
#[inline(always)]
fn room(text_bytes: usize, numbers: usize) -> usize {
    text_bytes + numbers * VARINT_BYTES_MAX + BLOCK + 1
}

pub(crate) struct Pen<'a> {
    room: &'a mut [u8],
    at: usize,
}

/// What texts are written on: the room of a pen, or bytes that grow.
pub(crate) trait Paper {
    /// How much was written.
    fn written(&self) -> usize;

    fn byte(&mut self, byte: u8);

    fn put(&mut self, part: Part<'_>);
}

impl Paper for Vec<u8> {
    fn written(&self) -> usize {
        self.len()
    }

    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put(&mut self, part: Part<'_>) {
        self.extend_from_slice(part.bytes());
    }
}

impl Paper for Pen<'_> {
    #[inline(always)]
    fn written(&self) -> usize {
        self.at
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.room[self.at] = byte;
        self.at += 1;
    }

    #[inline(always)]
    fn put(&mut self, part: Part<'_>) {
        match (part.from.first_chunk::<BLOCK>(), self.room[self.at..].first_chunk_mut()) {
            (Some(block), Some(room)) if part.len <= BLOCK => {
                *room = *block;
                self.at += part.len;
            }
            _ => self.put_exactly(part.bytes()),
        }
    }
}

impl<'a> Pen<'a> {
    /// Appends to `out` what `write` writes: texts of at most `text_bytes` in all, and at most `numbers` numbers.
    #[inline(always)]
    pub fn append(out: &mut Vec<u8>, text_bytes: usize, numbers: usize, write: impl FnOnce(&mut Pen<'_>)) {
        let start = out.len();
        out.resize(start + room(text_bytes, numbers), 0);
        let mut pen = Pen { room: &mut out[start..], at: 0 };
        write(&mut pen);
        let end = start + pen.at;
        out.truncate(end);
    }

    /// What was written.
    #[inline(always)]
    pub fn bytes(self) -> &'a [u8] {
        let Pen { room, at } = self;
        &room[..at]
    }

    /// A text behind its length.
    #[inline(always)]
    pub fn text(&mut self, part: Part<'_>) {
        match (part.from.first_chunk::<BLOCK>(), self.room[self.at..].first_chunk_mut::<{ BLOCK + 1 }>()) {
            (Some(block), Some(room)) if part.len <= BLOCK => {
                room[0] = part.len as u8;
                room[1..].copy_from_slice(block);
                self.at += 1 + part.len;
            }
            _ => {
                self.varint(part.len as u64);
                self.put_exactly(part.bytes());
            }
        }
    }

    #[inline(never)]
    fn put_exactly(&mut self, bytes: &[u8]) {
        self.room[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline(always)]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
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
            let (mut scratch, mut put, mut appended) = (Scratch::default(), b"before".to_vec(), b"before".to_vec());
            let bytes = texts.iter().map(String::len).sum::<usize>() * 3;
            let write = |pen: &mut Pen<'_>| {
                pen.varint(number);
                pen.signed(number as i64);
                for text in &texts {
                    let with_more = format!("{text}{behind}");
                    pen.text(Part::first(with_more.as_bytes(), text.len()));
                    pen.put(Part::first(with_more.as_bytes(), text.len()));
                    pen.put(Stamped::new(text.as_bytes().to_vec()).part());
                }
            };
            let mut pen = scratch.pen(bytes, texts.len() + 2);
            write(&mut pen);
            let (at, written) = (pen.written(), pen.bytes());
            Pen::append(&mut appended, bytes, texts.len() + 2, write);
            put_varint(&mut put, number);
            put_signed(&mut put, number as i64);
            for text in &texts {
                put_bytes(&mut put, text.as_bytes());
                put.extend_from_slice(text.as_bytes());
                put.extend_from_slice(text.as_bytes());
            }
            prop_assert_eq!((written, at), (&put[6..], put.len() - 6));
            prop_assert_eq!(appended, put);
        }
    }
}
