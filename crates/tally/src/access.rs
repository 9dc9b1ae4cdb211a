//! Who may come in: the flags of a server, and the secrets that stand in files.

use crate::failure::{Failure, Result};
use clap::Args;
use std::env::VarError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tally_core::limits::{SECRET_BYTES_MAX, TOKEN_BYTES_MIN};
use tally_node::frontend::Password;
use tally_node::frontend::http::{Access, HostName, Origin};

#[derive(Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// What clients of the Redis protocol must say in AUTH [env: TALLY_PASSWORD]
    #[arg(long, value_name = "TEXT")]
    password: Option<String>,
    /// The same, from the first line of a file, which no list of processes shows
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    password_file: Option<PathBuf>,
    /// A file with the token that HTTP clients must send as Authorization: Bearer
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
    /// A name under which HTTP clients know this server, beside localhost and its addresses; * is any
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<HostName>,
    /// An origin, such as https://app.example.com, whose pages may use HTTP from a browser
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,
    /// Serve other machines without a token or a password
    #[arg(long)]
    insecure: bool,
}

impl AccessArgs {
    /// What the Redis protocol asks for on this address.
    pub fn resp(&self, address: SocketAddr) -> Result<Option<Password>> {
        let password = secret(self.password.as_deref(), self.password_file.as_deref())?;
        Door::Resp.check(address, password.is_some(), self.insecure)?;
        Ok(password)
    }

    /// Who may use HTTP on this address.
    pub fn http(&self, address: SocketAddr) -> Result<Access> {
        let token = self.http_token_file.as_deref().map(token).transpose()?;
        Door::Http.check(address, token.is_some(), self.insecure)?;
        Ok(Access { token, hosts: self.allow_host.clone(), origins: self.allow_origin.clone(), ..Access::default() })
    }
}

/// A way to change counters, which is open to whoever reaches it unless something guards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Http,
    Resp,
}

impl Door {
    fn name(self) -> &'static str {
        match self {
            Door::Http => "HTTP",
            Door::Resp => "the Redis protocol",
        }
    }

    /// What whoever comes in may do.
    pub fn offers(self) -> &'static str {
        match self {
            Door::Http => "read, count, correct and delete every counter",
            Door::Resp => "do everything that Redis commands do, FLUSHALL included",
        }
    }

    /// What guards it, in the words of the start.
    pub fn guard(self, is_guarded: bool) -> &'static str {
        match (self, is_guarded) {
            (Door::Http, true) => "asks for a token",
            (Door::Http, false) => "no token",
            (Door::Resp, true) => "asks for a password",
            (Door::Resp, false) => "no password",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Door::Http => "Give it a token with --http-token-file, listen on 127.0.0.1, or say --insecure.",
            Door::Resp => "Give it a password with --password-file, listen on 127.0.0.1, or say --insecure.",
        }
    }

    /// Refuses to serve other machines without a guard, unless somebody says so.
    pub fn check(self, address: SocketAddr, is_guarded: bool, insecure: bool) -> Result<()> {
        if address.ip().is_loopback() || is_guarded || insecure {
            return Ok(());
        }
        Err(Failure::new(format!("{} on {address} would be open to other machines", self.name()))
            .why(format!("whoever reaches it may {}", self.offers()))
            .remedy(self.remedy()))
    }
}

/// Who may use the address for machines that watch. There is nothing to change there and no secret to tell, but a page in a
/// browser on this machine has no business with it.
pub fn watch(address: SocketAddr) -> Access {
    let any_host = (!address.ip().is_loopback()).then(|| "*".parse().expect("a star is any name"));
    Access { hosts: any_host.into_iter().collect(), ..Access::default() }
}

/// Where a password is looked for that no flag names.
const PASSWORD: &str = "TALLY_PASSWORD";

