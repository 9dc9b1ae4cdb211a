//! Faults by a seed: what goes wrong with a call, the same for every seam. A seed and the same calls give the same faults.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What may happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It is refused, and nothing is done.
    Fails,
    /// It is done, and the answer is lost.
    LosesAnswer,
    /// No answer comes; it is done later, when something else is called, if it can be done at all then.
    Delays,
    /// It is done twice.
    Repeats,
}

impl Fault {
    pub const ALL: [Fault; 4] = [Fault::Fails, Fault::LosesAnswer, Fault::Delays, Fault::Repeats];
}

/// How often each fault happens, in a thousand calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    pub fails: u32,
    pub loses_answer: u32,
    pub delays: u32,
    pub repeats: u32,
}

impl Odds {
    /// Every fault as often as the others.
    pub fn all(in_a_thousand: u32) -> Odds {
        let n = in_a_thousand;
        Odds { fails: n, loses_answer: n, delays: n, repeats: n }
    }

    fn of(&self, fault: Fault) -> u64 {
        u64::from(match fault {
            Fault::Fails => self.fails,
            Fault::LosesAnswer => self.loses_answer,
            Fault::Delays => self.delays,
            Fault::Repeats => self.repeats,
        })
    }
}

/// Chance that can be had again.
pub struct Chance {
    drawn: Mutex<Drawn>,
}

struct Drawn {
    odds: Odds,
    state: u64,
    /// How often each fault has happened, in the order of [`Fault::ALL`].
    hit: [u64; Fault::ALL.len()],
}

impl Chance {
    pub fn new(seed: u64, odds: Odds) -> Chance {
        Chance { drawn: Mutex::new(Drawn { odds, state: seed, hit: [0; Fault::ALL.len()] }) }
    }

    /// From here on; none at all lets everything recover.
    pub fn set_odds(&self, odds: Odds) {
        self.lock().odds = odds;
    }

    /// What happens to a call that can have any of these faults.
    pub fn draw(&self, possible: &[Fault]) -> Option<Fault> {
        let mut drawn = self.lock();
        let mut left = drawn.next() % 1000;
        for (n, fault) in Fault::ALL.into_iter().enumerate().filter(|(_, fault)| possible.contains(fault)) {
            let odds = drawn.odds.of(fault);
            if left < odds {
                drawn.hit[n] += 1;
                return Some(fault);
            }
            left -= odds;
        }
        None
    }

    /// Whether something happens that happens every second time.
    pub fn toss(&self) -> bool {
        self.lock().next().is_multiple_of(2)
    }

    /// How often each fault has happened.
    pub fn hit(&self) -> [(Fault, u64); Fault::ALL.len()] {
        let hit = self.lock().hit;
        std::array::from_fn(|n| (Fault::ALL[n], hit[n]))
    }

    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drawn {
    /// SplitMix64: each number of the sequence is a mix of a counter.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_each_as_often_as_its_odds() {
        let draws = |seed| {
            let chance = Chance::new(seed, Odds { fails: 100, loses_answer: 50, delays: 25, repeats: 0 });
            let drawn: Vec<_> = (0..10_000).map(|_| chance.draw(&Fault::ALL)).collect();
            (drawn, chance.hit().map(|(_, hit)| hit))
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1).0, draws(2).0);
        let [fails, loses, delays, repeats] = draws(3).1;
        assert!((800..1200).contains(&fails) && (400..600).contains(&loses) && (180..320).contains(&delays));
        assert_eq!(repeats, 0);
    }

    #[test]
    fn what_cannot_happen_to_a_call_does_not() {
        let chance = Chance::new(7, Odds::all(250));
        assert!((0..1000).all(|_| !matches!(chance.draw(&[Fault::Fails]), Some(fault) if fault != Fault::Fails)));
        chance.set_odds(Odds::default());
        assert!((0..1000).all(|_| chance.draw(&Fault::ALL).is_none()));
    }
}
