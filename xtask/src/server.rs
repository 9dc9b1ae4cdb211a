//! Servers as child processes on loopback: started, waited for until they say that they are ready, and never left behind.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, read_to_string};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// The longest a start may take, a replay of a long log included.
const READY_MAX: Duration = Duration::from_secs(300);
const OUTPUT_LINES_MAX: usize = 4096;

/// A child process that ends at the latest when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; either way it is gone afterwards.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Server {
    process: Process,
    output: Receiver<String>,
    log: PathBuf,
    pub resp: SocketAddr,
    http: Option<SocketAddr>,
    /// From the start of the process until it said that it is ready.
    pub ready_after: Duration,
}

/// A server that has been started and may not be ready.
pub struct Starting {
    process: Process,
    output: Receiver<String>,
    log: PathBuf,
    since: Instant,
}

/// Where a Tally runs that comes and goes and always finds its data again.
pub struct Place {
    binary: PathBuf,
    directory: PathBuf,
    options: Vec<String>,
    memory: &'static str,
}

impl Place {
    /// Little memory and checkpoints every `checkpoint_log` bytes of log, so that a short life has many.
    pub fn new(binary: PathBuf, directory: &Path, config: &str, checkpoint_log: &str) -> Result<Place> {
        let path = directory.join("counters.yaml");
        std::fs::write(&path, config)?;
        let path = path.to_str().context("the scratch directory is UTF-8")?;
        let options = ["--config", path, "--checkpoint-log", checkpoint_log];
        let options = options.map(str::to_owned).to_vec();
        Ok(Place { binary, directory: directory.to_owned(), options, memory: "256MiB" })
    }

    /// The same with more memory.
    pub fn with_memory(self, memory: &'static str) -> Place {
        Place { memory, ..self }
    }

    /// The same with more options.
    pub fn with(mut self, more: &[&str]) -> Place {
        self.options.extend(more.iter().map(|option| (*option).to_owned()));
        self
    }

    pub fn start(&self) -> Result<Starting> {
        let mut options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        options.extend(["--memory", self.memory]);
        start_tally(&self.binary, &self.directory.join("data"), &self.directory.join("stderr"), &options)
    }
}

/// Starts Tally on `data` with ports of the system's choice. `log` takes what it writes to stderr.
pub fn start_tally(binary: &Path, data: &Path, log: &Path, more: &[&str]) -> Result<Starting> {
    start_tally_as(Command::new(binary), data, log, more)
}

/// The same with the beginning of the command as it is given.
pub fn start_tally_as(mut command: Command, data: &Path, log: &Path, more: &[&str]) -> Result<Starting> {
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0", "--data"]).arg(data).args(more);
    spawn(command, log)
}

/// Starts a Redis that keeps what it keeps in `data`.
pub fn start_redis(data: &Path, log: &Path, more: &[&str]) -> Result<Server> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"]).arg(data).args(more);
    spawn(command, log)?.wait_for_redis(&port)
}

/// Starts an nginx of one process that answers every request with `body`.
pub fn start_nginx(directory: &Path, log: &Path, body: &str) -> Result<Server> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = directory.join("nginx.conf");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {};\n", directory.join(kind).display()))
        .collect();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {};\nevents {{}}\nhttp {{\naccess_log off;\nkeepalive_requests 1000000000;\n{temporary}\
         server {{ listen {address}; location / {{ default_type application/json; return 200 '{body}'; }} }}\n}}\n",
        directory.join("pid").display()
    );
    std::fs::write(&config, text)?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&config).args(["-e", "stderr"]);
    spawn(command, log)?.wait_for_answer(address)
}

/// Starts a server. `log` takes what it writes to stderr.
pub fn spawn(mut command: Command, log: &Path) -> Result<Starting> {
    let since = Instant::now();
    let stderr = File::options().create(true).append(true).open(log).context("a server's log cannot be written")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().with_context(|| format!("{:?} could not be started", command.get_program()))?;
    let stdout = child.stdout.take().expect("stdout was asked for as a pipe");
    let (lines, output) = sync_channel(OUTPUT_LINES_MAX);
    // Ends with the process. Lines that nobody reads any more are dropped, so that the server never waits for us.
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| drop(lines.try_send(line)))
    });
    Ok(Starting { process: Process(child), output, log: log.to_owned(), since })
}

impl Starting {
    /// Tally prints where it listens and then that it is ready.
    pub fn wait_for_tally(mut self) -> Result<Server> {
        let (mut http, mut resp) = (None, None);
        loop {
            let line = self.next_line()?;
            http = http.or(address_after(&line, "http://"));
            resp = resp.or(address_after(&line, "redis://"));
            if line.starts_with("ready") {
                return self.ready(resp.context("Tally is ready and has named no RESP address")?, http);
            }
        }
    }

    fn wait_for_redis(mut self, port: &str) -> Result<Server> {
        while !self.next_line()?.contains("Ready to accept connections") {}
        self.ready(format!("127.0.0.1:{port}").parse()?, None)
    }

    /// Nginx says nothing: it is ready when it takes connections. It has one address, and only HTTP.
    fn wait_for_answer(mut self, address: SocketAddr) -> Result<Server> {
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.process.0.try_wait()? {
                bail!("a server ended before it was ready: {status}\n{}", last_lines(&self.log));
            }
            ensure!(self.since.elapsed() < READY_MAX, "a server was not ready after {READY_MAX:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.ready(address, Some(address))
    }

    fn next_line(&mut self) -> Result<String> {
        match self.output.recv_timeout(READY_MAX.saturating_sub(self.since.elapsed())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("a server was not ready after {READY_MAX:?}"),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("a server ended before it was ready: {}\n{}", self.process.0.wait()?, last_lines(&self.log))
            }
        }
    }

    fn ready(self, resp: SocketAddr, http: Option<SocketAddr>) -> Result<Server> {
        let ready_after = self.since.elapsed();
        Ok(Server { process: self.process, output: self.output, log: self.log, resp, http, ready_after })
    }

    /// Signal 9, whether it is ready or not.
    pub fn kill(self) {
        drop(self.process);
    }
}

impl Server {
    /// Where it takes HTTP; only Tally does.
    pub fn http(&self) -> Result<SocketAddr> {
        self.http.context("the server has no HTTP address")
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Signal 9: the process has no say in it.
    pub fn kill(self) {
        drop(self.process);
    }

    /// Asks the process to end and waits until it has.
    pub fn stop(mut self) -> Result<()> {
        let pid = Pid::from_raw(self.process.0.id() as i32).context("a process has a positive id")?;
        kill_process(pid, Signal::TERM)?;
        let status = self.process.0.wait()?;
        let lines: Vec<String> = self.output.try_iter().collect();
        ensure!(status.success(), "SIGTERM ended in {status}\n{}\n{}", lines.join("\n"), last_lines(&self.log));
        Ok(())
    }
}

fn address_after(line: &str, scheme: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(scheme)?;
    rest.split(|c: char| c.is_whitespace() || c == '/').next()?.parse().ok()
}

fn last_lines(log: &Path) -> String {
    let text = read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
