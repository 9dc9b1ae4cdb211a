//! The body of a request as it streams in: decompressed, bounded in size and in time.
//!
//! The bound holds for what comes *out* of a decompressor, and it holds while decompressing, so a bomb costs no more than
//! an honest body of the largest size.

use std::io::{self, Write};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use http_body_util::BodyExt;
use tally_core::limits::HTTP_DRAIN_BYTES_MAX;
use tokio::time::timeout;
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation, OutBuffer};

use super::Api;
use super::memory::Lease;
use super::problem::{Kind, Problem, quoted};
use crate::clock::Stopwatch;

/// The largest window of a zstd frame, as a power of two: the 8 MiB that RFC 9659 allows on the web.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

const OUTPUT_STEP_BYTES: usize = 128 * 1024;

/// Pieces of a body, decoded, in order.
pub struct Pieces {
    body: Body,
    /// The sender says that there is more than may be.
    too_large: bool,
    /// The sender waits for leave to send; it need not be read to be told.
    expects_leave: bool,
    decoder: Option<Decoder>,
    limit: usize,
    left: usize,
    idle_timeout: Duration,
    total_timeout: Duration,
    begun: Stopwatch,
    /// The room that the request takes in memory; the reader of the pieces says how much.
    pub lease: Lease,
}

impl Pieces {
    /// `limit` is on the decoded body, in bytes.
    pub fn new(api: &Api, headers: &HeaderMap, body: Body, limit: usize) -> Result<Pieces, Problem> {
        let decoder = decoder(headers)?;
        Ok(Pieces {
            body,
            too_large: decoder.is_none() && content_length(headers).is_some_and(|bytes| bytes > limit as u64),
            expects_leave: headers.contains_key(EXPECT),
            decoder,
            limit,
            left: limit,
            idle_timeout: api.options.body_idle_timeout,
            total_timeout: api.options.body_timeout,
            begun: Stopwatch::start(),
            lease: Lease::new(api.memory.clone()),
        })
    }

    /// The next piece, or `None` at the end of the body. A piece may be empty.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        if self.too_large {
            return Err(too_large(self.limit));
        }
        let Some(frame) = self.frame().await? else {
            return match self.decoder.take() {
                Some(decoder) => decoder.finish(self.left).map(Some).map_err(|fault| self.explain(fault)),
                None => Ok(None),
            };
        };
        let piece = match &mut self.decoder {
            None => frame,
            Some(decoder) => decoder.decode(&frame, self.left).map_err(|fault| self.explain(fault))?,
        };
        self.left = self.left.checked_sub(piece.len()).ok_or_else(|| too_large(self.limit))?;
        Ok(Some(piece))
    }

    /// The whole body.
    pub async fn collect(mut self) -> Result<Vec<u8>, Problem> {
        let mut whole = Vec::new();
        match self.collect_into(&mut whole).await {
            Ok(()) => Ok(whole),
            Err(problem) => Err(self.refuse(problem).await),
        }
    }

    async fn collect_into(&mut self, whole: &mut Vec<u8>) -> Result<(), Problem> {
        while let Some(piece) = self.next().await? {
            self.lease.hold(whole.len() + piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok(())
    }

    /// Ends a request that cannot be taken: a bounded rest of its body is read and forgotten, so that the connection can be
    /// used again. Whoever is late has had his time; his connection ends (see [`super::linger`]).
    pub async fn refuse(mut self, problem: Problem) -> Problem {
        let mut left = HTTP_DRAIN_BYTES_MAX;
        if problem.kind == Kind::Timeout || (self.too_large && self.expects_leave) {
            left = 0;
        }
        while left > 0 {
            let Ok(Some(frame)) = self.frame().await else { break };
            left = left.saturating_sub(frame.len());
        }
        problem
    }

    async fn frame(&mut self) -> Result<Option<Bytes>, Problem> {
        let left = self.total_timeout.saturating_sub(self.begun.elapsed());
        loop {
            let next = timeout(left.min(self.idle_timeout), self.body.frame()).await;
            match next.map_err(|_| self.too_slow())? {
                None => return Ok(None),
                // Trailers say nothing here.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => return Ok(Some(data)),
                    Err(_) => continue,
                },
                Some(Err(error)) => {
                    let detail = format!("the body breaks off: {error}; nothing of it was counted");
                    return Err(Problem::new(Kind::InvalidBody, detail));
                }
            }
        }
    }

    fn too_slow(&self) -> Problem {
        let (pause, total) = (self.idle_timeout, self.total_timeout);
        let detail = format!(
            "the body came too slowly: it may pause for {pause:?} and take {total:?} as a whole; nothing of it was counted"
        );
        Problem::new(Kind::Timeout, detail)
    }

    fn explain(&self, fault: Fault) -> Problem {
        match fault {
            Fault::TooLarge => too_large(self.limit),
            Fault::Broken(error) => {
                let detail = format!("the body cannot be decompressed: {error}; nothing of it was counted");
                Problem::new(Kind::InvalidBody, detail)
            }
        }
    }
}

