//! `cargo xtask openapi`: the description at `/openapi.json` is valid, programs made from it work, and requests drawn from it
//! are answered as it says.
//!
//! The tools are those that users have (openapi-spec-validator, openapi-python-client, schemathesis, openapi-generator), in a
//! virtual environment under `target/`.

use crate::client::HttpClient;
use crate::server::{self, Server};
use crate::shell::{self, step};
use crate::{install, shell::succeeds};
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGES: [&str; 4] =
    ["openapi-spec-validator==0.9.0", "openapi-python-client==0.29.1", "schemathesis==4.32.5", "ruff==0.17.4"];
/// What the client that openapi-generator makes asks for.
const GENERATED_NEEDS: [&str; 4] = ["urllib3", "python-dateutil", "pydantic", "typing-extensions"];
const GENERATOR: &str =
    "https://repo1.maven.org/maven2/org/openapitools/openapi-generator-cli/7.25.0/openapi-generator-cli-7.25.0.jar";

const CONFIG: &str = "
counters:
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: video.viewed, op: increment}]}
  - {counterName: impressions, mode: persistent, dimensions: [ad], rules: [{on: ad.shown, op: increment}]}
";

/// The least that a full run asks.
const FULL_CASES_MIN: u64 = 10_000;
/// Of the short run, unless another is given.
const SEED: u128 = 1;

#[derive(Args, Default)]
pub struct OpenapiArgs {
    /// At least 10,000 requests, and a client made by openapi-generator (needs Java)
    #[arg(long)]
    full: bool,
    /// Repeats the requests of an earlier run
    #[arg(long)]
    seed: Option<u128>,
}

/// Where the tools are and what they work on.
struct Bench {
    directory: PathBuf,
    server: Server,
    url: String,
    description: PathBuf,
}

pub fn run(args: OpenapiArgs) -> Result<()> {
    let directory = shell::target_dir()?.join("openapi");
    install::python_packages("openapi", &PACKAGES)?;
    let scratch = shell::scratch_dir("openapi-")?;
    let bench = Bench::open(directory, scratch.path())?;
    step("the description is valid");
    bench.run_tool("openapi-spec-validator", &[path(&bench.description)?])?;
    step("clients made from it send events");
    bench.python_client(scratch.path())?;
    if args.full {
        bench.generated_client(scratch.path())?;
    }
    step("requests drawn from it are answered as it says");
    let cases = bench.schemathesis(&args)?;
    println!("  {cases} requests, 0 failures");
    ensure!(!args.full || cases >= FULL_CASES_MIN, "{cases} requests are fewer than {FULL_CASES_MIN}");
    bench.server.stop()
}

impl Bench {
    fn open(directory: PathBuf, scratch: &Path) -> Result<Bench> {
        let config = scratch.join("counters.yaml");
        std::fs::write(&config, CONFIG)?;
        let options = ["--config", path(&config)?, "--memory", "256MiB"];
        let binary = shell::build_tally(false)?;
        let starting = server::start_tally(&binary, &scratch.join("data"), &scratch.join("stderr"), &options)?;
        let server = starting.wait_for_tally()?;
        let description = scratch.join("openapi.json");
        std::fs::write(&description, HttpClient::connect(server.http()?)?.get("/openapi.json")?)?;
        let url = format!("http://{}", server.http()?);
        Ok(Bench { directory, server, url, description })
    }

    fn tool(&self, name: &str) -> PathBuf {
        self.directory.join("venv/bin").join(name)
    }

    fn run_tool(&self, name: &str, args: &[&str]) -> Result<()> {
        shell::run(path(&self.tool(name))?, args)
    }

    fn python_client(&self, scratch: &Path) -> Result<()> {
        let parent = scratch.join("python-client");
        std::fs::create_dir_all(&parent)?;
        let out = parent.join("tally_python_client");
        let args = ["generate", "--meta", "none", "--path", path(&self.description)?, "--output-path", path(&out)?];
        self.run_tool("openapi-python-client", &args)?;
        self.run_tool("python", &[&script("send_with_python_client.py"), &self.url, path(&parent)?])
    }

    fn generated_client(&self, scratch: &Path) -> Result<()> {
        ensure!(
            succeeds("java", &["-version"]),
            "openapi-generator needs Java (Debian: apt-get install default-jre-headless)"
        );
        let jar = self.directory.join(GENERATOR.rsplit('/').next().expect("a file"));
        if !jar.exists() {
            shell::run("curl", &["--silent", "--show-error", "--fail", "--output", path(&jar)?, GENERATOR])?;
        }
        let out = scratch.join("generated-client");
        let named = ["--package-name", "tally_generated_client"];
        let from = ["-jar", path(&jar)?, "generate", "-g", "python", "-i", path(&self.description)?, "-o", path(&out)?];
        shell::run("java", &[&from[..], &named].concat())?;
        self.run_tool("pip", &[&["install", "--quiet"][..], &GENERATED_NEEDS].concat())?;
        self.run_tool("python", &[&script("send_with_generated_client.py"), &self.url, path(&out)?])
    }

    /// Answers how many requests it made.
    fn schemathesis(&self, args: &OpenapiArgs) -> Result<u64> {
        let examples = if args.full { "600" } else { "10" };
        // The short run makes the same requests each time, so that what it finds is of the change that was made.
        let seed = args.seed.or((!args.full).then_some(SEED));
        let mut command = Command::new(self.tool("schemathesis"));
        command.args(["--config-file", &script("schemathesis.toml"), "run", "--no-color", "--max-examples", examples]);
        command.args(seed.map(|seed| format!("--seed={seed}"))).arg(format!("{}/openapi.json", self.url));
        command.env("PYTHONPATH", script("")).env("SCHEMATHESIS_HOOKS", "hooks").current_dir(&self.directory);
        println!("  $ {command:?}");
        let output = command.stderr(Stdio::inherit()).output().context("schemathesis could not be started")?;
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        ensure!(output.status.success(), "schemathesis has found failures");
        let cases = text.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse().ok());
        cases.context("schemathesis does not say how many requests it made")
    }
}

fn script(name: &str) -> String {
    shell::workspace().join("xtask/openapi").join(name).display().to_string()
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path is not UTF-8")
}
