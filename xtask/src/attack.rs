//! `cargo xtask attack`: everything that has ever made a server take gigabytes, at full size, on a server in a control group of
//! `--memory` plus 512 MiB, which is for the kernel's sockets and pages of files as well.
//!
//! Each attack has a server of its own. While its connections are held the server must still answer; afterwards the most that
//! it had is held against the bounds: that of the group, and for its resident memory 1.1 times `--memory` plus 64 MiB. Where no control
//! group can be made, its resident memory and the memory of the kernel's sockets stand in for it.

mod attacks;
mod group;

use crate::server::{self, Server};
use crate::shell;
use anyhow::{Context, Result, ensure};
use attacks::ATTACKS;
use clap::Args;
use group::Group;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::read_to_string;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Of the servers that are attacked, and of those that are flooded with writes.
const MEMORY_BYTES: u64 = 256 * MIB;
const FLOODED_MEMORY_BYTES: u64 = 512 * MIB;
/// What the control group may take beside `--memory`.
const BESIDE_BYTES: u64 = 512 * MIB;
/// Counters that floods of events feed.
const COUNTERS: &str = "\
counters:
  - counterName: views
    mode: display
    dimensions: [video]
    rules: [{on: video.viewed, op: increment}]
  - counterName: impressions
    mode: persistent
    dimensions: [ad]
    rules: [{on: ad.shown, op: increment}]
";
const CONNECTIONS_MAX: u64 = 20_000;
/// How long a server may take to answer while it is attacked.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A server that takes nothing for so long has stopped reading, as it may.
const TAKEN_MAX: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct AttackArgs {
    /// Only attacks whose name contains this
    #[arg(default_value = "")]
    only: String,
    /// Attacks this binary rather than a fresh release build
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Something that a few clients do to a server.
pub struct Attack {
    pub name: &'static str,
    /// Options of the server beside the usual ones.
    pub options: &'static [&'static str],
    pub deed: Deed,
}

pub enum Deed {
    /// Answers the connections that are to be held while the server is looked at.
    Attack(fn(Target) -> Result<Vec<TcpStream>>),
    /// A load of `tally bench`, by its arguments.
    Flood(&'static [&'static str]),
}

impl Deed {
    fn memory_bytes(&self) -> u64 {
        match self {
            Deed::Attack(_) => MEMORY_BYTES,
            Deed::Flood(_) => FLOODED_MEMORY_BYTES,
        }
    }
}

pub fn run(args: AttackArgs) -> Result<()> {
    let binary = args.binary.map_or_else(|| shell::build_tally(true), Ok)?;
    allow_many_connections()?;
    let chosen: Vec<_> = ATTACKS.iter().filter(|attack| attack.name.contains(&args.only)).collect();
    ensure!(!chosen.is_empty(), "there is no attack {:?}", args.only);
    let failed: Vec<_> = chosen.into_iter().filter(|attack| !survives(&binary, attack)).collect();
    ensure!(failed.is_empty(), "{} attacks were too much", failed.len());
    Ok(())
}

fn survives(binary: &Path, attack: &Attack) -> bool {
    match carry_out(binary, attack) {
        Ok(report) => println!("  {:<52} {report}", attack.name),
        Err(error) => {
            println!("  {:<52} FAILED: {error:#}", attack.name);
            return false;
        }
    }
    true
}

/// What the guide promises of a process with so much `--memory`.
fn resident_bytes_max(memory_bytes: u64) -> u64 {
    memory_bytes + memory_bytes / 10 + 64 * MIB
}

