//! How far a table has come, as its properties say it.

use std::collections::HashMap;
use tally_core::commit::Digest;
use tally_core::position::Position;

/// The end of a commit of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Everything before it is in the table, nothing behind it is.
    pub to: Position,
    pub log_time_ms: u64,
    /// Of that commit, which is chained to all before it.
    pub digest: Digest,
    /// The declarations in force there.
    pub config_version: u64,
}

const POSITION: &str = "tally.position";
const LOG_TIME: &str = "tally.log-time-ms";
const DIGEST: &str = "tally.digest";
const CONFIG_VERSION: &str = "tally.config-version";

impl Reached {
    pub fn properties(&self) -> impl Iterator<Item = (String, String)> {
        [
            (POSITION, self.to.to_string()),
            (LOG_TIME, self.log_time_ms.to_string()),
            (DIGEST, self.digest.to_string()),
            (CONFIG_VERSION, self.config_version.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// `None` if there are none of them; in words what is wrong if there are others.
    pub fn read(properties: &HashMap<String, String>) -> Result<Option<Reached>, String> {
        let Some(to) = properties.get(POSITION) else { return Ok(None) };
        let bad = |name: &str| format!("its property {name} is missing or not what Tally wrote");
        let text = |name: &str| properties.get(name).ok_or_else(|| bad(name));
        let number = |name: &str| text(name)?.parse::<u64>().map_err(|_| bad(name));
        Ok(Some(Reached {
            to: to.parse().map_err(|_| bad(POSITION))?,
            log_time_ms: number(LOG_TIME)?,
            digest: Digest(u128::from_str_radix(text(DIGEST)?, 16).map_err(|_| bad(DIGEST))?),
            config_version: number(CONFIG_VERSION)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_table_has_come_survives_its_properties() {
        let to = Position { epoch: 3, log: 0, offset: 1 << 40 };
        let reached = Reached { to, log_time_ms: 1_763_000_000_000, digest: Digest(7 << 100), config_version: 4 };
        let properties: HashMap<String, String> = reached.properties().collect();
        assert_eq!(Reached::read(&properties), Ok(Some(reached)));
        assert_eq!(Reached::read(&HashMap::new()), Ok(None));
        let damaged = HashMap::from([(POSITION.to_owned(), "1-0-2".to_owned())]);
        assert!(Reached::read(&damaged).unwrap_err().contains(LOG_TIME));
    }
}
