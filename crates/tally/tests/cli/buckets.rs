//! Backups in a bucket of a real object store.

use crate::support::{Served, stderr, stdout};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use tally_node::clock::Stopwatch;
use tempfile::TempDir;

const PLACE: &str = "s3://tally/prod";

/// `versitygw`, which keeps each object as a file.
struct Store {
    process: Child,
    url: String,
    dir: TempDir,
}

impl Store {
    fn start() -> Store {
        // Somebody may take the port between our look and its start: then look again.
        (0..10).find_map(|_| Store::try_start()).expect("versitygw does not answer")
    }

    fn try_start() -> Option<Store> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tally")).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new(program());
        command.args(["--access", "tester", "--secret", "of-tests", "--port", &address, "posix"]).arg(dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("`cargo xtask test` installs what the tests need");
        let mut store = Store { process, url: format!("http://{address}"), dir };
        let started = Stopwatch::start();
        while store.process.try_wait().unwrap().is_none() && started.elapsed().as_secs() < 30 {
            if TcpStream::connect(&address).is_ok() {
                return Some(store);
            }
            std::thread::yield_now();
        }
        None
    }

    fn environment(&self) -> [(&str, &str); 4] {
        [
            ("AWS_ENDPOINT_URL", &self.url),
            ("AWS_ACCESS_KEY_ID", "tester"),
            ("AWS_SECRET_ACCESS_KEY", "of-tests"),
            ("AWS_REGION", "us-east-1"),
        ]
    }

    fn serve(&self, data: &Path) -> Served {
        let on = ["serve", "--memory", "256MiB", "--data", data.to_str().unwrap(), "--backup", PLACE];
        Served::start_with_env(&on, &self.environment(), Stdio::null())
    }

    fn tally(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tally")).args(args).envs(self.environment()).output().unwrap()
    }

    /// What it has under the place.
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("tally/prod").join(name)
    }

    fn objects(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path("objects")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// On the path, or where `go install` puts programs.
fn program() -> PathBuf {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin/versitygw"));
    home.filter(|path| path.exists()).unwrap_or_else(|| "versitygw".into())
}

fn http(server: &Served) -> &str {
    server.banner.split("http://").nth(1).unwrap().split_whitespace().next().unwrap()
}

/// How the backup that is taken now ends.
fn back_up(store: &Store, server: &Served) -> Result<Value, String> {
    let taken = store.tally(&["backup", "--json", "--server", http(server)]);
    match taken.status.success() {
        true => Ok(serde_json::from_slice(&taken.stdout).unwrap()),
        false => Err(stderr(&taken)),
    }
}

#[test]
fn what_is_done_with_a_directory_can_be_done_with_a_bucket() {
    let (store, dir) = (Store::start(), tempfile::tempdir().unwrap());
    let (data, new) = (dir.path().join("data"), dir.path().join("new"));
    let server = store.serve(&data);
    server.client(&["add", "visits", "41"]);
    let first = back_up(&store, &server).unwrap();
    let name = first["backup"]["name"].as_str().unwrap();
    assert_eq!(first["size"]["writtenObjects"], first["size"]["objects"], "{first}");
    let again = back_up(&store, &server).unwrap();
    assert_eq!(again["size"]["writtenObjects"], 0, "what has not changed is not written again: {again}");
    server.client(&["add", "visits"]);
    back_up(&store, &server).unwrap();
    let listed = stdout(&store.tally(&["restore", PLACE, "--list"]));
    assert_eq!((listed.lines().count(), listed.lines().next()), (3, Some(name)), "{listed}");
    assert!(stdout(&store.tally(&["restore", PLACE, "--check"])).contains("all as they were written"));
    let restored = store.tally(&["restore", PLACE, "--at", name, "--data", new.to_str().unwrap()]);
    assert!(restored.status.success(), "{}", stderr(&restored));
    assert_eq!(stdout(&Served::on(&new).client(&["get", "visits"])), "41\n");
    assert_eq!(server.stop(Signal::TERM).0, Some(0));
    let (moved, other) = ("s3://tally", dir.path().join("other"));
    let exported = store.tally(&["export", moved, "--data", data.to_str().unwrap()]);
    assert!(stdout(&exported).contains("go on with: tally import s3://tally --data DIR"), "{}", stderr(&exported));
    let imported = store.tally(&["import", moved, "--data", other.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", stderr(&imported));
    assert_eq!(stdout(&Served::on(&other).client(&["get", "visits"])), "42\n");
}

#[test]
fn one_writes_at_a_time_and_whoever_has_not_been_heard_of_for_a_minute_does_not_write() {
    let (store, dir) = (Store::start(), tempfile::tempdir().unwrap());
    let server = store.serve(&dir.path().join("data"));
    back_up(&store, &server).unwrap();
    // Once before the manifest, once behind it, and to let go.
    let said = fs::read_to_string(store.path("LOCK")).unwrap();
    assert!(said.contains(r#""beat":3"#), "{said}");
    let (lock, held) = (store.path("LOCK"), br#"{"writer":"somebody else","beat":7,"isFree":false}"#);
    fs::write(&lock, held).unwrap();
    let refused = back_up(&store, &server).unwrap_err();
    assert!(refused.contains("somebody else writes") && refused.contains(PLACE), "{refused}");
    assert_eq!(fs::read(&lock).unwrap(), held);
    let an_hour = Duration::from_secs(3600);
    #[expect(clippy::disallowed_methods, reason = "the time of a file")]
    let written = SystemTime::now() - an_hour;
    File::options().write(true).open(&lock).unwrap().set_modified(written).unwrap();
    back_up(&store, &server).unwrap();
    assert!(fs::read_to_string(&lock).unwrap().contains(r#""isFree":true"#), "it is let go of at the end");
    assert!(
        !fs::read_dir(store.path(""))
            .unwrap()
            .any(|file| { file.unwrap().file_name().to_string_lossy().starts_with("LOCK-") })
    );
}

#[test]
fn a_flipped_bit_in_an_object_of_a_bucket_is_found_and_named() {
    let (store, dir) = (Store::start(), tempfile::tempdir().unwrap());
    let server = store.serve(&dir.path().join("data"));
    server.client(&["add", "visits"]);
    back_up(&store, &server).unwrap();
    for object in store.objects() {
        let whole = fs::read(&object).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        fs::write(&object, flipped).unwrap();
        let found = stderr(&store.tally(&["restore", PLACE, "--check"]));
        let name = object.file_name().unwrap().to_str().unwrap();
        assert!(found.contains(name) && found.contains("is damaged"), "{found}");
        fs::write(&object, whole).unwrap();
    }
    assert!(store.tally(&["restore", PLACE, "--check"]).status.success());
}

#[test]
fn a_store_that_cannot_be_used_is_told_in_words_and_counting_goes_on() {
    let (store, dir) = (Store::start(), tempfile::tempdir().unwrap());
    let server = store.serve(&dir.path().join("data"));
    back_up(&store, &server).unwrap();
    for (place, words) in [("s3://absent/x", "NoSuchBucket"), ("gs://b", "name a directory, or a bucket as s3://")] {
        let refused = stderr(&store.tally(&["restore", place, "--check"]));
        assert!(refused.contains(words), "{refused}");
    }
    drop(store);
    let failed =
        Command::new(env!("CARGO_BIN_EXE_tally")).args(["backup", "--server", http(&server)]).output().unwrap();
    assert!(stderr(&failed).contains("the backups in s3://tally/prod"), "{}", stderr(&failed));
    assert_eq!(stdout(&server.client(&["add", "visits"])), "1\n");
}
