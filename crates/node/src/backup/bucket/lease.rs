//! Who may write to a prefix of a bucket: whoever has put their name into the object `LOCK`, by compare-and-swap, and does so again every few
//! seconds. One that has stood still for a minute is nobody's, by the store's own clock: no two machines compare theirs.

use super::{Requests, io_error};
use crate::clock::Stopwatch;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

const LOCK: &str = "LOCK";
/// Behind this the holder is taken for dead.
const LEASE: Duration = Duration::from_secs(60);
/// How old it may be when something is written under it.
pub(in crate::backup) const RENEW: Duration = Duration::from_secs(10);

/// What the object says. No two that are written are alike, so that each has another tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holder {
    /// Whoever writes, by a number that was drawn.
    writer: String,
    /// How often it was written.
    beat: u64,
    is_free: bool,
}

pub(super) struct Lease {
    holder: Holder,
    version: UpdateVersion,
    renewed: Stopwatch,
}

/// The object, when it was written by the store's clock, and what it can be replaced by.
struct Found {
    /// `None` if nobody can say who it is.
    holder: Option<Holder>,
    version: UpdateVersion,
    written_ms: i64,
}

impl Lease {
    /// `None` if somebody else has it.
    pub fn take(requests: &Requests, number: u64) -> io::Result<Option<Lease>> {
        let holder = Holder { writer: format!("{number:016x}"), beat: 0, is_free: false };
        let mode = match look(requests)? {
            None => PutMode::Create,
            Some(found) if found.is_nobodys(requests, &holder.writer)? => PutMode::Update(found.version),
            Some(_) => return Ok(None),
        };
        let renewed = Stopwatch::start();
        let Some(version) = write(requests, &holder, mode)? else { return Ok(None) };
        refuse_store_without_conditions(requests)?;
        Ok(Some(Lease { holder, version, renewed }))
    }

    /// Renews it if it is getting old. If somebody else has it, nothing more may be written.
    pub fn keep(&mut self, requests: &Requests) -> io::Result<()> {
        match self.renewed.elapsed() < RENEW {
            true => Ok(()),
            false => self.renew(requests),
        }
    }

    /// Renews it however old it is: if that succeeds, nobody else has had it since it was taken.
    pub fn renew(&mut self, requests: &Requests) -> io::Result<()> {
        self.say(requests, false)
    }

    /// Lets others write at once. If that does not get through, they wait until it is old.
    pub fn release(&mut self, requests: &Requests) {
        if let Err(error) = self.say(requests, true) {
            tracing::debug!(%error, "the lock of the backups was not released: it ends by itself");
        }
    }

    fn say(&mut self, requests: &Requests, is_free: bool) -> io::Result<()> {
        let holder = Holder { beat: self.holder.beat + 1, is_free, ..self.holder.clone() };
        let renewed = Stopwatch::start();
        match write(requests, &holder, PutMode::Update(self.version.clone()))? {
            Some(version) => *self = Lease { holder, version, renewed },
            None => return Err(io::Error::other("somebody else has begun to write there, so this backup ends here")),
        }
        Ok(())
    }
}

impl Found {
    /// Whether it was let go of, or whoever held it has not been heard of for long.
    fn is_nobodys(&self, requests: &Requests, writer: &str) -> io::Result<bool> {
        if self.holder.as_ref().is_some_and(|holder| holder.is_free) {
            return Ok(true);
        }
        // What time it is there is told by an object that is written now.
        let name = format!("{LOCK}-{writer}");
        let now = requests.send(&name, |store, path| async move {
            store.put(&path, PutPayload::new()).await?;
            let written = store.head(&path).await?.last_modified;
            store.delete(&path).await?;
            Ok(written)
        })?;
        Ok(now.timestamp_millis() - self.written_ms > LEASE.as_millis() as i64)
    }
}

fn look(requests: &Requests) -> io::Result<Option<Found>> {
    let answer = requests.try_send(LOCK, |store, path| async move {
        let answer = store.get(&path).await?;
        let (meta, bytes) = (answer.meta.clone(), answer.bytes().await?);
        Ok(Found {
            holder: serde_json::from_slice(&bytes).ok(),
            version: UpdateVersion { e_tag: meta.e_tag, version: meta.version },
            written_ms: meta.last_modified.timestamp_millis(),
        })
    })?;
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(io_error(error)),
    }
}

/// Writes it if it is still what it was; `None` if it is not.
fn write(requests: &Requests, holder: &Holder, mode: PutMode) -> io::Result<Option<UpdateVersion>> {
    let bytes = serde_json::to_vec(holder).expect("texts and numbers can be written");
    let put = requests.try_send(LOCK, |store, path| async move {
        store.put_opts(&path, PutPayload::from(bytes), mode.into()).await
    })?;
    match put {
        Ok(put) => Ok(Some(UpdateVersion { e_tag: put.e_tag, version: put.version })),
        // It may have been written by a request whose answer was lost.
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
            let found = look(requests)?.filter(|found| found.holder.as_ref() == Some(holder));
            Ok(found.map(|found| found.version))
        }
        Err(error) => Err(io_error(error)),
    }
}

/// Some stores take a condition and ignore it: there, two would write at once.
fn refuse_store_without_conditions(requests: &Requests) -> io::Result<()> {
    let put = requests.try_send(LOCK, |store, path| async move {
        store.put_opts(&path, PutPayload::new(), PutMode::Create.into()).await
    })?;
    match put {
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
        Ok(_) => Err(io::Error::other(
            "this store ignores If-None-Match, by which writers keep out of each other's way: use one that knows conditional writes",
        )),
        Err(error) => Err(io_error(error)),
    }
}
