//! Decompression in steps: each makes a bounded piece of output, so that no body keeps a thread for long.

use std::io::{self, Write};

use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, get_error_name};

use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

/// The largest window of a zstd frame, as a power of two: the 8 MiB that RFC 9659 allows on the web.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// What a step makes at most, about.
pub const STEP_BYTES: usize = 128 * 1024;

/// What decoding gzip takes: a window, a state and a buffer.
const GZIP_BYTES: usize = 128 * 1024;

/// Why a body cannot be decoded.
#[derive(Debug)]
pub enum DecodeFault {
    TooLarge,
    Broken(io::Error),
}

pub enum Decoder {
    Gzip(Box<MultiGzDecoder<Bounded>>),
    Zstd(Zstd),
}

/// The decoder that the headers of a request ask for.
pub fn decoder(headers: &HeaderMap) -> Result<Option<Decoder>, Problem> {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
    match encoding.to_str().unwrap_or("?").trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(None),
        "gzip" | "x-gzip" => Ok(Some(Decoder::Gzip(Box::new(MultiGzDecoder::new(Bounded::default()))))),
        "zstd" => Ok(Some(Decoder::Zstd(Zstd::new()))),
        unknown => {
            let unknown = quoted(unknown);
            let detail = format!("Content-Encoding is {unknown}; send gzip, zstd or no encoding at all");
            Err(Problem::new(ProblemKind::UnsupportedEncoding, detail).with("value", unknown))
        }
    }
}

impl Decoder {
    /// Decodes some of the input, which is taken from its front, to at most `limit` bytes.
    pub fn step(&mut self, input: &mut Bytes, limit: usize) -> Result<Bytes, DecodeFault> {
        match self {
            Decoder::Gzip(decoder) => step_gzip(decoder, input, limit),
            Decoder::Zstd(zstd) => zstd.step(input, limit),
        }
    }

    /// Whether there is output that it can make without further input.
    pub fn is_pending(&self) -> bool {
        match self {
            Decoder::Gzip(_) => false,
            Decoder::Zstd(zstd) => zstd.is_pending,
        }
    }

    /// What it takes of the memory.
    pub fn held_bytes(&self) -> usize {
        match self {
            Decoder::Gzip(_) => GZIP_BYTES,
            Decoder::Zstd(zstd) => zstd.context.sizeof(),
        }
    }