/// A password, given, in a file, or else in the environment: what is typed wins over what was set for everything.
pub fn password_text(given: Option<&str>, file: Option<&Path>) -> Result<Option<String>> {
    match (given, file) {
        (Some(given), _) => Ok(Some(given.to_owned())),
        (None, Some(file)) => first_line(file).map(Some),
        (None, None) => match std::env::var(PASSWORD) {
            Ok(text) => Ok(Some(text)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(Failure::new(format!("the variable {PASSWORD} cannot be used"))
                .why("it is no text in UTF-8")
                .remedy("Set it to text, or give the password with --password-file.")),
        },
    }
}

/// The password of a server.
pub fn secret(given: Option<&str>, file: Option<&Path>) -> Result<Option<Password>> {
    let Some(text) = password_text(given, file)? else { return Ok(None) };
    // Most often a variable that was not set; to a server it would mean that everybody is let in.
    let empty = || {
        Failure::new("the password is empty")
            .why("--password or TALLY_PASSWORD is given, but there is nothing in it")
            .remedy("Give a password, or leave out both.")
    };
    Password::new(text).map(Some).ok_or_else(empty)
}

fn token(file: &Path) -> Result<Password> {
    let text = first_line(file)?;
    let refused = |why: String| {
        Failure::new(format!("{} holds no token", file.display()))
            .why(why)
            .remedy("Make one, such as with: head -c 32 /dev/urandom | base64 > token")
    };
    if text.len() < TOKEN_BYTES_MIN {
        return Err(refused(format!("it has {} characters, and a token has at least {TOKEN_BYTES_MIN}", text.len())));
    }
    if let Some(strange) = text.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(refused(format!("it has the character {strange:?}, and a header takes visible ASCII only")));
    }
    Password::new(text).ok_or_else(|| refused("it is empty".to_owned()))
}

/// The secret in a file: its first line, which is not empty.
pub fn first_line(file: &Path) -> Result<String> {
    let failure = || Failure::new(format!("{} cannot be used", file.display()));
    let bytes = std::fs::metadata(file).map_err(|error| failure().why(error).remedy("Check the path."))?.len();
    if bytes > SECRET_BYTES_MAX as u64 {
        return Err(failure()
            .why(format!("it has {bytes} bytes, and a secret has at most {SECRET_BYTES_MAX}"))
            .remedy("Name the file with the secret alone."));
    }
    let text = std::fs::read_to_string(file)
        .map_err(|error| failure().why(error).remedy("Check that it is text in UTF-8."))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(failure().why("its first line is empty").remedy("Write the secret into its first line.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_token_is_the_first_line_of_its_file() {
        let good = file("0123456789abcdef\r\nnothing else\n");
        assert!(token(good.path()).unwrap().is(b"0123456789abcdef"));
        for (text, why) in [
            ("", "its first line is empty"),
            ("\nsecret", "its first line is empty"),
            ("short\n", "it has 5 characters"),
            ("0123456789 abcdef", "the character ' '"),
            (&"x".repeat(SECRET_BYTES_MAX + 1), "a secret has at most"),
        ] {
            let failure = token(file(text).path()).unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
        }
        assert!(token(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }

    #[test]
    fn other_machines_need_a_secret_at_every_door_unless_somebody_says_otherwise() {
        let (local, public) = ("127.0.0.1:7070".parse().unwrap(), "0.0.0.0:7070".parse().unwrap());
        for (door, what, fix) in [
            (Door::Http, "correct and delete", "--http-token-file"),
            (Door::Resp, "FLUSHALL included", "--password-file"),
        ] {
            door.check(local, false, false).unwrap();
            door.check("[::1]:7070".parse().unwrap(), false, false).unwrap();
            door.check(public, true, false).unwrap();
            door.check(public, false, true).unwrap();
            for address in [public, "[::]:7070".parse().unwrap(), "192.168.1.7:7070".parse().unwrap()] {
                let refused = door.check(address, false, false).unwrap_err().to_string();
                assert!(refused.contains(what) && refused.contains(fix), "{refused}");
            }
        }
    }
}
