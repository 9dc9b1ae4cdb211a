//! The embedded store: fjall, one database per generation.
//!
//! A cut is written as one sorted bulk load (checkpoint, identity, cells, names, ledger), which fjall makes visible and
//! durable in one step; so position and state cannot part. Nothing goes through fjall's journal. A cut that replaces
//! everything goes to a database of its own, the next generation; the file `CURRENT` names the one in force. What a cut has
//! written is read back before it is final; if it cannot be, the store goes back to where it was. Nothing is
//! opened before its files were looked at, and nothing is removed before somebody says that all is well.

mod carry;
mod current;
mod examine;
mod generation;
mod load;
#[cfg(test)]
mod measure;
mod pace;
#[cfg(test)]
mod tests;
mod verify;
mod view;

use super::key::Key;
use super::{Checkpoint, Cut, Error, Reads, Store, VisitRow, decode_row, settle};
use current::CurrentName;
use fjall::{Keyspace, Readable};
use generation::{Before, Opening, StoreGeneration};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tally_core::id::CellKey;
use tally_core::memory::cell::CellRow;
use tempfile::TempDir;

pub use carry::carry_over;
pub use examine::{Examined, examine};
pub use load::StoredRow;
pub use pace::give_way;

/// How long a database that has to be opened anew waits for those who read it.
const RENEW_WAIT: Duration = Duration::from_secs(2);
const RENEW_STEP: Duration = Duration::from_millis(1);

/// Whose a store is. It is kept beside the rows, and compared when the store is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreIdentity {
    /// Of the data directory.
    pub id: u64,
    /// What the hash by which rows are found makes of a text that never changes.
    pub seed_check: [u8; 16],
}

impl StoreIdentity {
    fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..].copy_from_slice(&self.seed_check);
        bytes
    }
}

pub struct LocalStore {
    dir: PathBuf,
    identity: StoreIdentity,
    opening: Opening,
    open: RwLock<OpenParts>,
    /// What a view is made of.
    _shadow: Option<TempDir>,
}

/// What is in force. Everybody works on a clone of the generation, so that who holds the lock knows who else is there.
struct OpenParts {
    named: CurrentName,
    /// `None` while it cannot be opened.
    generation: Option<Arc<StoreGeneration>>,
}

impl LocalStore {
    /// Opens the store in `dir`, or makes one. `cache_bytes` bounds what it keeps in memory for reads.
    pub fn open(dir: &Path, identity: StoreIdentity, cache_bytes: u64) -> Result<LocalStore, Error> {
        let opening = Opening { cache_bytes, workers: 1 };
        let named = match current::read(dir)? {
            Some(named) => named,
            None => generation::create_first(dir, &identity, opening)?,
        };
        if named.id != Some(identity.id) {
            return Err(Error::Foreign(format!("{} belongs to another data directory", dir.display())));
        }
        generation::finish_creation(dir, &named)?;
        let generation = StoreGeneration::open(dir, &named, opening)?;
        generation.check_identity(&identity)?;
        Ok(LocalStore::of(dir, identity, opening, named, generation))
    }

    fn of(
        dir: &Path,
        identity: StoreIdentity,
        opening: Opening,
        named: CurrentName,
        generation: StoreGeneration,
    ) -> LocalStore {
        let open = RwLock::new(OpenParts { named, generation: Some(generation.into()) });
        LocalStore { dir: dir.to_owned(), identity, opening, open, _shadow: None }
    }

    /// The id of the data directory that the store in `dir` belongs to; `None` if it does not say.
    pub fn belongs_to(dir: &Path) -> Result<Option<u64>, Error> {
        Ok(current::read(dir)?.and_then(|named| named.id))
    }

    /// Frees what is not in force. For when all of the data directory has proved to be good.
    pub fn tidy(&self) -> Result<(), Error> {
        let named = self.open.read().unwrap_or_else(PoisonError::into_inner).named.clone();
        generation::remove_others(&self.dir, &named)
    }

