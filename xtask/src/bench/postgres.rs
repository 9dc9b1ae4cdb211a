//! PostgreSQL as a peer: a server of its own on loopback, as all others are, and the transaction for persistent counters on it.
//!
//! It is treated kindly: one prepared statement and one round trip per batch, memory as its manual recommends, checkpoints
//! as rare as the log allows, no audit of duplicates. Only durability is not traded: fsync and synchronous commit are on.

mod load;

use super::load::Figure;
use super::machine;
use crate::{install, shell};
use anyhow::{Context, Result, bail, ensure};
use postgres::{Client, Config, NoTls};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const USER: &str = "tally";
/// At any port.
const LOOPBACK: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
const READY_MAX: Duration = Duration::from_secs(60);
/// As little as the server asks for, and as much as a quarter of the memory up to this.
const SHARED_BUFFERS_MB_MAX: u64 = 4096;
const SHARED_BUFFERS_MB_MIN: u64 = 128;

const SCHEMA: &str = "
    DROP TABLE IF EXISTS event_registry, counters;
    CREATE TABLE event_registry (
        event_id text PRIMARY KEY,
        first_seen_at timestamptz NOT NULL);
    CREATE TABLE counters (
        counter_name text NOT NULL,
        dimension_key text NOT NULL,
        dimensions_json jsonb NOT NULL,
        value bigint NOT NULL,
        updated_at timestamptz NOT NULL,
        PRIMARY KEY (counter_name, dimension_key)) WITH (fillfactor = 70);
    CHECKPOINT;";

/// One batch: registers the ids, and adds what was new to its counters. Both in sorted order, so that batches that meet
/// wait for each other instead of locking each other out.
const BATCH: &str = "
    WITH batch AS (
        SELECT event_id, min(dimension_key) AS dimension_key
        FROM unnest($1::text[], $2::text[]) AS sent (event_id, dimension_key)
        GROUP BY event_id
    ), fresh AS (
        INSERT INTO event_registry (event_id, first_seen_at)
        SELECT event_id, now() FROM batch ORDER BY event_id
        ON CONFLICT DO NOTHING
        RETURNING event_id
    ), sums AS (
        SELECT dimension_key, count(*) AS delta
        FROM fresh JOIN batch USING (event_id)
        GROUP BY dimension_key
    )
    INSERT INTO counters (counter_name, dimension_key, dimensions_json, value, updated_at)
    SELECT 'impressions', dimension_key, jsonb_build_object('ad', dimension_key), delta, now()
    FROM sums ORDER BY dimension_key
    ON CONFLICT (counter_name, dimension_key)
    DO UPDATE SET value = counters.value + EXCLUDED.value, updated_at = now()";

/// A running server; it and its data are gone when it is dropped.
pub struct Postgres {
    process: Child,
    port: u16,
    _data: TempDir,
}

impl Postgres {
    /// Starts a server on an empty directory of the disk that Tally uses.
    pub fn start() -> Result<Postgres> {
        let programs = install::postgres()?;
        let data = shell::scratch_dir("postgres-")?;
        let port = TcpListener::bind(LOOPBACK)?.local_addr()?.port();
        let account = Account::choose()?;
        account.give(data.path())?;
        let database = data.path().join("data");
        let log = data.path().join("log");
        account.initialise(&programs.join("initdb"), &database, &log)?;
        let process = account
            .command(&programs.join("postgres"), &log)?
            .arg("-D")
            .arg(&database)
            .args(["-k", "", "-h", &LOOPBACK.ip().to_string(), "-p", &port.to_string()])
            .args(settings().iter().flat_map(|setting| ["-c", setting]))
            .spawn()
            .context("postgres could not be started")?;
        let mut server = Postgres { process, port, _data: data };
        server.wait_until_ready(&log)?;
        Ok(server)
    }

