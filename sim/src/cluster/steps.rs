//! A random run: what happens is picked by the seed, first with faults, then without.

use super::chains::LocalCopy;
use super::collecting::Sent;
use super::fates::FatesStep;
use super::values::ValuesStep;
use super::{COLLECTORS, FATES, VALUES, World};
use crate::Outcome;
use crate::fault::Fault;
use crate::oracle::Config;
use crate::oracle::worth::Kind;
use crate::panics;
use tally_cluster::control::Cleared;

/// Things that happen before everything converges.
const STEPS: u64 = 700;
/// Rounds in which everything has to converge.
const ROUNDS_MAX: usize = 400;

pub fn random_run(seed: u64, keep: bool) -> Outcome {
    let mut world = World::new(seed, keep);
    let panic = panics::listen(&mut world, World::phases);
    let World { faults, trace, referee, .. } = world;
    Outcome { faults, trace, failure: panic.or(referee.failure) }
}

impl World {
    /// Safety, then liveness.
    fn phases(&mut self) {
        // Some runs are calm, some are not: what hides behind one fault shows without it.
        let faulty_per_mille = [0, 30, 80, 150][self.random.below(4) as usize];
        for _ in 0..STEPS {
            if self.referee.failure.is_some() {
                break;
            }
            if self.random.chance(faulty_per_mille) { self.random_fault() } else { self.random_step() }
        }
        self.converge();
        if self.referee.failure.is_none() {
            self.check();
        }
    }

    fn random_step(&mut self) {
        let collector = self.random.below(COLLECTORS as u64) as usize;
        let fates = self.random.below(FATES.into()) as u32;
        let values = self.random.below(VALUES.into()) as u32;
        match self.random.below(100) {
            0..30 => {
                let ask = self.random_ask(collector);
                self.ask(collector, ask);
            }
            30..38 => self.flush(collector),
            38..52 => self.random_send(collector),
            52..66 => {
                let wants_cut = self.random.chance(300);
                for _ in 0..=self.random.below(4) {
                    self.step_fates(fates, None, FatesStep::Read { wants_cut });
                }
            }
            66..76 => {
                for _ in 0..=self.random.below(3) {
                    self.step_fates(fates, None, FatesStep::Emit);
                }
            }
            76..80 => drop(self.step_fates(fates, None, FatesStep::Cut { answer_lost: false })),
            80..88 => {
                for _ in 0..=self.random.below(4) {
                    self.step_values(values, None, ValuesStep::Read { answer_lost: false });
                }
            }
            88..90 => drop(self.step_values(values, None, ValuesStep::Cut { answer_lost: false })),
            90..92 => drop(self.step_values(values, None, ValuesStep::Publish { answer_lost: false })),
            92..93 => self.learn_control(collector),
            93..94 => self.beat(collector),
            94..96 => self.follow(values),
            _ => self.now_ms += 1 + self.random.below(250),
        }
        self.tend(fates, values, collector);
    }

    /// What is not there is started some time.
    fn tend(&mut self, fates: u32, values: u32, collector: usize) {
        if self.fates[fates as usize].active.is_none() && self.random.chance(200) {
            let copy = self.random_copy();
            self.start_fates_from(fates, copy);
        }
        if self.values[values as usize].active.is_none() && self.random.chance(200) {
            let copy = self.random_copy();
            self.start_values_from(values, copy);
        }
        if self.collectors[collector].process.is_none() && self.random.chance(200) {
            if self.random.chance(200) {
                self.restore_disk(collector);
            }
            self.start_collector(collector);
            self.learn_control(collector);
        }
        for zombie in 0..self.fates[fates as usize].zombies.len() {
            let step = match self.random.below(6) {
                0..2 => FatesStep::Read { wants_cut: true },
                2..5 => FatesStep::Emit,
                _ => FatesStep::Cut { answer_lost: false },
            };
            self.step_fates(fates, Some(zombie), step);
        }
        for zombie in 0..self.values[values as usize].zombies.len() {
            let step = match self.random.below(6) {
                0..3 => ValuesStep::Read { answer_lost: false },
                3..5 => ValuesStep::Publish { answer_lost: false },
                _ => ValuesStep::Cut { answer_lost: false },
            };
            self.step_values(values, Some(zombie), step);
        }
    }

