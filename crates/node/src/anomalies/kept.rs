//! What is kept of anomalies: the last of them, and the trends that were told in advance. One small file (`docs/formats/anomalies.md`), replaced as
//! a whole whenever something changes.

use crate::clock::rfc3339;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use tally_core::anomaly::{Jump, MINUTE_MS};
use tally_core::counter::{Declarations, Pattern};
use tally_core::limits::ANOMALIES_KEPT_MAX;
use tally_storage::label;

/// A key that came to far more in a minute than it used to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Anomaly {
    #[schema(example = 7)]
    pub number: u64,
    #[schema(example = "views:v42")]
    pub id: String,
    /// The declared counter it is a key of; `null` for one that nobody declared
    #[schema(example = "views")]
    pub counter: Option<String>,
    /// The minute in which it jumped, of log time
    #[serde(rename = "minute", with = "time")]
    #[schema(value_type = String, example = "2026-11-18T18:00:00.000Z")]
    pub minute_ms: u64,
    /// What it used to come to in a minute, up and down alike
    #[schema(example = 120.5)]
    pub before: f64,
    /// It came to no more than that; how much is not known
    pub before_at_most: bool,
    /// What it came to in this one
    #[schema(example = 4200)]
    pub after: u64,
    #[schema(example = 34.9)]
    pub factor: f64,
    /// Which share of the minute was looked at; less than 1 means that `after` is an estimate
    #[schema(example = 1.0)]
    pub share: f64,
    /// Why it was expected; `null` if it was not
    pub expected: Option<String>,
}

/// A trend that was told in advance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    #[schema(example = 3)]
    pub number: u64,
    /// Of which keys: an id, in which `*` stands for any text
    #[serde(rename = "match")]
    #[schema(example = "views:*")]
    pub pattern: String,
    #[serde(rename = "from", with = "time")]
    #[schema(value_type = String, example = "2026-11-18T18:00:00.000Z")]
    pub from_ms: u64,
    #[serde(rename = "to", with = "time")]
    #[schema(value_type = String, example = "2026-11-18T20:00:00.000Z")]
    pub to_ms: u64,
    #[schema(example = "the final is on")]
    pub reason: String,
    /// Up to how many times what a key used to come to; `null` for whatever comes
    #[schema(example = 100)]
    pub factor: Option<u64>,
}

impl Anomaly {
    pub fn new(
        number: u64,
        minute_ms: u64,
        jump: &Jump,
        counter: Option<String>,
        share: f64,
        expected: Option<String>,
    ) -> Anomaly {
        Anomaly {
            number,
            id: String::from_utf8_lossy(&jump.id).into_owned(),
            counter,
            minute_ms,
            before: rounded(jump.before),
            before_at_most: jump.is_bound,
            after: jump.after,
            factor: rounded(jump.factor()),
            share,
            expected,
        }
    }
}

/// To a tenth: more is not known of it.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl Expected {
    /// Whether it speaks of a jump in the minute that begins then.
    fn covers(&self, declarations: &Declarations, jump: &Jump, minute_ms: u64) -> bool {
        let is_its_time = self.from_ms < minute_ms + MINUTE_MS && minute_ms < self.to_ms;
        let is_its_size = self.factor.is_none_or(|factor| jump.factor() <= factor as f64);
        // It was one when it was told.
        let matches = || Pattern::resolve(declarations, &self.pattern).is_ok_and(|known| known.matches(&jump.id));
        is_its_time && is_its_size && matches()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The highest number that was given.
    last: u64,
    /// The newest first.
    pub anomalies: VecDeque<Anomaly>,
    /// In the order in which they were told.
    pub expected: Vec<Expected>,
}

impl Kept {
    pub fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn keep(&mut self, anomaly: Anomaly) {
        self.anomalies.push_front(anomaly);
        self.anomalies.truncate(ANOMALIES_KEPT_MAX);
    }

    /// Why a jump in the minute that begins then is none, if somebody has said so.
    pub fn expects(&self, declarations: &Declarations, jump: &Jump, minute_ms: u64) -> Option<String> {
        let known = self.expected.iter().find(|known| known.covers(declarations, jump, minute_ms));
        known.map(|known| known.reason.clone())
    }

