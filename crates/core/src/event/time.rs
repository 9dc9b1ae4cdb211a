//! RFC 3339 times, read without allocating.

/// Milliseconds since 1970, or `None` if the text is no RFC 3339 time. Finer fractions are cut off.
pub(super) fn parse_rfc3339(text: &str) -> Option<i64> {
    let mut rest = text.as_bytes();
    let year = digits(&mut rest, 4)?;
    expect(&mut rest, b"-")?;
    let month = digits(&mut rest, 2)?;
    expect(&mut rest, b"-")?;
    let day = digits(&mut rest, 2)?;
    expect(&mut rest, b"Tt ")?;
    let hour = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let minute = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let second = digits(&mut rest, 2)?;
    let ms = fraction_ms(&mut rest)?;
    let offset_minutes = offset_minutes(rest)?;

    let valid = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A leap second is the last second of its minute.
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second.min(59);
    Some((seconds - offset_minutes * 60) * 1000 + ms)
}

fn expect(rest: &mut &[u8], one_of: &[u8]) -> Option<()> {
    let (first, tail) = rest.split_first()?;
    *rest = tail;
    one_of.contains(first).then_some(())
}

fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (number, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    number.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

fn fraction_ms(rest: &mut &[u8]) -> Option<i64> {
    let Some(tail) = rest.strip_prefix(b".") else { return Some(0) };
    let len = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (fraction, tail) = tail.split_at(len);
    *rest = tail;
    let digit = |place: usize| fraction.get(place).map_or(0, |byte| i64::from(byte - b'0'));
    (len > 0).then(|| digit(0) * 100 + digit(1) * 10 + digit(2))
}

fn offset_minutes(mut rest: &[u8]) -> Option<i64> {
    let sign = match rest {
        b"Z" | b"z" => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    rest = &rest[1..];
    let hours = digits(&mut rest, 2)?;
    expect(&mut rest, b":")?;
    let minutes = digits(&mut rest, 2)?;
    (rest.is_empty() && hours <= 23 && minutes <= 59).then_some(sign * (hours * 60 + minutes))
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

/// Counts years from March, so that the leap day is the last day of a year and months have a regular length.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let march_year = year - i64::from(month <= 2);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let leap_days = march_year.div_euclid(4) - march_year.div_euclid(100) + march_year.div_euclid(400);
    const DAYS_FROM_MARCH_OF_YEAR_0_TO_1970: i64 = 719_468;
    march_year * 365 + leap_days + day_of_year - DAYS_FROM_MARCH_OF_YEAR_0_TO_1970
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
            assert_eq!(parse_rfc3339(text), Some(ms), "{text}");
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
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_what_jiff_says_it_is(
            (year, month, day) in (1..9999, 0..14, 0..33), (hour, minute, second) in (0..25, 0..61, 0..62),
            fraction in "(\\.[0-9]{1,9})?", offset in "Z|z|[+-][01][0-9]:[0-5][0-9]",
        ) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}");
            prop_assert_eq!(parse_rfc3339(&text), jiff_ms(&text), "{}", text);
        }
    }
}
