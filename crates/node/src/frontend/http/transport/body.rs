//! The body of a request as it streams in: decompressed, bounded in size, in time and in what is done of it at once.
//!
//! The bound on the size holds for what comes *out* of a decompressor, and it holds while decompressing, so a bomb costs no
//! more than an honest body of the largest size. What is held for a body, windows of decompressors included, is charged to
//! the budget of all clients as it arrives; what a sender only promises takes nothing.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tally_core::limits::{
    BODY_BYTES_MAX, HTTP_AT_ONCE_BYTES, HTTP_DRAIN_BYTES_MAX, HTTP_SLICE_BYTES, LARGE_BYTES_UNKNOWN,
    LARGE_PAUSE_MS_MAX, LARGE_TIMES_COMPACT, LARGE_TIMES_COMPRESSED,
};
use tokio::time::timeout;

use crate::clock::Stopwatch;
use crate::frontend::budget::{Admission, Budget, Charge};
use crate::frontend::http::Api;
use crate::frontend::http::transport::guard::BodyType;
use crate::frontend::http::words::problem::{Problem, ProblemKind};
use decode::{DecodeFault, Decoder, decoder};
use turn::Turn;

mod decode;
mod turn;

const LARGE_PAUSE_MAX: Duration = Duration::from_millis(LARGE_PAUSE_MS_MAX);

type BodyFrame = Result<Frame<Bytes>, axum::Error>;

/// Pieces of a body, decoded, in order.
pub struct Pieces {
    body: Body,
    /// What the sender says that there is, as it is sent.
    promised_bytes: Option<u64>,
    /// The sender says that there is more than may be.
    too_large: bool,
    /// It is in parts, and read for as long as its sender likes.
    is_endless: bool,
    /// The sender waits for leave to send; it need not be read to be told.
    expects_leave: bool,
    decoder: Option<Decoder>,
    decoder_charge: Charge,
    /// What has arrived and is not decoded yet.
    encoded: Bytes,
    limit: usize,
    left: usize,
    /// What is decoded and not handed out yet.
    decoded: Bytes,
    handed_out_bytes: usize,
    /// What it is expected to take in memory.
    expected_bytes: usize,
    /// Of a large body, whether it may be read.
    admission: AdmissionState,
    /// Held while a large body is worked on.
    turn: Option<Turn>,
    budget: Arc<Budget>,
    idle_timeout: Duration,
    /// How long it may pause once it was refused.
    linger: Duration,
    total_timeout: Duration,
    begun: Stopwatch,
    /// The room that the request takes in memory; the reader of the pieces says how much.
    pub charge: Charge,
}

#[derive(Debug)]
enum AdmissionState {
    NotAsked,
    Held(#[expect(dead_code, reason = "it is given back by being dropped")] Admission),
    /// Its sender was too slow, and others are read in its place; what comes is still taken.
    GivenUp,
}

impl Pieces {
    /// `limit` is on the decoded body, in bytes.
    pub fn new(api: &Api, headers: &HeaderMap, body: Body, limit: usize) -> Result<Pieces, Problem> {
        let decoder = decoder(headers)?;
        let promised_bytes = content_length(headers);
        Ok(Pieces {
            expected_bytes: expected_bytes(promised_bytes, decoder.is_some(), headers),
            promised_bytes,
            admission: AdmissionState::NotAsked,
            body,
            too_large: decoder.is_none() && promised_bytes.is_some_and(|bytes| bytes > limit as u64),
            is_endless: false,
            expects_leave: headers.contains_key(EXPECT),
            decoder,
            decoder_charge: Charge::new(&api.budget),
            encoded: Bytes::new(),
            limit,
            left: limit,
            decoded: Bytes::new(),
            handed_out_bytes: 0,
            turn: None,
            budget: Arc::clone(&api.budget),
            idle_timeout: api.options.body_idle_timeout,
            linger: api.options.linger,
            total_timeout: api.options.body_timeout,
            begun: Stopwatch::start(),
            charge: Charge::new(&api.budget),
        })
    }

