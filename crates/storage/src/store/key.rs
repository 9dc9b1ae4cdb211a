//! Every key a store has (`docs/formats/keys.md`). The first byte is the kind, and kinds are in the order of a cut.

use super::{Checkpoint, Error};
use tally_core::id::CellKey;
use tally_core::position::Position;

#[derive(Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// The one [`Checkpoint`].
    Checkpoint,
    /// Whose the store is.
    Identity,
    /// A [`tally_core::memory::cell::CellRow`].
    Cell(CellKey),
    /// An id; the value is empty.
    Name(&'a [u8]),
    /// A row of the ledger, by the ledger's own key.
    Ledger(&'a [u8]),
}

mod kind {
    pub const CHECKPOINT: u8 = 0;
    pub const CELL: u8 = 1;
    pub const NAME: u8 = 2;
    pub const LEDGER: u8 = 3;
}

/// What most keys have room in.
const KEY_BYTES_USUAL: usize = 32;

/// Comes behind the checkpoint, of whose kind it is.
const IDENTITY: u8 = 1;

impl<'a> Key<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(KEY_BYTES_USUAL);
        self.write(&mut bytes);
        bytes
    }

    /// Takes the place of what stands there: a cut writes millions of keys.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        let mut put = |kind: u8, rest: &[u8]| {
            out.push(kind);
            out.extend_from_slice(rest);
        };
        match self {
            Key::Checkpoint => put(kind::CHECKPOINT, &[]),
            Key::Identity => put(kind::CHECKPOINT, &[IDENTITY]),
            Key::Cell(key) => put(kind::CELL, &key.to_bytes()),
            Key::Name(id) => put(kind::NAME, id),
            Key::Ledger(key) => put(kind::LEDGER, key),
        }
    }

    pub fn decode(bytes: &'a [u8]) -> Result<Key<'a>, Error> {
        match bytes.split_first() {
            Some((&kind::CHECKPOINT, [])) => Ok(Key::Checkpoint),
            Some((&kind::CHECKPOINT, [IDENTITY])) => Ok(Key::Identity),
            Some((&kind::CELL, rest)) if rest.len() == 16 => {
                Ok(Key::Cell(CellKey::from_bytes(rest.try_into().expect("16 bytes"))))
            }
            Some((&kind::NAME, id)) => Ok(Key::Name(id)),
            Some((&kind::LEDGER, key)) => Ok(Key::Ledger(key)),
            _ => Err(Error::Damaged(format!("no key of ours begins with {:?}", &bytes[..bytes.len().min(20)]))),
        }
    }
}

/// Bytes of a checkpoint before its state.
const CHECKPOINT_HEADER_BYTES: usize = 24;

impl Checkpoint {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CHECKPOINT_HEADER_BYTES + self.state.len());
        bytes.extend_from_slice(&self.position.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.position.log.to_le_bytes());
        bytes.extend_from_slice(&self.position.offset.to_le_bytes());
        bytes.extend_from_slice(&self.counters.to_le_bytes());
        bytes.extend_from_slice(&self.state);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, Error> {
        let Some((header, state)) = bytes.split_first_chunk::<CHECKPOINT_HEADER_BYTES>() else {
            return Err(Error::Damaged(format!(
                "the checkpoint has {} bytes, at least {CHECKPOINT_HEADER_BYTES} are needed",
                bytes.len()
            )));
        };
        let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let short = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        Ok(Checkpoint {
            position: Position { epoch: short(0), log: short(4), offset: number(8) },
            counters: number(16),
            state: state.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_their_bytes_and_keep_the_order_of_a_cut() {
        let cell = CellKey::from_bytes([7; 16]);
        let (names, ledger) = ([Key::Name(b""), Key::Name(b"\xff\xff")], [Key::Ledger(b""), Key::Ledger(b"a")]);
        let keys: Vec<_> = [Key::Checkpoint, Key::Cell(cell)].into_iter().chain(names).chain(ledger).collect();
        let bytes: Vec<_> = keys.iter().map(Key::encode).collect();
        assert!(bytes.is_sorted());
        for (key, bytes) in keys.iter().zip(&bytes) {
            assert_eq!(Key::decode(bytes).unwrap(), *key);
        }
    }

    #[test]
    fn the_bytes_of_a_checkpoint_are_pinned() {
        let position = Position { epoch: 1, log: 2, offset: 3 };
        let checkpoint = Checkpoint { position, counters: 4, state: vec![5, 6] };
        let bytes = checkpoint.encode();
        let expected = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 5, 6];
        assert_eq!(bytes, expected);
        assert_eq!(Checkpoint::decode(&bytes).unwrap(), checkpoint);
        assert!(Checkpoint::decode(&bytes[..24]).unwrap().state.is_empty());
        assert!(Checkpoint::decode(&bytes[..23]).is_err());
    }
}
