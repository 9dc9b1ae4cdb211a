//! After a run: removes the counters that it has made, so that a server is as it was.

use super::keys::{KeyPattern, write_digits};
use crate::client::Client;
use crate::failure::{Failure, Result};
use std::net::SocketAddr;

/// Keys of one `DEL`.
const KEYS_PER_CALL: u64 = 4096;

pub fn run(server: SocketAddr, password: Option<&str>, pattern: &KeyPattern, keys: u64) -> Result<()> {
    let mut client = Client::connect_to(&server.to_string(), password)?;
    let left = |failure: Failure| {
        let names = format!("{} to {}", pattern.zero(), keys - 1);
        failure.remedy(format!("Counters of this run may be left: {names}."))
    };
    for first in (0..keys).step_by(KEYS_PER_CALL as usize) {
        let mut command = vec![b"DEL".to_vec()];
        command.extend((first..keys.min(first + KEYS_PER_CALL)).map(|number| key(pattern, number)));
        client.call(&command).map_err(left)?;
    }
    Ok(())
}

fn key(pattern: &KeyPattern, number: u64) -> Vec<u8> {
    let mut key = pattern.zero().into_bytes();
    let digits = pattern.prefix.len()..pattern.prefix.len() + pattern.digits;
    write_digits(&mut key[digits], number);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_one_that_the_run_has_written() {
        assert_eq!(key(&"v:%04d!".parse().unwrap(), 42), b"v:0042!");
    }
}
