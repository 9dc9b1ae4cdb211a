//! What is wrong with a configuration, where, and how to mend it; all of it at once.

use crate::limits::CONFIG_ERRORS_MAX;
use std::fmt;

/// One thing that is wrong. The name of the file is the caller's to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// From 1; 0 if the trouble has no place.
    pub line: u64,
    /// From 1, in characters.
    pub column: u64,
    pub message: String,
    /// What to do about it, as in "do this".
    pub fix: String,
    /// The line as it was written.
    pub text: String,
}

/// Longest excerpt of a line in an error, in characters.
const LINE_CHARS_MAX: usize = 160;

impl ConfigError {
    pub(super) fn new(yaml: &str, (line, column): (u64, u64), message: String, fix: String) -> ConfigError {
        let above = usize::try_from(line).unwrap_or(0).checked_sub(1);
        let text = above.and_then(|above| yaml.lines().nth(above)).unwrap_or_default();
        ConfigError { line, column, message, fix, text: text.chars().take(LINE_CHARS_MAX).collect() }
    }

    /// The line, and a mark below the place.
    pub fn snippet(&self) -> Option<String> {
        let indent = (self.column as usize).saturating_sub(1);
        if self.line == 0 || indent >= LINE_CHARS_MAX {
            return None;
        }
        let number = self.line.to_string();
        // A tab is as wide below the line as in it.
        let blank = |c| if c == '\t' { '\t' } else { ' ' };
        let below: String = self.text.chars().chain(std::iter::repeat(' ')).take(indent).map(blank).collect();
        Some(format!("{number} | {}\n{:width$} | {below}^", self.text, "", width = number.len()))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)?;
        for line in self.snippet().iter().flat_map(|snippet| snippet.lines()) {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Everything that is wrong with a configuration: at least one thing, and the first few of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    pub shown: Vec<ConfigError>,
    /// How many there are beyond those.
    pub more: usize,
}

impl ConfigErrors {
    /// `Ok` if there are none.
    pub(super) fn of(mut errors: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if errors.is_empty() {
            return Ok(());
        }
        errors.sort_by_key(|error| (error.line, error.column));
        let more = errors.len().saturating_sub(CONFIG_ERRORS_MAX);
        errors.truncate(CONFIG_ERRORS_MAX);
        Err(ConfigErrors { shown: errors, more })
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> ConfigErrors {
        ConfigErrors { shown: vec![error], more: 0 }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.shown.iter().enumerate() {
            write!(f, "{}{error}\n  fix: {}", if index == 0 { "" } else { "\n" }, error.fix)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ConfigErrors {}
