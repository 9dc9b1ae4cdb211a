//! Counters of which most are cold: kills while they come and go between memory and store.
//!
//! One connection owns all keys and pipelines increments of old ones, new ones and deletions of unknown ones. What was
//! acknowledged is exact; what was under way when the server was killed is one range per key.

use super::range::{Amounts, Ranges};
use crate::client::{self, HttpClient, Reply, RespClient, encode};
use crate::random::Random;
use crate::server::{Place, Server};
use anyhow::{Context, Result, bail, ensure};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// Far more than fit into [`TABLE_MEMORY`].
const KEYS: usize = 20_000;
/// Keys that there are from the beginning; the others are created by and by.
const OLD_KEYS: usize = 15_000;
const PIPELINE_MAX: u64 = 64;
/// How long a round's load lasts at most, in milliseconds.
const LOAD_MS_MAX: u64 = 120;

pub const TABLE_MEMORY: [&str; 2] = ["--table-memory", "384KiB"];

pub struct ColdTrial {
    place: Place,
    random: Random,
    counted: Ranges,
    amounts: Vec<Amounts>,
    acknowledged: u64,
}

impl ColdTrial {
    pub fn new(place: Place, seed: u64) -> ColdTrial {
        let keys = (0..KEYS).map(|n| format!("cold:{n}")).collect();
        let amounts = vec![Amounts::default(); KEYS];
        ColdTrial { place, random: Random::new(seed), counted: Ranges::new(keys), amounts, acknowledged: 0 }
    }

    pub fn run(&mut self, rounds: u32) -> Result<String> {
        let server = self.place.start()?.wait_for_tally()?;
        let mut client = RespClient::connect(server.resp)?;
        for keys in (0..OLD_KEYS).collect::<Vec<_>>().chunks(1000) {
            ensure!(self.count(&mut client, keys)?, "a server that nobody kills hangs up");
        }
        server.stop()?;
        for round in 1..=rounds {
            self.life().with_context(|| format!("round {round} with cold counters"))?;
        }
        let server = self.place.start()?.wait_for_tally()?;
        self.verify(&server).context("after the last round with cold counters")?;
        let metrics = HttpClient::connect(server.http()?)?.get("/metrics")?;
        let cold = metrics.lines().find_map(|line| line.strip_prefix("tally_counters_cold ")?.parse::<u64>().ok());
        ensure!(cold > Some(0), "no counter was cold, so nothing was tested: {cold:?}");
        server.stop()?;
        ensure!(self.acknowledged > u64::from(rounds), "hardly anything was acknowledged");
        Ok(format!("{rounds} kills with cold counters; {} increments acknowledged", self.acknowledged))
    }

    /// A server that knows what it should, is loaded, and is killed.
    fn life(&mut self) -> Result<()> {
        let server = self.place.start()?.wait_for_tally()?;
        self.verify(&server)?;
        let moment = Duration::from_millis(1 + self.random.below(LOAD_MS_MAX));
        let resp = server.resp;
        thread::scope(|scope| {
            let lane = scope.spawn(|| self.load(resp));
            // The random moment of the blow, not a wait for anything.
            thread::sleep(moment);
            server.kill();
            lane.join().expect("a lane answers, it does not panic")
        })
    }

    fn load(&mut self, server: SocketAddr) -> Result<()> {
        let mut client = match RespClient::connect(server) {
            Err(error) if client::was_cut(&error) => return Ok(()),
            other => other?,
        };
        loop {
            let keys: Vec<_> =
                (0..=self.random.below(PIPELINE_MAX)).map(|_| self.random.below(KEYS as u64) as usize).collect();
            if !self.count(&mut client, &keys)? {
                return Ok(());
            }
        }
    }

    /// Increments keys in one pipeline, with a deletion of nobody in front; `false` if the server is gone.
    fn count(&mut self, client: &mut RespClient, keys: &[usize]) -> Result<bool> {
        let mut bytes = Vec::new();
        encode(&mut bytes, &["DEL", &format!("nobody:{}", self.random.next())]);
        for &key in keys {
            encode(&mut bytes, &["INCR", &self.counted.keys()[key]]);
            self.amounts[key].attempt(1);
        }
        match client.send(&bytes) {
            Err(error) if client::was_cut(&error) => return Ok(false),
            sent => sent?,
        }
        for key in std::iter::once(None).chain(keys.iter().map(Some)) {
            match (client.reply(), key) {
                (Ok(Reply::Integer(0)), None) => {}
                (Ok(Reply::Integer(_)), Some(&key)) => {
                    self.amounts[key].acknowledge(1);
                    self.acknowledged += 1;
                }
                (Err(error), _) if client::was_cut(&error) => return Ok(false),
                (other, key) => bail!("key {key:?} was answered {other:?}"),
            }
        }
        Ok(true)
    }

    fn verify(&mut self, server: &Server) -> Result<()> {
        self.counted.absorb(&mut self.amounts);
        let found = RespClient::connect(server.resp)?.read(self.counted.keys())?;
        self.counted.verify(&found)
    }
}
