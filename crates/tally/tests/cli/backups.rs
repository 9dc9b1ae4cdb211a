//! Backups of a server that counts, is killed and goes on, against an oracle.

use crate::support::{Served, exchange, stderr, stdout, tally};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

const KEYS: u64 = 5000;
const PIPELINE: u64 = 50;

/// One client that increments one key after the other. So what is counted up to any position is known: so many increments, the next key each.
struct Counting {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    client: JoinHandle<()>,
}

impl Counting {
    fn from(number: u64, server: &Served) -> Counting {
        let (stop, sent, acknowledged) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(number)), Arc::new(AtomicU64::new(number)));
        let stream = TcpStream::connect(&server.resp).unwrap();
        let shared = (stop.clone(), sent.clone(), acknowledged.clone());
        let run = move || {
            let (stop, sent, acknowledged) = shared;
            let (mut out, mut answers) = (stream.try_clone().unwrap(), BufReader::new(stream).lines());
            while !stop.load(Ordering::Relaxed) {
                let from = sent.fetch_add(PIPELINE, Ordering::SeqCst);
                let commands: String = (from..from + PIPELINE).map(|n| format!("INCR k{}\r\n", n % KEYS)).collect();
                if out.write_all(commands.as_bytes()).is_err() {
                    return;
                }
                for _ in 0..PIPELINE {
                    let Some(Ok(answer)) = answers.next() else { return };
                    assert!(answer.starts_with(':'), "{answer}");
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let client = tally_node::worker::Spawner::thread("counting", run).unwrap();
        Counting { stop, sent, acknowledged, client }
    }

    fn reach(&self, number: u64) {
        while self.acknowledged.load(Ordering::SeqCst) < number {
            assert!(!self.client.is_finished(), "the server has gone");
            std::thread::yield_now();
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.client.join().unwrap();
    }
}

/// How many increments a server has counted; they must be the first ones.
fn counted(server: &Served) -> u64 {
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let answer = exchange(&server.resp, &format!("MGET {}\r\nQUIT\r\n", keys.join(" ")));
    let values: Vec<u64> = answer
        .lines()
        .filter(|line| !line.starts_with(['*', '+']) && (!line.starts_with('$') || *line == "$-1"))
        .map(|line| line.parse().unwrap_or(0))
        .collect();
    assert_eq!(values.len() as u64, KEYS, "{answer}");
    let number = values.iter().sum::<u64>();
    for (key, value) in (0..).zip(values) {
        assert_eq!(value, number / KEYS + u64::from(key < number % KEYS), "key {key} of {number} increments");
    }
    number
}

fn serve(data: &Path, backups: &Path) -> Served {
    let (data, backups) = (data.to_str().unwrap(), backups.to_str().unwrap());
    Served::start(&["serve", "--memory", "256MiB", "--data", data, "--backup", backups])
}

fn http(server: &Served) -> &str {
    server.banner.split("http://").nth(1).unwrap().split_whitespace().next().unwrap()
}

/// A server on what the newest backup is restored to.
fn restored(backups: &Path, data: &Path) -> Served {
    let restored = tally(&["restore", backups.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    assert!(restored.status.success(), "{}", stderr(&restored));
    Served::on(data)
}

#[test]
fn a_backup_under_load_is_what_was_counted_at_its_position_whoever_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backups) = (dir.path().join("data"), dir.path().join("backups"));
    let mut from = 0;
    for round in 0..4 {
        let server = serve(&data, &backups);
        assert_eq!(counted(&server), from, "the server goes on where it was");
        let counting = Counting::from(from, &server);
        counting.reach(from + 20_000);
        let before = counting.acknowledged.load(Ordering::SeqCst);
        let taken = tally(&["backup", "--server", http(&server)]);
        let after = counting.sent.load(Ordering::SeqCst);
        assert!(taken.status.success(), "{}", stderr(&taken));
        let at = counted(&restored(&backups, &dir.path().join(format!("new-{round}"))));
        assert!((before..=after).contains(&at), "{at} is not in {before}..={after}");
        // Another one, in which the server or whoever asks for it is killed.
        let mut asking = Command::new(env!("CARGO_BIN_EXE_tally"));
        let asking = asking.args(["backup", "--server", http(&server)]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut asking = asking.spawn().unwrap();
        counting.reach(before + 10_000);
        let server = match round % 2 {
            0 => {
                assert_eq!(server.stop(Signal::KILL).0, None);
                serve(&data, &backups)
            }
            _ => {
                asking.kill().unwrap();
                server
            }
        };
        asking.wait().unwrap();
        counting.end();
        from = counted(&server);
        let again = counted(&restored(&backups, &dir.path().join(format!("again-{round}"))));
        assert!((at..=from).contains(&again), "{again} is not in {at}..={from}");
        assert_eq!(server.stop(Signal::TERM).0, Some(0));
    }
}

#[test]
fn what_a_person_types_to_take_list_check_and_restore_backups() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backups, new) = (dir.path().join("data"), dir.path().join("backups"), dir.path().join("new"));
    let server = serve(&data, &backups);
    server.client(&["add", "visits", "41"]);
    let taken = stdout(&tally(&["backup", "--server", http(&server)]));
    let name = taken.lines().next().unwrap().to_owned();
    assert!(taken.contains("has        1 counters in") && taken.contains("position   "), "{taken}");
    server.client(&["add", "visits"]);
    assert_eq!(stdout(&tally(&["backup", "--list", "--server", http(&server)])), format!("{name}\n"));
    let place = backups.to_str().unwrap();
    assert_eq!(stdout(&tally(&["restore", place, "--list"])), format!("{name}\n"));
    assert!(stdout(&tally(&["restore", place, "--check"])).contains("all as they were written"));
    let new_data = new.to_str().unwrap();
    let restored = stdout(&tally(&["restore", place, "--data", new_data, "--at", &name]));
    assert!(restored.ends_with(&format!("restored   go on with: tally serve --data {new_data}\n")), "{restored}");
    assert_eq!(stdout(&Served::on(&new).client(&["get", "visits"])), "41\n");
    let again = tally(&["restore", place, "--data", new_data]);
    assert!(stderr(&again).contains("has data already"), "{}", stderr(&again));
    assert!(stderr(&tally(&["restore", new_data, "--check"])).contains("there is no backup in"));
    let nowhere = tally(&["restore", "/no/such/place", "--list"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(stderr(&nowhere).contains("there is no directory /no/such/place"), "{}", stderr(&nowhere));
    assert_eq!(tally(&["restore", place]).status.code(), Some(2), "it does not say where to");
}

#[test]
fn a_stopped_server_is_exported_and_goes_on_where_it_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let (data, moved, new) = (dir.path().join("data"), dir.path().join("moved"), dir.path().join("new"));
    let (moved_to, new_data) = (moved.to_str().unwrap(), new.to_str().unwrap());
    let export = ["export", moved_to, "--data", data.to_str().unwrap()];
    for _ in 0..2 {
        let nothing = tally(&export);
        assert!(stderr(&nothing).contains("is no data directory"), "{}", stderr(&nothing));
        std::fs::create_dir_all(&data).unwrap();
    }
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "no server was made of it");
    let once = "TALLY.INCRBY visits 41 ID once\r\nQUIT\r\n";
    let server = Served::on(&data);
    exchange(&server.resp, once);
    let running = tally(&export);
    assert!(!running.status.success() && stderr(&running).contains("use"), "{}", stderr(&running));
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
    let into_itself = tally(&["export", data.to_str().unwrap(), "--data", data.to_str().unwrap()]);
    assert!(stderr(&into_itself).contains("nothing was exported to"), "{}", stderr(&into_itself));
    let exported = stdout(&tally(&export));
    assert!(exported.contains("has        1 counters in"), "{exported}");
    let imported = stdout(&tally(&["import", moved_to, "--data", new_data]));
    assert!(imported.contains("all as they were written"), "{imported}");
    let server = Served::on(&new);
    exchange(&server.resp, once);
    assert_eq!(stdout(&server.client(&["get", "visits"])), "41\n", "what was counted once is not counted again");
    let nowhere = tally(&["import", moved_to]);
    assert!(stderr(&nowhere).contains("Name the data directory to make with --data"), "{}", stderr(&nowhere));
}

#[test]
fn a_server_that_is_to_take_backups_is_told_where_or_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let (config, data) = (dir.path().join("counters.yaml"), dir.path().join("data"));
    let old = "counters: [{counterName: gone, mode: simple, rules: [{on: e, op: increment}]}]\n";
    std::fs::write(&config, old).unwrap();
    let (data, yaml) = (data.to_str().unwrap(), config.to_str().unwrap());
    let on = ["serve", "--memory", "256MiB", "--data", data];
    let ports = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"];
    let with_config = [&on[..], &["--config", yaml]].concat();
    let ended_well = |server: Served| assert_eq!(server.stop(Signal::TERM).0, Some(0));
    ended_well(Served::start(&with_config));
    std::fs::write(&config, "backup: {every: 1d}\n").unwrap();
    let refused = tally(&[&with_config[..], &["--remove", "gone"], &ports].concat());
    assert!(stderr(&refused).contains("with --backup, or go without"), "{}", stderr(&refused));
    std::fs::write(&config, old).unwrap();
    ended_well(Served::start(&with_config)); // Nothing has changed.
    std::fs::write(&config, "backup: {every: 1d}\n").unwrap();
    ended_well(Served::start(&[&with_config[..], &["--remove", "gone", "--backup", "none"]].concat()));
    let refused = tally(&[&on[..], &ports].concat());
    assert!(stderr(&refused).contains("with --backup, or go without"), "{}", stderr(&refused));
    assert!(!stderr(&refused).contains("started"), "{}", stderr(&refused));
    ended_well(Served::start(&[&on[..], &["--backup", "none"]].concat()));
}
