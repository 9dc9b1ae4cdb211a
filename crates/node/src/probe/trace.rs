//! Where probes are: pure, and handed the time. Every probe that was sent ends at every stage exactly once, in time or missing, so that
//! for each stage `sent = complete + missing + under way`.

use std::collections::VecDeque;
use std::time::Duration;
use tally_core::counter::Probes;
use tally_core::limits::PROBES_UNDER_WAY_MAX;
use tally_core::position::Position;

/// How far a probe can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The answer is there: it is durable.
    Acknowledged,
    /// A read shows it.
    Applied,
    /// The commit that it is in can be read by whoever follows.
    Told,
    /// The archive has come past it, and its row is found there.
    Archived,
}

impl Stage {
    pub const ALL: [Stage; 4] = [Stage::Acknowledged, Stage::Applied, Stage::Told, Stage::Archived];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Acknowledged => "acknowledged",
            Stage::Applied => "applied",
            Stage::Told => "told",
            Stage::Archived => "archived",
        }
    }

    /// How long after it was sent a probe has to be here.
    pub fn deadline(self, probes: Probes) -> Duration {
        Duration::from_millis(if self == Stage::Archived { probes.archived_ms } else { probes.within_ms })
    }
}

/// One that is under way.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: String,
    /// By [`crate::clock::Clock::passed`].
    pub at: Duration,
    pub at_ms: u64,
    /// It is in the log behind this offset.
    pub from: u64,
    /// Behind it in the log; `None` until it is acknowledged.
    pub token: Option<Position>,
    /// At which stages it has ended, in time or not.
    ended: [bool; Stage::ALL.len()],
}

impl Sent {
    pub fn is_open(&self, stage: Stage) -> bool {
        !self.ended[stage as usize]
    }
}

/// What became of the probes at one stage.
#[derive(Clone, Debug, Default)]
struct Arrivals {
    complete: u64,
    missing: u64,
    /// When they arrived in the last hour, and how long they took.
    took: VecDeque<(Duration, Duration)>,
}

/// How far back latencies are told.
pub const TOLD: Duration = Duration::from_secs(60 * 60);

/// All probes since the start.
#[derive(Debug)]
pub struct Trace {
    has_archive: bool,
    under_way: VecDeque<Sent>,
    stages: [Arrivals; Stage::ALL.len()],
    pub sent: u64,
    /// Those that were sent a second time, to see whether they are known.
    pub repeated: u64,
    /// Answers, values and rows that were not what they had to be.
    pub wrong: u64,
    /// What went wrong last, and when.
    pub problem: Option<(u64, String)>,
}

/// One stage, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageShown {
    pub stage: Stage,
    pub complete: u64,
    pub missing: u64,
    pub under_way: u64,
    /// Of the last hour: the median, the 99th percentile and the longest; `None` if nothing arrived.
    pub took: Option<[Duration; 3]>,
}

impl Trace {
    pub fn new(has_archive: bool) -> Trace {
        Trace {
            has_archive,
            under_way: VecDeque::new(),
            stages: Default::default(),
            sent: 0,
            repeated: 0,
            wrong: 0,
            problem: None,
        }
    }

    /// The stages that there are.
    pub fn stages(&self) -> &'static [Stage] {
        if self.has_archive { &Stage::ALL } else { &Stage::ALL[..Stage::Archived as usize] }
    }

    pub fn under_way(&self) -> &VecDeque<Sent> {
        &self.under_way
    }

    pub fn send(&mut self, id: String, at: Duration, at_ms: u64, from: u64) {
        assert!(self.under_way.len() < PROBES_UNDER_WAY_MAX, "probes that are over are let go of");
        let mut ended = [false; Stage::ALL.len()];
        ended[Stage::Archived as usize] = !self.has_archive;
        self.sent += 1;
        self.under_way.push_back(Sent { id, at, at_ms, from, token: None, ended });
    }

    /// The last one that was sent is durable.
    pub fn acknowledged(&mut self, token: Position, now: Duration) -> Option<Duration> {
        let last = self.under_way.back_mut()?;
        last.token = Some(token);
        let id = last.id.clone();
        self.arrive(Stage::Acknowledged, now, |sent| sent.id == id).pop()
    }

    /// Some have arrived: those that are acknowledged, still open there, and of which `has` holds. Answers how long each took.
    pub fn arrive(&mut self, stage: Stage, now: Duration, has: impl Fn(&Sent) -> bool) -> Vec<Duration> {
        let arrivals = &mut self.stages[stage as usize];
        let mut all = Vec::new();
        for sent in self.under_way.iter_mut().filter(|sent| sent.token.is_some() && sent.is_open(stage) && has(sent)) {
            sent.ended[stage as usize] = true;
            all.push(now.saturating_sub(sent.at));
        }
        arrivals.complete += all.len() as u64;
        arrivals.took.extend(all.iter().map(|took| (now, *took)));
        while arrivals.took.len() > PROBES_UNDER_WAY_MAX
            || arrivals.took.front().is_some_and(|(at, _)| is_old(*at, now))
        {
            arrivals.took.pop_front();
        }
        self.let_go();
        all
    }

    /// Ends where it is due what has not arrived in time; answers at which stages. Also what can be told now never to arrive (`is_lost`).
    pub fn expire(&mut self, probes: Probes, now: Duration, is_lost: impl Fn(&Sent, Stage) -> bool) -> Vec<Stage> {
        let mut missing = Vec::new();
        for sent in &mut self.under_way {
            for stage in Stage::ALL.into_iter().filter(|stage| !sent.ended[*stage as usize]).collect::<Vec<_>>() {
                if now.saturating_sub(sent.at) >= stage.deadline(probes) || is_lost(sent, stage) {
                    sent.ended[stage as usize] = true;
                    self.stages[stage as usize].missing += 1;
                    missing.push(stage);
                }
            }
        }
        self.let_go();
        missing
    }

    fn let_go(&mut self) {
        self.under_way.retain(|sent| sent.ended.contains(&false));
    }

    /// What there is to tell of each stage.
    pub fn shown(&self, now: Duration) -> Vec<StageShown> {
        self.stages().iter().map(|stage| self.shown_at(*stage, now)).collect()
    }

    fn shown_at(&self, stage: Stage, now: Duration) -> StageShown {
        let Arrivals { complete, missing, took } = &self.stages[stage as usize];
        let mut took: Vec<Duration> = took.iter().filter(|(at, _)| !is_old(*at, now)).map(|(_, took)| *took).collect();
        took.sort_unstable();
        // The least that so many of a hundred took no longer than.
        let at = |of_100: usize| took[(took.len() * of_100).div_ceil(100).max(1) - 1];
        let under_way = self.under_way.iter().filter(|sent| sent.is_open(stage)).count() as u64;
        let took = (!took.is_empty()).then(|| [at(50), at(99), at(100)]);
        StageShown { stage, complete: *complete, missing: *missing, under_way, took }
    }
}

