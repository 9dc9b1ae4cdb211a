//! Proofs: what a stranger needs to check, offline, that a number followed from the log (`docs/guide/proofs.md`).
//!
//! `make` reads the hours concerned again from the archive; `check` looks at the document alone and shares nothing with that but
//! how hashes are made. `sign` puts a name to anchors.

mod check;
mod document;
mod make;
mod sign;

pub use check::{Checked, check, check_signature};
pub use document::{Link, Proof, ProvenCommit, ProvenCorrection, ProvenEvent, ProvenRule, RootView, Start, StartKind};
pub use make::{CannotProve, Wanted, make};
pub use sign::{KeyError, Signer};
