//! One connection of pipelined commands, and what its keys may hold after the server was killed.
//!
//! Half of the commands go to keys that only this lane touches. The lane knows their values exactly: every answer is
//! compared, and after a crash they must stand where some first part of the unanswered commands leaves them, because a
//! connection's commands take effect in their order. The other half goes to keys that all lanes share.

use super::range::Amounts;
use crate::client::{self, Reply, RespClient};
use crate::random::Random;
use anyhow::{Result, bail, ensure};
use std::net::SocketAddr;

const PRIVATE_KEYS: usize = 40;
const SHARED_KEYS: usize = 200;
const PIPELINE_MAX: u64 = 64;
const DELTA_MAX: u64 = 1000;

#[derive(Clone, Copy, Debug)]
enum Command {
    /// To a shared key.
    Share {
        key: usize,
        delta: i64,
    },
    /// To a key of this lane.
    Add {
        key: usize,
        delta: i64,
    },
    Set {
        key: usize,
        value: i64,
    },
    Delete {
        key: usize,
    },
    Get {
        key: usize,
    },
}

pub struct CommandLane {
    number: usize,
    random: Random,
    /// The lane's own keys, as all acknowledged commands left them.
    private: Vec<Option<i64>>,
    /// Commands without an answer, in their order.
    unanswered: Vec<Command>,
    shared: Vec<Amounts>,
    pub acknowledged: u64,
}

pub fn shared_keys() -> Vec<String> {
    (0..SHARED_KEYS).map(|n| format!("shared:{n}")).collect()
}

impl CommandLane {
    pub fn new(number: usize, seed: u64) -> CommandLane {
        CommandLane {
            number,
            random: Random::new(seed),
            private: vec![None; PRIVATE_KEYS],
            unanswered: Vec::new(),
            shared: vec![Amounts::default(); SHARED_KEYS],
            acknowledged: 0,
        }
    }

    pub fn private_keys(&self) -> Vec<String> {
        (0..PRIVATE_KEYS).map(|key| self.private_key(key)).collect()
    }

    fn private_key(&self, key: usize) -> String {
        format!("lane{}:{key}", self.number)
    }

    pub fn shared(&mut self) -> &mut [Amounts] {
        &mut self.shared
    }

    /// Sends pipelines until the server goes away.
    pub fn run(&mut self, server: SocketAddr) -> Result<()> {
        assert!(self.unanswered.is_empty(), "the last round was verified");
        let mut client = match RespClient::connect(server) {
            Err(error) if client::was_cut(&error) => return Ok(()),
            other => other?,
        };
        loop {
            let pipeline: Vec<Command> = (0..=self.random.below(PIPELINE_MAX)).map(|_| self.choose()).collect();
            let bytes = self.attempt(&pipeline);
            if let Err(error) = client.send(&bytes) {
                return if client::was_cut(&error) { Ok(()) } else { Err(error.into()) };
            }
            for command in pipeline {
                match client.reply() {
                    // What was under way when the server was told to stop may or may not have counted.
                    Ok(Reply::Error(text)) if text.contains("shutting down") => return Ok(()),
                    Ok(reply) => self.answered(command, reply)?,
                    Err(error) if client::was_cut(&error) => return Ok(()),
                    Err(error) => bail!("{command:?} of lane {} was not answered: {error}", self.number),
                }
            }
        }
    }

    fn choose(&mut self) -> Command {
        let delta = match self.random.below(4) {
            0 | 1 => 1,
            2 => 1 + self.random.below(DELTA_MAX) as i64,
            _ => -1 - self.random.below(DELTA_MAX) as i64,
        };
        let key = self.random.below(PRIVATE_KEYS as u64) as usize;
        match self.random.below(32) {
            0..16 => Command::Share { key: self.random.below(SHARED_KEYS as u64) as usize, delta },
            16 => Command::Set { key, value: delta },
            17 => Command::Delete { key },
            18..20 => Command::Get { key },
            _ => Command::Add { key, delta },
        }
    }

    /// Notes commands as attempted; answers their bytes.
    fn attempt(&mut self, pipeline: &[Command]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &command in pipeline {
            match command {
                Command::Share { key, delta } => {
                    self.shared[key].attempt(delta);
                    encode_add(&mut bytes, &format!("shared:{key}"), delta);
                }
                Command::Add { key, delta } => encode_add(&mut bytes, &self.private_key(key), delta),
                Command::Set { key, value } => {
                    client::encode(&mut bytes, &["SET", &self.private_key(key), &value.to_string()]);
                }
                Command::Delete { key } => client::encode(&mut bytes, &["DEL", &self.private_key(key)]),
                Command::Get { key } => client::encode(&mut bytes, &["GET", &self.private_key(key)]),
            }
        }
        self.unanswered.extend(pipeline);
        bytes
    }

