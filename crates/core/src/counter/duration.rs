//! Durations as a configuration writes them: a whole number and a unit, such as `60s`.

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// What [`parse`] takes, as a regular expression.
pub(super) const PATTERN: &str = "^[0-9]+(ms|s|m|h|d)$";

/// How to write one, for errors.
pub(super) const SHAPE: &str = "a whole number and a unit: 500ms, 60s, 10m, 2h or 1d";

/// Milliseconds; more than 64 bits hold is the most they hold. `None` if it is no duration.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, unit_ms) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    if number.is_empty() {
        return None;
    }
    Some(number.parse().unwrap_or(u64::MAX).saturating_mul(unit_ms))
}

/// A year of a long duration, whatever the calendar says.
const YEAR_MS: u64 = 365 * 86_400_000;

/// What [`parse_long`] takes, and the word that stands for no end.
pub(super) const LONG_PATTERN: &str = "^([0-9]+(ms|s|m|h|d|y)|forever)$";

/// How to write a long one, for errors.
pub(super) const LONG_SHAPE: &str = "a whole number and a unit, such as 48h, 90d or 2y, or forever";

/// The same, in years of 365 days as well: `2y`.
pub fn parse_long(text: &str) -> Option<u64> {
    let years = text.strip_suffix('y').filter(|years| !years.is_empty() && years.bytes().all(|b| b.is_ascii_digit()));
    match years {
        Some(years) => Some(years.parse().unwrap_or(u64::MAX).saturating_mul(YEAR_MS)),
        None => parse(text),
    }
}

/// The shortest way to write a long one.
pub fn shown_long(ms: u64) -> String {
    if ms >= YEAR_MS && ms.is_multiple_of(YEAR_MS) { format!("{}y", ms / YEAR_MS) } else { shown(ms) }
}

/// How to write what was nearly a duration: `60 sec`, `1Min`.
pub(super) fn meant(text: &str) -> Option<String> {
    const NAMES: [(&str, &str); 5] =
        [("ms", "milliseconds"), ("s", "seconds"), ("m", "minutes"), ("h", "hours"), ("d", "days")];
    let (number, unit) = text.trim().split_at(text.trim().bytes().take_while(u8::is_ascii_digit).count());
    let unit = unit.trim().to_ascii_lowercase();
    let is_meant = |name: &str| unit.len() > 1 && name.starts_with(&unit) || unit == "hrs" && name == "hours";
    let (short, _) = NAMES.into_iter().find(|(short, name)| unit == *short || is_meant(name))?;
    parse(&format!("{number}{short}")).map(|_| format!("{number}{short}"))
}

/// The shortest way to write it.
pub fn shown(ms: u64) -> String {
    let (unit, unit_ms) = UNITS
        .into_iter()
        .rev()
        .find(|(_, unit_ms)| ms >= *unit_ms && ms.is_multiple_of(*unit_ms))
        .unwrap_or(("s", 1_000));
    format!("{}{unit}", ms / unit_ms)
}

/// About how long it is, for people: two units at most.
pub fn rough(ms: u64) -> String {
    let mut left_ms = ms;
    let mut parts = UNITS.into_iter().rev().filter_map(|(unit, unit_ms)| {
        let whole = left_ms / unit_ms;
        left_ms %= unit_ms;
        (whole > 0).then(|| format!("{whole}{unit}"))
    });
    match (parts.next(), parts.next()) {
        (None, _) => "0s".to_owned(),
        (Some(one), None) => one,
        (Some(one), Some(other)) => format!("{one} {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (text, ms) in
            [("500ms", 500), ("60s", 60_000), ("10m", 600_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for text in ["", "60", "s", "1.5h", "-1s", "1 s", "1S", "1w", "1h30m", "١s"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("99999999999999999999999d"), Some(u64::MAX));
        assert_eq!(parse("18446744073709551615h"), Some(u64::MAX));
    }

    #[test]
    fn a_duration_is_shown_in_its_largest_unit() {
        for (ms, text) in
            [(0, "0s"), (1, "1ms"), (1_500, "1500ms"), (60_000, "1m"), (90_000, "90s"), (172_800_000, "2d")]
        {
            assert_eq!(shown(ms), text);
        }
    }

    #[test]
    fn a_long_duration_may_be_in_years() {
        for (text, ms) in [("2y", 2 * YEAR_MS), ("90d", 90 * 86_400_000), ("365d", YEAR_MS)] {
            assert_eq!(parse_long(text), Some(ms), "{text}");
        }
        for text in ["y", "1.5y", "-1y", "1Y", "forever"] {
            assert_eq!(parse_long(text), None, "{text}");
        }
        assert_eq!([2 * YEAR_MS, 90 * 86_400_000].map(shown_long), ["2y", "90d"]);
        assert_eq!(parse_long("99999999999999999999999y"), Some(u64::MAX));
    }

    #[test]
    fn about_how_long_it_is_takes_two_units() {
        for (ms, text) in [(0, "0s"), (90_000, "1m 30s"), (86_400_000, "1d"), (176_461_001, "2d 1h"), (999, "999ms")] {
            assert_eq!(rough(ms), text);
        }
    }

    #[test]
    fn what_was_nearly_a_duration_is_understood_for_the_error() {
        for (text, written) in
            [("60 s", "60s"), ("60sec", "60s"), ("5 Min", "5m"), ("2hrs", "2h"), ("1 day", "1d"), ("1H", "1h")]
        {
            assert_eq!(meant(text).as_deref(), Some(written), "{text}");
        }
        for text in ["soon", "1.5h", "", "s", "1w", "1h30m"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_as_the_same(ms in any::<u64>()) {
            prop_assert_eq!(parse(&shown(ms)), Some(ms));
        }
    }
}
