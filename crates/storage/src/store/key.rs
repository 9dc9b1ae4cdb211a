//! Every key a store has (`docs/formats/keys.md`). The first byte is the kind, and kinds are in the order of a cut.

use super::{Checkpoint, Error};
use tally_core::id::CellKey;
use tally_core::position::Position;

#[derive(Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The one [`Checkpoint`].
    Checkpoint,
    /// A [`tally_core::cell::Row`].
    Cell(CellKey),
    /// An id; the value is empty.
    Name(&'a [u8]),
}

mod kind {
    pub const CHECKPOINT: u8 = 0;
    pub const CELL: u8 = 1;
    pub const NAME: u8 = 2;
}

impl<'a> Key<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(17);
        match self {
            Key::Checkpoint => bytes.push(kind::CHECKPOINT),
            Key::Cell(key) => {
                bytes.push(kind::CELL);
                bytes.extend_from_slice(&key.to_bytes());
            }
            Key::Name(id) => {
                bytes.push(kind::NAME);
                bytes.extend_from_slice(id);
            }
        }
        bytes
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Key<'a>, Error> {
        match bytes.split_first() {
            Some((&kind::CHECKPOINT, [])) => Ok(Key::Checkpoint),
            Some((&kind::CELL, rest)) if rest.len() == 16 => {
                Ok(Key::Cell(CellKey::from_bytes(rest.try_into().expect("16 bytes"))))
            }
            Some((&kind::NAME, id)) => Ok(Key::Name(id)),
            _ => Err(Error::Damaged(format!("no key of ours begins with {:?}", &bytes[..bytes.len().min(20)]))),
        }
    }

    /// The first key that no name and no cell has.
    pub fn end_of_names() -> Vec<u8> {
        vec![kind::NAME + 1]
    }
}

impl Checkpoint {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48 + self.config.len());
        bytes.extend_from_slice(&self.position.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.position.log.to_le_bytes());
        for number in [self.position.offset, self.log_time_ms, self.counters, self.config_version] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(self.config.as_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, Error> {
        let Some((fixed, config)) = bytes.split_at_checked(40) else {
            return Err(Error::Damaged(format!("the checkpoint has {} bytes, at least 40 are needed", bytes.len())));
        };
        let number = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("4 bytes"));
        Ok(Checkpoint {
            position: Position { epoch: short(0), log: short(4), offset: number(8) },
            log_time_ms: number(16),
            counters: number(24),
            config_version: number(32),
            config: String::from_utf8(config.to_vec())
                .map_err(|_| Error::Damaged("the configuration in the checkpoint is not UTF-8".into()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_bytes_and_keep_the_order_of_a_cut() {
        let cell = CellKey::from_bytes([7; 16]);
        let keys = [Key::Checkpoint, Key::Cell(cell), Key::Name(b""), Key::Name(b"a")];
        let bytes: Vec<_> = keys.iter().map(Key::encode).collect();
        assert!(bytes.is_sorted());
        assert!(bytes[3] < Key::end_of_names());
        for (key, bytes) in keys.iter().zip(&bytes) {
            assert_eq!(Key::decode(bytes).unwrap(), *key);
        }
    }

    #[test]
    fn the_bytes_of_a_checkpoint_are_pinned() {
        let checkpoint = Checkpoint {
            position: Position { epoch: 1, log: 2, offset: 3 },
            log_time_ms: 4,
            counters: 5,
            config_version: 6,
            config: "a: b".into(),
        };
        let bytes = checkpoint.encode();
        let expected = [
            1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0,
            0, 0, 0, 0, b'a', b':', b' ', b'b',
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Checkpoint::decode(&bytes).unwrap(), checkpoint);
        assert!(Checkpoint::decode(&bytes[..39]).is_err());
    }
}
