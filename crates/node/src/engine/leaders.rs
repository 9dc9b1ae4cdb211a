//! Goes through all keys of a counter to find those that are worth most, where memory does not know: too many of those it knew have
//! fallen, or the counter is new and some were counted under its name before.
//!
//! Commits go on meanwhile. From the beginning of a walk on, a key that rises above what the walk has left behind is noted where it
//! changes; so a key is in order once the walk has been there, and all are when it ends.

use super::thread::Desk;
use super::{Engine, Page, Refusal};
use crate::worker::{Context, Next, Retry, Spec, Wake, Work, WorkFailure};
use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;
use tally_core::database::Space;
use tally_core::id::SEPARATOR;
use tally_core::op::Submission;
use tally_storage::log::Log;

/// Keys that one unit of work looks at.
const PAGE_NAMES: usize = 1024;
/// A walk waits at least so long behind the last one, and so many times as long as that took: it is work for everybody's disk.
const WALK_APART: Duration = Duration::from_secs(1);
const WALK_APART_TIMES: u32 = 9;

const RETRY: Retry = Retry { first: Duration::from_secs(1), most: Duration::from_secs(60) };

pub(super) struct LeaderWalks<L: Log> {
    desk: Rc<Desk<L>>,
    engine: Engine,
    under_way: Option<KeyWalk>,
    /// No walk begins before this, by the time that passes.
    not_before: Duration,
}

/// A walk through the keys of a counter.
struct KeyWalk {
    counter: Box<str>,
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    looked_at: u64,
    begun: Duration,
}

impl<L: Log> LeaderWalks<L> {
    pub fn spec(due: &Wake) -> Spec {
        Spec::new("leaders", "goes through the keys of a counter for those that are worth most", RETRY)
            .waits_for("a counter of which that is not known")
            .woken_by(due)
    }

    pub fn new(desk: Rc<Desk<L>>, engine: Engine) -> LeaderWalks<L> {
        LeaderWalks { desk, engine, under_way: None, not_before: Duration::ZERO }
    }
}

impl<L: Log + 'static> Work for LeaderWalks<L> {
    async fn work(&mut self, context: &Context) -> Result<Next, WorkFailure> {
        let now = context.clock().passed();
        let Some(walk) = &self.under_way else { return Ok(self.begin(now)) };
        // What could not be done is done again from where it stood.
        let page = self.go_on(walk).await?;
        let Some(walk) = &mut self.under_way else { unreachable!("it was there a moment ago") };
        walk.looked_at += page.counters.len() as u64;
        context.progress(format!("{} keys of {} looked at", walk.looked_at, walk.counter));
        walk.after = page.next;
        if walk.after.is_none() {
            self.desk.writer.borrow_mut().state_mut().values.end_walk(&walk.counter);
            let now = context.clock().passed();
            self.not_before = now + WALK_APART.max((now - walk.begun) * WALK_APART_TIMES);
            self.under_way = None;
        }
        Ok(Next::Again)
    }
}

impl<L: Log + 'static> LeaderWalks<L> {
    fn begin(&mut self, now: Duration) -> Next {
        if now < self.not_before {
            return Next::After(self.not_before - now);
        }
        let mut writer = self.desk.writer.borrow_mut();
        let Some(counter) = writer.state_mut().values.begin_walk() else { return Next::WhenWoken };
        let declarations = writer.state().declarations();
        let has_keys = declarations.counter_of(counter.as_bytes()).is_some_and(|counter| counter.has_keys());
        let mut prefix = counter.as_bytes().to_vec();
        prefix.extend(has_keys.then_some(SEPARATOR));
        self.under_way = Some(KeyWalk { counter, prefix, after: None, looked_at: 0, begun: now });
        Next::Again
    }

    /// Looks at the next keys.
    async fn go_on(&self, walk: &KeyWalk) -> Result<Page, Refusal> {
        // Of before the keys are read: a key that is worth no more then, and rises, is noted when it does.
        let passed = self.desk.writer.borrow().state().values.passed_by(&walk.counter);
        let page = self.engine.scan(Space::MAIN, walk.prefix.clone(), walk.after.clone(), PAGE_NAMES).await?;
        let worth = page.counters.iter().filter(|(_, reading)| reading.value > passed);
        let ids: Vec<Vec<u8>> = worth.map(|(id, _)| id.clone()).filter(|id| self.is_key(id)).collect();
        if !ids.is_empty() {
            let mut reads = Submission::default();
            ids.iter().for_each(|id| reads.get(self.desk.shared.hasher.key(id)));
            let found = self.desk.find(|| Cow::Borrowed(&reads)).await?;
            self.desk.writer.borrow_mut().walk(&walk.counter, &ids, found);
        }
        Ok(page)
    }

    /// What was counted ad hoc under the counter's name need not look like its ids.
    fn is_key(&self, id: &[u8]) -> bool {
        let target = self.engine.declarations();
        let target = target.resolve(&self.desk.shared.hasher, id);
        target.is_ok_and(|target| !target.is_ad_hoc() && *target.id == *id)
    }
}