/// How many bytes the sender promises.
pub fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> Problem {
    Problem::too_large("the body is too large when decompressed", limit, "send it in several requests")
}

fn decoder(headers: &HeaderMap) -> Result<Option<Decoder>, Problem> {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
    match encoding.to_str().unwrap_or("?").trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(None),
        "gzip" | "x-gzip" => Ok(Some(Decoder::Gzip(Box::new(MultiGzDecoder::new(Bounded::default()))))),
        "zstd" => Ok(Some(Decoder::zstd())),
        unknown => {
            let unknown = quoted(unknown);
            let detail = format!("Content-Encoding is {unknown}; send gzip, zstd or no encoding at all");
            Err(Problem::new(Kind::UnsupportedEncoding, detail).with("value", unknown))
        }
    }
}

/// Why a body cannot be decoded.
#[derive(Debug)]
enum Fault {
    TooLarge,
    Broken(io::Error),
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<Bounded>>),
    Zstd { decoder: ZstdDecoder<'static>, in_frame: bool },
}

impl Decoder {
    fn zstd() -> Decoder {
        let mut decoder = ZstdDecoder::new().expect("a decoder needs nothing but memory");
        decoder
            .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
            .expect("the window is one that zstd knows");
        Decoder::Zstd { decoder, in_frame: false }
    }

    /// Decodes one piece to at most `limit` bytes.
    fn decode(&mut self, input: &[u8], limit: usize) -> Result<Bytes, Fault> {
        match self {
            Decoder::Gzip(decoder) => {
                decoder.get_mut().limit = limit;
                let written = decoder.write_all(input).and_then(|()| decoder.flush());
                decoder.get_mut().take(written)
            }
            Decoder::Zstd { decoder, in_frame } => decode_zstd(decoder, in_frame, input, limit),
        }
    }