    /// What the file says. One that cannot be understood is no reason not to start: it is told, and set aside.
    pub fn read(file: &Path) -> io::Result<Kept> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Kept::default()),
            Err(error) => return Err(error),
        };
        let kept = label::unseal(&text).and_then(|text| serde_json::from_str(text).ok());
        if kept.is_none() {
            let aside = file.with_added_extension("discarded");
            tracing::warn!(file = %file.display(), aside = %aside.display(), "what was kept of anomalies is damaged, and set aside");
            fs::rename(file, aside)?;
        }
        Ok(kept.unwrap_or_default())
    }

    pub fn write(&self, file: &Path) -> io::Result<()> {
        let text = serde_json::to_string(self).map_err(io::Error::other)?;
        label::write(file, &format!("{text}\n"))
    }
}

/// Milliseconds since 1970 as RFC 3339 has them.
mod time {
    use super::*;
    use jiff::Timestamp;
    use serde::de::Error;

    pub fn serialize<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339(*ms))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: Timestamp = text.parse().map_err(D::Error::custom)?;
        u64::try_from(time.as_millisecond()).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 1_700_000_040_000;

    fn jump(id: &str, before: f64, after: u64) -> Jump {
        Jump { id: id.as_bytes().into(), before, is_bound: false, after }
    }

    fn expected(pattern: &str, factor: Option<u64>) -> Expected {
        let (from_ms, to_ms) = (MINUTE, MINUTE + MINUTE_MS);
        Expected { number: 1, pattern: pattern.to_owned(), from_ms, to_ms, reason: "the final".to_owned(), factor }
    }

    #[test]
    fn a_trend_speaks_of_its_keys_in_its_time_up_to_its_size() {
        let declarations = Declarations::default();
        let covers = |expected: Expected, id: &str, minute_ms| {
            let kept = Kept { expected: vec![expected], ..Kept::default() };
            kept.expects(&declarations, &jump(id, 10.0, 1_000), minute_ms).is_some()
        };
        assert!(covers(expected("views:*", None), "views:a", MINUTE));
        assert!(!covers(expected("views:*", None), "likes:a", MINUTE));
        assert!(!covers(expected("views:*", None), "views:a", MINUTE + MINUTE_MS), "it is over");
        assert!(!covers(expected("views:*", None), "views:a", MINUTE - MINUTE_MS), "it has not begun");
        assert!(covers(expected("views:*", Some(100)), "views:a", MINUTE));
        assert!(!covers(expected("views:*", Some(99)), "views:a", MINUTE));
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_written_and_the_bytes_are_those_of_the_format() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ANOMALIES");
        assert_eq!(Kept::read(&file).unwrap(), Kept::default());
        let mut kept = Kept::default();
        let number = kept.next_number();
        kept.keep(Anomaly::new(number, MINUTE, &jump("views:a", 12.34, 1_000), None, 1.0, None));
        kept.expected.push(expected("views:*", None));
        kept.write(&file).unwrap();
        let line = concat!(
            r#"{"last":1,"anomalies":[{"number":1,"id":"views:a","counter":null,"minute":"2023-11-14T22:14:00.000Z","before":12.3,"#,
            r#""beforeAtMost":false,"after":1000,"factor":81.0,"share":1.0,"expected":null}],"expected":[{"number":1,"match":"views:*","#,
            r#""from":"2023-11-14T22:14:00.000Z","to":"2023-11-14T22:15:00.000Z","reason":"the final","factor":null}]}"#,
        );
        assert_eq!(label::unseal(&fs::read_to_string(&file).unwrap()), Some(format!("{line}\n").as_str()));
        assert_eq!(Kept::read(&file).unwrap(), kept);
        fs::write(&file, line).unwrap();
        assert_eq!(Kept::read(&file).unwrap(), Kept::default(), "without its checksum it is damaged");
        assert!(!file.exists() && dir.path().join("ANOMALIES.discarded").exists());
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut kept = Kept::default();
        for _ in 0..ANOMALIES_KEPT_MAX + 3 {
            let number = kept.next_number();
            kept.keep(Anomaly::new(number, MINUTE, &jump("a", 1.0, 2), None, 1.0, None));
        }
        let ends = (kept.anomalies.front().unwrap().number, kept.anomalies.back().unwrap().number);
        assert_eq!(ends, (ANOMALIES_KEPT_MAX as u64 + 3, 4));
    }
}
