//! The canonical text of a JSON number that serves as a dimension.
//!
//! It is the number's plain decimal form without needless zeros, computed on the digits and never through a float:
//! `1`, `1.0` and `1e0` are one value, `9007199254740993` keeps its last digit, and every language can restate it.

use crate::limits::NUMBER_BYTES_MAX;
use std::borrow::Cow;

/// The plain form of a well-formed JSON number; `None` if it is longer than [`NUMBER_BYTES_MAX`], written or plain.
pub(super) fn canonical(number: &str) -> Option<Cow<'_, str>> {
    if number.len() > NUMBER_BYTES_MAX {
        return None;
    }
    if number.bytes().all(|b| b.is_ascii_digit()) || number.starts_with('-') && is_plain_negative(number) {
        return Some(Cow::Borrowed(number));
    }
    plain(number).map(Cow::Owned)
}

fn is_plain_negative(number: &str) -> bool {
    number != "-0" && number.bytes().skip(1).all(|b| b.is_ascii_digit())
}

fn plain(number: &str) -> Option<String> {
    let (sign, magnitude) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

    let all_digits = format!("{whole}{fraction}");
    let digits = all_digits.trim_start_matches('0');
    let leading_zeros = all_digits.len() - digits.len();
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        return Some("0".to_owned());
    }
    // An exponent beyond 32 bits is beyond every bound as well.
    let exponent: i32 = exponent.parse().ok()?;
    let point = i64::from(exponent) + whole.len() as i64 - leading_zeros as i64;
    if point.unsigned_abs() > NUMBER_BYTES_MAX as u64 {
        return None;
    }
    let text = format!("{sign}{}", place_point(digits, point as isize));
    (text.len() <= NUMBER_BYTES_MAX).then_some(text)
}

/// Writes `0.digits × 10^point`.
fn place_point(digits: &str, point: isize) -> String {
    let zeros = |n: usize| "0".repeat(n);
    match usize::try_from(point) {
        Ok(point) if point >= digits.len() => format!("{digits}{}", zeros(point - digits.len())),
        Ok(point) if point > 0 => format!("{}.{}", &digits[..point], &digits[point..]),
        _ => format!("0.{}{digits}", zeros(point.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(number: &str, expected: &str) {
        assert_eq!(canonical(number).as_deref(), Some(expected), "{number}");
    }

    #[test]
    fn equal_numbers_have_one_text() {
        for one in ["1", "1.0", "1e0", "1.000E+0", "10e-1", "0.1e1", "0.001E3"] {
            check(one, "1");
        }
        for zero in ["0", "-0", "0.0", "-0.00", "0e5", "-0E-99999999999999999999"] {
            check(zero, "0");
        }
        check("-12.50", "-12.5");
        check("1e-7", "0.0000001");
        check("-1.5e3", "-1500");
        check("0.05", "0.05");
        check("123.456e1", "1234.56");
    }

    #[test]
    fn big_integers_keep_their_digits() {
        check("9007199254740993", "9007199254740993");
        check("9007199254740993.0", "9007199254740993");
        check("-340282366920938463463374607431768211457", "-340282366920938463463374607431768211457");
    }

    #[test]
    fn what_would_be_too_long_is_refused_at_once() {
        assert_eq!(canonical(&"9".repeat(NUMBER_BYTES_MAX)).map(|n| n.len()), Some(NUMBER_BYTES_MAX));
        for number in
            [&"9".repeat(1_000_000), "1e512", "1e999999999999999999999", "1e-511", "1e2147483647", "1e-2147483648"]
        {
            assert_eq!(canonical(number), None);
        }
    }

    proptest! {
        #[test]
        fn the_canonical_text_is_the_same_number_and_its_own_canonical_text(
            mantissa in -999_999_999i64..=999_999_999, fraction in "[0-9]{0,6}", exponent in -40i32..40,
        ) {
            let point = if fraction.is_empty() { "" } else { "." };
            let written = format!("{mantissa}{point}{fraction}e{exponent}");
            let text = canonical(&written).unwrap().into_owned();
            prop_assert_eq!(text.parse::<f64>().unwrap(), written.parse::<f64>().unwrap());
            prop_assert_eq!(canonical(&text).unwrap(), text.as_str());
            prop_assert!(serde_json::from_str::<f64>(&text).is_ok());
        }
    }
}