    /// The generation in force.
    fn generation(&self) -> Result<Arc<StoreGeneration>, Error> {
        if let Some(generation) = &self.open.read().unwrap_or_else(PoisonError::into_inner).generation {
            return Ok(generation.clone());
        }
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.open_again(&mut open)
    }

    fn open_again(&self, open: &mut OpenParts) -> Result<Arc<StoreGeneration>, Error> {
        if open.generation.is_none() {
            open.generation = Some(StoreGeneration::open(&self.dir, &open.named, self.opening)?.into());
        }
        Ok(open.generation.as_ref().expect("it was opened").clone())
    }

    /// Closes the database and opens it again, which removes what a failed cut has left and starts the thread that merges
    /// tables if it has given up. If somebody reads for long it is left for the next time.
    fn renew(&self) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let mut waited = Duration::ZERO;
        while open.generation.as_mut().is_some_and(|generation| Arc::get_mut(generation).is_none()) {
            if waited >= RENEW_WAIT {
                return;
            }
            std::thread::park_timeout(RENEW_STEP);
            waited += RENEW_STEP;
        }
        open.generation = None;
        // If it cannot be opened now, whoever asks next tries again.
        let _ = self.open_again(&mut open);
    }

    /// Writes a cut that contains everything to a database of its own and puts it in force.
    fn replace(&self, old: &StoreGeneration, cut: Cut<'_>) -> Result<(), Error> {
        let named = CurrentName::generation(current::unused_number(&self.dir)?, &self.identity);
        // Nobody has written to it yet, so merges find nothing there.
        let next = StoreGeneration::create(&self.dir, &named, self.opening)?;
        let before = next.before()?;
        let to = cut.to;
        let written = write_cut(&next, &self.identity, cut).and_then(|()| next.read_back(&before, to));
        self.put_in_force(old, next, named, written)
    }

    /// Names a new generation in `CURRENT`, if it was `written`.
    fn put_in_force(
        &self,
        old: &StoreGeneration,
        next: StoreGeneration,
        named: CurrentName,
        written: Result<(), Error>,
    ) -> Result<(), Error> {
        if let Err(error) = written.and_then(|()| current::write(&self.dir, &named)) {
            // It may be named all the same, and may only not be durable; then both stay until the next cut.
            if current::read(&self.dir).is_ok_and(|found| found.as_ref() != Some(&named)) {
                next.forget();
            }
            return Err(error);
        }
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = OpenParts { named, generation: Some(next.into()) };
        old.forget();
        Ok(())
    }
}

impl LocalStore {
    /// Sees to it that `CURRENT` names what is in force: if it could not be written once, it may name another, and a restart
    /// would go back to that.
    fn name_current(&self) -> Result<(), Error> {
        let named = self.open.read().unwrap_or_else(PoisonError::into_inner).named.clone();
        match current::read(&self.dir) {
            Ok(Some(found)) if found == named => Ok(()),
            _ => current::write(&self.dir, &named),
        }
    }

    /// Adds a cut to a generation and reads it back; if that fails, the store is as it was before.
    fn add(&self, generation: &StoreGeneration, cut: Cut<'_>) -> Result<(), Error> {
        let (before, to) = (generation.before()?, cut.to);
        write_cut(generation, &self.identity, cut)?;
        self.make_final(generation, &before, to)
    }

    fn make_final(&self, generation: &StoreGeneration, before: &Before, to: &Checkpoint) -> Result<(), Error> {
        let Err(error) = generation.read_back(before, to) else { return Ok(()) };
        self.go_back(generation, before)?;
        Err(error)
    }

