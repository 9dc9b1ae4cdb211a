//! What a start knows of the probes before it: how many were acknowledged, and what the counter was worth then.
//!
//! It is written when a probe has been acknowledged, and before the next one is sent. So after any crash the counter is worth that much,
//! or one more if the next one was on its way; less is a write that was acknowledged and lost.

use std::path::{Path, PathBuf};
use std::{fs, io};
use tally_storage::label;

/// The numbers of probes, and what is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Of the last one that was acknowledged: the event id follows from it.
    pub number: u64,
    pub value: i64,
}

impl Known {
    /// What a start goes on from, given what was written down and what the counter is worth; and in words what is wrong, if something
    /// is.
    pub fn go_on(written: Option<Known>, value: i64) -> (Known, Result<(), String>) {
        let Some(known) = written else {
            // Nobody has sent any here, or it is somebody else's copy: every one was counted.
            return (Known { number: u64::try_from(value).unwrap_or(0), value }, Ok(()));
        };
        if value == known.value || Some(value) == known.value.checked_add(1) {
            return (known, Ok(()));
        }
        let Known { number, value: was } = known;
        let lost = format!(
            "{number} probes were acknowledged when they came to {was}, and after a start they come to {value}"
        );
        (Known { value, ..known }, Err(lost))
    }
}

/// Where it is written down.
pub struct KnownFile(pub PathBuf);

impl KnownFile {
    pub const NAME: &'static str = "PROBES";

    pub fn in_data_dir(path: &Path) -> KnownFile {
        KnownFile(path.join(KnownFile::NAME))
    }

    /// `None` if there is none that can be read.
    pub fn read(&self) -> io::Result<Option<Known>> {
        let sealed = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            sealed => sealed?,
        };
        let known = label::unseal(&sealed).and_then(|text| {
            let number = label::field(text, "number")?.parse().ok()?;
            Some(Known { number, value: label::field(text, "value")?.parse().ok()? })
        });
        if known.is_none() {
            tracing::warn!(file = %self.0.display(), "what it says of probes is damaged, and nobody relies on it");
        }
        Ok(known)
    }

    pub fn write(&self, known: Known) -> io::Result<()> {
        label::write(&self.0, &format!("number {}\nvalue {}\n", known.number, known.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_crash_the_counter_is_worth_what_was_acknowledged_or_one_more() {
        let known = Known { number: 9, value: 7 };
        assert_eq!(Known::go_on(Some(known), 7), (known, Ok(())));
        assert_eq!(Known::go_on(Some(known), 8), (known, Ok(())));
        for value in [6, 9] {
            let (on, wrong) = Known::go_on(Some(known), value);
            assert_eq!(on, Known { number: 9, value });
            assert!(wrong.unwrap_err().contains(&format!("come to {value}")));
        }
        assert_eq!(Known::go_on(None, 5), (Known { number: 5, value: 5 }, Ok(())));
    }

    #[test]
    fn what_was_written_is_read_and_what_is_damaged_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = KnownFile::in_data_dir(directory.path());
        assert_eq!(file.read().unwrap(), None);
        let known = Known { number: 3, value: -2 };
        file.write(known).unwrap();
        assert_eq!(file.read().unwrap(), Some(known));
        assert_eq!(fs::read_to_string(&file.0).unwrap(), "number 3\nvalue -2\nchecksum fbc8dd26\n");
        fs::write(&file.0, "number 4\n").unwrap();
        assert_eq!(file.read().unwrap(), None);
    }
}
