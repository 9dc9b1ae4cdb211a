//! What somebody outside makes of a snapshot and of what he is told behind it. Every piece must begin where he stands: so none is
//! missed and none comes twice. Every counter must become what its delta makes of what it was.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// What happened to one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub id: Vec<u8>,
    pub delta: i128,
    /// `None` if it is gone.
    pub value: Option<i64>,
}

/// `P`: how he names a position.
#[derive(Clone, Debug, Default)]
pub struct Folded<P> {
    /// Where he stands; `None` if he has nothing.
    pub at: Option<P>,
    values: BTreeMap<Vec<u8>, i64>,
}

impl<P: Copy + Debug + PartialEq> Folded<P> {
    /// Begins with every counter at a position.
    pub fn begin(&mut self, at: P, values: BTreeMap<Vec<u8>, i64>) {
        (self.at, self.values) = (Some(at), values);
    }

    /// Takes what happened between two positions. Answers what does not fit.
    pub fn take(&mut self, from: P, to: P, told: impl IntoIterator<Item = Told>) -> Result<(), String> {
        if self.at != Some(from) {
            return Err(format!("what is told goes from {from:?} to {to:?}, and the follower stands at {:?}", self.at));
        }
        for Told { id, delta, value } in told {
            let before = self.values.get(&id).copied();
            if i128::from(before.unwrap_or(0)) + delta != i128::from(value.unwrap_or(0)) {
                let id = String::from_utf8_lossy(&id);
                return Err(format!("{id} was {before:?}, changed by {delta}, and is told to be {value:?}"));
            }
            match value {
                Some(value) => drop(self.values.insert(id, value)),
                None => drop(self.values.remove(&id)),
            }
        }
        self.at = Some(to);
        Ok(())
    }

    pub fn value(&self, id: &str) -> Option<i64> {
        self.values.get(id.as_bytes()).copied()
    }

    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(|id| std::str::from_utf8(id).expect("ids are text here"))
    }
}
