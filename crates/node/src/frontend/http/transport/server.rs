//! Listeners, threads and connections.
//!
//! Each thread has its own listener on the same address (`SO_REUSEPORT`) and its own single-threaded runtime: the kernel
//! spreads connections, and a connection never leaves its thread. A node that stops takes no more connections, finishes
//! the requests under way and drops what is left after a grace period. Whoever is answered while he still sends
//! gets to read the answer before the connection is closed ([`super::linger`]).

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::{Domain, Protocol, Socket, Type};
use tally_core::limits::{
    HTTP_ANSWER_BYTES, HTTP_CONNECTION_BYTES, HTTP_HEAD_BYTES_MAX, HTTP_READ_BUFFER_BYTES_MAX, HTTP_STREAMS_MAX,
    HTTP_TURNED_AWAY_MAX, HTTP_WINDOW_BYTES, SEND_BUFFER_BYTES,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::charged;
use super::aside::Aside;
use super::guard::Peer;
use super::head;
use super::linger::linger;
use super::patience::{Patience, PatienceVerdict};
use super::pulse::{Pulse, WatchedStream, Working};
use crate::counters::{Counters, Host, RETRY_AFTER};
use crate::frontend::budget::{Budget, Charge, Full};
use crate::frontend::http::front::Front;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use crate::frontend::http::{Api, HttpOptions, PROTOCOL};
use crate::frontend::places::{ClientPlace, NoPlace, Places};
use crate::metrics::{CutOff, Metrics};
use crate::worker::Spawner;

const BACKLOG: i32 = 1024;

/// After a failed accept, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A running HTTP interface.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl HttpServer {
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
    counters: Arc<dyn Counters>,
    host: Host,
    options: HttpOptions,
    budget: Arc<Budget>,
    shutdown: watch::Receiver<bool>,
) -> io::Result<HttpServer> {
    let listeners = listen(address, threads.max(1))?;
    let address = listeners[0].local_addr()?;
    let api = Api::new(counters, host, options, Arc::clone(&budget), shutdown.clone());
    let shared = Listening {
        budget,
        places: Places::new(
            api.options.connections_max,
            api.options.connections_per_address_max,
            api.host.metrics.cuts.of(PROTOCOL, CutOff::Displaced),
        ),
        turned_away: Arc::new(Semaphore::new(HTTP_TURNED_AWAY_MAX)),
        options: Arc::clone(&api.options),
        metrics: Arc::clone(&api.host.metrics),
        front: Arc::new(Front::new(api)),
        shutdown,
    };
    let threads = listeners
        .into_iter()
        .enumerate()
        .map(|(number, listener)| start(number, listener, shared.clone()))
        .collect::<io::Result<Vec<_>>>()?;
    Ok(HttpServer { address, threads })
}

