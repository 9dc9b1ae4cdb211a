//! A node on a data directory, and files to compare.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use tally_node::assemble::{Node, Options, StartError};

/// A bound on a failing test, not on a passing one.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node that takes commands of the Redis protocol.
pub struct Running {
    pub node: Node,
    stream: BufReader<TcpStream>,
}

pub fn options(dir: &Path) -> Options {
    let mut options = Options::new(dir);
    options.resp = Some("127.0.0.1:0".parse().unwrap());
    options.memory_bytes = 256 << 20;
    options.log.segment_bytes = 64 << 10;
    options
}

pub fn start(dir: &Path) -> Result<Running, StartError> {
    start_with(options(dir))
}

pub fn start_with(options: Options) -> Result<Running, StartError> {
    let node = Node::start(options)?;
    let stream = TcpStream::connect(node.resp_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(Running { node, stream: BufReader::new(stream) })
}

impl Running {
    /// The first line of the answer, or the text itself if the answer is one.
    pub fn ask(&mut self, command: &str) -> String {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let line = self.line();
        match line.strip_prefix('$') {
            Some("-1") => "(none)".to_owned(),
            Some(_) => self.line(),
            None => line,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn stop(self) {
        self.node.stop().unwrap();
    }
}

/// Copies a directory with everything in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
