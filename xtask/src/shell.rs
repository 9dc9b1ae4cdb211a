//! Running other programs, visibly.

use anyhow::{Context, Result, ensure};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Says what comes now.
pub fn step(text: &str) {
    println!("\n==> {text}");
}

/// Runs a command in the workspace, shows it, and fails if it fails.
pub fn run(program: &str, args: &[&str]) -> Result<()> {
    run_with(program, args, &[])
}

/// The same with some variables of the environment.
pub fn run_with(program: &str, args: &[&str], variables: &[(&str, String)]) -> Result<()> {
    println!("  $ {program} {}", args.join(" "));
    let mut command = Command::new(program);
    for name in about_this_package() {
        command.env_remove(name);
    }
    let status = command
        .args(args)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir(workspace())
        .status()
        .with_context(|| format!("{program} could not be started"))?;
    ensure!(status.success(), "`{program} {}` failed: {status}", args.join(" "));
    Ok(())
}

/// What cargo has told this program about itself. Build scripts look at it, so a cargo that this program runs would build again what the
/// same command in a shell has built.
fn about_this_package() -> impl Iterator<Item = String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}

/// Whether a command runs and succeeds, in silence.
pub fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace")
}

/// Where cargo puts what it builds: two levels above this program.
pub fn target_dir() -> Result<PathBuf> {
    let program = env::current_exe().context("the path of xtask is unknown")?;
    let target = program.ancestors().nth(2).context("xtask does not run from a target directory")?;
    Ok(target.to_owned())
}

/// Builds the `tally` binary and answers where it is.
pub fn build_tally(release: bool) -> Result<PathBuf> {
    let (args, profile): (&[&str], _) = match release {
        true => (&["build", "--package", "tally", "--release"], "release"),
        false => (&["build", "--package", "tally"], "debug"),
    };
    run("cargo", args)?;
    Ok(target_dir()?.join(profile).join("tally"))
}

/// Builds the program that the figures of `bench` are held against, and answers where it is.
pub fn build_floor() -> Result<PathBuf> {
    run("cargo", &["build", "--package", "tally-floor", "--release"])?;
    Ok(target_dir()?.join("release").join("floor"))
}

/// A directory for a server's data, on the disk of the workspace rather than in a memory file system.
pub fn scratch_dir(name: &str) -> Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(name).tempdir_in(target_dir()?).context("no directory for a server's data could be made")
}