fn is_old(at: Duration, now: Duration) -> bool {
    now.saturating_sub(at) > TOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBES: Probes = Probes { every_ms: 1_000, within_ms: 2_000, archived_ms: 60_000 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(offset: u64) -> Position {
        Position { epoch: 1, log: 0, offset }
    }

    fn tallies(trace: &Trace) -> Vec<(u64, u64, u64)> {
        trace.shown(seconds(0)).iter().map(|shown| (shown.complete, shown.missing, shown.under_way)).collect()
    }

    #[test]
    fn each_probe_ends_once_at_each_stage_in_time_or_missing() {
        let mut trace = Trace::new(true);
        trace.send("1".into(), seconds(0), 0, 0);
        assert_eq!(trace.acknowledged(at(5), seconds(1)), Some(seconds(1)));
        trace.send("2".into(), seconds(1), 0, 0);
        assert_eq!(trace.arrive(Stage::Applied, seconds(1), |_| true), [seconds(1)], "the second is not acknowledged");
        assert_eq!(tallies(&trace), [(1, 0, 1), (1, 0, 1), (0, 0, 2), (0, 0, 2)]);
        assert_eq!(trace.expire(PROBES, seconds(2), |_, _| false), [Stage::Told]);
        assert_eq!(trace.expire(PROBES, seconds(3), |_, _| false), [Stage::Acknowledged, Stage::Applied, Stage::Told]);
        assert!(trace.arrive(Stage::Told, seconds(4), |_| true).is_empty(), "who is missing does not arrive");
        assert_eq!(trace.arrive(Stage::Archived, seconds(50), |sent| sent.id == "1"), [seconds(50)]);
        assert_eq!(trace.under_way().len(), 1);
        assert_eq!(trace.expire(PROBES, seconds(61), |_, _| false), [Stage::Archived]);
        assert_eq!(tallies(&trace), [(1, 1, 0), (1, 1, 0), (0, 2, 0), (1, 1, 0)]);
        assert!(trace.under_way().is_empty());
    }

    #[test]
    fn without_an_archive_three_stages_are_all() {
        let mut trace = Trace::new(false);
        trace.send("1".into(), seconds(0), 0, 0);
        trace.acknowledged(at(1), seconds(0));
        trace.arrive(Stage::Applied, seconds(0), |_| true);
        trace.arrive(Stage::Told, seconds(0), |_| true);
        assert!(trace.under_way().is_empty());
        assert_eq!(trace.shown(seconds(0)).len(), 3);
    }

    #[test]
    fn what_is_known_to_be_lost_is_missing_before_its_time() {
        let mut trace = Trace::new(true);
        trace.send("1".into(), seconds(0), 0, 0);
        trace.acknowledged(at(1), seconds(0));
        let lost = trace.expire(PROBES, seconds(1), |sent, stage| sent.id == "1" && stage == Stage::Archived);
        assert_eq!(lost, [Stage::Archived]);
    }

    #[test]
    fn latencies_are_those_of_the_last_hour() {
        let mut trace = Trace::new(false);
        for n in 0..=100 {
            trace.send(n.to_string(), seconds(0), 0, 0);
            trace.acknowledged(at(n), if n == 0 { seconds(9) } else { Duration::from_millis(n) });
        }
        let took = |now| trace.shown(now)[0].took;
        let ms = Duration::from_millis;
        assert_eq!(took(seconds(9)), Some([ms(51), ms(100), seconds(9)]));
        assert_eq!(took(TOLD + seconds(9)), Some([seconds(9); 3]), "the others are more than an hour old");
        assert_eq!(took(TOLD + seconds(10)), None);
    }
}