    /// Notes a command as acknowledged and checks its answer.
    fn answered(&mut self, command: Command, reply: Reply) -> Result<()> {
        self.unanswered.remove(0);
        let (before, shown) = (self.private.clone(), format!("{reply:?}"));
        let right = match command {
            Command::Share { key, delta } => {
                self.shared[key].acknowledge(delta);
                matches!(reply, Reply::Integer(_))
            }
            Command::Get { key } => client::value_of(reply)? == self.private[key],
            Command::Add { key, .. } => {
                apply(&mut self.private, command);
                matches!(reply, Reply::Integer(value) if Some(value) == self.private[key])
            }
            Command::Set { .. } => {
                apply(&mut self.private, command);
                reply == Reply::Text("OK".to_owned())
            }
            Command::Delete { key } => {
                apply(&mut self.private, command);
                reply == Reply::Integer(before[key].is_some().into())
            }
        };
        ensure!(right, "lane {}: {command:?} was answered {shown}; its keys were {before:?}", self.number);
        self.acknowledged += 1;
        Ok(())
    }

    /// Checks that the lane's own keys are as some first part of the unanswered commands leaves them.
    pub fn verify(&mut self, found: &[Option<i64>]) -> Result<()> {
        let unanswered = std::mem::take(&mut self.unanswered);
        let mut state = self.private.clone();
        let mut fits = state == found;
        for &command in &unanswered {
            if fits {
                break;
            }
            apply(&mut state, command);
            fits = state == found;
        }
        if !fits {
            bail!("{}", self.describe_misfit(found, &unanswered));
        }
        self.private = state;
        Ok(())
    }

    fn describe_misfit(&self, found: &[Option<i64>], unanswered: &[Command]) -> String {
        let mut attempted = self.private.clone();
        unanswered.iter().for_each(|command| apply(&mut attempted, *command));
        let keys = (0..PRIVATE_KEYS).filter(|&key| found[key] != self.private[key]).map(|key| {
            format!(
                "\n  {}: acknowledged {:?}, found {:?}, attempted {:?}",
                self.private_key(key),
                self.private[key],
                found[key],
                attempted[key]
            )
        });
        format!(
            "lane {}: its keys stand where no first part of its {} unanswered commands leaves them:{}\n  unanswered: {unanswered:?}",
            self.number,
            unanswered.len(),
            keys.collect::<String>()
        )
    }
}

fn encode_add(out: &mut Vec<u8>, key: &str, delta: i64) {
    match delta {
        1 => client::encode(out, &["INCR", key]),
        -1 => client::encode(out, &["DECR", key]),
        0.. => client::encode(out, &["INCRBY", key, &delta.to_string()]),
        _ => client::encode(out, &["DECRBY", key, &(-delta).to_string()]),
    }
}

fn apply(private: &mut [Option<i64>], command: Command) {
    match command {
        Command::Add { key, delta } => private[key] = Some(private[key].unwrap_or(0) + delta),
        Command::Set { key, value } => private[key] = Some(value),
        Command::Delete { key } => private[key] = None,
        Command::Share { .. } | Command::Get { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(unanswered: Vec<Command>) -> CommandLane {
        CommandLane { unanswered, ..CommandLane::new(0, 1) }
    }

    fn found(first: Option<i64>, second: Option<i64>) -> Vec<Option<i64>> {
        let mut found = vec![None; PRIVATE_KEYS];
        (found[0], found[1]) = (first, second);
        found
    }

    #[test]
    fn only_a_first_part_of_the_unanswered_commands_may_have_happened() {
        let commands =
            || vec![Command::Add { key: 0, delta: 5 }, Command::Add { key: 1, delta: 7 }, Command::Delete { key: 0 }];
        for (first, second, holds) in [
            (None, None, true),
            (Some(5), None, true),
            (Some(5), Some(7), true),
            (None, Some(7), true),
            (Some(7), Some(7), false),
            (Some(6), None, false),
        ] {
            assert_eq!(lane(commands()).verify(&found(first, second)).is_ok(), holds, "{first:?} {second:?}");
        }
        let skipped = vec![Command::Add { key: 0, delta: 5 }, Command::Add { key: 1, delta: 7 }];
        assert!(lane(skipped).verify(&found(None, Some(7))).is_err(), "the second without the first");
    }

    #[test]
    fn a_wrong_answer_is_noticed() {
        let add = Command::Add { key: 0, delta: 5 };
        assert!(lane(vec![add]).answered(add, Reply::Integer(5)).is_ok());
        assert!(lane(vec![add]).answered(add, Reply::Integer(6)).is_err());
        assert!(lane(vec![add]).answered(add, Reply::Error("BUSY".to_owned())).is_err());
    }
}
