//! `cargo xtask test`: everything, on a machine that has Rust, a C compiler and nothing else.

use crate::shell::{self, step, succeeds};
use crate::{check, crash};
use anyhow::{Context, Result};

pub fn run() -> Result<()> {
    install_redis()?;
    check::run()?;
    step("all tests of the workspace");
    shell::run("cargo", &["test", "--workspace", "--quiet"])?;
    step("kill -9 under load");
    crash::run(crash::CrashArgs::default())
}

/// The scenarios of the Redis protocol run on a real Redis as well; the tests start it themselves.
fn install_redis() -> Result<()> {
    step("what the tests need");
    if succeeds("redis-server", &["--version"]) {
        println!("  redis-server is there");
        return Ok(());
    }
    apt_get(&["update"])?;
    // Run level 1 keeps the package from starting a server of its own.
    apt_get(&["install", "--yes", "--no-install-recommends", "redis-server"])
        .context("install redis-server (Debian, Ubuntu: apt-get install redis-server) and try again")
}

fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = vec!["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
    command.extend(args);
    if !rustix::process::geteuid().is_root() {
        command.insert(0, "sudo");
    }
    shell::run(command[0], &command[1..])
}