    fn random_copy(&mut self) -> LocalCopy {
        match self.random.below(4) {
            0 => {
                self.hit(Fault::StaleLocal);
                LocalCopy::Stale
            }
            1 => {
                self.hit(Fault::NoLocal);
                LocalCopy::Gone
            }
            _ => LocalCopy::Newest,
        }
    }

    fn random_send(&mut self, collector: usize) {
        let out = self.outgoing(collector);
        if out.is_empty() {
            return;
        }
        let id = match self.random.below(3) {
            0 => out[0],
            1 if out.len() > 1 => {
                self.hit(Fault::SpoolNewestFirst);
                out[out.len() - 1]
            }
            _ => out[self.random.below(out.len() as u64) as usize],
        };
        self.send(collector, id, Sent::Confirmed);
    }

    fn random_fault(&mut self) {
        let collector = self.random.below(COLLECTORS as u64) as usize;
        let fates = self.random.below(FATES.into()) as u32;
        let values = self.random.below(VALUES.into()) as u32;
        match self.random.below(32) {
            0..3 => self.crash_fates(fates),
            3..5 => self.crash_values(values),
            5 => self.replace_fates(fates),
            6 => self.replace_values(values),
            7 => {
                self.hit(Fault::Pause);
                self.now_ms += 1_000 + self.random.below(5_000);
            }
            8 => self.crash_collector(collector),
            9 => self.copy_disk(collector),
            10..14 => self.faulty_send(collector),
            14 => self.random_spool(collector),
            15 => self.sync_spool(collector),
            16 => self.random_clock(collector),
            17 => {
                if self.broker_ahead_ms == 0 {
                    self.hit(Fault::BrokerAhead);
                    self.broker_ahead_ms = 3_600_000;
                } else {
                    self.broker_ahead_ms = 0;
                }
            }
            18 => self.copy_view(),
            19 => self.view_back_in_time(),
            20 => self.lose_bucket(),
            21 => {
                self.step_fates(fates, None, FatesStep::Cut { answer_lost: true });
                self.step_values(values, None, ValuesStep::Cut { answer_lost: true });
            }
            22 => {
                self.step_values(values, None, ValuesStep::Read { answer_lost: true });
                self.step_values(values, None, ValuesStep::Publish { answer_lost: true });
            }
            23 => {
                let config = *self.random.pick(&[Config::First, Config::Second]);
                self.change_config(config);
            }
            24 => {
                let due_by_ms = self.now_ms + self.random.below(120_000);
                self.run_late(due_by_ms);
                self.lag(collector);
            }
            25 => {
                let key = self.random.pick(&["hits1", "plays:v0", "views:v1", "likes:v2"]).to_string();
                let delta = self.random.below(20) as i64 - 10;
                let kind = *self.random.pick(&[Kind::Adjusts, Kind::Restores]);
                self.correct(kind, &[(key, delta), ("reach".to_owned(), 1)]);
                self.lag(collector);
            }
            26 => {
                // One partition is read to its end before another one is looked at.
                self.hit(Fault::Reordered);
                while self.step_fates(fates, None, FatesStep::Read { wants_cut: false }) {}
                while self.step_fates(fates, None, FatesStep::Emit) {}
            }
            27 => self.lose_follower(values),
            28 => {
                if self.revert() {
                    self.lag(collector);
                }
            }
            29..31 => {
                self.random_clear();
                self.lag(collector);
            }
            _ => self.arrive(),
        }
    }

