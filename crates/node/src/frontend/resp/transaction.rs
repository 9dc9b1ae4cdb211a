//! What a connection keeps for `EXEC`: the commands since `MULTI`, and the keys since `WATCH`.

use super::fault::ErrorReply;
use super::parse::{Args, KeptCommand};
use crate::counters::Watch;
use crate::counters::local::Keyspace;
use std::collections::HashMap;
use tally_core::limits::RESP_QUEUED_BYTES_MAX;

/// The commands since `MULTI`.
#[derive(Default)]
pub struct Transaction {
    pub commands: KeptCommand,
    /// One of them could not be queued, so none will be carried out.
    pub spoiled: bool,
}

impl Transaction {
    pub fn queue(&mut self, args: Args<'_>) -> Result<(), ErrorReply> {
        if self.commands.bytes_with(args) > RESP_QUEUED_BYTES_MAX {
            return Err(ErrorReply::from(format!(
                "ERR the commands of one transaction have at most {RESP_QUEUED_BYTES_MAX} bytes: use several transactions"
            )));
        }
        self.commands.push(args);
        Ok(())
    }
}

/// The keys since `WATCH`, with their databases.
#[derive(Default)]
pub struct Watching {
    keys: HashMap<(u8, Box<[u8]>), Watch>,
}

impl Watching {
    pub fn has(&self, database: u8, key: &[u8]) -> bool {
        !self.keys.is_empty() && self.keys.contains_key(&(database, key.into()))
    }

    pub fn add(&mut self, database: u8, key: &[u8], watch: Watch) {
        self.keys.insert((database, key.into()), watch);
    }

    pub fn all(&self) -> Vec<Watch> {
        self.keys.values().copied().collect()
    }

    /// From here on it does not matter what becomes of them.
    pub fn forget(&mut self, keyspace: &dyn Keyspace) {
        if !self.keys.is_empty() {
            keyspace.unwatch(&self.all());
            self.keys.clear();
        }
    }
}
