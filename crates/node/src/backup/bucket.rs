//! Backups in an object store that speaks S3: an object for each object, under a prefix of a bucket.
//!
//! Where the store is and who asks is said by the environment, as everywhere (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, …).
//! Whoever writes holds a [`lease`]. Whoever reads holds nothing: what a backup names stays as long as the backup does.

mod lease;

use super::{BackupError, Target};
use futures_util::TryStreamExt;
use lease::Lease;
pub(super) use lease::RENEW as LEASE_RENEW;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long one request may take.
const REQUEST_TIMEOUT: &str = "20 seconds";
/// How often one that failed is sent again, and for how long: the worker tries again later, too.
const RETRIES_MAX: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Bucket {
    requests: Requests,
    /// What a writer has, and nobody who reads.
    writing: Option<Writing>,
}

struct Writing {
    lease: RefCell<Lease>,
    /// What is there, so that nobody has to be asked about each object: while the lease is held, nobody else writes.
    there: RefCell<BTreeSet<String>>,
}

impl Bucket {
    /// To write to.
    pub fn open(
        bucket: &str,
        prefix: &str,
        place: &str,
        random: impl FnOnce() -> io::Result<u64>,
    ) -> Result<Bucket, BackupError> {
        let failed = |error| BackupError::Io { place: place.to_owned(), error };
        let requests = Requests::new(bucket, prefix).map_err(failed)?;
        let lease = Lease::take(&requests, random().map_err(failed)?).map_err(failed)?;
        let lease = RefCell::new(lease.ok_or_else(|| BackupError::InUse(place.to_owned()))?);
        let opened = Bucket { requests, writing: Some(Writing { lease, there: RefCell::default() }) };
        let listed = opened.list(super::manifest::OBJECTS).map_err(failed)?;
        opened.writing().map_err(failed)?.there.borrow_mut().extend(listed);
        Ok(opened)
    }

    /// To read from.
    pub fn view(bucket: &str, prefix: &str, place: &str) -> Result<Bucket, BackupError> {
        let failed = |error| BackupError::Io { place: place.to_owned(), error };
        Ok(Bucket { requests: Requests::new(bucket, prefix).map_err(failed)?, writing: None })
    }

    fn writer(&self) -> io::Result<&Writing> {
        self.writing.as_ref().ok_or_else(|| io::Error::other("it was opened to be read"))
    }

    /// Who writes must be the one who holds the lease, now.
    fn writing(&self) -> io::Result<&Writing> {
        let writing = self.writer()?;
        writing.lease.borrow_mut().keep(&self.requests)?;
        Ok(writing)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(writing) = &self.writing {
            writing.lease.borrow_mut().release(&self.requests);
        }
    }
}

impl Target for Bucket {
    fn has(&self, name: &str) -> io::Result<bool> {
        Ok(self.writing()?.there.borrow().contains(name))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let writing = self.writing()?;
        if writing.there.borrow().contains(name) {
            return Ok(());
        }
        let payload = PutPayload::from(bytes.to_vec());
        self.requests.send(name, |store, path| async move { store.put(&path, payload).await })?;
        writing.there.borrow_mut().insert(name.to_owned());
        Ok(())
    }

    fn get(&self, name: &str) -> io::Result<Vec<u8>> {
        let bytes = self.requests.send(name, |store, path| async move { store.get(&path).await?.bytes().await })?;
        Ok(bytes.into())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let listed = self.requests.send(folder, |store, path| async move {
            store.list(Some(&path)).map_ok(|object| object.location).try_collect::<Vec<Path>>().await
        })?;
        let names = listed.iter().filter_map(|path| Some(format!("{folder}/{}", path.filename()?)));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.writing()?;
        self.withdraw(name)
    }

    /// What a store has answered, it keeps; what is left to say is that nobody else has written meanwhile. A machine that slept does not know how
    /// old its lease is, so only the store can say.
    fn settle(&self) -> io::Result<()> {
        self.writer()?.lease.borrow_mut().renew(&self.requests)
    }

    fn withdraw(&self, name: &str) -> io::Result<()> {
        self.requests.send(name, |store, path| async move { store.delete(&path).await })?;
        self.writer()?.there.borrow_mut().remove(name);
        Ok(())
    }
}

/// Sends requests, and waits for their answers. They run on a thread of their own, so whoever waits may be a task itself.
struct Requests {
    store: Arc<AmazonS3>,
    prefix: String,
    runtime: Option<Runtime>,
}

impl Requests {
    fn new(bucket: &str, prefix: &str) -> io::Result<Requests> {
        let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), REQUEST_TIMEOUT);
        let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
        let endpoint = endpoints.iter().find_map(|key| builder.get_config_value(key));
        // Whoever names an address without TLS means it.
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            builder = builder.with_allow_http(true);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tally-objects")
            .enable_all()
            .build()?;
        Ok(Requests {
            store: Arc::new(builder.build().map_err(io_error)?),
            prefix: prefix.to_owned(),
            runtime: Some(runtime),
        })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    fn send<T, F>(&self, name: &str, request: impl FnOnce(Arc<AmazonS3>, Path) -> F) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.try_send(name, request)?.map_err(io_error)
    }

    /// The same; the inner error is what the store has answered.
    fn try_send<T, F>(
        &self,
        name: &str,
        request: impl FnOnce(Arc<AmazonS3>, Path) -> F,
    ) -> io::Result<object_store::Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let runtime = self.runtime.as_ref().expect("it is there until it is dropped");
        pollster::block_on(runtime.spawn(request(self.store.clone(), self.path(name)))).map_err(io::Error::other)
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // Whoever drops it may be a task, which must not wait for a thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn io_error(error: object_store::Error) -> io::Error {
    let kind = match &error {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