    /// Copies what was in force before a cut to a database of its own and puts that in force.
    fn go_back(&self, old: &StoreGeneration, before: &Before) -> Result<(), Error> {
        let named = CurrentName::generation(current::unused_number(&self.dir)?, &self.identity);
        let next = StoreGeneration::create(&self.dir, &named, self.opening)?;
        let written = copy(before.snapshot.iter(&old.keyspace), &next.keyspace);
        self.put_in_force(old, next, named, written)
    }
}

fn copy(from: impl Iterator<Item = fjall::Guard>, to: &Keyspace) -> Result<(), Error> {
    let mut ingestion = to.start_ingestion()?;
    for entry in from {
        let (key, value) = entry.into_inner()?;
        ingestion.write(key, value)?;
    }
    Ok(ingestion.finish()?)
}

impl LocalStore {
    fn now(&self) -> Result<LocalSnapshot, Error> {
        let generation = self.generation()?;
        Ok(LocalSnapshot { snapshot: generation.db.snapshot(), generation })
    }
}

impl Reads for LocalStore {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.now()?.checkpoint()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.now()?.read(keys)
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        self.now()?.rows(from, visit)
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        self.now()?.names(prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.now()?.ledger_rows(from, to, visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        self.now()?.ledger_rows_back(from, to, visit)
    }
}

impl Store for LocalStore {
    fn snapshot(&self) -> Result<Box<dyn Reads>, Error> {
        Ok(Box::new(self.now()?))
    }

    fn commit(&self, cut: Cut<'_>) -> Result<(), Error> {
        let found = self.checkpoint()?.map(|checkpoint| checkpoint.position);
        if found != cut.from {
            return Err(Error::Fenced { expected: cut.from, found });
        }
        self.name_current()?;
        let mut generation = self.generation()?;
        if generation.is_worn() {
            drop(generation);
            self.renew();
            generation = self.generation()?;
        }
        let result = match cut.replace {
            true => self.replace(&generation, cut),
            false => self.add(&generation, cut),
        };
        drop(generation);
        if let Err(Error::Retry(_) | Error::Full(_)) = result {
            // Half of a cut takes room that it will need when it is tried again.
            self.renew();
        }
        result
    }
}

/// The store as of a moment. Fields are dropped in this order.
struct LocalSnapshot {
    snapshot: fjall::Snapshot,
    generation: Arc<StoreGeneration>,
}

impl LocalSnapshot {
    fn value(&self, key: &Key<'_>) -> Result<Option<fjall::Slice>, Error> {
        Ok(self.snapshot.get(&self.generation.keyspace, key.encode())?)
    }

    fn range(&self, from: Key<'_>, to: Key<'_>) -> fjall::Iter {
        self.snapshot.range(&self.generation.keyspace, from.encode()..to.encode())
    }

    fn ledger_range(&self, from: &[u8], to: &[u8]) -> fjall::Iter {
        self.range(Key::Ledger(from), Key::Ledger(to.max(from)))
    }
}

impl Reads for LocalSnapshot {
    fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        self.value(&Key::Checkpoint)?.map(|bytes| Checkpoint::decode(&bytes)).transpose()
    }

