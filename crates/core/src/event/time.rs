//! RFC 3339 times, read without allocating.

use super::error::EventError;

/// The first and the last time that can be written, in milliseconds since 1970: the years 0 to 9999, wherever on earth.
pub(super) const EARLIEST_MS: i64 = -62_167_305_540_000;
pub(super) const LATEST_MS: i64 = 253_402_387_139_999;

/// Milliseconds since 1970, or `None` if the text is no RFC 3339 time. Finer fractions are cut off.
pub(super) fn parse_rfc3339(text: &[u8]) -> Option<i64> {
    let (date_time, rest) = text.split_first_chunk::<19>()?;
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T' | b't' | b' ', h1, h2, b':', n1, n2, b':', s1, s2] =
        date_time
    else {
        return None;
    };
    let year = two(y1, y2)? * 100 + two(y3, y4)?;
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let (hour, minute, second) = (two(h1, h2)?, two(n1, n2)?, two(s1, s2)?);
    let valid = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (ms, rest) = fraction_ms(rest)?;
    let minutes = days_since_1970(year, month, day) * 1440 + hour * 60 + minute - offset_minutes(rest)?;
    // A leap second is the last second of its minute.
    Some((minutes * 60 + second.min(59)) * 1000 + ms)
}

/// The day of the time that was read last: the next event mostly happened on the same one.
#[derive(Debug, Default)]
pub(super) struct LastDay {
    /// With what stands between it and the time of the day.
    text: [u8; 11],
    ms: i64,
}

impl LastDay {
    /// The time that `text` begins with and how long it is, if it is written as most are: in UTC, with milliseconds or without a
    /// fraction.
    #[inline(always)]
    pub fn read(&mut self, text: &[u8]) -> Option<(i64, usize)> {
        let (day, rest) = text.split_first_chunk::<11>()?;
        let (time, rest) = rest.split_first_chunk::<8>()?;
        let (ms, len) = match *rest {
            [b'.', m1, m2, m3, b'Z', ..] => (two(m1, m2)? * 10 + two(b'0', m3)?, 24),
            [b'Z', ..] => (0, 20),
            _ => return None,
        };
        let second = second_of_day(time)?;
        if *day != self.text && !self.begin(day) {
            return None;
        }
        Some((self.ms + second * 1000 + ms, len))
    }

    /// Makes it another day; false if it is none.
    #[inline(never)]
    fn begin(&mut self, day: &[u8; 11]) -> bool {
        let mut text = *b"0000-00-00T00:00:00Z";
        text[..11].copy_from_slice(day);
        let Some(ms) = parse_rfc3339(&text) else { return false };
        *self = LastDay { text: *day, ms };
        true
    }
}

/// The second of the day that `hh:mm:ss` is; all eight characters at a stroke.
#[inline(always)]
fn second_of_day(time: &[u8; 8]) -> Option<i64> {
    // What is left of each character is its digit, and nothing of a colon.
    let digits = u64::from_le_bytes(*time) ^ u64::from_le_bytes(*b"00:00:00");
    let beyond_nine =
        digits.wrapping_add(u64::from_le_bytes([0x76, 0x76, 0x7f, 0x76, 0x76, 0x7f, 0x76, 0x76])) | digits;
    if beyond_nine & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let [hour, minute, second] = [0, 24, 48].map(|shift| i64::from((pairs >> shift) as u8));
    (hour <= 23 && minute <= 59 && second <= 59).then(|| (hour * 60 + minute) * 60 + second)
}

/// Two decimal digits.
#[inline(always)]
fn two(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens * 10 + ones))
}

/// The milliseconds of a fraction, if there is one, and what stands behind it.
fn fraction_ms(rest: &[u8]) -> Option<(i64, &[u8])> {
    let Some(fraction) = rest.strip_prefix(b".") else { return Some((0, rest)) };
    let (mut ms, mut weight, mut len) = (0, 100, 0);
    while let Some(digit @ b'0'..=b'9') = fraction.get(len) {
        ms += weight * i64::from(digit - b'0');
        weight /= 10;
        len += 1;
    }
    (len > 0).then(|| (ms, &fraction[len..]))
}

fn offset_minutes(rest: &[u8]) -> Option<i64> {
    let &[sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = rest else {
        return matches!(rest, b"Z" | b"z").then_some(0);
    };
    let (hours, minutes) = (two(h1, h2)?, two(m1, m2)?);
    let offset = hours * 60 + minutes;
    (hours <= 23 && minutes <= 59).then_some(if sign == b'-' { -offset } else { offset })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counts years from March, so that the leap day is the last day of a year and months have a regular length; and from
/// 400 years before year 0, where the leap years repeat, so that nothing is negative.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let march_year = (year + 400 - i64::from(month <= 2)) as u32;
    let march_month = (month as u32 + 9) % 12;
    let leap_days = march_year / 4 - march_year / 100 + march_year / 400;
    let days = march_year * 365 + leap_days + (153 * march_month + 2) / 5 + day as u32 - 1;
    const DAYS_TO_1970: i64 = 719_468 + 146_097;
    i64::from(days) - DAYS_TO_1970
}

/// What is said of a number of milliseconds beyond them.
#[cold]
pub(super) fn not_a_time(at_ms: i64) -> EventError {
    let reason = "is not a time of the years 0 to 9999 in milliseconds since 1970";
    EventError::value("occurredAt", &at_ms.to_string(), reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn jiff_ms(text: &str) -> Option<i64> {
        let time: jiff::Timestamp = text.parse().ok()?;
        Some(i64::try_from(time.as_nanosecond().div_euclid(1_000_000)).unwrap())
    }

    #[test]
    fn the_bounds_are_the_first_and_the_last_time_that_can_be_written() {
        assert_eq!(parse_rfc3339(b"0000-01-01T00:00:00+23:59"), Some(EARLIEST_MS));
        assert_eq!(parse_rfc3339(b"9999-12-31T23:59:59.999-23:59"), Some(LATEST_MS));
    }

    #[test]
    fn times_are_read_in_any_offset() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00.0019z", 1),
            ("2026-11-15T18:00:00Z", 1_794_765_600_000),
            ("2026-11-15 19:30:00.5+01:30", 1_794_765_600_500),
            ("2026-11-15T10:00:00.123456789-08:00", 1_794_765_600_123),
            ("1969-12-31T23:59:59.999Z", -1),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000),
            ("0000-02-29T00:00:00Z", -62_162_121_600_000),
        ] {
            assert_eq!(parse_rfc3339(text.as_bytes()), Some(ms), "{text}");
            assert_eq!(jiff_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-15",
            "2026-11-15T18:00:00",
            "2026-11-15T18:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2025-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+00:60",
            "2026-01-01T00:00:00ZZ",
            "2026-01-01T00:00:00+00:00 ",
            "+2026-01-01T00:00:00Z",
            "2026-1-01T00:00:00Z",
            "２026-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_what_jiff_says_it_is(
            (year, month, day) in (1..9999, 0..14, 0..33), (hour, minute, second) in (0..25, 0..61, 0..62),
            fraction in "(\\.[0-9]{1,9})?", offset in "Z|z|[+-][01][0-9]:[0-5][0-9]",
        ) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}");
            prop_assert_eq!(parse_rfc3339(text.as_bytes()), jiff_ms(&text), "{}", text);
            let mut last_day = LastDay::default();
            for _ in 0..2 {
                if let Some((ms, len)) = last_day.read(format!("{text}\",").as_bytes()) {
                    prop_assert_eq!((Some(ms), len), (parse_rfc3339(text.as_bytes()), text.len()), "{}", text);
                }
            }
        }
    }
}
