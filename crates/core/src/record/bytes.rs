//! The small parts that everything on disk is made of: numbers and texts (`docs/formats/wal.md`).

use super::DecodeError;

const VARINT_BYTES_MAX: usize = 10;

#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 { out.push(value as u8) } else { put_long_varint(out, value) }
}

fn put_long_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

// Always, since each text of each event comes through here.
#[inline(always)]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + VARINT_BYTES_MAX);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[inline]
pub fn take_byte(bytes: &mut &[u8]) -> Result<u8, DecodeError> {
    let (&first, rest) = bytes.split_first().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(first)
}

#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    match bytes {
        [small @ 0..0x80, rest @ ..] => {
            let value = u64::from(*small);
            *bytes = rest;
            Ok(value)
        }
        _ => take_long_varint(bytes),
    }
}

fn take_long_varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(bytes)?;
        let low = u64::from(byte & 0x7f);
        if shift == 63 && low > 1 {
            return Err(DecodeError::NumberTooLong);
        }
        value |= low << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(DecodeError::NumberTooLong)
}

#[inline]
pub fn take_signed(bytes: &mut &[u8]) -> Result<i64, DecodeError> {
    let raw = take_varint(bytes)?;
    Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
}

#[inline]
pub fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let len = usize::try_from(take_varint(bytes)?).map_err(|_| DecodeError::Truncated)?;
    if len > bytes.len() {
        return Err(DecodeError::Truncated);
    }
    let (text, rest) = bytes.split_at(len);
    *bytes = rest;
    Ok(text)
}

#[inline]
pub fn take_str<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(take_bytes(bytes)?).map_err(|_| DecodeError::NotUtf8)
}
