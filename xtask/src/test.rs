//! `cargo xtask test`: everything, on a machine that has Rust, a C compiler and nothing else.

use crate::shell::{self, step};
use crate::{archive, bench, check, clients, crash, exact, install, mutants, openapi, redis_suite, sim, web};
use anyhow::Result;

pub fn run() -> Result<()> {
    step("what the tests need");
    install::redis()?;
    install::faketime()?;
    install::promtool()?;
    install::chromium()?;
    install::npm()?;
    install::object_store()?;
    install::openssl()?;
    // First, so that everything is compiled once, and with it.
    web::build()?;
    check::run()?;
    mutants::check(shell::workspace())?;
    step("all tests of the workspace");
    shell::run("cargo", &["test", "--workspace", "--quiet"])?;
    openapi::run(openapi::OpenapiArgs::default())?;
    web::test()?;
    redis_suite::run(redis_suite::RedisSuiteArgs::default())?;
    clients::run()?;
    archive::run(archive::ArchiveArgs::default())?;
    step("schedules and seeds, simulated");
    sim::test()?;
    sim::run(&sim::SimArgs::small())?;
    step("kill -9 under load");
    crash::run(crash::CrashArgs::default())?;
    step("exact through retries, windows and restarts");
    exact::run(exact::ExactArgs::small())?;
    bench::count_instructions(bench::InstructionsArgs::default())
}