    /// What is left at the end of the body; an encoding that breaks off is an error.
    pub fn finish(self, limit: usize) -> Result<Bytes, DecodeFault> {
        match self {
            Decoder::Gzip(mut decoder) => {
                decoder.get_mut().limit = limit;
                let finished = decoder.try_finish();
                decoder.get_mut().take(finished)
            }
            Decoder::Zstd(Zstd { in_frame: false, .. }) => Ok(Bytes::new()),
            Decoder::Zstd(Zstd { in_frame: true, .. }) => Err(DecodeFault::Broken(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

fn step_gzip(decoder: &mut MultiGzDecoder<Bounded>, input: &mut Bytes, limit: usize) -> Result<Bytes, DecodeFault> {
    decoder.get_mut().limit = limit;
    let mut written = Ok(());
    // Each write fills its buffer once, so this ends not far beyond the step.
    while written.is_ok() && !input.is_empty() && decoder.get_ref().out.len() < STEP_BYTES {
        written = match decoder.write(input) {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => {
                input.advance(taken);
                Ok(())
            }
            Err(error) => Err(error),
        };
    }
    if written.is_ok() && input.is_empty() {
        written = decoder.flush();
    }
    decoder.get_mut().take(written)
}

pub struct Zstd {
    context: DCtx<'static>,
    in_frame: bool,
    /// The last step filled its output, so there may be more.
    is_pending: bool,
}

impl Zstd {
    fn new() -> Zstd {
        let mut context = DCtx::create();
        let bounded = context.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX));
        bounded.expect("the window is one that zstd knows");
        Zstd { context, in_frame: false, is_pending: false }
    }

    fn step(&mut self, input: &mut Bytes, limit: usize) -> Result<Bytes, DecodeFault> {
        let mut out = vec![0; STEP_BYTES];
        let mut end = 0;
        while end < STEP_BYTES && (self.is_pending || !input.is_empty()) {
            let mut from = InBuffer::around(input);
            let mut to = OutBuffer::around_pos(&mut out[..], end);
            let broken = |code| DecodeFault::Broken(io::Error::other(get_error_name(code)));
            let hint = self.context.decompress_stream(&mut to, &mut from).map_err(broken)?;
            let taken = from.pos();
            end = to.pos();
            input.advance(taken);
            self.in_frame = hint > 0;
            self.is_pending = self.in_frame && end == STEP_BYTES;
        }
        out.truncate(end);
        if end > limit { Err(DecodeFault::TooLarge) } else { Ok(out.into()) }
    }
}

/// What a decoder may write, and no byte more.
#[derive(Default)]
pub struct Bounded {
    out: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Bounded {
    /// What was written since the last time, if `written` went well.
    fn take(&mut self, written: io::Result<()>) -> Result<Bytes, DecodeFault> {
        match written {
            Ok(()) => Ok(std::mem::take(&mut self.out).into()),
            Err(_) if self.full => Err(DecodeFault::TooLarge),
            Err(error) => Err(DecodeFault::Broken(error)),
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
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
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

    /// Decodes in pieces, as [`super::Pieces`] does.
    fn decode(encoding: &'static str, encoded: &[u8], piece: usize) -> Result<Vec<u8>, DecodeFault> {
        let mut decoder = new_decoder(encoding);
        let mut out = Vec::new();
        for piece in encoded.chunks(piece) {
            let mut piece = Bytes::copy_from_slice(piece);
            while !piece.is_empty() || decoder.is_pending() {
                let step = decoder.step(&mut piece, LIMIT - out.len())?;
                assert!(step.len() <= 2 * STEP_BYTES, "one step makes {} bytes", step.len());
                out.extend_from_slice(&step);
            }
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
            assert!(matches!(decode(encoding, &bomb, usize::MAX), Err(DecodeFault::TooLarge)), "{encoding}");
            assert!(matches!(decode(encoding, &bomb, 100), Err(DecodeFault::TooLarge)), "{encoding}");
        }
    }

    #[test]
    fn a_body_of_exactly_the_limit_is_taken() {
        let plain = vec![b'x'; LIMIT];
        assert_eq!(decode("gzip", &gzip(&plain), 1000).unwrap().len(), LIMIT);
        assert_eq!(decode("zstd", &zstd(&plain), 1000).unwrap().len(), LIMIT);
        let plain = vec![b'x'; LIMIT + 1];
        assert!(matches!(decode("gzip", &gzip(&plain), 1000), Err(DecodeFault::TooLarge)));
        assert!(matches!(decode("zstd", &zstd(&plain), 1000), Err(DecodeFault::TooLarge)));
    }

    #[test]
    fn a_compressed_body_that_breaks_off_is_an_error() {
        let plain = sample();
        for (encoding, encoded) in [("gzip", gzip(&plain)), ("zstd", zstd(&plain))] {
            for cut in [1, 5, 20, encoded.len() / 2, encoded.len() - 1] {
                assert!(
                    matches!(decode(encoding, &encoded[..cut], 512), Err(DecodeFault::Broken(_))),
                    "{encoding} cut at {cut}"
                );
            }
            assert!(matches!(decode(encoding, b"{\"type\":\"v\"}", 512), Err(DecodeFault::Broken(_))), "{encoding}");
        }
    }

    #[test]
    fn a_zstd_window_beyond_the_web_limit_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&sample()).unwrap();
        let encoded = encoder.finish().unwrap();
        assert!(matches!(decode("zstd", &encoded, 512), Err(DecodeFault::Broken(_))));
    }

    #[test]
    fn a_decoder_says_what_its_window_takes() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(ZSTD_WINDOW_LOG_MAX).unwrap();
        encoder.write_all(&sample()).unwrap();
        let encoded = encoder.finish().unwrap();
        let mut decoder = new_decoder("zstd");
        assert!(decoder.held_bytes() < 1 << 20, "{}", decoder.held_bytes());
        decoder.step(&mut Bytes::copy_from_slice(&encoded[..20]), LIMIT).unwrap();
        assert!(decoder.held_bytes() > 8 << 20, "{}", decoder.held_bytes());
    }

    #[test]
    fn an_unknown_encoding_is_refused_by_name() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, "br".parse().unwrap());
        let problem = decoder(&headers).err().expect("br is not known");
        assert_eq!(problem.kind, ProblemKind::UnsupportedEncoding);
        assert!(problem.detail.contains("br"), "{}", problem.detail);
    }
}
