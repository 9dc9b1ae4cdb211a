//! What goes wrong with one command, in the words that the client gets. The connection goes on.
//!
//! Wherever Redis has the same error, the text is Redis', because clients match on it.

use crate::counters::Refusal;
use std::borrow::Cow;
use tally_core::counter::{Forbidden, IdError};
use tally_core::limits;

/// An error reply: its code and its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply(Cow<'static, [u8]>);

pub const SYNTAX: ErrorReply = ErrorReply::of("ERR syntax error");
pub const NOT_AN_INTEGER: ErrorReply = ErrorReply::of("ERR value is not an integer or out of range");

impl ErrorReply {
    pub const fn of(text: &'static str) -> ErrorReply {
        ErrorReply(Cow::Borrowed(text.as_bytes()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its first word, by which clients tell errors apart.
    pub fn code(&self) -> &[u8] {
        code(self.bytes())
    }

    pub fn unknown_command<'a>(name: &[u8], arguments: impl Iterator<Item = &'a [u8]>) -> ErrorReply {
        let mut listed = Vec::new();
        for argument in arguments {
            if listed.len() >= limits::RESP_ECHO_BYTES_MAX {
                break;
            }
            let room = limits::RESP_ECHO_BYTES_MAX - listed.len();
            listed.extend_from_slice(&[b"'", echo(argument, room), b"' "].concat());
        }
        let name = echo(name, limits::RESP_ECHO_BYTES_MAX);
        ErrorReply::join(&[b"ERR unknown command '", name, b"', with args beginning with: ", &listed])
    }

    pub fn unknown_subcommand(container: &str, name: &[u8]) -> ErrorReply {
        let name = echo(name, limits::RESP_ECHO_BYTES_MAX);
        let container = container.to_ascii_uppercase();
        ErrorReply::join(&[b"ERR unknown subcommand '", name, b"'. Try ", container.as_bytes(), b" HELP."])
    }

    pub fn arity(command: &str) -> ErrorReply {
        ErrorReply::from(format!("ERR wrong number of arguments for '{command}' command"))
    }

    pub fn expire_time(command: &str) -> ErrorReply {
        ErrorReply::from(format!("ERR invalid expire time in '{command}' command"))
    }

    pub fn unsupported_option(option: &[u8]) -> ErrorReply {
        ErrorReply::join(&[b"ERR Unsupported option ", echo(option, usize::MAX)])
    }

    pub fn not_a_counter_value(value: &[u8]) -> ErrorReply {
        let value = echo(value, limits::RESP_ECHO_BYTES_MAX);
        ErrorReply::join(&[
            b"ERR Tally keeps integers: '",
            value,
            b"' is not a whole number from -9223372036854775808 to 9223372036854775807 in its shortest form",
        ])
    }

    /// Joins texts of which some come from a client.
    pub fn join(parts: &[&[u8]]) -> ErrorReply {
        ErrorReply(parts.concat().into())
    }
}

impl From<String> for ErrorReply {
    fn from(text: String) -> ErrorReply {
        ErrorReply(text.into_bytes().into())
    }
}

impl From<Refusal> for ErrorReply {
    fn from(refusal: Refusal) -> ErrorReply {
        let code = match refusal {
            Refusal::Busy { .. } => "BUSY",
            Refusal::LogFailed(_)
            | Refusal::WorkerFailed(_)
            | Refusal::StoreFailed(_)
            | Refusal::ArchiveFailed(_)
            | Refusal::DiskFull(_) => "MISCONF",
            Refusal::TooLarge(_) | Refusal::NotAll(_) => "ERR",
            Refusal::ShuttingDown => "SHUTDOWN",
        };
        ErrorReply::from(format!("{code} {refusal}"))
    }
}

impl From<IdError> for ErrorReply {
    fn from(error: IdError) -> ErrorReply {
        ErrorReply::from(format!("ERR {error}"))
    }
}

impl From<Forbidden<'_>> for ErrorReply {
    fn from(forbidden: Forbidden<'_>) -> ErrorReply {
        ErrorReply::from(match forbidden {
            Forbidden::Removed(counter) => format!(
                "ERR counter '{}' was removed from the configuration, and its name stays its own: declare it again, or use another name",
                counter.name
            ),
            Forbidden::CountsEvents(counter) => format!(
                "ERR counter '{}' is declared as {} and counts events: send them to POST /v1/events",
                counter.name,
                counter.mode().name()
            ),
            Forbidden::Declared(counter) => {
                let name = &counter.name;
                format!(
                    "ERR counter '{name}' is declared: clear it with DELETE /v1/counters/{name}, which is a correction; only ad-hoc counters can be set, copied, renamed, deleted or expired"
                )
            }
        })
    }
}

/// The first word of an error.
pub fn code(error: &[u8]) -> &[u8] {
    error.split(|&byte| byte == b' ').next().unwrap_or(error)
}

/// A client's text for an error: Redis prints it as a C string, up to its first NUL.
fn echo(text: &[u8], len_max: usize) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    &text[..end.min(len_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tally_core::counter::{Declarations, Intent};
    use tally_core::id::CellHasher;

    #[test]
    fn an_unknown_command_is_echoed_within_bounds() {
        let long = vec![b'x'; 1000];
        let fault = ErrorReply::unknown_command(&long, [long.as_slice(), b"next"].into_iter());
        let x = "x".repeat(128);
        assert_eq!(
            String::from_utf8_lossy(fault.bytes()),
            format!("ERR unknown command '{x}', with args beginning with: '{x}' ")
        );
    }

    #[test]
    fn what_may_not_be_done_names_the_counter_and_what_to_do_instead() {
        let yaml = "counters:\n  - {counterName: views, mode: display, rules: [{on: viewed, op: increment}]}\n";
        let declarations = Declarations::parse(yaml).unwrap();
        let target = declarations.resolve(&CellHasher::new(1), b"views").unwrap();
        let refusal = |intent| {
            let fault = ErrorReply::from(declarations.permit(&target, intent).unwrap_err());
            String::from_utf8(fault.bytes().to_vec()).unwrap()
        };
        assert_eq!(
            refusal(Intent::Count),
            "ERR counter 'views' is declared as display and counts events: send them to POST /v1/events"
        );
        assert!(refusal(Intent::Overwrite).contains("clear it with DELETE /v1/counters/views"));
    }

    #[test]
    fn a_refusal_has_a_code_that_clients_can_tell_apart() {
        let fault = ErrorReply::from(Refusal::Busy { retry_after: Duration::from_secs(2) });
        assert_eq!(fault.bytes(), b"BUSY Tally is catching up; try again in 2 s");
        let fault = ErrorReply::from(Refusal::LogFailed("disk full".into()));
        assert!(fault.bytes().starts_with(b"MISCONF the log has failed"));
    }
}
