//! After a run: removes the counters that it has made, so that a server is as it was.

use crate::client::RespClient;
use crate::failure::{Failure, Result};
use tally_bench::Load;

/// Keys of one `DEL`.
const KEYS_PER_CALL: u64 = 4096;

pub fn run(load: &Load) -> Result<()> {
    let Load { key, keys, .. } = load;
    let mut client = RespClient::connect_to(&load.server.to_string(), load.password.as_deref())?;
    let left = |failure: Failure| {
        let names = format!("{} to {}", key.zero(), keys - 1);
        failure.remedy(format!("Counters of this run may be left: {names}."))
    };
    for first in (0..*keys).step_by(KEYS_PER_CALL as usize) {
        let mut command = vec![b"DEL".to_vec()];
        command.extend((first..(*keys).min(first + KEYS_PER_CALL)).map(|number| key.key(number)));
        client.call(&command).map_err(left)?;
    }
    Ok(())
}