    fn read(&self, keys: &[Key<'_>]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        keys.iter().map(|key| Ok(self.value(key)?.map(|bytes| bytes.to_vec()))).collect()
    }

    fn rows(&self, from: CellKey, visit: &mut dyn FnMut(CellKey, CellRow) -> ControlFlow<()>) -> Result<(), Error> {
        for entry in self.range(Key::Cell(from), Key::Name(b"")) {
            let (key, value) = entry.into_inner()?;
            let Key::Cell(key) = Key::decode(&key)? else {
                return Err(Error::Damaged("a key among the cells is not a cell".into()));
            };
            if visit(key, decode_row(&value)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn names(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let from = Key::Name(prefix.max(after.unwrap_or(prefix)));
        visit_names(self.range(from, Key::Ledger(b"")), prefix, after, limit)
    }

    fn ledger_rows(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        visit_ledger(self.ledger_range(from, to), visit)
    }

    fn ledger_rows_back(&self, from: &[u8], to: &[u8], visit: &mut VisitRow<'_>) -> Result<(), Error> {
        visit_ledger(self.ledger_range(from, to).rev(), visit)
    }
}

fn visit_names(
    entries: impl Iterator<Item = fjall::Guard>,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut names = Vec::new();
    for entry in entries {
        let key = entry.key()?;
        let id = name_of(&key)?;
        if names.len() == limit || !id.starts_with(prefix) {
            break;
        }
        if after.is_none_or(|after| id > after) {
            names.push(id.to_vec());
        }
    }
    Ok(names)
}

/// What makes of rows the store as of a checkpoint: they come before all others.
fn finals(identity: &StoreIdentity, checkpoint: &Checkpoint) -> [(Vec<u8>, Vec<u8>); 2] {
    [(Key::Checkpoint.encode(), checkpoint.encode()), (Key::Identity.encode(), identity.encode().to_vec())]
}

fn write_cut(generation: &StoreGeneration, identity: &StoreIdentity, cut: Cut<'_>) -> Result<(), Error> {
    let (keyspace, mut pace) = (&generation.keyspace, generation.pace());
    let mut ingestion = keyspace.start_ingestion()?;
    for (key, value) in finals(identity, cut.to) {
        ingestion.write(key, value)?;
    }
    let (mut key, mut value) = (Vec::new(), Vec::new());
    while let Some(chunk) = (cut.rows)().map_err(|_| Error::Abandoned)? {
        for change in chunk.sorted() {
            Key::Cell(change.key).write(&mut key);
            pace.wrote(key.len());
            match change.row {
                Some(row) => {
                    value.clear();
                    row.encode(&mut value);
                    ingestion.write(key.as_slice(), value.as_slice())?;
                }
                None => ingestion.write_tombstone(key.as_slice())?,
            }
        }
    }
    for (id, exists) in cut.names.sorted() {
        Key::Name(id).write(&mut key);
        pace.wrote(key.len());
        if exists { ingestion.write(key.as_slice(), [])? } else { ingestion.write_tombstone(key.as_slice())? }
    }
    for row in cut.ledger {
        // Until the load is finished the keyspace is as of before the cut.
        let (of_row, value) = settle(row?, |key| Ok(keyspace.get(Key::Ledger(key).encode())?))?;
        Key::Ledger(&of_row).write(&mut key);
        pace.wrote(key.len() + value.as_ref().map_or(0, |value| value.len()));
        match value {
            Some(value) => ingestion.write(key.as_slice(), value)?,
            None => ingestion.write_tombstone(key.as_slice())?,
        }
    }
    Ok(ingestion.finish()?)
}

fn visit_ledger(entries: impl Iterator<Item = fjall::Guard>, visit: &mut VisitRow<'_>) -> Result<(), Error> {
    for entry in entries {
        let (key, value) = entry.into_inner()?;
        let Key::Ledger(key) = Key::decode(&key)? else {
            return Err(Error::Damaged("a key in the ledger is not of the ledger".into()));
        };
        if visit(key, &value).is_break() {
            break;
        }
    }
    Ok(())
}

fn name_of(key: &[u8]) -> Result<&[u8], Error> {
    match Key::decode(key)? {
        Key::Name(id) => Ok(id),
        _ => Err(Error::Damaged("a key among the names is not a name".into())),
    }
}

impl From<fjall::Error> for Error {
    fn from(error: fjall::Error) -> Error {
        match error {
            fjall::Error::Io(error) => error.into(),
            fjall::Error::Storage(fjall::LsmError::Io(error)) => error.into(),
            fjall::Error::Storage(error) => Error::Damaged(format!(
                "a file of its database cannot be read ({error}). Restore the data directory from a copy"
            )),
            error => Error::Retry(error.to_string()),
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::Full(error.to_string()),
            _ => Error::Retry(error.to_string()),
        }
    }
}