fn carry_out(binary: &Path, attack: &Attack) -> Result<String> {
    let directory = shell::scratch_dir("attack-")?;
    let memory_bytes = attack.deed.memory_bytes();
    let (limit_bytes, resident_max) = (memory_bytes + BESIDE_BYTES, resident_bytes_max(memory_bytes));
    // A flood fills its group with pages of files, which the system takes back when it wants to.
    let group = matches!(attack.deed, Deed::Attack(_)).then(|| Group::make(limit_bytes)).flatten();
    let victim = Victim::start(binary, directory.path(), memory_bytes, attack.options, group.as_ref())?;
    let sockets_before = socket_bytes()?;
    let held = match attack.deed {
        Deed::Attack(run) => run(victim.target)?,
        Deed::Flood(load) => victim.flood(binary, load).map(|()| Vec::new())?,
    };
    let sockets = socket_bytes()?.saturating_sub(sockets_before);
    victim.check_it_answers().context("it does not answer while it is attacked")?;
    let resident = victim.peak_bytes()?;
    drop(held);
    let (peak, how) = match &group {
        Some(group) => {
            ensure!(!group.has_killed()?, "it was killed for want of memory");
            (group.peak_bytes()?, "in its control group")
        }
        None => (resident + sockets, "resident and in sockets"),
    };
    let report = format!(
        "{:>4} of {} MiB {how}; {} of {} MiB resident, {} MiB in sockets of both sides",
        peak / MIB,
        limit_bytes / MIB,
        resident / MIB,
        resident_max / MIB,
        sockets / MIB
    );
    ensure!(resident <= resident_max && peak <= limit_bytes, "{report}");
    victim.server.stop().context("it does not stop in good order after it")?;
    Ok(report)
}

/// The attackers are in this process, and so are their descriptors.
fn allow_many_connections() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(CONNECTIONS_MAX);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?)
}

/// What TCP takes of the kernel's memory, of both sides of every connection.
fn socket_bytes() -> Result<u64> {
    let text = read_to_string("/proc/net/sockstat")?;
    let line = text.lines().find(|line| line.starts_with("TCP:")).context("sockstat has no TCP")?;
    let pages = line.split_whitespace().skip_while(|word| *word != "mem").nth(1).context("sockstat has no mem")?;
    Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
}

/// Where an attack goes.
#[derive(Clone, Copy)]
pub struct Target {
    http: SocketAddr,
    resp: SocketAddr,
}

impl Target {
    pub fn http(self) -> Result<TcpStream> {
        connect(self.http)
    }

    pub fn resp(self) -> Result<TcpStream> {
        connect(self.resp)
    }
}

/// A server that is attacked.
struct Victim {
    server: Server,
    target: Target,
}

impl Victim {
    fn start(
        binary: &Path,
        directory: &Path,
        memory_bytes: u64,
        options: &[&str],
        group: Option<&Group>,
    ) -> Result<Victim> {
        let memory = format!("{}MiB", memory_bytes / MIB);
        let counters = directory.join("counters.yaml");
        std::fs::write(&counters, COUNTERS)?;
        let mut command = match group {
            Some(group) => group.enclosing(binary),
            None => Command::new(binary),
        };
        command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--memory", &memory, "--data"]);
        command.arg(directory.join("data")).arg("--config").arg(counters).args(options);
        let server = server::spawn(command, &directory.join("stderr"))?.wait_for_tally()?;
        let target = Target { http: server.http()?, resp: server.resp };
        Ok(Victim { server, target })
    }

    /// Has the load generator write to it.
    fn flood(&self, binary: &Path, load: &[&str]) -> Result<()> {
        let address = if load.contains(&"events") { self.target.http } else { self.target.resp };
        let flood =
            Command::new(binary).args(["bench", "--json", "--server", &address.to_string()]).args(load).output()?;
        let report = String::from_utf8_lossy(&flood.stdout);
        ensure!(report.contains("operations_per_second"), "{report}{}", String::from_utf8_lossy(&flood.stderr));
        Ok(())
    }

    /// The most memory that the process had so far.
    fn peak_bytes(&self) -> Result<u64> {
        let status = read_to_string(format!("/proc/{}/status", self.server.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("it has ended")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }

    fn check_it_answers(&self) -> Result<()> {
        let mut redis = self.target.resp()?;
        redis.write_all(b"PING\r\n")?;
        redis.read_exact(&mut [0; 1])?;
        let mut http = self.target.http()?;
        http.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        http.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Ok(())
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Sends as much as is taken: a server that has enough closes, or stops reading.
pub fn push(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    stream.set_write_timeout(Some(TAKEN_MAX))?;
    let expected = [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    match stream.write_all(bytes) {
        Err(error) if !expected.contains(&error.kind()) => Err(error.into()),
        _ => Ok(()),
    }
}
