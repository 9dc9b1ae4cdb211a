//! `persistent`: several connections send events with ids while the server is killed in the middle of it.
//!
//! A request without an answer is sent again as it is, before anything else, until it is answered. Since the server is not
//! killed while that goes on, a request is sent at most twice, and the second answer tells what became of the first
//! attempt: it was counted (all ids that were new are duplicates now) or it was lost (they are counted now); anything in
//! between is an error.
//!
//! What is asserted in the end, exactly:
//! - the value of every key is the number of different ids that were sent for it;
//! - the rows of the audit are the events that reached the log, less the different ids. An attempt with an answer
//!   reached the log; one without did if the answer to its second attempt says so. Of the rows, those marked as conflicts
//!   are the events with another content that reached the log.

mod audit;
mod lane;

use super::Plan;
use super::life::{End, verify_values, wait_for_the_blow};
use crate::random::Random;
use crate::server::Server;
use anyhow::{Context, Result, ensure};
use lane::{ADS, Answered, CAMPAIGNS, Lane, Reached};
use std::thread;

pub const CONFIG: &str = "\
counters:
  - counterName: impressions
    mode: persistent
    dimensions: [ad]
    rules:
      - {on: ad.shown, op: increment}
    idempotency: {requireEventId: true, scope: globalEventId}
  - counterName: campaign_impressions
    mode: persistent
    dimensions: [campaign]
    rules:
      - {on: ad.shown, op: increment}
    idempotency: {requireEventId: true, scope: globalEventId}
";

const LANES: usize = 4;

pub fn run(plan: &Plan) -> Result<String> {
    let mut trial = Trial::new(plan);
    let (mut kills, mut stops) = (0, 0);
    while !trial.lanes.iter().all(Lane::is_done) {
        let end = End::choose(&mut trial.random);
        trial.life(plan, end).with_context(|| format!("life {}", kills + stops + 1))?;
        match end {
            End::Kill => kills += 1,
            End::Stop => stops += 1,
        }
        println!("  {}", trial.reached());
    }
    let server = plan.place.start()?.wait_for_tally()?;
    trial.verify(&server).context("after the last restart")?;
    server.stop()?;
    let reached = trial.reached();
    ensure!(reached.resent > 0, "no request was ever under way when the server ended; send more --events");
    Ok(format!("{reached}; {kills} kills, {stops} stops"))
}

struct Trial {
    random: Random,
    lanes: Vec<Lane>,
    answered: Answered<LANES>,
}

impl Trial {
    fn new(plan: &Plan) -> Trial {
        let mut random = Random::new(plan.seed);
        let lane = |n| Lane::new(n, plan.events / LANES as u64, random.next());
        Trial { lanes: (0..LANES).map(lane).collect(), random, answered: Answered::default() }
    }

    /// One life of the server: it gets what it may have lost, must know what it should, is loaded, and ends.
    fn life(&mut self, plan: &Plan, end: End) -> Result<()> {
        let server = plan.place.start()?.wait_for_tally()?;
        let http = server.http()?;
        for lane in &mut self.lanes {
            lane.send_again(http, &self.answered)?;
        }
        self.verify_campaigns(&server)?;
        let moment = plan.life.mul_f64(0.5 + self.random.below(1000) as f64 / 1000.0);
        let answered = &self.answered;
        thread::scope(|scope| {
            let lanes: Vec<_> =
                self.lanes.iter_mut().map(|lane| scope.spawn(move || lane.run(http, answered))).collect();
            wait_for_the_blow(&lanes, moment);
            end.bring(server)?;
            lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane answers, it does not panic"))
        })
    }

    fn reached(&self) -> Reached {
        self.lanes.iter().map(|lane| lane.reached).sum()
    }

    fn verify_campaigns(&self, server: &Server) -> Result<()> {
        let keys: Vec<String> = (0..CAMPAIGNS).map(|n| format!("campaign_impressions:c{n}")).collect();
        let mut values = vec![0; CAMPAIGNS];
        self.ads().iter().enumerate().for_each(|(ad, shown)| values[ad % CAMPAIGNS] += shown);
        verify_values(server, &keys, &values)
    }

    fn ads(&self) -> Vec<u64> {
        let mut ads = vec![0; ADS];
        for lane in &self.lanes {
            ads.iter_mut().zip(lane.ads()).for_each(|(sum, shown)| *sum += u64::from(*shown));
        }
        ads
    }

    fn verify(&self, server: &Server) -> Result<()> {
        self.verify_campaigns(server)?;
        let keys: Vec<String> = (0..ADS).map(|n| format!("impressions:a{n}")).collect();
        verify_values(server, &keys, &self.ads())?;
        audit::verify(server, &self.reached())
    }
}
