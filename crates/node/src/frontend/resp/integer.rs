//! Integers as the Redis protocol writes them: canonical decimals, and nothing else.
//!
//! `GET` must give back what was `SET`, so a text is accepted only if it is the one way to write its number: no sign
//! `+`, no leading zero, no space, no `-0`. This is also what Redis asks of the operand of `INCRBY`.

/// Reads a canonical decimal in the range of `i64`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // Nineteen digits always fit into 64 bits without a sign.
    let mut magnitude = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// How many bytes the decimal form of `value` has.
pub fn decimal_len(value: i64) -> usize {
    itoa::Buffer::new().format(value).len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_range_are_read_and_what_lies_beyond_is_refused() {
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        for text in ["9223372036854775808", "-9223372036854775809", "9999999999999999999", "10000000000000000000"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn only_the_canonical_form_of_a_number_is_read() {
        for text in ["", "-", "+1", " 1", "1 ", "01", "-01", "-0", "00", "1.0", "1e3", "0x1", "१", "1\0", "--1"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_i64(&[b'7'; 1_000_000]), None);
    }

    proptest! {
        #[test]
        fn a_number_survives_its_text(value: i64) {
            prop_assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
            prop_assert_eq!(decimal_len(value), value.to_string().len());
        }

        #[test]
        fn whatever_is_read_is_written_back_the_same(text in "[-+ ]{0,1}[0-9]{0,21}") {
            if let Some(value) = parse_i64(text.as_bytes()) {
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
