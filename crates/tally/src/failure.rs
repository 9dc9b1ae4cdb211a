//! What a person reads when a command fails: what happened, why, and what to do about it, a line each.

use crate::output::remark;
use std::fmt;
use std::io;
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
    /// That of one that was done, and what was asked for is not there; 2 is a command that was not understood.
    const NOT_THERE: u8 = 3;
    /// That of one that was interrupted, as shells have it.
    const INTERRUPTED: u8 = 130;

    pub fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), why: None, remedy: None, code: Failure::FAILED }
    }

    pub fn not_there(what: impl Into<String>) -> Failure {
        Failure { code: Failure::NOT_THERE, ..Failure::new(what) }
    }

    pub fn interrupted() -> Failure {
        Failure { code: Failure::INTERRUPTED, ..Failure::new("interrupted") }
    }

    /// The answer could not be printed. A reader who has seen enough is no failure, and there is nobody to tell.
    pub fn of_output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure { code: 0, ..Failure::new("") },
            _ => Failure::new("the answer cannot be printed").why(error),
        }
    }

    pub fn why(self, why: impl fmt::Display) -> Failure {
        Failure { why: Some(why.to_string()), ..self }
    }

    /// What to do about it, as a full sentence.
    pub fn remedy(self, remedy: impl Into<String>) -> Failure {
        Failure { remedy: Some(remedy.into()), ..self }
    }

    /// The same, if nobody has said yet what to do.
    pub fn or_remedy(self, remedy: &str) -> Failure {
        match self.remedy {
            None => self.remedy(remedy),
            Some(_) => self,
        }
    }

    /// Says it to a person.
    pub fn tell(&self) {
        if self.code != 0 {
            remark(self);
        }
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
