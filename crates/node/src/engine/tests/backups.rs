//! The worker that takes backups, a step at a time.

use super::alone::simulated;
use super::ground::Ground;
use super::*;
use crate::backup::{Backups, Place};
use crate::data_dir::DirIdentity;

/// Of another server, and nobody can read it.
const DAMAGED: &str = "manifests/20261118T013000.000Z_0123456789abcdef_1-0-1_6f1f0b3a9c55d2e7.json";

#[test]
fn a_backup_that_is_asked_for_while_another_cannot_be_cleared_up_behind_is_taken() {
    let place = tempfile::tempdir().unwrap();
    let mut ground = Ground { config: Some("backup: {every: 90d, keep: 2}\n"), ..Ground::new(1 << 20) };
    simulated(&mut ground, async |engine, time| {
        engine.submit(numbered(&engine, "x", 10)).await.unwrap();
        let (spec, identity) = (Backups::spec(), DirIdentity { id: 1, hash_seed: 1 });
        let at = Place::Directory(place.path().to_owned());
        let (backups, handle) = Backups::new(engine.clone(), identity, at, || Ok(7), &spec);
        engine.workers().apart(spec, backups).unwrap();
        // None is there, so the first is due.
        time.until(|| handle.status().running.is_some()).await;
        std::fs::write(place.path().join(DAMAGED), "no manifest").unwrap();
        assert_eq!(handle.ask(), 2);
        time.until(|| handle.status().last.is_some_and(|last| last.run == 2)).await;
        let last = handle.status().last.unwrap();
        assert!(last.made.is_ok(), "{:?}", last.made);
        assert!(engine.metrics().backup.failures.get() > 0, "what cannot be removed is counted");
        let worker = super::alone::shown(&engine, "backup");
        assert!(worker.last_error.unwrap().text.contains("is damaged"));
    });
}
