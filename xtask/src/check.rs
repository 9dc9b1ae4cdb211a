//! `cargo xtask check`: what can be said about the code without running it.

use crate::shell::{self, step, succeeds};
use anyhow::Result;

pub fn run() -> Result<()> {
    step("formatting");
    shell::run("cargo", &["fmt", "--all", "--check"])?;
    step("clippy");
    shell::run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    step("bans, licences and sources of the dependencies");
    if succeeds("cargo", &["deny", "--version"]) {
        shell::run("cargo", &["deny", "check", "bans", "licenses", "sources"])
    } else {
        println!("  skipped: cargo-deny is not installed (cargo install cargo-deny)");
        Ok(())
    }
}
