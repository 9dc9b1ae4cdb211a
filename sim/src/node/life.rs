//! One life of a node: it opens, is asked for things, is struck by faults, and ends.

use super::store::Mood;
use super::{NodeWorld, TABLE_BYTES, TABLE_BYTES_COLD, hasher};
use crate::fault::Fault;
use crate::oracle::Config;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tally_core::counter::Declarations;
use tally_node::clock::{Clock, Hands};
use tally_node::engine::{self, Engine, EngineOptions, EngineThread, RecoveryError};
use tally_node::worker::Spawner;
use tally_storage::log::LogError;
use tally_storage::log::local::{LocalLog, LogOptions};
use tally_storage::store::Store;
use tally_wal::testing::{Fault as DiskFault, FaultDisk};

/// Turns that everybody gets before a request counts as stuck.
pub const TURNS_MAX: usize = 3_000;
/// Turns behind a moment that has passed.
const TURNS: usize = 60;
/// Things that happen in a life.
const STEPS: u64 = 40;
const LOG_ID: u64 = 9;

type Thread = EngineThread<LocalLog<FaultDisk>>;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Stopped,
    Killed,
    PowerCut,
}

/// One of the two disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Log,
    Commits,
}

/// Lets everybody else have a turn until something has happened.
pub async fn turns<T>(something: impl Future<Output = T>, turns: usize) -> Option<T> {
    let mut something = pin!(something);
    for _ in 0..turns {
        if let Poll::Ready(happened) = poll_fn(|context| Poll::Ready(something.as_mut().poll(context))).await {
            return Some(happened);
        }
        tokio::task::yield_now().await;
    }
    None
}

pub async fn pass(hands: &Hands, ms: u64) {
    hands.pass(ms);
    let _ = turns(std::future::pending::<()>(), TURNS).await;
}

impl NodeWorld {
    pub(super) fn open(&mut self, clock: Clock, checkpoint_records: u64) -> Result<Thread, RecoveryError> {
        let log_on = |disk: &FaultDisk, from_offset, tail_only| {
            let options =
                LogOptions { segment_bytes: 64 << 10, log_id: LOG_ID, from_offset, tail_only, ..LogOptions::default() };
            Ok::<_, LogError>(LocalLog::open_on(disk.clone(), options)?.0)
        };
        let open_commits = |anew| match anew {
            false => log_on(&self.commits, 0, true),
            true => Err(LogError::Damaged("commits know of more than a log that is synced".to_owned())),
        };
        let options = EngineOptions {
            table_bytes: self.table_bytes,
            checkpoint_records,
            clock,
            spawner: Spawner::Here,
            accept_clock: true,
            busy_after: Duration::from_millis(500),
            // So few that keys of declared counters leave memory, too.
            listed_keys: 3,
            ..EngineOptions::default()
        };
        let declarations = Declarations::parse(&Config::First.yaml()).expect("the oracle's texts are sound");
        // Where memory is small nothing is in it at first, and a replay has to look everything up.
        let restored_bytes = if self.table_bytes == TABLE_BYTES { TABLE_BYTES } else { 0 };
        let restored = engine::restore(&*self.store, hasher(), restored_bytes)?;
        let store: Arc<dyn Store> = self.store.clone();
        let open_log = |from| {
            let log = log_on(&self.log, from, false)?;
            self.unknown.iter_mut().try_for_each(|unknown| unknown.look_up_time(&log))?;
            Ok(log)
        };
        Ok(engine::open(restored, store, open_log, open_commits, Some(declarations), options)?.0)
    }

    /// A life with faults.
    pub(super) fn live(&mut self) {
        if self.random.chance(150) {
            self.arm();
        }
        let is_cold = self.circumstances.cold && self.random.chance(700);
        self.table_bytes = if is_cold { TABLE_BYTES_COLD } else { TABLE_BYTES };
        if self.random.chance(100) {
            self.lose_follower();
        }
        let checkpoint_records = 5 + self.random.below(60);
        self.life(checkpoint_records, async |world, engine, hands| world.steps(engine, hands).await);
    }

    /// A life that goes as somebody says.
    pub fn life(&mut self, checkpoint_records: u64, script: impl AsyncFnOnce(&mut NodeWorld, &Engine, &Hands) -> End) {
        self.store.set(Mood::Well);
        let (clock, hands) = Clock::simulated(self.wall_ms);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing");
        let end = tokio::task::LocalSet::new().block_on(&runtime, async {
            let thread = match self.open(clock, checkpoint_records) {
                Ok(thread) => thread,
                Err(error) => return self.not_opened(&error),
            };
            let engine = thread.engine();
            Spawner::task(thread.run(async |_| ()));
            self.find_out(&engine).await;
            let end = script(self, &engine, &hands).await;
            self.trace.note(format_args!("ends at {}: {end:?}", engine.applied()));
            end
        });
        self.wall_ms = hands.wall_ms();
        self.end(end);
    }

    /// An opening fails only if the disk does.
    fn not_opened(&mut self, error: &RecoveryError) -> End {
        if !self.disk_may_fail() {
            self.fail(format!("it does not start: {error}"));
        }
        self.trace.note(format_args!("does not start: {error}"));
        End::PowerCut
    }

