//! Finds the bytes at which a string of JSON ends or needs attention: quotes, backslashes and control characters.

/// What is left from the next quote, backslash or control character on.
#[inline(always)]
pub(super) fn skip_ordinary(mut rest: &[u8]) -> &[u8] {
    while let Some((block, tail)) = rest.split_first_chunk::<8>() {
        let found = special_bytes(block);
        if found != 0 {
            return &rest[found.trailing_zeros() as usize / 8..];
        }
        rest = tail;
    }
    skip_ordinary_tail(rest)
}

#[inline(never)]
fn skip_ordinary_tail(rest: &[u8]) -> &[u8] {
    let special = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
    &rest[special.unwrap_or(rest.len())..]
}

/// Sets the top bit of the lowest byte that is special. Bytes above that one may be marked wrongly, because a subtraction
/// borrows from them.
#[inline(always)]
fn special_bytes(block: &[u8; 8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(*block);
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let is_quote = quote.wrapping_sub(ONES) & !quote;
    let is_backslash = backslash.wrapping_sub(ONES) & !backslash;
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_quote | is_backslash | is_control) & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_special_byte_is_found_wherever_it_stands(bytes in proptest::collection::vec(any::<u8>(), 0..40), at in 0usize..40) {
            let at = at.min(bytes.len());
            let naive = (at..bytes.len()).find(|i| matches!(bytes[*i], b'"' | b'\\' | 0..0x20));
            prop_assert_eq!(skip_ordinary(&bytes[at..]), &bytes[naive.unwrap_or(bytes.len())..]);
        }
    }
}
