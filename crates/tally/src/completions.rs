//! `tally completions`: what a shell needs to complete commands and flags.

use crate::failure::Result;
use crate::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a script with which a shell completes commands and flags
#[derive(Args)]
#[command(after_help = "\
Examples:
  source <(tally completions bash)        for this shell; or put it in ~/.bashrc
  tally completions bash > /etc/bash_completion.d/tally
  tally completions zsh > ~/.zfunc/_tally
  tally completions fish > ~/.config/fish/completions/tally.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub fn run(args: CompletionsArgs, out: &mut Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "tally", &mut script);
    out.text(script)
}
