//! The live line: how much traffic there was, and what it has come to by now, as the server says.
//!
//! A terminal has one line that changes in its place. Whatever else reads along, such as a file or a pipe, gets a plain line now
//! and then, without control characters.

use super::teller::{rows, text};
use crate::failure::Result;
use crate::http::HttpArgs;
use crate::output::can_redraw;
use crate::serve::say;
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::time::Duration;
use tally_node::clock::Stopwatch;

/// How often a line changes in its place.
pub const REDRAW_EVERY: Duration = Duration::from_millis(500);
/// How often there is a new line where nothing can be changed.
const LINE_EVERY: Duration = Duration::from_secs(30);

pub struct Live<'a> {
    server: &'a HttpArgs,
    /// Only on a terminal.
    line: Option<ProgressBar>,
    began: Stopwatch,
    shown: Stopwatch,
}

impl<'a> Live<'a> {
    pub fn start(server: &'a HttpArgs) -> Live<'a> {
        let now = Stopwatch::start();
        Live { server, line: can_redraw().then(line), began: now, shown: now }
    }

    /// Shows how it stands, if that was not just done.
    pub fn look(&mut self, sent: u64) -> Result<()> {
        let every = if self.line.is_some() { REDRAW_EVERY } else { LINE_EVERY };
        if self.shown.elapsed() < every {
            return Ok(());
        }
        let rate = (sent as f64 / self.began.elapsed().as_secs_f64()).round() as u64;
        self.show(format!("{} events sent, {rate} a second", HumanCount(sent)))
    }

    /// Shows how it stands after the last event.
    pub fn ended(&mut self, sent: u64) -> Result<()> {
        self.show(format!("{} events sent, the traffic has ended", HumanCount(sent)))
    }

    /// Whether there is a line that goes on changing.
    pub fn is_redrawn(&self) -> bool {
        self.line.is_some()
    }

    fn show(&mut self, sent: String) -> Result<()> {
        let text = format!("{sent}: {}", totals(&self.server.get("/v1/config", &[])?.json()?));
        match &self.line {
            Some(line) => line.set_message(text),
            None => say(&text),
        }
        self.shown = Stopwatch::start();
        Ok(())
    }
}

impl Drop for Live<'_> {
    /// What is printed next begins on a line of its own.
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.abandon();
            say("");
        }
    }
}

/// A line that is no wider than the terminal.
fn line() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_msg}").expect("the template is constant");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout()).with_style(style)
}

/// What each declared counter has come to.
fn totals(config: &Value) -> String {
    let total = |counter: &Value| {
        let total = &counter["total"];
        let number = total.as_u64().map_or_else(|| total.to_string(), |total| HumanCount(total).to_string());
        format!("{} {number}", text(&counter["counterName"]))
    };
    rows(&config["counters"]).iter().map(total).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn totals_are_those_that_the_server_says() {
        let config =
            json!({"counters": [{"counterName": "views", "total": 12345}, {"counterName": "likes", "total": -2}]});
        assert_eq!(totals(&config), "views 12,345, likes -2");
    }
}
