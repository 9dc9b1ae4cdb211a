//! `cargo xtask differential`: the same random commands to Tally and to a real Redis.
//!
//! The comparison is a test of the node (`crates/node/tests/resp/differential.rs`), of which `cargo test` runs a share.

use crate::install;
use crate::shell::{self, step};
use anyhow::Result;
use clap::Args;

#[derive(Args)]
pub struct DifferentialArgs {
    /// How many commands to send
    #[arg(long, default_value_t = 200_000)]
    commands: u64,
    /// Which commands to send; a failed run says its own
    #[arg(long, default_value_t = 20_261_115)]
    seed: u64,
}

pub fn run(args: DifferentialArgs) -> Result<()> {
    install::redis()?;
    step(&format!("{} commands, seed {}", args.commands, args.seed));
    let settings = [
        ("TALLY_DIFFERENTIAL_COMMANDS", args.commands.to_string()),
        ("TALLY_DIFFERENTIAL_SEED", args.seed.to_string()),
    ];
    let test = "differential::random_pipelines_get_the_replies_that_redis_gives";
    let words = ["test", "--package", "tally-node", "--test", "resp", test, "--", "--exact", "--nocapture"];
    shell::run_with("cargo", &words, &settings)
}
