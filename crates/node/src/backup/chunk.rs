//! Chunks: a stretch of rows or of the log, and where it ends.
//!
//! A chunk ends behind a row whose key says so, and how likely that is follows from how many bytes the row has. So the same rows are cut at the
//! same places in every backup, and a change moves nothing but the chunk that it is in.

use sha2::{Digest, Sha256};
use std::io::{self, Read};
use xxhash_rust::xxh3::xxh3_64;

/// What chunks have on average, before they are compressed.
const MEAN_BYTES: u64 = 256 << 10;
/// A chunk ends when it has so much, whatever its keys say.
const BYTES_MAX: usize = 2 << 20;
/// The largest content that is read: the last entry, a value of the store or a batch that fills a segment of the log, may have gone beyond.
const CONTENT_BYTES_MAX: u64 = BYTES_MAX as u64 + (1 << 30);
/// As fast as the disk, and hashes do not compress.
const LEVEL: i32 = 1;

/// What a chunk is of. Its content begins with these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rows of the store: the bytes of a key, and of its value.
    Rows,
    /// Batches of the log: where one stood, and its records.
    Log,
}

impl Kind {
    fn magic(self) -> &'static [u8] {
        match self {
            Kind::Rows => b"tally rows 1\n",
            Kind::Log => b"tally log 1\n",
        }
    }
}

/// A chunk that is being filled.
pub struct Filling {
    kind: Kind,
    content: Vec<u8>,
    pub entries: u64,
}

impl Filling {
    pub fn new(kind: Kind) -> Filling {
        Filling { kind, content: kind.magic().to_vec(), entries: 0 }
    }

    /// Adds an entry; answers whether the chunk ends behind it.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> bool {
        for part in [key, value] {
            self.content.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        self.content.extend_from_slice(key);
        self.content.extend_from_slice(value);
        self.entries += 1;
        let bytes = (8 + key.len() + value.len()) as u64;
        self.content.len() >= BYTES_MAX || xxh3_64(key) < (u64::MAX / MEAN_BYTES).saturating_mul(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// What was filled; another chunk begins.
    pub fn take(&mut self) -> Vec<u8> {
        self.entries = 0;
        std::mem::replace(&mut self.content, self.kind.magic().to_vec())
    }
}

/// The name of a content: its SHA-256, in hexadecimal digits.
pub fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(content, LEVEL)
}

/// The content of an object, if it is what its digest says.
pub fn open(object: &[u8], expected: &str) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let read =
        zstd::Decoder::with_buffer(object).and_then(|frames| frames.take(CONTENT_BYTES_MAX).read_to_end(&mut content));
    read.map_err(|error| error.to_string())?;
    match digest(&content) == expected {
        true => Ok(content),
        false => Err("it does not have the digest that it is named by".to_owned()),
    }
}

/// The entries of a chunk, in order.
pub fn entries(kind: Kind, content: &[u8]) -> Result<Entries<'_>, String> {
    let rest = content.strip_prefix(kind.magic());
    Ok(Entries { rest: rest.ok_or_else(|| format!("it is not of the kind {kind:?} in a version that is known here"))? })
}

pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    fn take(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (lengths, rest) = self.rest.split_first_chunk::<8>()?;
        let length = |at: usize| u32::from_le_bytes(lengths[at..at + 4].try_into().expect("4 bytes")) as usize;
        let (key, rest) = rest.split_at_checked(length(0))?;
        let (value, rest) = rest.split_at_checked(length(4))?;
        self.rest = rest;
        Some((key, value))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            self.rest = &[];
        }
        Some(taken.ok_or_else(|| "its last entry is not whole".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(rows: impl Iterator<Item = (u32, u32)>) -> Vec<Vec<u8>> {
        let (mut filling, mut all) = (Filling::new(Kind::Rows), Vec::new());
        for (key, value) in rows {
            if filling.add(&key.to_be_bytes(), &[value as u8; 100]) {
                all.push(filling.take());
            }
        }
        all.push(filling.take());
        all
    }

    #[test]
    fn a_changed_row_changes_its_own_chunk_and_no_other() {
        let before = chunks((0..100_000).map(|key| (key, key)));
        let after = chunks((0..100_000).map(|key| (key, key + u32::from(key == 50_000))));
        assert!((20..80).contains(&before.len()), "11 MB in {} chunks", before.len());
        assert_eq!(before.len(), after.len());
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 1);
        // One that is new, or gone, changes one or two.
        let without = chunks((0..100_000).filter(|key| *key != 50_000).map(|key| (key, key)));
        assert!(without.iter().filter(|chunk| !before.contains(chunk)).count() <= 1);
    }

    #[test]
    fn a_chunk_is_read_as_it_was_written_and_no_flipped_bit_goes_unnoticed() {
        let mut filling = Filling::new(Kind::Log);
        filling.add(b"key", b"");
        filling.add(b"", b"value");
        let content = filling.take();
        assert_eq!(content, b"tally log 1\n\x03\0\0\0\0\0\0\0key\0\0\0\0\x05\0\0\0value", "the bytes are pinned");
        let (name, object) = (digest(&content), compress(&content).unwrap());
        assert_eq!(open(&object, &name).unwrap(), content);
        let read: Result<Vec<_>, _> = entries(Kind::Log, &content).unwrap().collect();
        assert_eq!(read.unwrap(), [(&b"key"[..], &b""[..]), (b"", b"value")]);
        assert!(entries(Kind::Rows, &content).is_err());
        for bit in 0..object.len() * 8 {
            let mut flipped = object.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Some bits of a frame mean nothing for its content; then nothing is lost.
            assert!(open(&flipped, &name).is_err() || open(&flipped, &name).unwrap() == content, "bit {bit}");
        }
        for end in 13..content.len() {
            let cut: Result<Vec<_>, _> = entries(Kind::Log, &content[..end]).unwrap().collect();
            assert!(cut.is_err() || end == 23, "cut at {end}");
        }
    }
}
