//! Listeners, threads and connections.
//!
//! Each thread has its own listener on the same address (`SO_REUSEPORT`) and its own single-threaded runtime: the kernel
//! spreads connections, and a connection never leaves its thread. A node that stops takes no more connections, finishes
//! the requests under way and drops what is left after a grace period. Whoever is answered while he still sends
//! gets to read the answer before the connection is closed ([`super::linger`]).

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Protocol, Socket, Type};
use tally_core::limits::{HTTP_HEAD_BYTES_MAX, HTTP_READ_BUFFER_BYTES_MAX, HTTP_STREAMS_MAX, HTTP_TURNED_AWAY_MAX};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::linger::linger;
use super::pulse::{Pulse, Watched};
use super::{Api, Options, router};
use crate::engine::Engine;

const BACKLOG: i32 = 1024;

/// After a failed accept, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const TOO_MANY_CONNECTIONS: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 129\r\n\r\n\
    {\"type\":\"/problems/busy\",\"title\":\"Tally is busy\",\"status\":503,\
    \"detail\":\"there are too many connections; close some or come back\"}";

/// A running HTTP interface.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// The address it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until every thread has ended, which they do after the shutdown signal.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("an HTTP thread panicked");
            }
        }
    }
}

/// Serves on `address` until `shutdown` turns true or its sender is gone.
pub fn serve(
    address: SocketAddr,
    threads: usize,
    engine: Engine,
    options: Options,
    shutdown: watch::Receiver<bool>,
) -> io::Result<Server> {
    let listeners = listen(address, threads.max(1))?;
    let address = listeners[0].local_addr()?;
    let api = Api::new(engine, options, shutdown.clone());
    let shared = Shared {
        connections: Arc::new(Semaphore::new(api.options.connections_max.min(Semaphore::MAX_PERMITS))),
        turned_away: Arc::new(Semaphore::new(HTTP_TURNED_AWAY_MAX)),
        options: Arc::clone(&api.options),
        router: router(api),
        shutdown,
    };
    let threads = listeners
        .into_iter()
        .enumerate()
        .map(|(number, listener)| start(number, listener, shared.clone()))
        .collect::<io::Result<Vec<_>>>()?;
    Ok(Server { address, threads })
}

/// What the threads have in common.
#[derive(Clone)]
struct Shared {
    router: Router,
    options: Arc<Options>,
    connections: Arc<Semaphore>,
    /// Places for connections that find no other and are listened to until they have read so.
    turned_away: Arc<Semaphore>,
    shutdown: watch::Receiver<bool>,
}

fn listen(address: SocketAddr, count: usize) -> io::Result<Vec<StdListener>> {
    // SO_REUSEPORT would let a second server share the port in silence; without it, a port in use is an error.
    drop(bind(address, false)?);
    let first = bind(address, true)?;
    let address = first.local_addr()?;
    let others = (1..count).map(|_| bind(address, true)).collect::<io::Result<Vec<_>>>()?;
    Ok(std::iter::once(first).chain(others).collect())
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn start(number: usize, listener: StdListener, shared: Shared) -> io::Result<JoinHandle<()>> {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let name = format!("http-{number}");
    std::thread::Builder::new().name(name).spawn(move || runtime.block_on(accept(listener, shared)))
}

async fn accept(listener: TcpListener, shared: Shared) {
    let mut shutdown = shared.shutdown.clone();
    let mut stopping = pin!(stopped(&mut shutdown));
    let protocols = Arc::new(protocols(&shared.options));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stopping => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => admit(stream, &shared, &protocols, &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept HTTP connections");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let finished = async { while connections.join_next().await.is_some() {} };
    if timeout(shared.options.grace, finished).await.is_err() {
        tracing::warn!(grace = ?shared.options.grace, "dropped HTTP connections that did not end in time");
    }
}

/// Resolves when the node stops.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it the node.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

fn admit(stream: TcpStream, shared: &Shared, protocols: &Arc<Protocols>, connections: &mut JoinSet<()>) {
    if let Ok(permit) = Arc::clone(&shared.connections).try_acquire_owned() {
        connections.spawn(connection(stream, shared.clone(), Arc::clone(protocols), permit));
        return;
    }
    // Best effort, and never a wait for room to write: whoever reads it knows, the others see a closed connection.
    let _ = stream.try_write(TOO_MANY_CONNECTIONS);
    if let Ok(permit) = Arc::clone(&shared.turned_away).try_acquire_owned() {
        connections.spawn(turn_away(stream, shared.options.linger, permit));
    }
}

async fn turn_away(stream: TcpStream, patience: Duration, _permit: OwnedSemaphorePermit) {
    linger(stream, patience).await;
}

type Protocols = Builder<TokioExecutor>;

fn protocols(options: &Options) -> Protocols {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HTTP_READ_BUFFER_BYTES_MAX)
        .pipeline_flush(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP_STREAMS_MAX)
        .max_header_list_size(HTTP_HEAD_BYTES_MAX);
    builder
}

async fn connection(stream: TcpStream, shared: Shared, protocols: Arc<Protocols>, _permit: OwnedSemaphorePermit) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended before it began");
        return;
    }
    let patience = shared.options.linger;
    let pulse = Arc::new(Pulse::default());
    let (stream, given_back) = Watched::new(stream, Arc::clone(&pulse));
    let may_be_sending = converse(stream, pulse, shared, &protocols).await;
    if may_be_sending && let Ok(stream) = given_back.await {
        linger(stream, patience).await;
    }
}

/// Answers requests until the connection ends. Says whether the other side may still be sending, which it does not while
/// it has no request under way and we are the ones who end it.
async fn converse(stream: Watched, pulse: Arc<Pulse>, shared: Shared, protocols: &Protocols) -> bool {
    let service = TowerToHyperService::new(shared.router);
    let service = service_fn(|request| {
        let working = pulse.work();
        let answer = service.call(request);
        async move {
            let answer = answer.await;
            drop(working);
            answer
        }
    });
    let mut connection = pin!(protocols.serve_connection(stream, service));
    let mut shutdown = shared.shutdown;
    let mut ending = false;
    let mut may_be_sending = true;
    let mut moves = 0;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP connection ended early");
                }
                return may_be_sending;
            }
            () = stopped(&mut shutdown), if !ending => {
                ending = true;
                may_be_sending = pulse.is_working();
                connection.as_mut().graceful_shutdown();
            }
            () = sleep(shared.options.idle_timeout) => {
                let idle = !pulse.is_working() && pulse.moves() == moves;
                moves = pulse.moves();
                if idle && ending {
                    return false;
                }
                if idle {
                    ending = true;
                    may_be_sending = false;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listeners_share_one_port_and_nobody_else_does() {
        let listeners = listen("127.0.0.1:0".parse().unwrap(), 3).unwrap();
        let address = listeners[0].local_addr().unwrap();
        assert_ne!(address.port(), 0);
        assert!(listeners.iter().all(|listener| listener.local_addr().unwrap() == address));
        assert_eq!(listen(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_answer_to_one_connection_too_many_is_well_formed() {
        let text = std::str::from_utf8(TOO_MANY_CONNECTIONS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
