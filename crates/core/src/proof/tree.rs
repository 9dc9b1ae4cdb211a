//! Trees of hashes, in the shape of RFC 6962: full trees of 2ⁿ leaves from the left, and the rest likewise.

use super::{Hash, kind};
use serde::{Deserialize, Serialize};

/// A tree that grows at its end. Of it only the roots of its full parts are held, one for each bit of how many leaves there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frontier {
    leaves: u64,
    /// The largest first.
    parts: Vec<Hash>,
}

impl Frontier {
    pub fn len(&self) -> u64 {
        self.leaves
    }

    pub fn is_empty(&self) -> bool {
        self.leaves == 0
    }

    pub fn push(&mut self, leaf: Hash) {
        let mut root = leaf;
        for _ in 0..self.leaves.trailing_ones() {
            let left = self.parts.pop().expect("there is a part for each bit");
            root = node(left, root);
        }
        self.parts.push(root);
        self.leaves += 1;
    }

    /// Of no leaves it is the hash of nothing.
    pub fn root(&self) -> Hash {
        let mut parts = self.parts.iter().rev().copied();
        let last = parts.next().unwrap_or_else(|| Hash::of(b""));
        parts.fold(last, |right, left| node(left, right))
    }

    /// Whether it is one that grew: as it was read from somewhere.
    pub fn is_whole(&self) -> bool {
        self.parts.len() == self.leaves.count_ones() as usize
    }
}

fn node(left: Hash, right: Hash) -> Hash {
    let mut bytes = [kind::NODE; 65];
    bytes[1..33].copy_from_slice(&left.0);
    bytes[33..].copy_from_slice(&right.0);
    Hash::of(&bytes)
}

/// One step on the way from a leaf to the root: who stands beside, and on which side. As text the side, then the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Step {
    Left(Hash),
    Right(Hash),
}

impl From<Step> for String {
    fn from(step: Step) -> String {
        match step {
            Step::Left(hash) => format!("L{hash}"),
            Step::Right(hash) => format!("R{hash}"),
        }
    }
}

impl TryFrom<String> for Step {
    type Error = String;

    fn try_from(text: String) -> Result<Step, String> {
        let (side, hash) = text.split_at_checked(1).ok_or("a step of a path is empty")?;
        let hash = hash.parse::<Hash>().map_err(|error| error.to_string())?;
        match side {
            "L" => Ok(Step::Left(hash)),
            "R" => Ok(Step::Right(hash)),
            other => Err(format!("a step of a path begins with L or R, not with {other:?}")),
        }
    }
}

/// A whole tree, level by level, from the leaves to the root. Who has nobody beside goes up as he is.
pub struct Levels(Vec<Vec<Hash>>);

impl Levels {
    pub fn new(leaves: Vec<Hash>) -> Levels {
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().filter(|below| below.len() > 1) {
            let up = below.chunks(2).map(|pair| match pair {
                [left, right] => node(*left, *right),
                alone => alone[0],
            });
            levels.push(up.collect());
        }
        Levels(levels)
    }

    pub fn root(&self) -> Hash {
        self.0.last().and_then(|top| top.first()).copied().unwrap_or_else(|| Hash::of(b""))
    }

    /// The way from a leaf to the root.
    pub fn path(&self, index: usize) -> Vec<Step> {
        let beside = |(level, hashes): (usize, &Vec<Hash>)| {
            let index = index >> level;
            let hash = hashes.get(index ^ 1).copied()?;
            Some(if index & 1 == 1 { Step::Left(hash) } else { Step::Right(hash) })
        };
        self.0.iter().enumerate().filter_map(beside).collect()
    }
}

/// The root that a way leads to.
pub fn follow(leaf: Hash, path: &[Step]) -> Hash {
    path.iter().fold(leaf, |below, step| match step {
        Step::Left(left) => node(*left, below),
        Step::Right(right) => node(below, *right),
    })
}
