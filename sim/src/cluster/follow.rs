//! Somebody outside who follows a values partition: he begins with every counter that its owner has, and goes on with what the owners
//! say that each message did, whoever owns the partition then.

use super::values::ValuesProcess;
use super::{VALUES, World};
use crate::fault::Fault;
use crate::folded::{Folded, Told};
use std::collections::BTreeMap;
use tally_core::commit::Deltas;
use tally_core::ledger::Correction;
use tally_core::machine::Unfit;

/// What was told of a values partition, and what somebody made of it.
#[derive(Default)]
pub struct Following {
    /// By where a message begins: where it ends, what it did, and which generations became visible with it.
    told: BTreeMap<u64, (u64, Vec<Told>, Vec<Correction>)>,
    folded: Folded<u64>,
}

impl World {
    /// An owner says what a message did. Whoever says it again says the same.
    pub(super) fn tell(
        &mut self,
        partition: u32,
        from: u64,
        to: u64,
        deltas: &Deltas,
        corrections: &[Result<Correction, Unfit>],
    ) {
        // A partition may have no counter that a generation touches, and nothing that it undoes.
        let refused = corrections.iter().filter_map(|made| made.as_ref().err());
        if let Some(why) = refused.clone().find(|why| !matches!(why, Unfit::Nothing | Unfit::NotThere(_))) {
            self.referee.fail(format!("values {partition} does not make a correction at {from}: {why}"));
        }
        let corrections: Vec<Correction> = corrections.iter().flatten().cloned().collect();
        if deltas.flushed || deltas.unnamed > 0 {
            self.referee.fail(format!("values {partition} does not tell what changed at {from}: {deltas:?}"));
        }
        let counters = deltas.counters.iter();
        let mut told: Vec<Told> =
            counters.map(|told| Told { id: told.id.to_vec(), delta: told.delta, value: told.value }).collect();
        told.sort_by(|a, b| a.id.cmp(&b.id));
        let known = self.following[partition as usize]
            .told
            .entry(from)
            .or_insert_with(|| (to, told.clone(), corrections.clone()));
        if *known != (to, told.clone(), corrections) {
            let known = known.clone();
            self.referee
                .fail(format!("values {partition} tells {told:?} to {to} at {from}, and told {known:?} before"));
        }
    }

    /// Goes on where he stands; with all that an owner has, if he has nothing.
    pub fn follow(&mut self, partition: u32) {
        let following = &mut self.following[partition as usize];
        if following.folded.at.is_none()
            && let Some(ValuesProcess { owner, chain, .. }) = &mut self.values[partition as usize].active
        {
            let ids: Vec<Vec<u8>> = owner.ids().map(<[u8]>::to_vec).collect();
            let value = |id: Vec<u8>| owner.row(&id, &chain.rows).value.map(|value| (id, value));
            let values = ids.into_iter().filter_map(value).collect();
            following.folded.begin(owner.next(), values);
        }
        while let Some((from, (to, told, _))) = following.folded.at.and_then(|at| following.told.get_key_value(&at)) {
            if let Err(failure) = following.folded.take(*from, *to, told.iter().cloned()) {
                return self.referee.fail(format!("values {partition}: {failure}"));
            }
        }
    }

    pub fn lose_follower(&mut self, partition: u32) {
        self.hit(Fault::FollowerLost);
        self.following[partition as usize].folded = Folded::default();
    }

    /// He has every counter, and no other.
    pub(super) fn check_followed(&mut self) {
        for partition in 0..VALUES {
            self.follow(partition);
            let (folded, end) = (&self.following[partition as usize].folded, self.values_log[partition as usize].end());
            if folded.at != Some(end) {
                let at = folded.at;
                return self.referee.fail(format!("values {partition} is followed to {at:?}, and ends at {end}"));
            }
            let right: BTreeMap<&str, i64> = self.referee.worths[partition as usize]
                .now()
                .filter_map(|(key, value, _)| value.map(|value| (key, value)))
                .collect();
            let told: BTreeMap<&str, i64> = folded.ids().filter_map(|id| Some((id, folded.value(id)?))).collect();
            if told != right {
                let failure = format!("who follows values {partition} has {told:?}, and {right:?} is right");
                return self.referee.fail(failure);
            }
        }
    }
}
