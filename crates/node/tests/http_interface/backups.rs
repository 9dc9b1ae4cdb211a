//! Backups of a running node, and nodes that go on from them.

use crate::support::TestNode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tally_node::assemble::{Options, random};
use tally_node::backup::restore::{RestoredBackup, Restoring, restore};
use tally_node::clock::{Clock, Stopwatch, wall_ms};
use tempfile::TempDir;

const YAML: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], dedup: {by: [session, seq], window: 60s}, rollups: [[country, hour]],
     lateness: {allowed: 10s, corrected: 2h}, rules: [{on: viewed, op: increment}]}
  - {counterName: likes, mode: transition, dimensions: [video], entity: [user, video],
     rules: [{on: liked, op: increment}, {on: unliked, op: decrement}]}
  - {counterName: paid, mode: persistent, dimensions: [ad], rules: [{on: shown, op: increment}]}
";

/// A node that keeps backups beside its data.
struct Ground {
    node: TestNode,
    backups: TempDir,
}

fn declared(options: &mut Options) {
    options.config = Some(YAML.to_owned());
}

impl Ground {
    fn new() -> Ground {
        Ground::declaring("")
    }

    fn declaring(more: &str) -> Ground {
        let backups = tempfile::tempdir().unwrap();
        let node = TestNode::start_with(|options| {
            options.config = Some(format!("{YAML}{more}"));
            options.backup = Some(backups.path().into());
        });
        Ground { node, backups }
    }

    /// Takes one, and answers how it ended.
    fn back_up(&self) -> Value {
        back_up(&self.node)
    }

    fn restoring(&self, at: Option<&Value>, data: Option<&Path>) -> Restoring {
        let at = at.map(|name| name.as_str().unwrap().to_owned());
        Restoring { backups: self.backups.path().into(), at, of: None, data: data.map(Path::to_owned) }
    }

    fn restore(&self, at: Option<&Value>, data: &Path) -> Result<RestoredBackup, String> {
        restore(&self.restoring(at, Some(data)), random, &mut |_, _| ()).map_err(|error| error.to_string())
    }

    /// A node on what a backup is restored to.
    fn restored(&self, at: Option<&Value>) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        self.restore(at, dir.path()).unwrap_or_else(|error| panic!("{error}"));
        TestNode::open(dir, declared)
    }

    fn objects(&self) -> Vec<PathBuf> {
        files(&self.backups.path().join("objects"))
    }
}

