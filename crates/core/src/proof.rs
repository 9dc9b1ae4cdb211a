//! What a proof is made of: hashes of rows, trees of them, and the anchors that stand for all before (`docs/formats/roots.md`).
//!
//! Everything here can be made again by somebody who has the rows and nothing else, in any language: SHA-256 over fields that have
//! one way to be written. A hash says by its first bytes what it is of, so none is taken for one of another kind.

mod leaf;
mod root;
mod tree;

pub use leaf::{CommitLeaf, CorrectionLeaf, EventLeaf, FateLeaf};
pub use root::{Counts, Root, Signature, signed_text};
pub use tree::{Frontier, Levels, Step, follow};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of something.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = NotHex;

    fn try_from(text: String) -> Result<Hash, NotHex> {
        text.parse()
    }
}

impl FromStr for Hash {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Hash, NotHex> {
        from_hex(text).map(Hash)
    }
}

/// A text that stands for no bytes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{found:?} is not {digits} hexadecimal digits in small letters")]
pub struct NotHex {
    found: String,
    digits: usize,
}

/// Bytes as text, in small letters.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}

/// So many bytes of a text. There is one text for them, so large letters are refused.
pub fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], NotHex> {
    let refused = || NotHex { found: text.chars().take(200).collect(), digits: 2 * N };
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    let bytes: Vec<u8> = pairs.collect::<Option<_>>().ok_or_else(refused)?;
    bytes.try_into().map_err(|_| refused())
}

/// What a hash is of, as its first byte.
mod kind {
    pub const LEAF: u8 = 0;
    pub const NODE: u8 = 1;
    pub const BODY: u8 = 2;
    pub const ANCHOR: u8 = 3;
}

/// Fields in a row, of which each can be told from the next.
struct Fields(Vec<u8>);

impl Fields {
    fn leaf(tag: u8) -> Fields {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(&[kind::LEAF, tag]);
        Fields(bytes)
    }

    fn of(kind: u8) -> Fields {
        Fields(vec![kind])
    }

    fn number(&mut self, number: i64) -> &mut Fields {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Fields {
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Fields {
        let length = u32::try_from(text.len()).expect("no field of a record has four gigabytes");
        self.0.extend_from_slice(&length.to_be_bytes());
        self.bytes(text.as_bytes())
    }

    fn maybe<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Fields, T) -> &mut Fields) -> &mut Fields {
        self.0.push(value.is_some().into());
        if let Some(value) = value {
            put(self, value);
        }
        self
    }

    fn hash(&self) -> Hash {
        Hash::of(&self.0)
    }
}

#[cfg(test)]
mod tests;