    /// Runs batches of new and repeated events from empty tables on, and checks that everything was counted once.
    pub fn measure(&self, seconds: u32, seed: u64) -> Result<Figure> {
        let mut client = self.connect()?;
        client.batch_execute(SCHEMA)?;
        let cpu_before = self.cpu_seconds()?;
        let run = load::run(|| self.connect(), Duration::from_secs(seconds.into()), seed)?;
        let cpu_seconds = self.cpu_seconds()? - cpu_before;
        let sums = client.query_one(
            "SELECT (SELECT count(*) FROM event_registry), (SELECT sum(value)::bigint FROM counters)",
            &[],
        )?;
        let (registered, counted): (i64, i64) = (sums.get(0), sums.get(1));
        ensure!(
            registered as u64 == run.different_ids && counted == registered,
            "PostgreSQL registered {registered} and counted {counted} of {} events",
            run.different_ids
        );
        Ok(run.figure(cpu_seconds))
    }

    /// Of all its processes.
    pub fn cpu_seconds(&self) -> Result<f64> {
        machine::family_cpu_seconds(self.process.id())
    }

    pub fn connect(&self) -> Result<Client> {
        Ok(Config::new()
            .host(&LOOPBACK.ip().to_string())
            .port(self.port)
            .user(USER)
            .dbname("postgres")
            .connect(NoTls)?)
    }

    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let since = Instant::now();
        while let Err(error) = self.connect() {
            if let Some(status) = self.process.try_wait()? {
                bail!("postgres ended before it was ready: {status}\n{}", std::fs::read_to_string(log)?);
            }
            ensure!(since.elapsed() < READY_MAX, "postgres was not ready after {READY_MAX:?}: {error}");
            // Its readiness is told by nothing but an answer.
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // An immediate shutdown, which takes its processes with it. It may have ended already.
        if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = self.process.wait();
    }
}

fn settings() -> [String; 6] {
    let quarter_mb = machine::memory_bytes().unwrap_or(0) / 4 / (1 << 20);
    let buffers_mb = quarter_mb.clamp(SHARED_BUFFERS_MB_MIN, SHARED_BUFFERS_MB_MAX);
    [
        "fsync=on".to_owned(),
        "synchronous_commit=on".to_owned(),
        format!("shared_buffers={buffers_mb}MB"),
        "wal_buffers=64MB".to_owned(),
        "max_wal_size=16GB".to_owned(),
        "checkpoint_timeout=1h".to_owned(),
    ]
}

/// Who the server runs as: it refuses to be root.
struct Account(Option<(u32, u32)>);

impl Account {
    fn choose() -> Result<Account> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account(None));
        }
        let accounts = std::fs::read_to_string("/etc/passwd")?;
        let ids = ["postgres", "nobody"].iter().find_map(|name| ids_of(&accounts, name));
        Ok(Account(Some(
            ids.context("postgres refuses to run as root, and there is neither a user postgres nor nobody")?,
        )))
    }

    fn give(&self, directory: &Path) -> Result<()> {
        let Some((user, group)) = self.0 else { return Ok(()) };
        Ok(chown(directory, Some(user), Some(group))?)
    }

    fn initialise(&self, initdb: &Path, database: &Path, log: &Path) -> Result<()> {
        let mut command = self.command(initdb, log)?;
        command.args(["--auth", "trust", "--username", USER, "--encoding", "UTF8", "--no-locale", "--pgdata"]);
        let status = command.arg(database).status().context("initdb could not be started")?;
        ensure!(status.success(), "initdb failed: {status}\n{}", std::fs::read_to_string(log)?);
        Ok(())
    }

    /// A program that runs under this account and writes to `log`.
    fn command(&self, program: &Path, log: &Path) -> Result<Command> {
        let output = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).current_dir("/");
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        Ok(command)
    }
}

/// User and group of `name` in the text of /etc/passwd.
fn ids_of(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0::/root:/bin/sh\npostgres2:x:7:7::/:/bin/sh\npostgres:x:102:105::/:/bin/sh\n";
        assert_eq!(ids_of(accounts, "postgres"), Some((102, 105)));
        assert_eq!(ids_of(accounts, "nobody"), None);
    }

    /// `measure` itself compares what the tables hold with what was sent.
    #[test]
    #[ignore = "needs PostgreSQL"]
    fn a_server_is_started_and_counts_every_event_once() {
        let postgres = Postgres::start().unwrap();
        for seed in 1..=3 {
            let figure = postgres.measure(4, seed).unwrap();
            assert!(figure.per_second > 0.0 && figure.per_cpu_second > 0.0);
            println!("{figure:?}");
        }
    }
}
