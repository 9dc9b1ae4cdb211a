//! Who may come in: the flags of a server, and the secrets that stand in files.

use crate::failure::{Failure, Result};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tally_core::limits::{SECRET_BYTES_MAX, TOKEN_BYTES_MIN};
use tally_node::frontend::Password;
use tally_node::frontend::http::{Access, HostName, Origin};

#[derive(Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// What clients of the Redis protocol must say in AUTH
    #[arg(long, value_name = "TEXT", env = "TALLY_PASSWORD", hide_env_values = true)]
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
    /// Serve HTTP to other machines without a token
    #[arg(long)]
    insecure: bool,
}

impl AccessArgs {
    pub fn password(&self) -> Result<Option<Password>> {
        secret(self.password.as_deref(), self.password_file.as_deref())
    }

    /// Who may use HTTP on this address.
    pub fn http(&self, address: SocketAddr) -> Result<Access> {
        let token = self.http_token_file.as_deref().map(token).transpose()?;
        check_public(address, token.is_some(), self.insecure)?;
        Ok(Access { token, hosts: self.allow_host.clone(), origins: self.allow_origin.clone() })
    }
}

/// Refuses to serve HTTP to other machines without a token, unless somebody says so.
pub fn check_public(address: SocketAddr, has_token: bool, insecure: bool) -> Result<()> {
    if address.ip().is_loopback() || has_token || insecure {
        return Ok(());
    }
    Err(Failure::new(format!("HTTP on {address} would be open to other machines"))
        .why("whoever reaches it may read, count, correct and delete every counter")
        .remedy("Give it a token with --http-token-file, listen on 127.0.0.1, or say --insecure."))
}

/// Who may use the address for machines that watch. There is nothing to change there and no secret to tell, but a page in a
/// browser on this machine has no business with it.
pub fn watch(address: SocketAddr) -> Access {
    let any_host = (!address.ip().is_loopback()).then(|| "*".parse().expect("a star is any name"));
    Access { hosts: any_host.into_iter().collect(), ..Access::default() }
}

/// A password, given or in a file.
pub fn secret(given: Option<&str>, file: Option<&Path>) -> Result<Option<Password>> {
    let text = match (given, file) {
        (Some(given), _) => given.to_owned(),
        (None, Some(file)) => first_line(file)?,
        (None, None) => return Ok(None),
    };
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
    fn other_machines_need_a_token_unless_somebody_says_otherwise() {
        let (local, public) = ("127.0.0.1:7070".parse().unwrap(), "0.0.0.0:7070".parse().unwrap());
        check_public(local, false, false).unwrap();
        check_public(public, true, false).unwrap();
        check_public(public, false, true).unwrap();
        let refused = check_public(public, false, false).unwrap_err().to_string();
        assert!(refused.contains("correct and delete") && refused.contains("--http-token-file"), "{refused}");
    }
}
