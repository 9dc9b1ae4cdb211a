//! Checks a proof by itself: that every event and correction in it is in its commit, every commit in its root, every root in the
//! chain, and that what they add up to is the value. Whose chain it is, an anchor from elsewhere tells.

use super::document::{FORMAT, Link, Proof, ProvenCommit, ProvenEvent, StartKind};
use std::collections::{BTreeMap, HashMap, HashSet};
use tally_core::proof::{Hash, Root, Signature, follow, from_hex, signed_text};

/// What a proof shows.
#[derive(Debug)]
pub struct Checked {
    pub value: i64,
    pub events: usize,
    pub corrections: usize,
    /// The anchor of each root of the chain, by its number.
    pub anchors: BTreeMap<u64, Hash>,
    /// The last of them, which has all others behind it.
    pub anchor: Hash,
}

/// In words what is wrong, if something is.
pub fn check(proof: &Proof) -> Result<Checked, String> {
    if proof.format != FORMAT {
        return Err(format!("format is {}: this program knows {FORMAT}", proof.format));
    }
    let Chain { roots, anchors, anchor } = follow_chain(proof)?;
    let mut sum = Sum::new(proof);
    for commit in &proof.commits {
        let number = commit.root;
        let root = roots.get(&number).ok_or_else(|| format!("root {number} has commits and is not in the chain"))?;
        check_commit(commit, root)?;
        sum.add_commit(commit)?;
        for event in &commit.events {
            sum.add_event(event, commit)?;
        }
        sum.add_corrections(commit)?;
    }
    if sum.total != i128::from(proof.value) {
        return Err(format!("value is {}, and what is in the commits adds up to {}", proof.value, sum.total));
    }
    Ok(Checked { value: proof.value, events: sum.offsets.len(), corrections: sum.corrections.len(), anchors, anchor })
}

struct Chain<'p> {
    roots: HashMap<u64, &'p Root>,
    anchors: BTreeMap<u64, Hash>,
    anchor: Hash,
}

fn follow_chain(proof: &Proof) -> Result<Chain<'_>, String> {
    let first =
        proof.chain.first().and_then(|link| link.root.as_ref()).ok_or("the chain does not begin with a root")?;
    let last = proof.chain.last().and_then(|link| link.root.as_ref()).ok_or("the chain does not end with a root")?;
    let (start, mut anchor) = (proof.start, proof.before);
    let (mut roots, mut anchors) = (HashMap::new(), BTreeMap::new());
    for (number, link) in (first.number..).zip(&proof.chain) {
        let Link { body, root, signature } = link;
        let body = match (root, body) {
            (Some(root), None) => {
                if (root.number, root.before) != (number, anchor) {
                    return Err(format!("root {} is not chained to the one before it", root.number));
                }
                roots.insert(number, root);
                root.body()
            }
            (None, Some(body)) => *body,
            _ => return Err(format!("link {number} of the chain has neither a root nor its hash, or both")),
        };
        anchor = Root::anchor_of(anchor, body);
        anchors.insert(number, anchor);
        if let Some(signature) = signature {
            check_signature(signature, &anchor).map_err(|what| format!("root {number}: {what}"))?;
        }
    }
    if !(first.from..=first.to).contains(&start.offset) || proof.to != last.to {
        return Err(format!("it is from {} to {}, and its roots are not", start.offset, proof.to));
    }
    let is_zero = (start.offset, start.value, first.number, proof.before) == (0, 0, 0, Hash::default());
    if start.kind == StartKind::Beginning && !is_zero || start.kind == StartKind::Time && start.value != 0 {
        return Err("it does not start where it says".to_owned());
    }
    Ok(Chain { roots, anchors, anchor })
}

fn check_commit(proven: &ProvenCommit, root: &Root) -> Result<(), String> {
    let commit = &proven.commit;
    let at = format!("the commit from {} to {}", commit.from, commit.to);
    if follow(commit.hash(), &proven.path) != root.root {
        return Err(format!("{at} is not in root {}", root.number));
    }
    for event in &proven.events {
        if follow(event.leaf().hash(), &event.path) != commit.events_root {
            return Err(format!("the event at {} is not in {at}", event.offset));
        }
    }
    for correction in &proven.corrections {
        if follow(correction.leaf().hash(), &correction.path) != commit.corrections_root {
            return Err(format!("correction {} is not in {at}", correction.number));
        }
    }
    Ok(())
}

