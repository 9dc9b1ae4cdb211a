//! What the server knows about one connection. Connections and the server share a thread, so all of it is in cells.

use super::encode::Protocol;
use super::reply::Manner;
use super::transaction::{Transaction, Watching};
use crate::clock;
use crate::frontend::budget::{Budget, Charge};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// What `CLIENT LIST` says of a client that has not sent a command.
const NO_COMMAND: &str = "NULL";

/// Which replies a client wants to hear (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hearing {
    #[default]
    All,
    None,
    /// Not the reply to the next command.
    SkipNext,
    /// Not the reply to the current command.
    SkipThis,
}

impl Hearing {
    /// Whether the reply to the current command is dropped.
    pub fn is_muted(self) -> bool {
        matches!(self, Hearing::None | Hearing::SkipThis)
    }

    /// Whether it changes with the next command.
    #[inline]
    pub fn is_skipping(self) -> bool {
        matches!(self, Hearing::SkipNext | Hearing::SkipThis)
    }
}

pub struct Client {
    pub id: u64,
    pub address: SocketAddr,
    pub local_address: SocketAddr,
    descriptor: i32,
    pub connected_ms: u64,
    pub active_ms: Cell<u64>,
    pub authenticated: Cell<bool>,
    pub protocol: Cell<Protocol>,
    pub hearing: Cell<Hearing>,
    pub database: Cell<u8>,
    /// What was queued since `MULTI`.
    pub transaction: RefCell<Option<Transaction>>,
    /// What `EXEC` depends on.
    pub watching: RefCell<Watching>,
    pub name: RefCell<Vec<u8>>,
    pub library: RefCell<Library>,
    pub evictable: Cell<bool>,
    pub last_command: Cell<&'static str>,
    /// What it has sent and nobody has read yet, the command under way included, and how much more fits.
    pub input_bytes: Cell<(usize, usize)>,
    /// What replies take that it has not read yet.
    pub output_bytes: Cell<usize>,
    /// Has commands under way or replies to send, so a shutdown must let it finish.
    pub busy: Cell<bool>,
    /// Its part of what all clients hold.
    pub charge: RefCell<Charge>,
}

/// How a client library introduced itself (`CLIENT SETINFO`).
#[derive(Default)]
pub struct Library {
    pub name: Vec<u8>,
    pub version: Vec<u8>,
}

impl Client {
    pub fn new(
        id: u64,
        address: SocketAddr,
        local_address: SocketAddr,
        descriptor: i32,
        authenticated: bool,
        budget: &Arc<Budget>,
    ) -> Client {
        let now_ms = clock::wall_ms();
        Client {
            id,
            address,
            local_address,
            descriptor,
            connected_ms: now_ms,
            active_ms: Cell::new(now_ms),
            authenticated: Cell::new(authenticated),
            protocol: Cell::default(),
            hearing: Cell::default(),
            database: Cell::new(0),
            transaction: RefCell::default(),
            watching: RefCell::default(),
            name: RefCell::default(),
            library: RefCell::default(),
            evictable: Cell::new(true),
            last_command: Cell::new(NO_COMMAND),
            input_bytes: Cell::default(),
            output_bytes: Cell::default(),
            busy: Cell::new(false),
            charge: RefCell::new(Charge::new(budget)),
        }
    }

    /// Whether it may do something here and has done it.
    pub fn is_known(&self) -> bool {
        self.authenticated.get() && self.last_command.get() != NO_COMMAND
    }