/// What the threads have in common.
#[derive(Clone)]
struct Listening {
    front: Arc<Front>,
    options: Arc<HttpOptions>,
    budget: Arc<Budget>,
    places: Arc<Places>,
    metrics: Arc<Metrics>,
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
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn start(number: usize, listener: StdListener, shared: Listening) -> io::Result<JoinHandle<()>> {
    let runtime: Runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let name = format!("http-{number}");
    Spawner::thread(name, move || runtime.block_on(accept(listener, shared)))
}

async fn accept(listener: TcpListener, shared: Listening) {
    let mut shutdown = shared.shutdown.clone();
    let mut stopping = pin!(stopped(&mut shutdown));
    let protocols = Arc::new(protocols(&shared.options));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stopping => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => admit(stream, peer, &shared, &protocols, &mut connections),
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

fn admit(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &Listening,
    protocols: &Arc<Protocols>,
    connections: &mut JoinSet<()>,
) {
    let mut charge = Charge::new(&shared.budget);
    let admitted = charge.set(HTTP_CONNECTION_BYTES).map_err(|full| (CutOff::Memory, Problem::from(full)));
    let place = || shared.places.take(peer.ip()).map_err(|why| (CutOff::NoPlace, no_place(why)));
    let admitted = admitted.and_then(|()| place());
    match admitted {
        Ok(place) => {
            let ticket = place.ticket();
            let task =
                connections.spawn(connection(stream, peer, shared.clone(), Arc::clone(protocols), place, charge));
            ticket.belongs_to(task);
        }
        Err((cut, problem)) => {
            shared.metrics.cuts.of(PROTOCOL, cut).inc();
            // Best effort, and never a wait for room to write: whoever reads it knows, the others see a closed connection.
            let _ = stream.try_write(&problem.raw());
            if let Ok(permit) = Arc::clone(&shared.turned_away).try_acquire_owned() {
                connections.spawn(turn_away(stream, shared.options.linger, permit));
            }
        }
    }
}

fn no_place(why: NoPlace) -> Problem {
    let detail = match why {
        NoPlace::Full => "there are too many connections; close some or come back",
        NoPlace::TooManyFromThere => "there are too many connections from this address; close some or come back",
    };
    Problem::new(ProblemKind::Busy, detail).retry_after(RETRY_AFTER.as_secs())
}

async fn turn_away(stream: TcpStream, patience: Duration, _permit: OwnedSemaphorePermit) {
    linger(stream, patience).await;
}

type Protocols = Builder<TokioExecutor>;

fn protocols(options: &HttpOptions) -> Protocols {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HTTP_READ_BUFFER_BYTES_MAX)
        // With it, an answer waits for as long as a part of the next request is there.
        .pipeline_flush(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP_STREAMS_MAX)
        .initial_connection_window_size(HTTP_WINDOW_BYTES)
        .initial_stream_window_size(HTTP_WINDOW_BYTES)
        .max_send_buf_size(HTTP_ANSWER_BYTES)
        .max_header_list_size(HTTP_HEAD_BYTES_MAX);
    builder
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Listening,
    protocols: Arc<Protocols>,
    place: ClientPlace,
    _charge: Charge,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended before it began");
        return;
    }
    let _connected = shared.metrics.connected(PROTOCOL);
    let patience = shared.options.linger;
    let pulse = Arc::new(Pulse::new(&shared.budget));
    let (stream, given_back) = WatchedStream::new(stream, Arc::clone(&pulse), &shared.budget);
    let ended = converse(stream, Peer(peer), pulse, shared, &protocols, place).await;
    if !ended.may_be_sending && ended.owed.is_none() {
        return;
    }
    let Ok(mut stream) = given_back.await else { return };
    if let Some(problem) = ended.owed {
        // Best effort, as all that is said to somebody who does not speak the language.
        let _ = timeout(patience, stream.write_all(&problem.raw())).await;
    }
    linger(stream, patience).await;
}

/// How a conversation ended.
struct EndedConnection {
    /// The other side does not while it has no request under way and we are the ones who end it.
    may_be_sending: bool,
    /// What it is still to be told.
    owed: Option<Problem>,
}

