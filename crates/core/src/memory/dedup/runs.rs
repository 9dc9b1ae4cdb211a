//! The seqs of one group in one window, as runs; and the store of those that have gaps.
//!
//! Runs of a group never overlap nor touch: a seq that closes a gap makes one run of two. So a group with k gaps costs k + 1
//! runs, whatever order its seqs came in.

use std::collections::BTreeMap;

/// Runs that are kept without a tree. Entries that overtook each other make two or three for a moment.
const FEW: usize = 3;
/// The standard tree's nodes: eleven runs, at least five but in the root; an inner one has twelve children as well.
const LEAF_BYTES: usize = 192;
const INNER_BYTES: usize = 288;

/// The seqs from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u64,
    pub last: u64,
}

impl Run {
    #[inline]
    pub fn contains(&self, seq: u64) -> bool {
        self.first <= seq && seq <= self.last
    }

    /// The run with a seq that stands directly before or behind it.
    #[inline]
    pub fn joined(self, seq: u64) -> Option<Run> {
        if self.last.checked_add(1) == Some(seq) {
            Some(Run { last: seq, ..self })
        } else if seq.checked_add(1) == Some(self.first) {
            Some(Run { first: seq, ..self })
        } else {
            None
        }
    }
}

/// One run or more, in no order while they are few, then by `first`. A seq costs a search in a tree at most, also in a group
/// of millions of gaps.
pub(super) enum Runs {
    Few { count: u8, runs: [Run; FEW] },
    Many(BTreeMap<u64, u64>),
}

impl Runs {
    pub fn of(run: Run) -> Runs {
        Runs::Few { count: 1, runs: [run, Run::default(), Run::default()] }
    }

    pub fn contains(&self, seq: u64) -> bool {
        self.up_to(seq).is_some_and(|run| run.contains(seq))
    }

    /// Notes a seq and answers whether it was noted before.
    pub fn note(&mut self, seq: u64) -> bool {
        let mut run = Run { first: seq, last: seq };
        match self.up_to(seq) {
            Some(left) if left.contains(seq) => return true,
            Some(left) if left.last == seq - 1 => run.first = self.remove(left).first,
            _ => {}
        }
        if let Some(right) = seq.checked_add(1).and_then(|next| self.starting_at(next)) {
            run.last = self.remove(right).last;
        }
        self.insert(run);
        false
    }

    /// The runs that this seq, or one beside it, stands in, and one run in any case. Some may come twice.
    pub fn beside(&self, seq: u64) -> [Option<Run>; 4] {
        let within = |seq: Option<u64>| seq.and_then(|seq| self.up_to(seq).filter(|run| run.contains(seq)));
        [self.any(), within(seq.checked_sub(1)), within(Some(seq)), within(seq.checked_add(1))]
    }

    fn any(&self) -> Option<Run> {
        match self {
            Runs::Few { runs, .. } => Some(runs[0]),
            Runs::Many(tree) => tree.iter().next().map(run_of),
        }
    }

    /// The only run, if there are no gaps.
    pub fn only(&self) -> Option<Run> {
        match self {
            Runs::Few { count: 1, runs } => Some(runs[0]),
            Runs::Many(tree) if tree.len() == 1 => tree.iter().next().map(run_of),
            _ => None,
        }
    }

    /// Memory in use beside this; for a tree not less than it really is.
    fn tree_bytes(&self) -> usize {
        match self {
            Runs::Few { .. } => 0,
            Runs::Many(tree) if tree.len() <= 10 => LEAF_BYTES,
            // At most: every leaf has five runs and the one behind it, every inner node six children.
            Runs::Many(tree) => INNER_BYTES + (tree.len() + 1) * (LEAF_BYTES + INNER_BYTES / 5) / 6,
        }
    }

    /// The last run that starts at this seq or before it.
    fn up_to(&self, seq: u64) -> Option<Run> {
        match self {
            Runs::Few { count, runs } => {
                let before = runs[..usize::from(*count)].iter().filter(|run| run.first <= seq);
                before.max_by_key(|run| run.first).copied()
            }
            Runs::Many(tree) => tree.range(..=seq).next_back().map(run_of),
        }
    }

    fn starting_at(&self, first: u64) -> Option<Run> {
        match self {
            Runs::Few { count, runs } => runs[..usize::from(*count)].iter().find(|run| run.first == first).copied(),
            Runs::Many(tree) => tree.get_key_value(&first).map(run_of),
        }
    }

    fn remove(&mut self, run: Run) -> Run {
        match self {
            Runs::Few { count, runs } => {
                let at = runs.iter().position(|other| *other == run).expect("it was just found");
                *count -= 1;
                runs.swap(at, usize::from(*count));
            }
            Runs::Many(tree) => {
                tree.remove(&run.first);
            }
        }
        run
    }

    fn insert(&mut self, run: Run) {
        match self {
            Runs::Few { count, runs } if usize::from(*count) < FEW => {
                runs[usize::from(*count)] = run;
                *count += 1;
            }
            Runs::Few { runs, .. } => {
                let all = runs.iter().copied().chain([run]);
                *self = Runs::Many(all.map(|run| (run.first, run.last)).collect());
            }
            Runs::Many(tree) => {
                tree.insert(run.first, run.last);
            }
        }
    }
}

fn run_of((first, last): (&u64, &u64)) -> Run {
    Run { first: *first, last: *last }
}

/// The runs of the groups of a segment that have gaps. A place that is given up is used again.
#[derive(Default)]
pub(super) struct Gaps {
    kept: Vec<Runs>,
    free: Vec<u32>,
    tree_bytes: usize,
}

impl Gaps {
    #[inline]
    pub fn get(&self, at: u64) -> &Runs {
        &self.kept[at as usize]
    }

    pub fn note(&mut self, at: u64, seq: u64) -> bool {
        let runs = &mut self.kept[at as usize];
        self.tree_bytes -= runs.tree_bytes();
        let noted_before = runs.note(seq);
        self.tree_bytes += runs.tree_bytes();
        noted_before
    }

    /// Adds a run that neither overlaps nor touches any that is there, unless it is there itself.
    pub fn add(&mut self, at: u64, run: Run) {
        let runs = &mut self.kept[at as usize];
        self.tree_bytes -= runs.tree_bytes();
        if !runs.contains(run.first) {
            runs.insert(run);
        }
        self.tree_bytes += runs.tree_bytes();
    }

    /// Keeps runs and answers where.
    pub fn keep(&mut self, runs: Runs) -> u64 {
        self.tree_bytes += runs.tree_bytes();
        if let Some(at) = self.free.pop() {
            self.kept[at as usize] = runs;
            return u64::from(at);
        }
        self.kept.push(runs);
        self.kept.len() as u64 - 1
    }

    /// Gives the runs back and their place up.
    pub fn take(&mut self, at: u64) -> Runs {
        let nothing = Runs::of(Run::default());
        let runs = std::mem::replace(&mut self.kept[at as usize], nothing);
        self.tree_bytes -= runs.tree_bytes();
        self.free.push(at as u32);
        runs
    }

    pub fn is_empty(&self) -> bool {
        self.kept.len() == self.free.len()
    }

    /// Gives the memory of an empty store back.
    pub fn trim(&mut self) {
        if self.is_empty() {
            *self = Gaps::default();
        }
    }

    /// Memory in use, beside the store itself.
    pub fn bytes(&self) -> usize {
        let lists = self.kept.capacity() * size_of::<Runs>() + self.free.capacity() * size_of::<u32>();
        lists + self.tree_bytes
    }
}
