//! The log of the process. It goes to stderr: stdout belongs to the command's answer.

use crate::output::is_dumb_terminal;
use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON object per line, for programs
    Json,
}

/// What is below a level is left out, unless `TALLY_LOG` says otherwise.
pub fn start(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_env("TALLY_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(wants_colours())
        .with_target(false)
        // It would be told on stderr that stderr cannot be written to, which panics.
        .log_internal_errors(false);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(false).with_span_list(false).init(),
    }
}

/// On a terminal that can, unless somebody has asked for none (<https://no-color.org>).
fn wants_colours() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb_terminal()
}
