//! Where a Redis is: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, as other clients take it. What stands before the `@` is a secret, and
//! is in no error.

use crate::failure::{Failure, Result};

const PORT: u16 = 6379;

#[derive(Debug, PartialEq)]
pub struct RedisUrl {
    pub server: String,
    pub user: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
    pub database: Option<String>,
}

impl RedisUrl {
    pub fn parse(url: &str) -> Result<RedisUrl> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        // A password may have any of the characters that tell the other parts apart.
        let (secret, place) = rest.rsplit_once('@').map_or((None, rest), |(secret, place)| (Some(secret), place));
        RedisUrl::of_parts(scheme, secret, place).map_err(|why| {
            let shown = if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") };
            Failure::new(format!("{shown} cannot be imported from"))
                .why(why)
                .remedy("Write redis://HOST:PORT/DATABASE, or redis://USER:PASSWORD@HOST:PORT/DATABASE.")
        })
    }

    fn of_parts(scheme: &str, secret: Option<&str>, place: &str) -> std::result::Result<RedisUrl, String> {
        match scheme {
            "redis" => {}
            "rediss" => return Err("TLS is not spoken here; put a tunnel between them".to_owned()),
            _ => return Err("only a running Redis can be".to_owned()),
        }
        let (server, database) = place.split_once('/').unwrap_or((place, ""));
        if !database.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("behind the / stands the number of a database, and not {database:?}"));
        }
        let (user, password) = secret.map_or((None, None), |secret| match secret.split_once(':') {
            Some((user, password)) => (Some(user).filter(|user| !user.is_empty()), Some(password)),
            None => (None, Some(secret)),
        });
        Ok(RedisUrl {
            server: with_port(server)?,
            user: user.map(decoded).transpose()?,
            password: password.map(decoded).transpose()?,
            database: Some(database.to_owned()).filter(|database| !database.is_empty()),
        })
    }
}

/// The port is behind the last colon, unless that is one of an address in brackets.
fn with_port(server: &str) -> std::result::Result<String, String> {
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (server, None),
    };
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(format!("an address with colons stands in brackets, such as [::1], and not as {server}"));
    }
    let wrong = |port: &str| format!("{port:?} is no port: give a number from 1 to 65535");
    let parsed = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| wrong(port));
    Ok(format!("{host}:{}", port.map_or(Ok(PORT), parsed)?))
}

/// `%40` is `@`, and so on.
fn decoded(text: &str) -> std::result::Result<Vec<u8>, String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % before the @ has two hexadecimal digits behind it; a % itself is written %25")?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_others_write_it() {
        let plain = RedisUrl::parse("redis://localhost").unwrap();
        assert_eq!((&*plain.server, plain.password, plain.database), ("localhost:6379", None, None));
        let full = RedisUrl::parse("redis://me:se:cret@10.0.0.7:7000/3").unwrap();
        assert_eq!((&*full.server, full.user.as_deref()), ("10.0.0.7:7000", Some(&b"me"[..])));
        assert_eq!((full.password.as_deref(), full.database.as_deref()), (Some(&b"se:cret"[..]), Some("3")));
        assert_eq!(RedisUrl::parse("redis://:secret@h").unwrap().user, None);
        assert_eq!(RedisUrl::parse("redis://[::1]:7000").unwrap().server, "[::1]:7000");
        assert_eq!(RedisUrl::parse("redis://[::1]").unwrap().server, "[::1]:6379");
    }

    #[test]
    fn a_password_may_have_every_character_escaped_or_not() {
        for url in ["redis://:p%40ss%2Fw%3ard@h:1/2", "redis://:p@ss/w:rd@h:1/2", "redis://p%40ss%2Fw%3Ard@h:1/2"] {
            let RedisUrl { server, password, database, .. } = RedisUrl::parse(url).unwrap();
            assert_eq!((&*server, database.as_deref()), ("h:1", Some("2")), "{url}");
            assert_eq!(password.as_deref(), Some(&b"p@ss/w:rd"[..]), "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_no_secret_is_told() {
        for (bad, why) in [
            ("localhost", "only a running Redis"),
            ("rediss://h", "TLS"),
            ("http://h", "only a running Redis"),
            ("dump.rdb", "only a running Redis"),
            ("redis://h/x", "\"x\""),
            ("redis://h:99999", "\"99999\" is no port"),
            ("redis://h:0", "\"0\" is no port"),
            ("redis://h:", "\"\" is no port"),
            ("redis://", "no host"),
            ("redis://::1", "brackets"),
            ("redis://u:hush@h:99999", "is no port"),
            ("rediss://u:hush@h", "TLS"),
            ("redis://u:hush%4@h", "%25"),
            ("redis://u:hush%+4@h", "%25"),
            ("redis://u:hush%äh@h", "%25"),
        ] {
            let told = RedisUrl::parse(bad).unwrap_err().to_string();
            assert!(told.contains(why) && !told.contains("hush"), "{bad}: {told}");
        }
    }
}
