//! `cargo xtask web`: builds the page at `/` from `web/` into `web/dist`, where the next build of the server finds it.
//!
//! With `--test` it is checked as well and clicked through in a real browser, on a real server.

use crate::install;
use crate::server::{self, Server};
use crate::shell::{self, step, succeeds};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args, Default)]
pub struct WebArgs {
    /// Checks it, too: types, its pure parts, and all of it in Chromium on a server; screenshots are left in target/web
    #[arg(long)]
    test: bool,
}

const TOKEN: &str = "a-token-of-some-length";

pub fn run(args: &WebArgs) -> Result<()> {
    if !args.test {
        return build();
    }
    install::npm()?;
    install::chromium()?;
    build()?;
    test()
}

/// Builds the page.
pub fn build() -> Result<()> {
    step("the page at /");
    ensure!(
        succeeds("npm", &["--version"]),
        "npm is not there (Debian, Ubuntu: apt-get install npm). Without it the server has everything but the page, and / says how to get it"
    );
    if !is_installed() {
        npm(&["ci"], &[])?;
    }
    npm(&["run", "--silent", "build"], &[])
}

/// Whether what the lock file names is there: npm leaves a copy of the lock file when it is done.
fn is_installed() -> bool {
    let modified = |path: &str| fs::metadata(web().join(path)).and_then(|found| found.modified()).ok();
    let installed = modified("node_modules/.package-lock.json");
    installed.is_some() && installed >= modified("package-lock.json")
}

/// Tries everything about the page that was built, on a server that has it.
pub fn test() -> Result<()> {
    step("its types and its pure parts");
    npm(&["run", "--silent", "check"], &[])?;
    npm(&["test", "--silent"], &[])?;
    step("all of it, in a browser");
    let scratch = shell::scratch_dir("web-")?;
    let binary = shell::build_tally(false)?;
    let open = start(&binary, &scratch.path().join("open"), None)?;
    let guarded = start(&binary, &scratch.path().join("guarded"), Some(TOKEN))?;
    let shots = shell::target_dir()?.join("web");
    fs::create_dir_all(&shots)?;
    let variables = [
        ("TALLY_URL", format!("http://{}", open.http()?)),
        ("TALLY_GUARDED_URL", format!("http://{}", guarded.http()?)),
        ("TALLY_TOKEN", TOKEN.to_owned()),
        ("TALLY_SHOTS", shots.display().to_string()),
    ];
    npm(&["run", "--silent", "test:browser"], &variables)?;
    println!("  screenshots are in {}", shots.display());
    open.stop()?;
    guarded.stop()
}

fn start(binary: &Path, directory: &Path, token: Option<&str>) -> Result<Server> {
    fs::create_dir_all(directory)?;
    let config = web().join("test/counters.yaml");
    let file = directory.join("token");
    let mut options = vec!["--memory", "256MiB", "--config", text(&config)?];
    if let Some(token) = token {
        fs::write(&file, token)?;
        options.extend(["--http-token-file", text(&file)?]);
    }
    server::start_tally(binary, &directory.join("data"), &directory.join("stderr"), &options)?.wait_for_tally()
}

fn npm(args: &[&str], variables: &[(&str, String)]) -> Result<()> {
    let web = web();
    shell::run_with("npm", &[&["--prefix", text(&web)?], args].concat(), variables)
}

fn web() -> PathBuf {
    shell::workspace().join("web")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("paths of the workspace are UTF-8")
}
