//! A request as one compact batch (`docs/formats/batch.md`), written without the encoder that clients have: two that know nothing of
//! each other are two readings of the same page.
//!
//! All events have one shape and their records one length, so that they can be overwritten in place like lines.

use super::line::{EventsShape, LineShape, REQUEST_DIGITS, SESSION_DIGITS, Seq};
use crc32fast::Hasher;
use std::ops::Range;

pub const MEDIA_TYPE: &str = "application/vnd.tally.batch";

const HEADER_BYTES: usize = 16;
const CHECKSUM_AT: Range<usize> = 12..16;

/// Fields of the shape.
const EVENT_ID: u8 = 1;
const OCCURRED_AT: u8 = 2;
const SESSION: u8 = 4;
const SEQ: u8 = 8;
const DIMENSIONS: u8 = 32;

/// A batch, with what stands before its first record, and where in a record the fields are that change.
pub struct CompactBody {
    pub bytes: Vec<u8>,
    pub records_at: usize,
    pub record: LineShape,
}

impl CompactBody {
    pub fn new(shape: &EventsShape) -> CompactBody {
        let mut bytes = vec![0; HEADER_BYTES];
        put_varint(&mut bytes, shape.occurred_at_ms << 1);
        // The dictionary, and the one shape.
        put_varint(&mut bytes, 2);
        for text in [&shape.event_type, &shape.dimension] {
            put_varint(&mut bytes, text.len() as u64);
            bytes.extend_from_slice(text.as_bytes());
        }
        let event_id = if has_ids(shape) { EVENT_ID } else { 0 };
        bytes.extend_from_slice(&[1, 0, event_id | OCCURRED_AT | SESSION | SEQ | DIMENSIONS, 1, 1]);
        put_varint(&mut bytes, shape.events_per_request);
        let records_at = bytes.len();
        let mut record = push_record(&mut bytes, shape, 0);
        for n in 1..shape.events_per_request {
            record = push_record(&mut bytes, shape, n);
        }
        let content_bytes = (bytes.len() - HEADER_BYTES) as u32;
        bytes[..8].copy_from_slice(b"TLYB\x01\0\0\0");
        bytes[8..12].copy_from_slice(&content_bytes.to_le_bytes());
        CompactBody { bytes, records_at, record }
    }
}

/// Writes the checksum of a batch that was overwritten.
pub fn seal(batch: &mut [u8]) {
    let mut hasher = Hasher::new();
    hasher.update(&batch[..CHECKSUM_AT.start]);
    hasher.update(&batch[CHECKSUM_AT.end..]);
    batch[CHECKSUM_AT].copy_from_slice(&hasher.finalize().to_le_bytes());
}

/// Events only have ids if something depends on them.
fn has_ids(shape: &EventsShape) -> bool {
    shape.repeats_reach_back
}

fn push_record(out: &mut Vec<u8>, shape: &EventsShape, n: u64) -> LineShape {
    let EventsShape { key, run, .. } = shape;
    let start = out.len();
    let at = |out: &Vec<u8>, begin: usize, len: usize| out.len() - begin - start..out.len() - begin - start + len;
    out.push(0);
    let request = has_ids(shape).then(|| {
        let behind = format!("-{n:04}");
        put_text(out, &format!("e{run}-{}{behind}", "0".repeat(REQUEST_DIGITS)));
        at(out, REQUEST_DIGITS + behind.len(), REQUEST_DIGITS)
    });
    // They all happened at the base of times.
    out.push(0);
    put_text(out, &format!("s{run}-{}", "0".repeat(SESSION_DIGITS)));
    let session = at(out, SESSION_DIGITS, SESSION_DIGITS);
    let before = out.len();
    put_varint(out, shape.sessions.of(0, 0, shape.events_per_request).1);
    let seq = Seq::Varint(before - start..out.len() - start);
    put_text(out, &key.zero());
    let key = at(out, key.digits + key.suffix.len(), key.digits);
    LineShape { bytes: out.len() - start, request, hour: None, session, seq, key }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, (text.len() as u64) << 1);
    out.extend_from_slice(text.as_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Overwrites a number with one of the same length; seqs are chosen so that they all are.
#[inline]
pub fn overwrite_varint(bytes: &mut [u8], mut value: u64) {
    let last = bytes.len() - 1;
    for byte in &mut bytes[..last] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    debug_assert!(value < 0x80);
    bytes[last] = value as u8;
}