fn back_up(node: &TestNode) -> Value {
    let run = node.post("/v1/backups", "").with_status(202)["run"].as_u64().unwrap();
    let began = Stopwatch::start();
    loop {
        let last = node.get("/v1/backups").ok()["last"].take();
        if last["run"].as_u64() >= Some(run) {
            return last;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "backup {run} never came: {last}");
        std::thread::yield_now();
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn send(node: &TestNode, event: &Value) -> Value {
    node.post("/v1/events", event.to_string()).ok()
}

fn view(seq: u64) -> Value {
    json!({"type": "viewed", "session": "s", "seq": seq, "dimensions": {"video": "a", "country": "DE"}})
}

fn like(user: u64, kind: &str, at: &str) -> Value {
    json!({"type": kind, "occurredAt": at, "dimensions": {"video": "a", "user": user}})
}

fn shown(id: u64) -> Value {
    json!({"type": "shown", "eventId": id.to_string(), "dimensions": {"ad": "x"}})
}

fn increment(node: &TestNode, id: &str, key: &str) -> Value {
    node.send("POST", &format!("/v1/counters/{id}/increment"), &[("idempotency-key", key)], b"{\"delta\":5}").ok()
}

/// Something of every kind.
fn fill(node: &TestNode) {
    (0..50).for_each(|seq| drop(send(node, &view(seq))));
    (0..5).for_each(|user| drop(send(node, &like(user, "liked", "2026-01-01T00:00:00Z"))));
    send(node, &like(3, "unliked", "2026-01-01T00:00:01Z"));
    (0..7).for_each(|id| drop(send(node, &shown(id))));
    send(node, &shown(3));
    let late = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(30);
    let mut parked = view(1000);
    parked["occurredAt"] = late.to_string().into();
    send(node, &parked);
    increment(node, "plain", "k1");
    let correction = json!({"reason": "fraud", "author": "ops", "deltas": [{"id": "views:a", "delta": -7}]});
    let number = node.post("/v1/corrections", correction.to_string()).with_status(201)["number"].clone();
    node.post(&format!("/v1/corrections/{number}/apply"), "").ok();
}

/// All that is told about what was counted, up to an hour.
fn told(node: &TestNode, to: jiff::Timestamp) -> Value {
    let read = |path: &str| {
        let mut answer = node.get(path).ok();
        for moving in ["asOf", "stalenessMs", "position", "token"] {
            answer.as_object_mut().unwrap().remove(moving);
        }
        answer
    };
    let from = to - jiff::SignedDuration::from_hours(3);
    let series = read(&format!("/v1/counters/views:a/series?by=country&step=1h&from={from}&to={to}"));
    let values = ["views:a", "likes:a", "paid:x", "plain"].map(|id| node.value(id));
    let told = json!({
        "balance": read("/v1/balance")["counters"],
        "values": values,
        "history": read("/v1/counters/views:a/history")["generations"],
        "countries": [series["points"], series["provisional"]],
        "duplicates": read("/v1/duplicates?counter=paid")["duplicates"],
        "corrections": read("/v1/corrections")["corrections"],
        "config": read("/v1/config")["version"],
    });
    assert!(told.as_object().unwrap().values().all(|part| !part.is_null()), "{told:#} of {series}");
    told
}

#[test]
fn a_restored_node_is_what_the_backed_up_one_was_and_goes_on_counting_exactly() {
    let ground = Ground::new();
    fill(&ground.node);
    let ended = ground.back_up();
    assert_eq!(ended["error"], Value::Null, "{ended}");
    let to = jiff::Timestamp::now();
    let before = told(&ground.node, to);
    // What comes behind the backup is not in it.
    send(&ground.node, &view(51));
    increment(&ground.node, "plain", "k2");
    let node = ground.restored(None);
    assert_eq!(told(&node, to), before);
    for (what, event) in [
        ("a view that stood before", view(49)),
        ("one that is parked", view(1000)),
        ("an impression that stood before", shown(6)),
    ] {
        assert_eq!(send(&node, &event)["duplicate"], 1, "{what}");
    }
    assert_eq!(send(&node, &like(2, "liked", "2026-01-01T00:00:05Z"))["counted"], 0, "it is liked");
    assert_eq!(send(&node, &like(3, "liked", "2026-01-01T00:00:05Z"))["counted"], 1, "it was unliked");
    assert_eq!(increment(&node, "plain", "k1")["value"], 5, "its answer is remembered");
    assert_eq!(increment(&node, "plain", "k2")["value"], 10, "that came behind the backup");
    assert_eq!(send(&node, &view(51))["counted"], 1, "and so did this");
    // And so after a restart.
    let node = node.restart(declared);
    assert_eq!((node.value("plain"), send(&node, &view(51))["duplicate"].clone()), (10, json!(1)));
}

#[test]
fn nothing_that_the_old_node_wrote_behind_the_backup_is_taken_for_the_new_ones() {
    let ground = Ground::new();
    let archive = tempfile::tempdir().unwrap();
    let with_archive = |options: &mut Options| {
        declared(options);
        options.archive = Some(archive.path().to_owned());
    };
    let Ground { node, backups } = ground;
    let node = node.restart(|options| {
        with_archive(options);
        options.backup = Some(backups.path().into());
    });
    let ground = Ground { node, backups };
    send(&ground.node, &view(1));
    ground.back_up();
    let token = send(&ground.node, &view(2))["token"].as_str().unwrap().to_owned();
    ground.node.post("/v1/archive/flush", "").ok();
    let epoch = ground.node.node().engine().applied().epoch;
    // The archive is further than the backup.
    let dir = tempfile::tempdir().unwrap();
    ground.restore(None, dir.path()).unwrap();
    drop(ground.node);
    let node = TestNode::open(dir, with_archive);
    assert!(node.node().engine().applied().epoch > epoch + 1000, "the old one may be opened again many times");
    let refused = node.post("/v1/archive/flush", "").problem(503, "archive-failed");
    assert!(refused.contains("the events of another data directory"), "{refused}");
    node.get(&format!("/v1/counters/views:a?at_least={token}")).problem(409, "token-lost");
}

#[test]
fn what_has_not_changed_is_not_written_again_and_what_has_is_a_small_part() {
    let ground = Ground::new();
    let ids: Vec<Value> = (0..60_000)
        .map(|n| json!({"type": "shown", "eventId": format!("e{n}"), "dimensions": {"ad": format!("{n}")}}))
        .collect();
    ids.chunks(5000).for_each(|events| drop(send(&ground.node, &json!(events))));
    let first = ground.back_up();
    let again = ground.back_up();
    // Some 36, each ending where hashes of another seed say so.
    assert!(first["size"]["objects"].as_u64() > Some(12), "{first}");
    assert_eq!(first["size"]["writtenObjects"], first["size"]["objects"]);
    assert_eq!((&again["size"]["writtenObjects"], &again["size"]["objects"]), (&json!(0), &first["size"]["objects"]));
    send(&ground.node, &shown(1));
    let third = ground.back_up();
    let written = third["size"]["writtenObjects"].as_u64().unwrap();
    assert!((1..=first["size"]["objects"].as_u64().unwrap() / 2).contains(&written), "{third}");
    assert_eq!(ground.restored(Some(&again["backup"]["name"])).node().engine().len(), 60_000);
    assert_eq!(ground.restored(None).node().engine().len(), 60_001);
}

#[test]
fn a_flipped_bit_in_any_object_is_found_and_named() {
    let ground = Ground::new();
    fill(&ground.node);
    ground.back_up();
    let mut damaged = ground.objects();
    assert!(damaged.len() >= 3, "rows, log and state: {damaged:?}");
    damaged.extend(files(&ground.backups.path().join("manifests")));
    for path in damaged {
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        let middle = whole.len() / 2;
        flipped[middle] ^= 1;
        let (name, dir) = (path.file_name().unwrap().to_str().unwrap(), tempfile::tempdir().unwrap());
        for bytes in [flipped.as_slice(), &whole[..middle], b""] {
            std::fs::write(&path, bytes).unwrap();
            let error = ground.restore(None, dir.path()).unwrap_err();
            assert!(error.contains(name) && error.contains("is damaged"), "{error}");
            let looked = restore(&ground.restoring(None, None), random, &mut |_, _| ()).unwrap_err().to_string();
            assert!(looked.contains(name), "{looked}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(ground.restore(None, dir.path()).is_err());
        std::fs::write(&path, &whole).unwrap();
        // What was not whole is made so.
        ground.restore(None, dir.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_directory_that_is_half_restored_is_no_data_directory_and_goes_on_with_the_same_backup_only() {
    let ground = Ground::new();
    fill(&ground.node);
    let first = ground.back_up()["backup"]["name"].clone();
    send(&ground.node, &view(77));
    let second = ground.back_up()["backup"]["name"].clone();
    let object = ground.objects().into_iter().next().unwrap();
    let whole = std::fs::read(&object).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(&object, b"").unwrap();
    let (one, other) = match ground.restore(Some(&first), dir.path()) {
        Err(_) => (first, second),
        Ok(_) => {
            std::fs::remove_dir_all(dir.path()).unwrap();
            ground.restore(Some(&second), dir.path()).unwrap_err();
            (second, first)
        }
    };
    std::fs::write(&object, whole).unwrap();
    let refused = tally_node::assemble::Node::start(Options::new(dir.path())).err().unwrap().to_string();
    assert!(refused.contains("has not come to its end") && refused.contains("tally restore"), "{refused}");
    assert!(ground.restore(Some(&other), dir.path()).unwrap_err().contains("has not come to its end"));
    // Without a name it is the one that was begun, whatever has come since.
    ground.back_up();
    assert_eq!(ground.restore(None, dir.path()).unwrap().name.name, one);
    assert!(ground.restore(Some(&one), dir.path()).unwrap_err().contains("has data already"));
    assert_eq!(TestNode::open(dir, declared).value("paid:x"), 7);
}

#[test]
fn of_several_servers_that_share_a_place_somebody_says_which_is_restored() {
    let ground = Ground::new();
    send(&ground.node, &view(1));
    let first = ground.back_up()["backup"]["name"].as_str().unwrap().to_owned();
    let other = TestNode::start_with(|options| options.backup = Some(ground.backups.path().into()));
    let second = back_up(&other)["backup"]["name"].as_str().unwrap().to_owned();
    let refused = ground.restore(None, tempfile::tempdir().unwrap().path()).unwrap_err();
    assert!(refused.contains(&first) && refused.contains(&second), "{refused}");
    for name in [&first, &second] {
        let id = u64::from_str_radix(name.split('_').nth(1).unwrap(), 16).unwrap();
        let what = Restoring { of: Some(id), ..ground.restoring(None, None) };
        assert_eq!(&restore(&what, random, &mut |_, _| ()).unwrap().name.name, name);
    }
    let what = Restoring { of: Some(7), ..ground.restoring(None, None) };
    let nobody = restore(&what, random, &mut |_, _| ()).unwrap_err().to_string();
    assert!(nobody.contains("there is no backup of 0000000000000007 in"), "{nobody}");
}

#[test]
fn so_many_are_kept_and_nothing_stays_that_none_of_them_names() {
    let ground = Ground::declaring("backup: {every: 90d, keep: 2}\n");
    for seq in 0..5 {
        send(&ground.node, &view(seq));
        assert_eq!(ground.back_up()["error"], Value::Null);
    }
    let kept = ground.node.get("/v1/backups").ok()["backups"].as_array().unwrap().clone();
    assert_eq!(kept.len(), 2, "{kept:?}");
    std::fs::write(ground.backups.path().join("objects/left by a crash"), b"x").unwrap();
    ground.back_up();
    assert!(ground.objects().len() <= 8, "{:?}", ground.objects());
    for backup in ground.node.get("/v1/backups").ok()["backups"].as_array().unwrap() {
        assert_eq!(ground.restored(Some(&backup["name"])).value("views:a"), 5);
    }
}

#[test]
fn a_stopped_node_is_exported_as_it_is_however_long_it_rested_and_is_not_changed() {
    const FORTY_DAYS_MS: u64 = 40 * 86_400_000;
    let (moved, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with_archive = |options: &mut Options| {
        options.config = Some(format!("{YAML}probes: {{every: 1s}}\n"));
        options.archive = Some(archive.path().to_owned());
        options.resp = Some("127.0.0.1:0".parse().unwrap());
        options.accept_clock = true;
    };
    let node = TestNode::start_with(|options| {
        with_archive(options);
        options.clock = Clock::settable(wall_ms() - FORTY_DAYS_MS).0;
    });
    (0..2).for_each(|seq| drop(send(&node, &view(seq))));
    assert_eq!(node.resp("SET ends 1 PX 1000", 1), ["+OK"]);
    let dir = node.stopped();
    let export = || tally_node::assemble::export(dir.path(), &moved.path().into(), |_| ()).unwrap().0;
    let (first, second) = (export(), export());
    assert_eq!(first.position.offset, second.position.offset, "nothing was written behind the first");
    assert!(first.time_ms + FORTY_DAYS_MS > wall_ms(), "it has the time at which it was made");
    assert!(!dir.path().join("archive").exists());
    let restoring = Restoring { backups: moved.path().into(), at: None, of: None, data: None };
    restore(&restoring, random, &mut |_, _| ()).unwrap();
    let data = tempfile::tempdir().unwrap();
    let nothing = tally_node::assemble::export(data.path(), &moved.path().into(), |_| ()).unwrap_err().to_string();
    assert!(nothing.contains("there is no data directory"), "{nothing}");
    assert_eq!(files(data.path()), Vec::<PathBuf>::new(), "and none was made");
}

#[test]
fn what_an_archive_does_not_have_yet_is_still_there_after_an_export() {
    let (moved, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with_archive = |options: &mut Options| {
        declared(options);
        options.archive = Some(archive.path().to_owned());
    };
    let node = TestNode::start_with(with_archive);
    send(&node, &view(1));
    node.post("/v1/archive/flush", "").ok();
    send(&node, &view(2));
    let dir = node.stopped();
    tally_node::assemble::export(dir.path(), &moved.path().into(), |_| ()).unwrap();
    let node = TestNode::open(dir, with_archive);
    node.post("/v1/archive/flush", "").ok();
    // How much it has is told when it is opened.
    let node = node.restart(with_archive);
    node.post("/v1/archive/flush", "").ok();
    assert_eq!((node.get("/v1/archive").ok()["events"].as_u64(), node.value("views:a")), (Some(2), 2));
}

#[test]
fn a_backup_from_under_a_clock_that_ran_ahead_hides_none_that_come_after_it() {
    const TEN_DAYS_MS: u64 = 10 * 86_400_000;
    let backups = tempfile::tempdir().unwrap();
    let hourly = |options: &mut Options| {
        options.config = Some(format!("{YAML}backup: {{every: 1h, keep: 2}}\n"));
        options.backup = Some(backups.path().into());
        options.accept_clock = true;
    };
    let node = TestNode::start_with(|options| {
        hourly(options);
        options.clock = Clock::settable(wall_ms() + TEN_DAYS_MS).0;
    });
    (0..2).for_each(|_| assert_eq!(back_up(&node)["error"], Value::Null));
    let ground = Ground { node: node.restart(hourly), backups };
    let began = Stopwatch::start();
    while ground.node.get("/v1/backups").ok()["last"].is_null() {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody knows how old those are, so it is time");
        std::thread::yield_now();
    }
    send(&ground.node, &view(1));
    let made = ground.back_up()["backup"]["name"].clone();
    let kept = ground.node.get("/v1/backups").ok()["backups"].take();
    assert_eq!((kept.as_array().unwrap().len(), &kept[1]["name"]), (2, &made), "{kept}");
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ground.restore(None, dir.path()).unwrap().name.name, made);
    let metrics = ground.node.get("/metrics").text().to_owned();
    let taken = metrics.lines().find_map(|line| line.strip_prefix("tally_backup_last_timestamp_seconds ")).unwrap();
    assert!(taken.parse::<f64>().unwrap() <= wall_ms() as f64 / 1000.0, "{taken}");
}

#[test]
fn without_a_place_both_say_how_to_get_one_and_a_place_that_cannot_be_used_is_told() {
    let node = TestNode::start();
    assert!(node.get("/v1/backups").problem(404, "no-backups").contains("--backup"));
    node.post("/v1/backups", "").problem(404, "no-backups");
    let backups = tempfile::tempdir().unwrap();
    let in_the_way = backups.path().join("objects");
    std::fs::write(&in_the_way, b"").unwrap();
    let node = node.restart(|options| options.backup = Some(backups.path().into()));
    let error = back_up(&node)["error"].take();
    assert!(error.as_str().unwrap().contains(&format!("the backups in {}", backups.path().display())), "{error}");
    std::fs::remove_file(&in_the_way).unwrap();
    assert_eq!(back_up(&node)["error"], Value::Null, "it is tried again when somebody asks");
    let dir = node.stopped();
    for (place, why) in [(Path::new("/dev/null/x"), "/dev/null is no directory"), (dir.path(), "is in the other")] {
        let options = Options { backup: Some(place.into()), ..Options::new(dir.path()) };
        let refused = tally_node::assemble::Node::start(options).err().unwrap().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn backups_that_somebody_has_taken_away_are_not_told_any_more() {
    let (clock, hands) = Clock::simulated(wall_ms());
    let backups = tempfile::tempdir().unwrap();
    let node = TestNode::start_with(|options| {
        options.backup = Some(backups.path().into());
        options.clock = clock;
    });
    let began = Stopwatch::start();
    let wait_for = |count: usize| {
        while node.get("/v1/backups").ok()["backups"].as_array().unwrap().len() != count {
            assert!(began.elapsed() < Duration::from_secs(60), "there are never {count}");
            hands.pass(1000);
        }
    };
    node.post("/v1/backups", "").with_status(202);
    wait_for(1);
    std::fs::remove_dir_all(backups.path().join("manifests")).unwrap();
    wait_for(0);
    assert!(node.get("/metrics").text().contains("tally_backup_last_timestamp_seconds 0"));
    // A stop waits for what waits.
    let stopping = tally_node::worker::Spawner::thread("stopping", move || node.stop()).unwrap();
    while !stopping.is_finished() {
        hands.pass(1000);
    }
    stopping.join().unwrap();
}

#[test]
fn a_backup_is_taken_when_it_is_time() {
    let backups = tempfile::tempdir().unwrap();
    let hourly = |options: &mut Options| {
        options.config = Some(format!("{YAML}backup: {{every: 1h}}\n"));
        options.backup = Some(backups.path().into());
    };
    let node = TestNode::start_with(hourly);
    let kept = |node: &TestNode| node.get("/v1/backups").ok()["backups"].as_array().unwrap().len();
    let began = Stopwatch::start();
    while kept(&node) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "there is none, so it is time");
        std::thread::yield_now();
    }
    let metrics = node.get("/metrics").text().to_owned();
    assert!(!metrics.contains("tally_backup_last_timestamp_seconds 0.0\n"), "{metrics}");
    // The next one is due in an hour, whoever starts meanwhile.
    let node = node.restart(hourly);
    assert_eq!((back_up(&node)["run"].as_u64(), kept(&node)), (Some(1), 2));
}