    /// What is left at the end of the body; an encoding that breaks off is an error.
    fn finish(self, limit: usize) -> Result<Bytes, Fault> {
        match self {
            Decoder::Gzip(mut decoder) => {
                decoder.get_mut().limit = limit;
                let finished = decoder.try_finish();
                decoder.get_mut().take(finished)
            }
            Decoder::Zstd { in_frame: false, .. } => Ok(Bytes::new()),
            Decoder::Zstd { in_frame: true, .. } => Err(Fault::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn decode_zstd(decoder: &mut ZstdDecoder<'_>, in_frame: &mut bool, input: &[u8], limit: usize) -> Result<Bytes, Fault> {
    let mut out = Vec::new();
    if input.is_empty() {
        return Ok(out.into());
    }
    let mut input = InBuffer::around(input);
    loop {
        let start = out.len();
        out.resize(start + OUTPUT_STEP_BYTES, 0);
        let mut output = OutBuffer::around_pos(&mut out[..], start);
        let hint = decoder.run(&mut input, &mut output).map_err(Fault::Broken)?;
        let end = output.pos();
        out.truncate(end);
        if end > limit {
            return Err(Fault::TooLarge);
        }
        *in_frame = hint > 0;
        // Either the frame is complete, or an output that is not full says that the decoder waits for more input.
        if input.pos() == input.src.len() && (hint == 0 || end < start + OUTPUT_STEP_BYTES) {
            return Ok(out.into());
        }
    }
}

/// What a decoder may write, and no byte more.
#[derive(Default)]
struct Bounded {
    out: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Bounded {
    /// What was written since the last time, if `written` went well.
    fn take(&mut self, written: io::Result<()>) -> Result<Bytes, Fault> {
        match written {
            Ok(()) => Ok(std::mem::take(&mut self.out).into()),
            Err(_) if self.full => Err(Fault::TooLarge),
            Err(error) => Err(Fault::Broken(error)),
        }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.out.len() + bytes.len() > self.limit {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(plain: &[u8]) -> Vec<u8> {
        zstd::encode_all(plain, 1).unwrap()
    }

    fn new_decoder(encoding: &'static str) -> Decoder {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
        decoder(&headers).unwrap_or_else(|_| panic!("{encoding} is known")).unwrap()
    }

    /// Decodes in pieces, as [`Pieces`] does.
    fn decode(encoding: &'static str, encoded: &[u8], piece: usize) -> Result<Vec<u8>, Fault> {
        let mut decoder = new_decoder(encoding);
        let mut out = Vec::new();
        for piece in encoded.chunks(piece) {
            out.extend_from_slice(&decoder.decode(piece, LIMIT - out.len())?);
        }
        out.extend_from_slice(&decoder.finish(LIMIT - out.len())?);
        Ok(out)
    }

    fn sample() -> Vec<u8> {
        (0..20_000).flat_map(|n| format!("{{\"type\":\"v\",\"seq\":{n}}}\n").into_bytes()).collect()
    }

    #[test]
    fn a_compressed_body_comes_out_whole_in_whatever_pieces_it_comes_in() {
        let plain = sample();
        for piece in [1, 7, 1000, usize::MAX] {
            assert_eq!(decode("gzip", &gzip(&plain), piece).unwrap(), plain);
            assert_eq!(decode("zstd", &zstd(&plain), piece).unwrap(), plain);
        }
        let twice = [plain.clone(), plain.clone()].concat();
        assert_eq!(decode("gzip", &[gzip(&plain), gzip(&plain)].concat(), 99).unwrap(), twice);
        assert_eq!(decode("zstd", &[zstd(&plain), zstd(&plain)].concat(), 99).unwrap(), twice);
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit() {
        let zeros = vec![0; 64 * LIMIT];
        for (encoding, bomb) in [("gzip", gzip(&zeros)), ("zstd", zstd(&zeros))] {
            assert!(bomb.len() < LIMIT / 2, "{encoding} makes {} of it", bomb.len());
            assert!(matches!(decode(encoding, &bomb, usize::MAX), Err(Fault::TooLarge)), "{encoding}");
            assert!(matches!(decode(encoding, &bomb, 100), Err(Fault::TooLarge)), "{encoding}");
        }
    }

    #[test]
    fn a_body_of_exactly_the_limit_is_taken() {
        let plain = vec![b'x'; LIMIT];
        assert_eq!(decode("gzip", &gzip(&plain), 1000).unwrap().len(), LIMIT);
        assert_eq!(decode("zstd", &zstd(&plain), 1000).unwrap().len(), LIMIT);
        let plain = vec![b'x'; LIMIT + 1];
        assert!(matches!(decode("gzip", &gzip(&plain), 1000), Err(Fault::TooLarge)));
        assert!(matches!(decode("zstd", &zstd(&plain), 1000), Err(Fault::TooLarge)));
    }

    #[test]
    fn a_compressed_body_that_breaks_off_is_an_error() {
        let plain = sample();
        for (encoding, encoded) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
            for cut in [1, 5, 20, encoded.len() / 2, encoded.len() - 1] {
                assert!(
                    matches!(decode(encoding, &encoded[..cut], 512), Err(Fault::Broken(_))),
                    "{encoding} cut at {cut}"
                );
            }
            assert!(matches!(decode(encoding, b"{\"type\":\"v\"}", 512), Err(Fault::Broken(_))), "{encoding}");
        }
    }

    #[test]
    fn a_zstd_window_beyond_the_web_limit_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&sample()).unwrap();
        let encoded = encoder.finish().unwrap();
        assert!(matches!(decode("zstd", &encoded, 512), Err(Fault::Broken(_))));
    }

    #[test]
    fn an_unknown_encoding_is_refused_by_name() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "br".parse().unwrap());
        let problem = decoder(&headers).err().expect("br is not known");
        assert_eq!(problem.kind, Kind::UnsupportedEncoding);
        assert!(problem.detail.contains("br"), "{}", problem.detail);
    }
}
