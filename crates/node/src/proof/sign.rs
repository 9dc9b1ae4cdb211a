//! The key that anchors are signed with: 32 bytes in hexadecimal digits, in a file that only its owner reads.

use ring::signature::{Ed25519KeyPair, KeyPair};
use std::path::Path;
use tally_archive::Sign;
use tally_core::proof::{Hash, Signature, from_hex, hex, signed_text};

pub struct Signer(Ed25519KeyPair);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key {path} cannot be read: {error}")]
    Unreadable { path: String, error: std::io::Error },
    #[error(
        "the key {path} is none: it must be 64 hexadecimal digits, as tally keygen or `openssl rand -hex 32` makes them"
    )]
    NoKey { path: String },
}

impl Signer {
    pub fn read(path: &Path) -> Result<Signer, KeyError> {
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| KeyError::Unreadable { path: shown(), error })?;
        let seed = from_hex::<32>(text.trim()).map_err(|_| KeyError::NoKey { path: shown() })?;
        Ok(Signer::new(&seed))
    }

    pub fn new(seed: &[u8; 32]) -> Signer {
        Signer(Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a key"))
    }

    /// What signatures are checked with, in 64 hexadecimal digits.
    pub fn public_key(&self) -> String {
        hex(self.0.public_key().as_ref())
    }
}

impl Sign for Signer {
    fn sign(&self, anchor: &Hash) -> Signature {
        let signature = self.0.sign(signed_text(anchor).as_bytes());
        Signature::new(self.0.public_key().as_ref(), signature.as_ref())
    }
}