/// Answers requests until the connection ends.
async fn converse(
    stream: WatchedStream,
    peer: Peer,
    pulse: Arc<Pulse>,
    shared: Listening,
    protocols: &Protocols,
    place: ClientPlace,
) -> EndedConnection {
    let caller =
        Arc::new(Caller { front: shared.front, budget: shared.budget, place, peer, pulse: Arc::clone(&pulse) });
    let service = service_fn(|request: hyper::Request<Incoming>| {
        let caller = Arc::clone(&caller);
        let working = caller.pulse.work();
        async move { Ok::<_, Infallible>(caller.answer(request, working).await) }
    });
    let mut connection = pin!(protocols.serve_connection(TokioIo::new(stream), service));
    let mut shutdown = shared.shutdown;
    let mut ending = false;
    let mut may_be_sending = true;
    let mut patience = Patience::new(&shared.options);
    loop {
        let attend = pin!(attend(&mut shutdown, ending, patience.look_every));
        let notice = Aside::new(attend);
        let notice = tokio::select! {
            // Requests come first; the others are as good a little later.
            biased;
            ended = connection.as_mut() => {
                let owed = ended.err().and_then(|error| {
                    tracing::debug!(%error, "an HTTP connection ended early");
                    count_early_end(&*error, &pulse, &shared.metrics);
                    let is_due = pulse.owes_reason() || (pulse.has_head() && !pulse.is_working());
                    head::explain(&*error, pulse.head_has_line()).filter(|_| is_due)
                });
                return EndedConnection { may_be_sending, owed };
            }
            notice = notice => notice,
        };
        let verdict = match notice {
            Notice::Stop => {
                ending = true;
                may_be_sending = pulse.is_working();
                connection.as_mut().graceful_shutdown();
                continue;
            }
            Notice::Look => patience.verdict(&pulse),
        };
        match verdict {
            PatienceVerdict::Stay => {}
            PatienceVerdict::Idle if !ending => {
                ending = true;
                may_be_sending = false;
                connection.as_mut().graceful_shutdown();
            }
            PatienceVerdict::Gone(cut) => {
                shared.metrics.cuts.of(PROTOCOL, cut).inc();
                return EndedConnection { may_be_sending: false, owed: None };
            }
            PatienceVerdict::Idle => return EndedConnection { may_be_sending: false, owed: None },
        }
    }
}

/// What a connection has to attend to beside its requests.
enum Notice {
    /// The node stops.
    Stop,
    /// It is time to look whether there is still somebody.
    Look,
}

async fn attend(shutdown: &mut watch::Receiver<bool>, is_ending: bool, look_every: Duration) -> Notice {
    tokio::select! {
        () = stopped(shutdown), if !is_ending => Notice::Stop,
        () = sleep(look_every) => Notice::Look,
    }
}

/// Whose requests come over a connection, and who answers them.
struct Caller {
    front: Arc<Front>,
    budget: Arc<Budget>,
    place: ClientPlace,
    peer: Peer,
    pulse: Arc<Pulse>,
}

impl Caller {
    async fn answer(&self, request: hyper::Request<Incoming>, working: Working) -> Response {
        let answer = match head_charge(&request, &self.budget) {
            Ok(_charge) => self.front.answer(request.map(Body::new), self.peer, &self.pulse).await,
            Err(full) => Problem::from(full).into_response(),
        };
        drop(working);
        self.place.settle();
        charged(answer, &self.budget)
    }
}

/// Counts a connection that ended by an error, if it is one of ours.
fn count_early_end(error: &(dyn Error + 'static), pulse: &Pulse, metrics: &Metrics) {
    let is_slow = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout);
    let cut = match pulse.is_crowded_out() {
        true => CutOff::Memory,
        // Between requests it is no more than a client that has nothing to say.
        false if is_slow && (pulse.has_head() || !pulse.has_begun()) => CutOff::Silent,
        false => return,
    };
    metrics.cuts.of(PROTOCOL, cut).inc();
}

/// What the head of a request takes while it is worked on.
fn head_charge(request: &hyper::Request<Incoming>, budget: &Arc<Budget>) -> Result<Option<Charge>, Full> {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let bytes = fields.sum::<usize>() + request.uri().path().len() + request.uri().query().map_or(0, str::len);
    if bytes <= HTTP_CONNECTION_BYTES {
        return Ok(None);
    }
    let mut charge = Charge::new(budget);
    charge.set(bytes)?;
    Ok(Some(charge))
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
        for why in [NoPlace::Full, NoPlace::TooManyFromThere] {
            let text = String::from_utf8(no_place(why).raw()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
            assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
            serde_json::from_str::<serde_json::Value>(body).unwrap();
        }
    }
}