    /// Of counters of every contract, those of entities above all.
    fn random_clear(&mut self) {
        let counter = *self.random.pick(&["likes", "likes", "fans", "fans", "views", "plays", "sales", "reach"]);
        let key = match counter {
            "reach" => None,
            "fans" => Some(self.random.pick(&["DE", "FR"]).to_string()),
            _ => Some(format!("v{}", self.random.below(3))),
        };
        let cleared = match key {
            Some(key) if self.random.chance(600) => Cleared::Key(format!("{counter}:{key}").into_bytes()),
            _ => Cleared::Counter(counter.into()),
        };
        self.clear(cleared);
    }

    /// A counter is never removed: names once declared stay. So the second configuration is for good.
    fn change_config(&mut self, config: Config) {
        if self.referee.is_second() && config == Config::First {
            return;
        }
        self.configure(config);
    }

    /// Some collectors hear of control later than others.
    fn lag(&mut self, collector: usize) {
        self.hit(Fault::ControlLag);
        self.learn_control(collector);
    }

    fn faulty_send(&mut self, collector: usize) {
        let out = self.outgoing(collector);
        if out.is_empty() {
            return;
        }
        let id = *self.random.pick(&out);
        let sent = *self.random.pick(&[Sent::AnswerLost, Sent::Lost, Sent::Delayed, Sent::Twice]);
        self.send(collector, id, sent);
    }

    fn random_spool(&mut self, collector: usize) {
        let out = self.outgoing(collector);
        for id in out {
            if self.random.chance(500) {
                self.write_spool(collector, id);
            }
        }
        if self.random.chance(500) {
            self.sync_spool(collector);
        }
    }

    fn random_clock(&mut self, collector: usize) {
        let forward = self.random.chance(500);
        self.hit(if forward { Fault::ClockForward } else { Fault::ClockBack });
        let jump_ms = self.random.below(20_000) as i64;
        self.collectors[collector].skew_ms += if forward { jump_ms } else { -jump_ms };
    }

    /// Nothing fails any more: everything is sent, read, emitted and published.
    pub fn converge(&mut self) {
        self.note(format_args!("nothing fails any more"));
        self.broker_ahead_ms = 0;
        self.fates.iter_mut().for_each(|host| host.zombies.clear());
        self.values.iter_mut().for_each(|host| host.zombies.clear());
        while self.arrivals() > 0 {
            self.arrive();
        }
        for collector in 0..COLLECTORS {
            self.collectors[collector].skew_ms = 0;
            if self.collectors[collector].process.is_none() {
                self.start_collector(collector);
            }
            self.learn_control(collector);
        }
        // Beats in several slots, so that every slot before them is over.
        for _ in 0..3 {
            self.now_ms += 400_000;
            for collector in 0..COLLECTORS {
                self.beat(collector);
                for id in self.outgoing(collector) {
                    self.send(collector, id, Sent::Confirmed);
                }
            }
        }
        for _ in 0..ROUNDS_MAX {
            if !self.settle_all() {
                return;
            }
        }
        self.referee.fail("it does not converge".to_owned());
    }

    /// Everybody does what there is to do. Answers whether there was something.
    fn settle_all(&mut self) -> bool {
        let mut has_done = false;
        for partition in 0..FATES {
            if self.fates[partition as usize].active.is_none() {
                self.start_fates(partition);
            }
            while self.step_fates(partition, None, FatesStep::Read { wants_cut: false }) {
                has_done = true;
            }
            while self.step_fates(partition, None, FatesStep::Emit) {
                has_done = true;
            }
            while self.step_fates(partition, None, FatesStep::Cut { answer_lost: false }) {
                has_done = true;
            }
        }
        for partition in 0..VALUES {
            if self.values[partition as usize].active.is_none() {
                self.start_values(partition);
            }
            while self.step_values(partition, None, ValuesStep::Read { answer_lost: false }) {
                has_done = true;
            }
            has_done |= self.step_values(partition, None, ValuesStep::Publish { answer_lost: false });
            if self.referee.failure.is_some() {
                return false;
            }
        }
        has_done
    }
}