    /// A body that may go on without an end, in parts of which each is bounded like a body: [`Pieces::renew`] begins one. Between
    /// them it may rest for as long as a connection may.
    pub fn endless(api: &Api, headers: &HeaderMap, body: Body, limit: usize) -> Result<Pieces, Problem> {
        let pieces = Pieces::new(api, headers, body, limit)?;
        Ok(Pieces {
            too_large: false,
            idle_timeout: api.options.idle_timeout,
            is_endless: true,
            admission: AdmissionState::GivenUp,
            ..pieces
        })
    }

    /// How many bytes the sender promises.
    pub fn promised_bytes(&self) -> Option<u64> {
        self.promised_bytes
    }

    /// Begins the next part.
    pub fn renew(&mut self) {
        self.left = self.limit;
        self.handed_out_bytes = 0;
        self.begun = Stopwatch::start();
        self.charge.release();
    }

    /// The next piece, or `None` at the end of the body. A piece may be empty. Small bodies have it at once; large ones
    /// are worked on one after the other on each thread, and others have their turn between two pieces.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.too_large {
            return Err(too_large(self.limit));
        }
        if self.decoded.is_empty() {
            let Some(piece) = self.next_piece().await? else {
                self.turn = None;
                return Ok(None);
            };
            self.left = self.left.checked_sub(piece.len()).ok_or_else(|| too_large(self.limit))?;
            self.decoded = piece;
        }
        let at_once = HTTP_AT_ONCE_BYTES.saturating_sub(self.handed_out_bytes);
        let slice_bytes = if self.decoded.len() <= at_once {
            self.decoded.len()
        } else {
            self.be_admitted().await?;
            self.take_turn().await;
            self.decoded.len().min(HTTP_SLICE_BYTES)
        };
        self.handed_out_bytes += slice_bytes;
        Ok(Some(self.decoded.split_to(slice_bytes)))
    }

    /// Waits until a piece of a large body may be worked on.
    async fn take_turn(&mut self) {
        match &self.turn {
            Some(turn) => turn.go_on().await,
            // Nobody knows when its reader asks for more.
            None if self.is_endless => drop(Turn::take().await),
            None => self.turn = Some(Turn::take().await),
        }
    }

    /// A large body is read only while it is one of those under way.
    async fn be_admitted(&mut self) -> Result<(), Problem> {
        if let AdmissionState::NotAsked = self.admission {
            // What has come so far is there while it waits.
            self.charge.grow_to(self.decoded.len())?;
            self.admission = AdmissionState::Held(self.budget.admit(self.expected_bytes).await?);
        }
        Ok(())
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.decoder.is_none() {
            return self.frame().await;
        }
        if self.encoded.is_empty() && !self.decoder.as_ref().is_some_and(Decoder::is_pending) {
            match self.frame().await? {
                Some(frame) => self.encoded = frame,
                None => return self.finish(),
            }
        }
        let Some(decoder) = &mut self.decoder else { return Ok(None) };
        let decoded = decoder.step(&mut self.encoded, self.left);
        self.decoder_charge.grow_to(decoder.held_bytes())?;
        decoded.map(Some).map_err(|fault| self.explain(fault))
    }

    fn finish(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(decoder) = self.decoder.take() else { return Ok(None) };
        let rest = decoder.finish(self.left);
        self.decoder_charge.release();
        rest.map(Some).map_err(|fault| self.explain(fault))
    }

    /// The whole body.
    pub async fn collect(mut self) -> Result<Whole, Problem> {
        let mut whole = Vec::new();
        match self.collect_into(&mut whole).await {
            Ok(()) => Ok(Whole { bytes: whole, _charge: self.charge }),
            Err(problem) => Err(self.refuse(problem).await),
        }
    }

    async fn collect_into(&mut self, whole: &mut Vec<u8>) -> Result<(), Problem> {
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
            self.charge.grow_to(whole.capacity())?;
        }
        Ok(())
    }

    /// Ends a request that cannot be taken: a bounded rest of its body is read and forgotten, so that the connection can be
    /// used again. Whoever is late has had his time; his connection ends (see [`super::linger`]).
    pub async fn refuse(mut self, problem: Problem) -> Problem {
        // Its room is free at once.
        self.turn = None;
        self.decoded = Bytes::new();
        self.admission = AdmissionState::GivenUp;
        self.charge.release();
        self.decoder = None;
        self.decoder_charge.release();
        self.idle_timeout = self.idle_timeout.min(self.linger);
        let mut left = HTTP_DRAIN_BYTES_MAX;
        if problem.kind == ProblemKind::Timeout || (self.too_large && self.expects_leave) {
            left = 0;
        }
        while left > 0 {
            let Ok(Some(frame)) = self.frame().await else { break };
            left = left.saturating_sub(frame.len());
        }
        problem
    }

    async fn frame(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            // A body of a known length ends with its last byte: nobody has to be waited for to know.
            if self.body.is_end_stream() {
                return Ok(None);
            }
            let next = match ready(self.body.frame()).await {
                Poll::Ready(next) => next,
                Poll::Pending => self.wait_for_frame().await?,
            };
            match next {
                None => return Ok(None),
                // Trailers say nothing here.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Ok(Some(data)),
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    let detail = format!("the body breaks off: {error}; nothing of it was counted");
                    return Err(Problem::new(ProblemKind::InvalidBody, detail));
                }
            }
        }
    }

    /// Waits for a sender; nobody else does so for long.
    async fn wait_for_frame(&mut self) -> Result<Option<BodyFrame>, Problem> {
        self.turn = None;
        let left = self.total_timeout.saturating_sub(self.begun.elapsed());
        let patience = left.min(self.idle_timeout);
        if let Ok(next) = timeout(patience.min(LARGE_PAUSE_MAX), self.body.frame()).await {
            return Ok(next);
        }
        if let AdmissionState::Held(_) = self.admission {
            self.admission = AdmissionState::GivenUp;
        }
        timeout(patience.saturating_sub(LARGE_PAUSE_MAX), self.body.frame()).await.map_err(|_| self.too_slow())
    }

    fn too_slow(&self) -> Problem {
        let (pause, total) = (self.idle_timeout, self.total_timeout);
        let detail = format!(
            "the body came too slowly: it may pause for {pause:?} and take {total:?} as a whole; nothing of it was counted"
        );
        Problem::new(ProblemKind::Timeout, detail)
    }

    fn explain(&self, fault: DecodeFault) -> Problem {
        match fault {
            DecodeFault::TooLarge => too_large(self.limit),
            DecodeFault::Broken(error) => {
                let detail = format!("the body cannot be decompressed: {error}; nothing of it was counted");
                Problem::new(ProblemKind::InvalidBody, detail)
            }
        }
    }
}

/// What a future says that is asked once.
async fn ready<T>(future: impl Future<Output = T>) -> Poll<T> {
    let mut future = pin!(future);
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// What a body is expected to take in memory, by what its sender says of it.
fn expected_bytes(promised_bytes: Option<u64>, is_compressed: bool, headers: &HeaderMap) -> usize {
    let Some(promised_bytes) = promised_bytes else { return LARGE_BYTES_UNKNOWN };
    if !is_compressed && promised_bytes <= HTTP_AT_ONCE_BYTES as u64 {
        // It is read at once, whatever it is.
        return promised_bytes as usize;
    }
    let unpacked = if is_compressed { LARGE_TIMES_COMPRESSED } else { 1 };
    let spelt_out = if BodyType::of(headers) == BodyType::Batch { LARGE_TIMES_COMPACT } else { 1 };
    promised_bytes.min(BODY_BYTES_MAX as u64) as usize * unpacked * spelt_out
}

/// How many bytes the sender promises.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> Problem {
    Problem::too_large("the body is too large when decompressed", limit, "send it in several requests")
}

/// A body that has been read, and its room in memory.
pub struct Whole {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
