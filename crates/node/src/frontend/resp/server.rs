//! The RESP server: accepts connections and holds what they share.
//!
//! Everything runs on the writer's thread, each connection as a local task, so nothing here is locked. A shutdown stops
//! accepting, ends connections that have nothing under way, and lets the others finish the pass they are in.

use super::client::{Client, Clients};
use super::connection::Connection;
use super::cursor::Cursors;
use super::latency::Latency;
use super::stats::{Ran, Stats};
use super::work::Pool;
use crate::clock;
use crate::counters::local::{Keyspace, LocalCounters};
use crate::counters::{Counters, Host, NodeDurability};
use crate::frontend::Password;
use crate::frontend::budget::Budget;
use crate::frontend::places::Places;
use crate::metrics::CutOff;
use crate::seldom::Seldom;
use socket2::TcpKeepalive;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tally_core::database::Space;
use tally_core::id::CellHasher;
use tally_core::limits;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long connections may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// How long to wait when the system has no more sockets to give.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A silent client is asked so often whether it is still there.
pub const KEEPALIVE: Duration = Duration::from_secs(300);

/// How often the log tells of wrong passwords: whoever tries them all is not brief.
const WRONG_PASSWORDS_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct RespOptions {
    /// What `AUTH` must say; without one everybody may do everything.
    pub password: Option<Password>,
    pub clients_max: usize,
    /// `None`: three quarters of them, or all for clients on this machine.
    pub clients_per_address_max: Option<usize>,
    /// How long a client may take to say `AUTH`, if it has to.
    pub stranger_timeout: Duration,
    /// How long a client may leave a long unfinished command, or replies, in the server's memory without moving a byte.
    pub stall_timeout: Duration,
    /// How long a client may take to read its last replies.
    pub linger: Duration,
    /// What `INFO` and `CONFIG GET` say about the node.
    pub durability: NodeDurability,
}

impl Default for RespOptions {
    fn default() -> RespOptions {
        RespOptions {
            password: None,
            clients_max: limits::RESP_CLIENTS_MAX,
            clients_per_address_max: None,
            stranger_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            linger: Duration::from_secs(5),
            durability: NodeDurability::Sync,
        }
    }
}

/// What all connections share.
pub struct Server {
    pub counters: Arc<dyn Counters>,
    pub host: Host,
    pub keyspace: Rc<dyn Keyspace>,
    pub hasher: CellHasher,
    pub options: RespOptions,
    pub address: SocketAddr,
    pub started_ms: u64,
    pub clients: Clients,
    pub cursors: RefCell<Cursors>,
    pub stats: Stats,
    pub latency: Latency,
    wrong_passwords: Seldom,
    pub pool: Pool,
    /// Turns for pages of names.
    pub walks: Semaphore,
    /// Of all clients, those of other protocols included.
    budget: Arc<Budget>,
    places: Arc<Places>,
    draining: Cell<bool>,
    draws: Cell<u64>,
}