/// What all commits of a proof come to. Whatever is in it counts once.
struct Sum<'p> {
    proof: &'p Proof,
    commits: HashSet<Hash>,
    ids: HashSet<&'p str>,
    offsets: HashSet<u64>,
    corrections: HashSet<Hash>,
    total: i128,
}

impl<'p> Sum<'p> {
    fn new(proof: &'p Proof) -> Sum<'p> {
        let total = proof.start.value.into();
        let (commits, corrections) = (HashSet::new(), HashSet::new());
        Sum { proof, commits, ids: HashSet::new(), offsets: HashSet::new(), corrections, total }
    }

    fn add_commit(&mut self, proven: &ProvenCommit) -> Result<(), String> {
        let commit = &proven.commit;
        if self.commits.insert(commit.hash()) {
            return Ok(());
        }
        Err(format!("the commit from {} to {} is there twice", commit.from, commit.to))
    }

    fn add_event(&mut self, event: &'p ProvenEvent, commit: &ProvenCommit) -> Result<(), String> {
        let (proof, offset) = (self.proof, event.offset);
        if !(commit.commit.from..commit.commit.to).contains(&offset) || offset < proof.start.offset {
            return Err(format!("the event at {offset} is from another time"));
        }
        let id = event.event_id.as_deref().ok_or_else(|| format!("the event at {offset} has no id"))?;
        if !self.ids.insert(id) || !self.offsets.insert(offset) {
            return Err(format!("the event {id} is there twice"));
        }
        let value = |name: &String| event.dimensions.get(name).map(String::as_str);
        if key(&proof.counter, proof.dimensions.iter().map(value)).as_ref() != Some(&proof.id) {
            return Err(format!("the event {id} is for another key than {}", proof.id));
        }
        let version = event.config_version as u64;
        let rule = proof
            .rules
            .iter()
            .find(|rule| rule.r#type == event.r#type && (rule.from_version..=rule.to_version).contains(&version));
        let delta = i128::from(event.delta);
        self.total += match rule.map(|rule| rule.op.as_str()) {
            Some("increment") => delta,
            Some("decrement") => -delta,
            _ => return Err(format!("the event {id} is of the type {}, which does not count", event.r#type)),
        };
        Ok(())
    }

    fn add_corrections(&mut self, commit: &ProvenCommit) -> Result<(), String> {
        for correction in &commit.corrections {
            let number = correction.number;
            if !self.corrections.insert(correction.leaf().hash()) {
                return Err(format!("a row of correction {number} is there twice"));
            }
            if correction.counter != self.proof.id || correction.offset <= self.proof.start.offset {
                return Err(format!("correction {number} is for another key, or from another time"));
            }
            self.total += i128::from(correction.delta);
        }
        Ok(())
    }
}

/// The id that values of dimensions make; `None` if one is missing.
pub fn key<'v>(counter: &str, values: impl Iterator<Item = Option<&'v str>>) -> Option<String> {
    let mut id = counter.to_owned();
    for value in values {
        id.push(':');
        id.push_str(&value?.replace('%', "%25").replace(':', "%3A"));
    }
    Some(id)
}

/// Whether a signature is one of an anchor, by the key beside it.
pub fn check_signature(signature: &Signature, anchor: &Hash) -> Result<(), String> {
    let public_key = from_hex::<32>(&signature.public_key).map_err(|error| format!("publicKey: {error}"))?;
    let signed = from_hex::<64>(&signature.signature).map_err(|error| format!("signature: {error}"))?;
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, public_key);
    let wrong = |_| format!("its signature is not one of {anchor} by the key {}", signature.public_key);
    key.verify(signed_text(anchor).as_bytes(), &signed).map_err(wrong)
}
