//! Bringing the counters of a real Redis.

use crate::support::{Served, exchange, stderr, stdout, tally};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tally_node::clock::Stopwatch;
use tally_node::worker::Spawner;
use tempfile::TempDir;

struct Redis {
    process: Child,
    address: String,
    _dir: TempDir,
}

impl Redis {
    fn start() -> Redis {
        Redis::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Redis {
        // Somebody may take the port between our look and Redis' start: then look again.
        (0..10).find_map(|_| Redis::try_start(options)).expect("redis-server does not answer")
    }

    fn try_start(options: &[&str]) -> Option<Redis> {
        let dir = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", "", "--dir"]);
        command.arg(dir.path()).args(options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("`cargo xtask test` installs what the tests need");
        let mut redis = Redis { process, address: address.to_string(), _dir: dir };
        let started = Stopwatch::start();
        while redis.process.try_wait().unwrap().is_none() && started.elapsed().as_secs() < 30 {
            if TcpStream::connect(&redis.address).is_ok() {
                return Some(redis);
            }
            std::thread::yield_now();
        }
        None
    }

    fn has(&self, commands: &str) {
        let answer = exchange(&self.address, &format!("{commands}\r\nQUIT\r\n"));
        assert!(!answer.contains('-'), "{answer}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn integers_come_with_their_times_to_live_and_everything_else_is_named() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    let many: String = (0..5000).map(|n| format!("SET n{n} {n}\r\n")).collect();
    redis.has(&many);
    redis.has("SET least -9223372036854775808\r\nSET soon 7 PX 500000\r\nSET empty ''\r\nSET greeting hello\r\nRPUSH list a b");
    redis.has("SELECT 3\r\nSET elsewhere 1");
    let server = Served::on(dir.path());
    let url = format!("redis://{}", redis.address);
    let imported = tally(&["import", &url, "--server", &server.resp]);
    let text = stdout(&imported);
    assert!(imported.status.success(), "{}", stderr(&imported));
    assert!(text.contains("set        5002 counters, 1 of them with a time to live"), "{text}");
    assert!(text.contains("skipped    3\n") && text.contains("list: it is no string"), "{text}");
    assert!(text.contains("greeting: \"hello\" is no integer") && text.contains("empty: \"\" is no integer"), "{text}");
    assert_eq!(stdout(&server.client(&["get", "n4999", "least"])), "n4999  4999\nleast  -9223372036854775808\n");
    let ttl: i64 = exchange(&server.resp, "PTTL soon\r\nQUIT\r\n")[1..].split("\r\n").next().unwrap().parse().unwrap();
    assert!((400_000..=500_000).contains(&ttl), "{ttl}");
    assert_eq!(server.client(&["get", "elsewhere"]).status.code(), Some(3), "it is in another database");
    // What was counted here since stays, if that is wanted.
    server.client(&["add", "n1", "10"]);
    let again = stdout(&tally(&["import", &url, "--server", &server.resp, "--only-new"]));
    assert!(again.contains("set        0 counters") && again.contains("kept       5002 that were there"), "{again}");
    assert_eq!(stdout(&server.client(&["get", "n1"])), "11\n");
    let other = stdout(&tally(&["import", &format!("{url}/3"), "--server", &server.resp, "--json"]));
    let other: serde_json::Value = serde_json::from_str(&other).unwrap();
    assert_eq!((&other["set"], &other["skipped"]["count"]), (&1.into(), &0.into()), "{other}");
    assert!(stderr(&tally(&["import", "rediss://h", "--server", &server.resp])).contains("TLS"));
}

#[test]
fn a_key_that_no_counter_can_have_is_left_out_however_long_it_is() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    for bytes in [4096, 4097, 2 << 20] {
        let key = "k".repeat(bytes);
        redis.has(&format!("*3\r\n$3\r\nSET\r\n${bytes}\r\n{key}\r\n$1\r\n7"));
    }
    let server = Served::on(dir.path());
    let imported = tally(&["import", &format!("redis://{}", redis.address), "--server", &server.resp]);
    let text = stdout(&imported);
    assert!(text.contains("set        1 counters") && text.contains("skipped    2\n"), "{text}{}", stderr(&imported));
    assert!(text.contains("…: its name has 2097152 bytes, and a counter's at most 4096"), "{text}");
    assert!(text.contains("its name has 4097 bytes") && text.lines().all(|line| line.len() < 200), "{text}");
}

#[test]
fn one_node_of_a_cluster_is_not_taken_for_all_of_it() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Redis::start_with(&["--cluster-enabled", "yes"]));
    let server = Served::on(dir.path());
    let import = ["import", &format!("redis://{}", redis.address), "--server", &server.resp];
    let refused = tally(&import);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("Import from every master, one after the other"), "{}", stderr(&refused));
    let taken = tally(&[&import[..], &["--cluster-node"]].concat());
    assert!(stdout(&taken).contains("set        0 counters"), "{}", stderr(&taken));
}