/// Serves RESP on `listener` until `shutdown` is ready. Must run on the writer's thread, inside a `LocalSet`.
pub async fn serve(
    listener: TcpListener,
    local: impl LocalCounters,
    options: RespOptions,
    budget: Arc<Budget>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let server = Rc::new(Server::new(listener.local_addr()?, &local, options, budget));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => server.welcome(stream, address, &local, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a RESP connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    server.drain(connections).await;
    Ok(())
}

impl Server {
    fn new(address: SocketAddr, local: &impl LocalCounters, options: RespOptions, budget: Arc<Budget>) -> Server {
        let (counters, host) = (local.counters(), local.host());
        Server {
            hasher: counters.hasher(),
            address,
            started_ms: clock::wall_ms(),
            clients: Clients::default(),
            cursors: RefCell::default(),
            stats: Stats::default(),
            latency: Latency::new(&host.metrics),
            wrong_passwords: Seldom::new(WRONG_PASSWORDS_EVERY),
            pool: Pool::default(),
            walks: Semaphore::new(limits::RESP_WALKS_MAX),
            budget,
            places: Places::new(
                options.clients_max,
                options.clients_per_address_max,
                host.metrics.cuts.of("resp", CutOff::Displaced),
            ),
            draining: Cell::new(false),
            draws: Cell::default(),
            options,
            keyspace: local.keyspace(),
            counters,
            host,
        }
    }

    /// Counts the commands of a slice that has come to its end, and says which they were.
    pub fn count_commands(&self, count: u64, ran: &mut Vec<Ran>) {
        self.stats.take_ran(count, ran);
        self.stats.commands.set(self.stats.commands.get() + count);
        self.host.metrics.resp_commands.inc_by(count);
    }

    /// Books what a client holds. Where there is no room, whoever holds most has to go; false if that is this client.
    pub fn hold(&self, client: &Client, bytes: usize) -> bool {
        let bytes = if bytes <= limits::RESP_HELD_BYTES_FREE { 0 } else { bytes };
        while client.charge.borrow_mut().set(bytes).is_err() {
            // One has to go: another one, or this.
            self.count_cut(CutOff::Memory);
            if !self.clients.end_largest(bytes) {
                return false;
            }
        }
        true
    }

    pub fn count_cut(&self, reason: CutOff) {
        self.host.metrics.cuts.of("resp", reason).inc();
    }

    /// What all clients hold.
    pub fn held_bytes(&self) -> usize {
        self.budget.held_bytes()
    }

    /// A number that nobody can foretell who does not know the node's secret.
    pub fn draw(&self) -> u64 {
        self.draws.set(self.draws.get() + 1);
        let drawn = self.hasher.key(&[&b"draw"[..], &self.draws.get().to_le_bytes()].concat());
        (drawn.as_u128() >> 64) as u64
    }

    /// How many counters a space has; 0 if no database stands on it any more.
    pub fn names_in(&self, space: Space) -> usize {
        let database = self.keyspace.spaces().iter().position(|own| *own == space);
        database.map_or(0, |database| self.keyspace.size(database) as usize)
    }

    /// Somebody may be trying them all.
    pub fn tell_wrong_password(&self, client: SocketAddr) {
        let failures = self.host.metrics.auth_failures.inc() + 1;
        if self.wrong_passwords.is_due() {
            tracing::warn!(%client, failures, "a client has given a wrong password");
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    fn welcome(
        self: &Rc<Server>,
        stream: TcpStream,
        address: SocketAddr,
        local: &impl LocalCounters,
        connections: &mut JoinSet<()>,
    ) {
        self.stats.connections.set(self.stats.connections.get() + 1);
        let Ok(place) = self.places.take(address.ip()) else {
            self.stats.connections_refused.set(self.stats.connections_refused.get() + 1);
            self.count_cut(CutOff::NoPlace);
            turn_away(stream);
            return;
        };
        if let Err(error) = tune(&stream) {
            tracing::debug!(%address, %error, "cannot set the options of a RESP connection");
        }
        let local_address = stream.local_addr().unwrap_or(self.address);
        let authenticated = self.options.password.is_none();
        let id = self.clients.next_id();
        let client = Rc::new(Client::new(id, address, local_address, stream.as_raw_fd(), authenticated, &self.budget));
        let ticket = place.ticket();
        let task =
            connections.spawn_local(Connection::new(self.clone(), local.clone(), client.clone(), stream, place).run());
        ticket.belongs_to(task.clone());
        self.clients.add(client, task);
    }

    async fn drain(&self, mut connections: JoinSet<()>) {
        self.draining.set(true);
        self.clients.end_idle();
        let finish = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, finish).await.is_err() {
            connections.shutdown().await;
        }
    }
}

/// Small replies must not wait for each other, and dead peers must be noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}

fn turn_away(stream: TcpStream) {
    // A new socket takes these few bytes at once; if it does not, closing it says enough.
    let Ok(stream) = stream.into_std() else { return };
    let _ = io::Write::write_all(&mut &stream, b"-ERR max number of clients reached\r\n");
}
