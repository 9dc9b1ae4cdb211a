//! Steps through the bytes of a batch.

use super::error::Broken;
use crate::event::shape::Span;

#[derive(Clone, Debug)]
pub(in crate::event) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline(always)]
    pub fn byte(&mut self) -> Result<u8, Broken> {
        let byte = *self.bytes.get(self.at).ok_or(Broken::Ends)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline(always)]
    pub fn varint(&mut self) -> Result<u64, Broken> {
        match self.byte()? {
            small @ 0..0x80 => Ok(small.into()),
            first => self.long_varint(first),
        }
    }

    #[inline]
    fn long_varint(&mut self, first: u8) -> Result<u64, Broken> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return Err(Broken::LongNumber);
            }
            value |= low << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Broken::LongNumber)
    }

    #[inline(always)]
    pub fn signed(&mut self) -> Result<i64, Broken> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// Steps over so many bytes.
    #[inline(always)]
    pub fn span(&mut self, len: u64) -> Result<Span, Broken> {
        let left = (self.bytes.len() - self.at) as u64;
        if len > left {
            return Err(Broken::Ends);
        }
        let start = self.at;
        self.at += len as usize;
        Ok(Span { start: start as u32, end: self.at as u32 })
    }
}