#[test]
fn who_imports_is_told_what_to_do_about_the_redis_and_not_about_the_server() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Redis::start_with(&["--requirepass", "p@ss/w:rd"]));
    let server = Served::on(dir.path());
    let import = |url: &str| tally(&["import", url, "--server", &server.resp]);
    let address = &redis.address;
    for url in [format!("redis://{address}"), format!("redis://:wrong@{address}")] {
        let refused = stderr(&import(&url));
        assert!(refused.contains("the Redis refused") && refused.contains("--redis-password-file"), "{refused}");
    }
    let taken = import(&format!("redis://:p%40ss%2Fw%3Ard@{address}"));
    assert!(stdout(&taken).contains("set        0 counters"), "{}", stderr(&taken));
    drop(redis);
    let gone = stderr(&import("redis://:hush@127.0.0.1:1"));
    assert!(gone.contains("no Redis answers at 127.0.0.1:1") && gone.contains("redis://HOST:PORT"), "{gone}");
    assert!(!gone.contains("hush") && !gone.contains("--server"), "{gone}");
}

#[test]
fn a_server_that_lets_nobody_in_ends_the_import_instead_of_refusing_each_key() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), Redis::start());
    redis.has("SET visits 7");
    let password = dir.path().join("password");
    std::fs::write(&password, "hush\n").unwrap();
    let (data, password) = (dir.path().join("data"), password.to_str().unwrap());
    let server = Served::start(&["serve", "--data", data.to_str().unwrap(), "--password-file", password]);
    let import = ["import", &format!("redis://{}", redis.address), "--server", &server.resp];
    let refused = tally(&import);
    assert_eq!((refused.status.code(), &*stdout(&refused)), (Some(1), ""));
    let told = stderr(&refused);
    assert!(told.contains("NOAUTH") && told.contains("fix: Give the server's password with --password"), "{told}");
    let taken = tally(&[&import[..], &["--password-file", password]].concat());
    assert!(stdout(&taken).contains("set        1 counters"), "{}", stderr(&taken));
}

#[test]
fn a_server_that_can_write_nothing_ends_the_import_and_it_can_be_run_again() {
    let redis = Redis::start();
    redis.has("SET visits 7");
    // A Redis that may write nothing stands for a Tally with a full disk.
    let full = Redis::start_with(&["--min-replicas-to-write", "1"]);
    let refused = tally(&["import", &format!("redis://{}", redis.address), "--server", &full.address]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    let told = stderr(&refused);
    assert!(told.contains("NOREPLICAS") && told.contains("fix: Run it again when that is mended"), "{told}");
}

/// A server that is busy at first; answers how long the key that it is sent twice has to live, each time.
fn busy_once(listener: TcpListener) -> [u64; 2] {
    let mut stream = listener.accept().unwrap().0;
    let mut words = BufReader::new(stream.try_clone().unwrap()).lines();
    ["-BUSY Tally is catching up\r\n", "+OK\r\n"].map(|answer| {
        // SET, a key, a value, PX and how long: each with its length before it, behind how many there are.
        let left_ms = words.by_ref().take(11).last().unwrap().unwrap().parse().unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        left_ms
    })
}

#[test]
fn what_waits_for_a_busy_server_has_less_time_to_live_when_it_comes() {
    let redis = Redis::start();
    redis.has("SET soon 7 PX 500000");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let busy = Spawner::thread("busy", move || busy_once(listener)).unwrap();
    let imported = tally(&["import", &format!("redis://{}", redis.address), "--server", &server]);
    assert!(stdout(&imported).contains("set        1 counters, 1 of them with"), "{}", stderr(&imported));
    let [first_ms, second_ms] = busy.join().unwrap();
    // It pauses for a second between the two.
    assert!(first_ms <= 500_000 && second_ms + 900 <= first_ms, "{first_ms}, {second_ms}");
}
