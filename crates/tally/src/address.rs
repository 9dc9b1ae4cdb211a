//! Where something listens: `127.0.0.1:7070`, `[::1]:7070` or `localhost:7070`.

use std::net::{SocketAddr, ToSocketAddrs};

/// Every address that a name stands for, without what people write around it.
pub fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
    let plain = text.trim_start_matches("redis://").trim_start_matches("http://").trim_end_matches('/');
    let failure =
        |why: String| format!("{text:?} is not an address: {why}; write it as 127.0.0.1:7070 or localhost:7070");
    let addresses: Vec<SocketAddr> = match plain.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => return Err(failure(error.to_string())),
    };
    if addresses.is_empty() { Err(failure("the name has no address".to_owned())) } else { Ok(addresses) }
}

/// One address to listen on. A name such as localhost may have several; IPv4 is what clients try in any case.
pub fn listening(text: &str) -> Result<SocketAddr, String> {
    let addresses = resolve(text)?;
    Ok(addresses.iter().find(|address| address.is_ipv4()).copied().unwrap_or(addresses[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_name() {
        assert_eq!(listening("127.0.0.1:7070"), Ok("127.0.0.1:7070".parse().unwrap()));
        assert_eq!(listening("[::1]:7070"), Ok("[::1]:7070".parse().unwrap()));
        assert!(listening("localhost:7070").unwrap().ip().is_loopback());
        assert_eq!(resolve("redis://127.0.0.1:7379/"), Ok(vec!["127.0.0.1:7379".parse().unwrap()]));
    }

    #[test]
    fn what_is_no_address_is_told_how_to_write_one() {
        for bad in ["", "7070", "localhost", "localhost:", "localhost:70700", "no such host:1"] {
            let why = listening(bad).unwrap_err();
            assert!(why.contains(&format!("{bad:?}")) && why.contains("localhost:7070"), "{why}");
        }
    }
}
