//! The chain of cuts of one partition in an object store: objects first, then one manifest by compare-and-swap, then the
//! local copy.
//!
//! The manifest names every cut of the chain. Whoever replaces it says which one it has seen; if the answer is lost, or says that
//! another one is there, the manifest is read again: with one's own nonce in it one has won. A copy of rows is used only if the
//! last cut in it is in the manifest; what the chain has beyond it is added.

/// Chosen anew by every owner for every manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub u64);

/// What the object store has under the partition's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    pub number: u64,
    pub owner: u64,
    pub nonce: Option<Nonce>,
    /// The names of its cuts, oldest first.
    pub cuts: Vec<Nonce>,
}

impl Manifest {
    /// The one that comes with one more cut, whose object has the name of the nonce.
    pub fn with_cut(&self, owner: u64, nonce: Nonce) -> Manifest {
        let mut cuts = self.cuts.clone();
        cuts.push(nonce);
        Manifest { number: self.number + 1, owner, nonce: Some(nonce), cuts }
    }

    /// The cuts that a copy lacks whose last one is this; `None` if the copy is of another chain.
    pub fn behind(&self, last: Option<Nonce>) -> Option<&[Nonce]> {
        let Some(last) = last else { return Some(&self.cuts) };
        let at = self.cuts.iter().position(|cut| *cut == last)?;
        Some(&self.cuts[at + 1..])
    }
}

/// What became of a manifest that may or may not have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is the one that is there.
    Won,
    /// Nobody has written since: try again.
    Open,
    /// Somebody else has. Whoever finds that is no owner any more, and stops.
    Fenced,
}

/// Looks at what is there after the answer was lost, or was that another manifest is there.
pub fn settle(seen: &Manifest, mine: &Manifest, found: &Manifest) -> Settled {
    if found.nonce == mine.nonce {
        Settled::Won
    } else if found == seen {
        Settled::Open
    } else {
        Settled::Fenced
    }
}
