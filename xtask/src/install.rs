//! What tests and measurements need beside Rust, installed where it is missing.

use crate::shell::{self, succeeds};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The scenarios of the Redis protocol run on a real Redis as well; the tests start it themselves.
pub fn redis() -> Result<()> {
    if succeeds("redis-server", &["--version"]) {
        println!("  redis-server is there");
        return Ok(());
    }
    install("redis-server")
}

/// Pages of other sites are tried in a real browser; the tests start it themselves.
pub fn chromium() -> Result<()> {
    if succeeds("chromium", &["--version"]) {
        println!("  chromium is there");
        return Ok(());
    }
    install("chromium")
}

/// The page at `/` is built by tools from npm.
pub fn npm() -> Result<()> {
    if succeeds("npm", &["--version"]) {
        println!("  npm is there");
        return Ok(());
    }
    install("npm")
}

/// A scrape and the alert rules are held against Prometheus' own checker.
pub fn promtool() -> Result<()> {
    if succeeds("promtool", &["--version"]) {
        println!("  promtool is there");
        return Ok(());
    }
    install("prometheus")
}

/// A webhook behind TLS is tried with a certificate of one's own.
pub fn openssl() -> Result<()> {
    if succeeds("openssl", &["version"]) { Ok(()) } else { install("openssl") }
}

/// Some of what is used is written for Python.
fn python_venv() -> Result<()> {
    if succeeds("python3", &["-c", "import ensurepip, venv"]) { Ok(()) } else { install("python3-venv") }
}

/// Packages from PyPI in a virtual environment of their own under `target/`. Answers where its Python is; the programs of the packages
/// are beside it.
pub fn python_packages(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let venv = shell::target_dir()?.join(name).join("venv");
    let text = |path: &Path| path.to_str().map(str::to_owned).context("paths of the workspace are UTF-8");
    let pip = venv.join("bin/pip");
    if !pip.exists() {
        python_venv()?;
        shell::run("python3", &["-m", "venv", &text(&venv)?])?;
    }
    shell::run(&text(&pip)?, &[&["install", "--quiet", "--disable-pip-version-check"][..], packages].concat())?;
    Ok(venv.join("bin/python"))
}

/// Backups go to a real object store, too; the tests start it themselves. It is built by Go, and is where Go puts programs.
pub fn object_store() -> Result<()> {
    let home = std::env::var("HOME").context("HOME says where programs of one's own are")?;
    let programs = Path::new(&home).join("go/bin");
    if programs.join("versitygw").exists() || succeeds("versitygw", &["--version"]) {
        println!("  versitygw is there");
        return Ok(());
    }
    if !succeeds("go", &["version"]) {
        install("golang")?;
    }
    let into = format!("GOBIN={}", programs.display());
    shell::run("env", &[&into, "go", "install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0"])
}

/// The tests of clocks set that of the server ahead and back.
pub fn faketime() -> Result<()> {
    if succeeds("faketime", &["--version"]) {
        println!("  faketime is there");
        return Ok(());
    }
    install("faketime")
}

/// Instructions are counted by callgrind.
pub fn valgrind() -> Result<()> {
    if succeeds("valgrind", &["--version"]) { Ok(()) } else { install("valgrind") }
}

/// Requests over HTTP are held against one that only answers.
pub fn nginx() -> Result<()> {
    if succeeds("nginx", &["-v"]) { Ok(()) } else { install("nginx-light") }
}

/// Redis's own tests are written in Tcl.
pub fn tcl() -> Result<()> {
    if succeeds("sh", &["-c", "command -v tclsh8.6"]) {
        return Ok(());
    }
    install("tcl8.6")
}

/// Persistent counters are measured beside PostgreSQL. Answers where its programs are.
pub fn postgres() -> Result<PathBuf> {
    if find_postgres().is_none() {
        install("postgresql")?;
    }
    find_postgres().context("postgres and initdb are neither on the PATH nor in /usr/lib/postgresql/*/bin")
}

/// The directory with the server's programs. Debian keeps them off the PATH, a directory per version.
fn find_postgres() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    versions.sort();
    let directories = std::env::split_paths(&path).chain(versions.into_iter().rev());
    directories.into_iter().find(|directory| ["initdb", "postgres"].iter().all(|name| directory.join(name).is_file()))
}

fn install(package: &str) -> Result<()> {
    apt_get(&["update"])?;
    apt_get(&["install", "--yes", "--no-install-recommends", package])
        .with_context(|| format!("install {package} (Debian, Ubuntu: apt-get install {package}) and try again"))
}

fn apt_get(args: &[&str]) -> Result<()> {
    // Run level 1 keeps a package from starting a server of its own.
    let mut command = vec!["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
    command.extend(args);
    if !rustix::process::geteuid().is_root() {
        command.insert(0, "sudo");
    }
    shell::run(command[0], &command[1..])
}
