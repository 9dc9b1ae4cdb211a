//! The thread that writes cuts to the store while the writer goes on.

use crate::clock::Stopwatch;
use flume::{Receiver, Sender};
use std::sync::Arc;
use tally_core::cell::Collected;
use tally_core::ledger::{self, LedgerCut};
use tally_core::limits::STORE_VALUE_BYTES_MAX;
use tally_core::names::Names;
use tally_core::position::Position;
use tally_storage::store::{Abandoned, Checkpoint, Cut, Error, Store};
use tokio::sync::oneshot;

/// Segments that wait to be written: enough to keep the thread busy, few enough to cost no memory.
const CHUNKS_MAX: usize = 4;

/// What goes into a cut, beside the cells, which are handed over bit by bit.
pub(super) struct Content {
    pub from: Option<Position>,
    pub to: Checkpoint,
    pub replace: bool,
    pub names: Names,
    pub ledger: Arc<LedgerCut>,
    /// The first record that a start from this cut reads.
    pub read_from: u64,
    /// Since when it is under way.
    pub begun: Stopwatch,
}

/// One cut on its way.
pub(super) struct Job {
    content: Content,
    chunks: Receiver<Option<Collected>>,
    done: oneshot::Sender<Written>,
}

/// How a cut ended. The content is given back, since it is needed again if the cut failed.
pub(super) struct Written {
    pub result: Result<(), Error>,
    pub content: Content,
}

/// The writer's end of a job.
pub(super) struct Handover {
    /// `None` says that all segments are through; a drop without it abandons the cut.
    pub chunks: Sender<Option<Collected>>,
    pub written: oneshot::Receiver<Written>,
}

pub(super) fn job(content: Content) -> (Job, Handover) {
    let (send_chunks, chunks) = flume::bounded(CHUNKS_MAX);
    let (done, written) = oneshot::channel();
    (Job { content, chunks, done }, Handover { chunks: send_chunks, written })
}

/// Writes cuts until the writer is gone.
pub(super) fn run(store: &Arc<dyn Store>, jobs: &Receiver<Job>) {
    for Job { content, chunks, done } in jobs {
        let result = check_size(&content.to).and_then(|()| write(&**store, &content, &chunks));
        let _ = done.send(Written { result, content });
    }
}

fn write(store: &dyn Store, content: &Content, chunks: &Receiver<Option<Collected>>) -> Result<(), Error> {
    store.commit(Cut {
        from: content.from,
        to: &content.to,
        replace: content.replace,
        names: &content.names,
        rows: &mut || chunks.recv().map_err(|_| Abandoned),
        // Each comes from a record of the log, whose bounds are lower.
        ledger: &mut content.ledger.rows().inspect(|row| assert!(row.bytes() <= STORE_VALUE_BYTES_MAX)),
        merge: |old, add| ledger::merge(old, add).map_err(|error| error.to_string()),
    })
}

/// What could not be read again is not written: the log still has it.
fn check_size(checkpoint: &Checkpoint) -> Result<(), Error> {
    let bytes = checkpoint.state.len();
    if bytes <= STORE_VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Io(format!(
        "a checkpoint would take {bytes} bytes, and at most {STORE_VALUE_BYTES_MAX} can be read back"
    )))
}
