//! What a command answers, on stdout: lines for a person, or a JSON object per line for a program (`--json`).
//!
//! Whoever reads may stop reading (`tally inspect data | head`). Then there is nobody to tell, and the command ends without a
//! word: a broken pipe is a [`Failure`] that says nothing.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

pub struct Output {
    to: BufWriter<Stdout>,
}

impl Output {
    pub fn new() -> Output {
        Output { to: BufWriter::new(io::stdout()) }
    }

    pub fn line(&mut self, line: impl Display) -> Result<()> {
        writeln!(self.to, "{line}").map_err(Failure::of_output)
    }

    /// Text that has its line ends already.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> Result<()> {
        self.to.write_all(text.as_ref()).map_err(Failure::of_output)
    }

    /// One object on a line of its own.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.to, value).map_err(|error| Failure::of_output(error.into()))?;
        self.text("\n")
    }

    /// Everything printed so far is out.
    pub fn flush(&mut self) -> Result<()> {
        self.to.flush().map_err(Failure::of_output)
    }
}

/// Says something that is not the answer; a command goes on when nobody listens.
pub fn remark(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether a line of stdout can be changed in its place.
pub fn can_redraw() -> bool {
    io::stdout().is_terminal() && !is_dumb_terminal()
}

/// A terminal that knows no control characters.
pub fn is_dumb_terminal() -> bool {
    std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb")
}

/// An id as it is read best: as text, with what cannot be seen escaped.
pub fn readable(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => id.escape_ascii().to_string(),
    }
}
