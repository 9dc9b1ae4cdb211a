//! What a person reads when a command fails: what happened, why, and what to do about it, a line each.

use std::fmt;
use std::process::ExitCode;

pub type Result<T> = std::result::Result<T, Failure>;

#[derive(Debug)]
pub struct Failure {
    what: String,
    why: Option<String>,
    remedy: Option<String>,
    code: u8,
}

impl Failure {
    /// The exit code of a command that was understood and could not be done.
    const FAILED: u8 = 1;

    pub fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), why: None, remedy: None, code: Failure::FAILED }
    }

    pub fn why(self, why: impl fmt::Display) -> Failure {
        Failure { why: Some(why.to_string()), ..self }
    }

    /// What to do about it, as a full sentence.
    pub fn remedy(self, remedy: impl Into<String>) -> Failure {
        Failure { remedy: Some(remedy.into()), ..self }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(why) = &self.why {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  fix: {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