    /// One line of `CLIENT LIST`.
    ///
    /// A connection at rest has no buffers, so their sizes are 0 then. Replies that wait for their client are one list.
    /// `argument_bytes` are those of the command that is under way.
    pub fn describe(&self, now_ms: u64, argument_bytes: usize) -> String {
        let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
        let library = self.library.borrow();
        let (unread_bytes, free_bytes) = self.input_bytes.get();
        let output_bytes = self.output_bytes.get();
        let queued_bytes = self.transaction.borrow().as_ref().map_or(0, |transaction| transaction.commands.bytes());
        format!(
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub=0 psub=0 ssub=0 multi={} qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs=0 rbp=0 obl=0 oll={} omem={} tot-mem={} events={} cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.address,
            self.local_address,
            self.descriptor,
            String::from_utf8_lossy(&self.name.borrow()),
            seconds(self.connected_ms),
            seconds(self.active_ms.get()),
            self.flags(),
            self.database.get(),
            self.transaction.borrow().as_ref().map_or(-1, |transaction| transaction.commands.len() as i64),
            unread_bytes,
            free_bytes,
            argument_bytes,
            queued_bytes,
            u8::from(output_bytes > 0),
            output_bytes,
            size_of::<Client>() + unread_bytes + free_bytes + argument_bytes + queued_bytes + output_bytes,
            if output_bytes > 0 { "rw" } else { "r" },
            self.last_command.get(),
            self.protocol.get() as u8,
            String::from_utf8_lossy(&library.name),
            String::from_utf8_lossy(&library.version),
        )
    }
}

impl Client {
    fn flags(&self) -> &'static str {
        match (self.transaction.borrow().is_some(), self.evictable.get()) {
            (false, true) => "N",
            (false, false) => "e",
            (true, true) => "x",
            (true, false) => "xe",
        }
    }

    /// How replies are written.
    pub fn manner(&self) -> Manner {
        Manner { protocol: self.protocol.get(), muted: self.hearing.get().is_muted() }
    }

    /// Whether commands are queued rather than carried out.
    #[inline]
    pub fn is_queueing(&self) -> bool {
        self.transaction.borrow().is_some()
    }

    /// What stays as it was when a transaction has to be made again.
    pub fn remember(&self) -> Remembered {
        Remembered {
            database: self.database.get(),
            protocol: self.protocol.get(),
            hearing: self.hearing.get(),
            name: self.name.borrow().clone(),
        }
    }

    pub fn restore(&self, remembered: &Remembered) {
        self.database.set(remembered.database);
        self.protocol.set(remembered.protocol);
        self.hearing.set(remembered.hearing);
        self.name.borrow_mut().clone_from(&remembered.name);
    }
}

/// A state of a connection to go back to.
pub struct Remembered {
    database: u8,
    protocol: Protocol,
    hearing: Hearing,
    name: Vec<u8>,
}

/// The connections that are open.
#[derive(Default)]
pub struct Clients {
    open: RefCell<BTreeMap<u64, Task>>,
    last_id: Cell<u64>,
}

struct Task {
    client: Rc<Client>,
    handle: AbortHandle,
}

impl Clients {
    pub fn len(&self) -> usize {
        self.open.borrow().len()
    }

    /// In the order in which they came.
    pub fn all(&self) -> Vec<Rc<Client>> {
        self.open.borrow().values().map(|task| task.client.clone()).collect()
    }

    pub fn get(&self, id: u64) -> Option<Rc<Client>> {
        self.open.borrow().get(&id).map(|task| task.client.clone())
    }

    pub fn next_id(&self) -> u64 {
        self.last_id.set(self.last_id.get() + 1);
        self.last_id.get()
    }

    /// Must be called before the task runs for the first time: it removes itself when it ends.
    pub fn add(&self, client: Rc<Client>, handle: AbortHandle) {
        self.open.borrow_mut().insert(client.id, Task { client, handle });
    }

    pub fn remove(&self, id: u64) {
        self.open.borrow_mut().remove(&id);
    }

    /// Ends the connection that holds most of the memory, if it holds more than `bytes`; false if there is none.
    pub fn end_largest(&self, bytes: usize) -> bool {
        let open = self.open.borrow();
        let held = |task: &&Task| task.client.charge.borrow().bytes();
        let Some(task) = open.values().max_by_key(held).filter(|task| held(task) > bytes) else { return false };
        tracing::debug!(client = task.client.id, address = %task.client.address, bytes = held(&task),
            "RESP connection closed, because it held the most and others needed room");
        // Its buffers are freed when its task is dropped, which is before anything else is read.
        task.client.charge.borrow_mut().release();
        task.handle.abort();
        true
    }

    /// Ends the connections that have nothing under way.
    pub fn end_idle(&self) {
        for task in self.open.borrow().values().filter(|task| !task.client.busy.get()) {
            task.handle.abort();
        }
    }
}