    pub(super) fn disk_may_fail(&self) -> bool {
        self.armed || self.log.is_off() || self.commits.is_off()
    }

    /// The disk comes to what it is when the next life begins.
    fn end(&mut self, end: End) {
        let (log_seed, commits_seed) = (self.random.next(), self.random.next());
        match end {
            End::Stopped | End::Killed if !self.log.is_off() && !self.commits.is_off() => {
                if end == End::Killed {
                    self.hit(Fault::ProcessEnd);
                }
                (self.log, self.commits) = (self.log.process_end(), self.commits.process_end());
            }
            _ => {
                self.hit(Fault::PowerCut);
                (self.log, self.commits) = (self.log.power_cut(log_seed), self.commits.power_cut(commits_seed));
            }
        }
        self.log.set_bytes_max(None);
        self.armed = false;
    }

    /// The store takes no cut in this life.
    pub fn refuse_cuts(&mut self) {
        self.hit(Fault::StoreFails);
        self.store.set(Mood::Refuses);
    }

    /// A fault strikes at a call of a disk from here on.
    pub fn arm_at(&mut self, disk: Which, call: u64, fault: DiskFault) {
        let disk = if disk == Which::Log { &self.log } else { &self.commits };
        disk.fail_at(disk.calls() + call, fault);
        self.armed = true;
    }

    /// A fault of a disk strikes soon.
    fn arm(&mut self) {
        let fault = *self.random.pick(&[
            DiskFault::CrashBefore,
            DiskFault::CrashDuring,
            DiskFault::CrashAfter,
            DiskFault::Error,
        ]);
        self.hit(match fault {
            DiskFault::CrashDuring => Fault::TornWrite,
            DiskFault::Error => Fault::FailedCall,
            _ => Fault::UnsyncedLoss,
        });
        let disk = if self.random.chance(700) { Which::Log } else { Which::Commits };
        let call = self.random.below(25);
        self.arm_at(disk, call, fault);
    }

    /// What was under way when the life before ended is there, or it is not.
    pub(super) async fn find_out(&mut self, engine: &Engine) {
        let mut there = Vec::new();
        for unknown in std::mem::take(&mut self.unknown) {
            let marker = engine.hasher().key(unknown.marker.as_bytes());
            match turns(engine.get(marker), TURNS_MAX).await {
                Some(Ok(Some(reading))) => there.push((reading.value, unknown)),
                Some(Ok(None)) => self.trace.note(format_args!("{} is not there", unknown.marker)),
                other => self.fail(format!("{} reads {other:?}", unknown.marker)),
            }
        }
        there.sort_by_key(|(place, _)| *place);
        for (place, unknown) in there {
            self.trace.note(format_args!("{} is there, the {place}th", unknown.marker));
            self.stands(&unknown.marker, place, &unknown.ask, unknown.log_time_ms);
        }
    }

    async fn steps(&mut self, engine: &Engine, hands: &Hands) -> End {
        let steps = 5 + self.random.below(STEPS);
        for _ in 0..steps {
            if self.failure.is_some() {
                return End::Killed;
            }
            match self.random.below(100) {
                0..66 => {
                    let count = if self.random.chance(300) { 2 + self.random.below(4) } else { 1 };
                    if !self.ask_at_once(engine, hands, count).await {
                        return *self.random.pick(&[End::Killed, End::PowerCut]);
                    }
                }
                66..70 => self.follow(engine).await,
                70..84 => pass(hands, 1 + self.random.below(600)).await,
                84..87 => pass(hands, 1_000 + self.random.below(6_000)).await,
                87..90 => self.jump(hands),
                90..93 => self.arm(),
                93..95 => {
                    self.hit(Fault::DiskFull);
                    let room = self.random.below(8_000);
                    self.log.set_bytes_max(Some(64 * 1024 + room));
                }
                95..97 => self.log.set_bytes_max(None),
                97..99 => {
                    self.hit(Fault::StoreFails);
                    self.store.set(*self.random.pick(&[Mood::Refuses, Mood::Silent]));
                }
                _ => self.store.set(Mood::Well),
            }
        }
        let cuts = engine.metrics().checkpoints.get();
        (0..cuts).for_each(|_| self.faults.hit(Fault::CutInBetween));
        if engine.cold() > 0 {
            self.hit(Fault::ColdCells);
        }
        if self.random.chance(300) {
            self.hit(Fault::InFlight);
            let count = 1 + self.random.below(5);
            self.ask_in_haste(engine, count).await;
            return *self.random.pick(&[End::Killed, End::PowerCut]);
        }
        match self.random.below(4) {
            0 => {
                self.store.set(Mood::Well);
                self.log.set_bytes_max(None);
                let stopped = turns(engine.stop(), TURNS_MAX).await;
                self.trace.note(format_args!("stopped: {}", stopped.is_some_and(|stopped| stopped.is_ok())));
                End::Stopped
            }
            1 => End::Killed,
            _ => End::PowerCut,
        }
    }

    fn jump(&mut self, hands: &Hands) {
        let forward = self.random.chance(500);
        self.hit(if forward { Fault::ClockForward } else { Fault::ClockBack });
        let by_ms = self.random.below(20_000);
        hands.set_wall(if forward { hands.wall_ms() + by_ms } else { hands.wall_ms() - by_ms });
    }
}
