//! Fills a store with rows that somebody has kept, a stretch at a time.
//!
//! Until [`LocalStore::finish_load`] the store has no checkpoint, so nobody takes what is there for a state. A stretch is durable when
//! [`LocalStore::load`] answers, and may be loaded again.

use super::{LocalStore, finals};
use crate::store::key::Key;
use crate::store::{Checkpoint, Error};

/// The bytes of a key and of its value, as [`crate::store::walk`] tells them.
pub type StoredRow = (Vec<u8>, Vec<u8>);

impl LocalStore {
    /// Adds rows, whose keys ascend.
    pub fn load(&self, rows: &mut dyn Iterator<Item = Result<StoredRow, Error>>) -> Result<(), Error> {
        let generation = self.generation()?;
        let mut ingestion = generation.keyspace.start_ingestion()?;
        for row in rows {
            let (key, value) = row?;
            if let Key::Checkpoint | Key::Identity = Key::decode(&key)? {
                return Err(Error::Damaged("what says how far a store has come is none of its rows".to_owned()));
            }
            ingestion.write(key, value)?;
        }
        Ok(ingestion.finish()?)
    }

    /// All rows are there: from here on it is the store as of a checkpoint.
    pub fn finish_load(&self, checkpoint: &Checkpoint) -> Result<(), Error> {
        let generation = self.generation()?;
        let before = generation.before()?;
        let mut ingestion = generation.keyspace.start_ingestion()?;
        for (key, value) in finals(&self.identity, checkpoint) {
            ingestion.write(key, value)?;
        }
        ingestion.finish()?;
        generation.read_back(&before, checkpoint)
    }
}
