//! Under which name a request comes.
//!
//! A page can make its own name point to any address, and then ask that address as if it were its own server. What it cannot
//! do is to send another name than its own. So a node that answers to addresses, to `localhost` and to names that it was told
//! is not reached in this way.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::extract::Request;
use axum::http::header::HOST;

use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};

/// A name under which a node is known; `*` is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName(String);

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let name = text.trim_end_matches('.').to_ascii_lowercase();
        let is_name = name == "*"
            || (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)));
        if is_name { Ok(HostName(name)) } else { Err("write a name such as tally.example.com, without a port".into()) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Refuses a name that is not the node's.
pub fn check(request: &Request, known: &[HostName]) -> Result<(), Problem> {
    // Without a name it is no browser.
    let Some(authority) = authority(request) else { return Ok(()) };
    let name = name(authority);
    if is_local(&name) || known.iter().any(|HostName(known)| known == "*" || *known == name) {
        return Ok(());
    }
    let host = quoted(authority);
    let name = quoted(&name);
    let detail = format!(
        "Host is {host}, and this server is not known by that name; ask it by its address or as localhost, or start it with --allow-host {name}"
    );
    Err(Problem::new(ProblemKind::UnknownHost, detail).with("host", host))
}

/// Whether `origin` is the origin of the node's own pages, as the request came to it.
pub fn is_own_page(request: &Request, origin: &str) -> bool {
    let Some((scheme, page)) = origin.split_once("://") else { return false };
    // Behind a proxy the page may have come by TLS, so the scheme says nothing but which port goes without saying.
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |authority: &str| authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase();
    authority(request).is_some_and(|authority| bare(authority) == bare(page))
}

fn authority(request: &Request) -> Option<&str> {
    let in_target = request.uri().authority().map(|authority| authority.as_str());
    in_target.or_else(|| request.headers().get(HOST).map(|host| host.to_str().unwrap_or("?")))
}

/// The name without its port, as it is compared.
fn name(authority: &str) -> Cow<'_, str> {
    let name = match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    };
    let name = name.trim_end_matches('.');
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

/// An address, which no page can have as its name unless it is served from there; or a name that never leaves the machine.
fn is_local(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(host: &str) -> Request {
        Request::get("/v1/counters/a").header(HOST, host).body(Body::empty()).unwrap()
    }

    #[test]
    fn a_node_answers_to_addresses_to_localhost_and_to_names_it_was_told() {
        let known: Vec<HostName> = ["Tally.Example.com"].iter().map(|name| name.parse().unwrap()).collect();
        for host in [
            "localhost",
            "localhost:7070",
            "LOCALHOST:7070",
            "tally.localhost:1",
            "127.0.0.1:7070",
            "127.0.0.1",
            "[::1]:7070",
            "[::1]",
            "10.0.0.7:7070",
            "tally.example.com:7070",
            "tally.example.com.",
        ] {
            assert!(check(&request(host), &known).is_ok(), "{host}");
        }
        for host in ["evil.example", "evil.example:7070", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"]
        {
            assert_eq!(check(&request(host), &known).unwrap_err().kind, ProblemKind::UnknownHost, "{host}");
        }
        assert!(check(&request("anything"), &["*".parse().unwrap()]).is_ok());
        assert!(check(&Request::get("/").body(Body::empty()).unwrap(), &[]).is_ok(), "no browser comes without a name");
        let other = Request::get("http://evil.example/").header(HOST, "localhost").body(Body::empty()).unwrap();
        assert!(check(&other, &[]).is_err(), "the target of a request goes before its Host");
    }

    #[test]
    fn a_page_is_our_own_if_it_came_from_where_it_asks() {
        for (host, origin, own) in [
            ("localhost:7070", "http://localhost:7070", true),
            ("tally.example.com", "https://tally.example.com", true),
            ("tally.example.com:443", "https://tally.example.com", true),
            ("localhost", "http://localhost:80", true),
            ("localhost:7070", "http://127.0.0.1:7070", false),
            ("localhost:7070", "http://localhost:7071", false),
            ("localhost:7070", "file://localhost:7070", false),
            ("localhost:7070", "null", false),
        ] {
            assert_eq!(is_own_page(&request(host), origin), own, "{host} {origin}");
        }
    }

    #[test]
    fn a_name_has_no_port_and_no_scheme() {
        for bad in ["", "http://a", "a:1", "a/b", "ä.example"] {
            assert!(bad.parse::<HostName>().is_err(), "{bad}");
        }
        assert_eq!("Tally.Example.com.".parse::<HostName>().unwrap().to_string(), "tally.example.com");
    }
}
