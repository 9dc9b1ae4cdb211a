//! `cargo xtask clients`: the clients that people have do what they do by default, transactions and databases, on Tally.
//!
//! Those for Python are installed from PyPI into a virtual environment under `target/`, those for Node, where there is
//! one, from npm beside it.

use crate::install;
use crate::server;
use crate::shell::{self, step, succeeds};
use anyhow::{Context, Result};
use std::path::Path;

const PYTHON: [&str; 2] = ["redis==8.1.0", "coredis==5.3.0"];
const NODE: [&str; 2] = ["ioredis@6.0.0", "redis@6.3.1"];

pub fn run() -> Result<()> {
    let directory = shell::target_dir()?.join("clients");
    std::fs::create_dir_all(&directory)?;
    let scratch = shell::scratch_dir("clients-")?;
    let binary = shell::build_tally(false)?;
    let starting = server::start_tally(&binary, &scratch.path().join("data"), &scratch.path().join("stderr"), &[])?;
    let server = starting.wait_for_tally()?;
    let address = server.resp.to_string();
    step("clients for Python");
    let python = install::python_packages("clients", &PYTHON)?;
    for script in ["use_redis_py.py", "use_coredis.py"] {
        shell::run(text(&python)?, &[&path_of(script)?, &address])?;
    }
    if succeeds("npm", &["--version"]) {
        step("clients for Node");
        let into = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", text(&directory)?];
        shell::run("npm", &[&into[..], &NODE].concat())?;
        let modules = directory.join("node_modules");
        let variables = [("NODE_PATH", text(&modules)?.to_owned())];
        shell::run_with("node", &[&path_of("use_node.js")?, &address], &variables)?;
    } else {
        println!("  npm is not there: clients for Node are left out");
    }
    server.stop()
}

fn path_of(script: &str) -> Result<String> {
    Ok(text(&shell::workspace().join("xtask/clients").join(script))?.to_owned())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("paths of the workspace are UTF-8")
}
