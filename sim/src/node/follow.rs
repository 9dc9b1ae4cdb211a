//! Somebody outside who follows the node through all its lives, from a snapshot on.

use super::life::{TURNS_MAX, turns};
use super::{NodeWorld, ORDER};
use crate::fault::Fault;
use crate::folded::Told;
use std::collections::BTreeMap;
use tally_core::commit::{Commit, Deltas};
use tally_node::engine::{CommitsError, Engine};

/// Counters on a page of a snapshot: few, so that there are several.
const PAGE: usize = 20;

impl NodeWorld {
    /// Goes on where he stands; with a snapshot, if he has nothing.
    pub async fn follow(&mut self, engine: &Engine) {
        if !self.circumstances.followed {
            return;
        }
        match self.folded.at {
            None => self.begin_to_follow(engine).await,
            Some(_) => self.go_on_following(engine).await,
        }
    }

    /// He loses what he has, and begins anew.
    pub(super) fn lose_follower(&mut self) {
        self.hit(Fault::FollowerLost);
        self.folded.at = None;
    }

    async fn begin_to_follow(&mut self, engine: &Engine) {
        // A cut is made for it: that takes time, and may be refused.
        let Some(Ok(snapshot)) = turns(engine.snapshot(), TURNS_MAX).await else { return };
        let (mut values, mut after) = (BTreeMap::new(), None);
        loop {
            let page = snapshot.page(after.as_deref(), PAGE).expect("a store in memory can be read");
            values.extend(page.counters.into_iter().map(|(id, reading)| (id, reading.value)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.trace.note(format_args!("follows from {} with {} counters", snapshot.position(), values.len()));
        self.folded.begin(snapshot.position(), values);
    }

    async fn go_on_following(&mut self, engine: &Engine) {
        // Whoever follows says so; deltas are written down since he began, whether he is heard now or not.
        let _ = turns(engine.follow_commits(), TURNS_MAX).await;
        let Some(at) = self.folded.at else { return };
        if at.offset > engine.applied().offset {
            return self.fail(format!("somebody follows at {at}, and the log ends at {}", engine.applied()));
        }
        match commits_behind(engine, at.offset) {
            Ok(commits) => commits.iter().for_each(|commit| self.take_commit(commit)),
            Err(error) if self.disk_may_fail() => self.trace.note(format_args!("commits cannot be read: {error}")),
            Err(error) => self.fail(format!("commits cannot be read: {error}")),
        }
    }

    fn take_commit(&mut self, commit: &Commit) {
        let Some(Deltas { flushed: false, unnamed: 0, counters }) = &commit.deltas else {
            return self.fail(format!("the commit from {} does not tell what changed", commit.from));
        };
        let told = counters.iter().map(|told| Told { id: told.id.to_vec(), delta: told.delta, value: told.value });
        if let Err(failure) = self.folded.take(commit.from, commit.to, told) {
            self.fail(failure);
        }
        self.trace.note(format_args!("followed to {}", commit.to));
    }

    /// He has every counter, and nothing else. Nothing happens any more.
    pub(super) async fn check_followed(&mut self, engine: &Engine) {
        if !self.circumstances.followed {
            return;
        }
        self.follow(engine).await;
        self.follow(engine).await;
        let end = engine.applied();
        if self.folded.at.map(|at| at.offset) != Some(end.offset) {
            self.fail(format!("somebody follows up to {:?}, and the log ends at {end}", self.folded.at));
        }
        let mut right: BTreeMap<String, Option<i64>> =
            self.worth.now().map(|(key, value, _)| (key.to_owned(), value)).collect();
        right.extend(self.found.iter().map(|(marker, order)| (marker.clone(), Some(*order))));
        right.insert(ORDER.to_owned(), Some(self.found.len() as i64).filter(|requests| *requests > 0));
        let known = self.folded.ids().map(str::to_owned).filter(|id| !right.contains_key(id)).collect::<Vec<_>>();
        right.extend(known.into_iter().map(|id| (id, None)));
        for (id, right) in right {
            let told = self.folded.value(&id);
            if told != right {
                self.fail(format!("{id} is {told:?} for who follows, and {right:?} is right"));
            }
        }
    }
}

/// Every commit that ends behind an offset.
fn commits_behind(engine: &Engine, offset: u64) -> Result<Vec<Commit>, CommitsError> {
    let mut commits = Vec::new();
    if let Some((_, mut reader)) = engine.commits().find(offset)? {
        while let Some(commit) = reader.read()? {
            commits.push(commit);
        }
    }
    Ok(commits)
}
