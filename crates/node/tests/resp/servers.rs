//! A Redis and a Tally to talk to, each on a free port of this machine and in a directory of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tally_node::assemble::{Node, Options};
use tally_node::clock::Stopwatch;
use tally_node::frontend::Password;
use tempfile::TempDir;

/// What the lines with a `%` in a scenario file ask for.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub password: Option<String>,
    pub clients_max: Option<usize>,
    /// What else a test needs of a Tally.
    pub change: Option<fn(&mut Options)>,
    /// Declarations, as YAML: Redis has none.
    pub declarations: Option<String>,
}

pub struct Redis {
    process: Child,
    address: SocketAddr,
    _dir: TempDir,
}

impl Redis {
    pub fn start(settings: &Settings) -> Redis {
        assert!(settings.declarations.is_none(), "Redis has no declared counters");
        // Somebody may take the port between our look and Redis' start: then look again.
        (0..10).find_map(|_| Redis::try_start(settings)).expect("redis-server does not answer")
    }

    fn try_start(settings: &Settings) -> Option<Redis> {
        let dir = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--dir"]).arg(dir.path());
        if let Some(password) = &settings.password {
            command.args(["--requirepass", password]);
        }
        if let Some(clients_max) = settings.clients_max {
            command.args(["--maxclients", &clients_max.to_string()]);
        }
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap_or_else(|error| {
                panic!("cannot run redis-server ({error}): `cargo xtask test` installs what the tests need")
            });
        let mut redis = Redis { process, address, _dir: dir };
        redis.wait_until_it_answers().then_some(redis)
    }

    fn wait_until_it_answers(&mut self) -> bool {
        let started = Stopwatch::start();
        while self.process.try_wait().unwrap().is_none() && started.elapsed().as_secs() < 30 {
            if TcpStream::connect(self.address).is_ok() {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub struct Tally {
    node: Node,
    options: Options,
    dir: TempDir,
}

impl Tally {
    pub fn start(settings: &Settings) -> Tally {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path());
        options.resp = Some("127.0.0.1:0".parse().unwrap());
        options.config = settings.declarations.clone();
        options.resp_options.password = settings.password.as_deref().and_then(Password::new);
        if let Some(clients_max) = settings.clients_max {
            options.resp_options.clients_max = clients_max;
        }
        if let Some(change) = settings.change {
            change(&mut options);
        }
        Tally { node: Node::start(options.clone()).unwrap(), options, dir }
    }

    /// Stops it and starts it again on what it left behind.
    pub fn restart(self) -> Tally {
        self.node.stop().unwrap();
        Tally { node: Node::start(self.options.clone()).unwrap(), ..self }
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn address(&self) -> SocketAddr {
        self.node.resp_addr().unwrap()
    }

    pub fn stop(self) {
        self.node.stop().unwrap();
        drop(self.dir);
    }
}
