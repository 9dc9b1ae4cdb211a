//! What the server says has become of a request of events.

use crate::http::find;

/// What became of the entries, one for each counter that an event feeds.
#[derive(Debug, PartialEq)]
pub struct Entries {
    pub counted: u64,
    pub duplicate: u64,
}

impl Entries {
    pub fn parse(body: &[u8]) -> Entries {
        let number = |label: &[u8]| number_after(body, label).unwrap_or(0);
        Entries { counted: number(br#""counted":"#), duplicate: number(br#""duplicate":"#) }
    }

    /// Whether `events` events, of which `repeats` stood before, became these. How many counters they feed is the server's
    /// configuration; it is the same number for all of them.
    pub fn fit(&self, events: u64, repeats: u64) -> bool {
        let all = self.counted + self.duplicate;
        all > 0 && all.is_multiple_of(events) && self.duplicate == all / events * repeats
    }
}

/// The number that follows `label`, where there is one.
fn number_after(text: &[u8], label: &[u8]) -> Option<u64> {
    let rest = text[find(text, label)? + label.len()..].trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_must_drop_the_repeats_and_only_them() {
        let fit = |counted, duplicate, repeats| Entries { counted, duplicate }.fit(50, repeats);
        assert!(fit(50, 0, 0) && fit(100, 0, 0), "one counter, two counters");
        assert!(fit(40, 10, 10) && fit(80, 20, 10));
        assert!(!fit(0, 0, 0) && !fit(49, 0, 0) && !fit(49, 1, 0), "lost, or taken for a repeat");
        assert!(!fit(50, 0, 10) && !fit(90, 10, 10), "a repeat was counted");
    }

    #[test]
    fn the_entries_are_found_in_the_body() {
        let body = br#"{"events":3,"received":3,"counted": 2,"duplicate":1,"conflict":0}"#;
        assert_eq!(Entries::parse(body), Entries { counted: 2, duplicate: 1 });
        assert_eq!(Entries::parse(b"{}"), Entries { counted: 0, duplicate: 0 });
    }
}
