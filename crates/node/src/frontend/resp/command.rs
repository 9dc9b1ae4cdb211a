//! The commands: one table with everything that is known about each, and one file per family.
//!
//! The table is what dispatch looks in and what `COMMAND` answers from. Arities, flags and categories are Redis', so
//! that clients which route or check commands by them treat Tally like Redis.

mod arguments;
mod config;
mod copy;
mod counter;
mod docs;
mod expiry;
mod function;
mod help;
mod info;
mod keyspace;
mod session;
mod several;
mod table;
mod transaction;

use super::fault::ErrorReply;
use super::parse::Args;
use super::pass::{CommandOutcome, Pass};

/// The Redis whose answers these are; clients ask for it to know what they may use.
const REDIS_VERSION: &str = "7.0.15";

pub struct Command {
    /// In small letters; that of a subcommand with its container: `client|id`.
    pub name: &'static str,
    /// How many arguments it takes, itself included; if negative, at least as many.
    arity: i32,
    pub run: fn(&mut Pass<'_>, Args<'_>) -> CommandOutcome,
    /// Words with spaces between them, as are the categories and tips.
    flags: &'static str,
    categories: &'static str,
    tips: &'static str,
    keys: Keys,
    group: &'static str,
    summary: &'static str,
    /// The version of Redis that had it first; empty if it is Tally's own.
    since: &'static str,
    complexity: &'static str,
    /// As [`arguments`] reads it.
    syntax: &'static str,
    subcommands: &'static [Command],
    /// Where it is counted: its place among all commands and subcommands.
    pub slot: usize,
    /// It is about the transaction itself, and carried out in the middle of it.
    is_at_once: bool,
}

/// Which arguments are ids, and what is done with them in Redis' words.
#[derive(Clone, Copy)]
enum Keys {
    None,
    First {
        flags: &'static str,
        note: &'static str,
    },
    /// The first and the second.
    Two {
        first: &'static str,
        second: &'static str,
    },
    All {
        flags: &'static str,
    },
    /// Every second argument, beginning with the first.
    EverySecond {
        flags: &'static str,
    },
}

impl Command {
    const fn new(name: &'static str, arity: i32, run: fn(&mut Pass<'_>, Args<'_>) -> CommandOutcome) -> Command {
        Command {
            name,
            arity,
            run,
            flags: "",
            categories: "",
            tips: "",
            keys: Keys::None,
            group: "",
            summary: "",
            since: "",
            complexity: "",
            syntax: "",
            subcommands: &[],
            slot: 0,
            is_at_once: false,
        }
    }

    const fn flags(self, flags: &'static str, categories: &'static str) -> Command {
        Command { flags, categories, ..self }
    }

    const fn keys(self, keys: Keys) -> Command {
        Command { keys, ..self }
    }

    const fn tips(self, tips: &'static str) -> Command {
        Command { tips, ..self }
    }

    const fn about(self, group: &'static str, summary: &'static str) -> Command {
        Command { group, summary, ..self }
    }

    const fn since(self, since: &'static str, complexity: &'static str) -> Command {
        Command { since, complexity, ..self }
    }

    const fn syntax(self, syntax: &'static str) -> Command {
        Command { syntax, ..self }
    }

    const fn at_once(self) -> Command {
        Command { is_at_once: true, ..self }
    }

    const fn with(self, subcommands: &'static [Command]) -> Command {
        Command { subcommands, ..self }
    }

    /// Whether it may be used before `AUTH`.
    pub fn is_for_strangers(&self) -> bool {
        self.flags.contains("no_auth")
    }

    /// Whether it waits for `EXEC` behind `MULTI`.
    pub fn is_queued(&self) -> bool {
        !self.is_at_once
    }

    /// The name without the container's.
    fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, short)| short)
    }

    fn takes(&self, len: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => len == exactly,
            Err(_) => len >= self.arity.unsigned_abs() as usize,
        }
    }

    fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands.iter().find(|command| name.eq_ignore_ascii_case(command.short_name().as_bytes()))
    }
}

/// How many commands and subcommands there are.
pub const SLOTS: usize = table::SLOTS;

/// The slot of `INCR`: it is the most frequent one.
pub const INCR: usize = 0;

/// Each of them.
pub fn all() -> impl Iterator<Item = &'static Command> {
    table::COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands))
}

/// Finds the command, or the subcommand of a container, that `args` asks for.
pub fn find(args: Args<'_>) -> Result<&'static Command, ErrorReply> {
    let mut command = by_name(args.get(0)).ok_or_else(|| ErrorReply::unknown_command(args.get(0), args.from(1)))?;
    if !command.subcommands.is_empty() && args.len() > 1 {
        let name = args.get(1);
        command = command.subcommand(name).ok_or_else(|| ErrorReply::unknown_subcommand(command.name, name))?;
    }
    if command.takes(args.len()) { Ok(command) } else { Err(ErrorReply::arity(command.name)) }
}

/// The command that `args` means, be it with a wrong number of arguments.
pub fn meant(args: Args<'_>) -> Option<&'static Command> {
    let command = by_name(args.get(0))?;
    if command.subcommands.is_empty() || args.len() == 1 { Some(command) } else { command.subcommand(args.get(1)) }
}

/// The slot of a command that exists.
pub fn slot(name: &str) -> usize {
    by_name(name.as_bytes()).expect("only commands of the table are asked for").slot
}

pub fn by_name(name: &[u8]) -> Option<&'static Command> {
    let packed = pack(name);
    let command = PACKED.iter().position(|&known| known == packed).map(|index| &table::COMMANDS[index]);
    // What is no letter may pack like something else.
    command.filter(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

/// The names as numbers, in the order of the table: looking through them all takes a few nanoseconds.
static PACKED: [u128; table::COMMANDS.len()] = {
    let mut packed = [0; table::COMMANDS.len()];
    let mut index = 0;
    while index < packed.len() {
        packed[index] = pack(table::COMMANDS[index].name.as_bytes());
        index += 1;
    }
    packed
};

/// A name of up to 16 bytes as a number, the same for capitals; names that are no command may be anything.
const fn pack(name: &[u8]) -> u128 {
    if name.len() > 16 {
        return 0;
    }
    let mut packed = 0;
    let mut index = 0;
    while index < name.len() {
        // Only letters become small letters by this.
        packed = packed << 8 | (name[index] | 0x20) as u128;
        index += 1;
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        assert_eq!(table::COMMANDS[INCR].name, "incr");
        for command in &table::COMMANDS {
            assert!(std::ptr::eq(by_name(command.name.as_bytes()).unwrap(), command), "{}", command.name);
            assert!(
                std::ptr::eq(by_name(command.name.to_uppercase().as_bytes()).unwrap(), command),
                "{}",
                command.name
            );
            assert!(command.name.len() <= 16 && command.name == command.name.to_lowercase(), "{}", command.name);
            for subcommand in command.subcommands {
                assert!(subcommand.name.starts_with(&format!("{}|", command.name)), "{}", subcommand.name);
            }
        }
    }

    #[test]
    fn every_command_has_a_slot_of_its_own() {
        let mut slots: Vec<usize> = all().map(|command| command.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
        assert_eq!(by_name(b"incr").unwrap().slot, INCR);
    }

    #[test]
    fn what_is_no_command_is_not_found() {
        for name in
            ["", "inc", "incrr", "incr\0", "\0incr", "GE4", "tally\u{e}incrby", "seventeen-letters", "\u{0}\u{0}\u{0}"]
        {
            assert!(by_name(name.as_bytes()).is_none(), "{name:?}");
        }
        for byte in (0..=255u8).filter(|byte| !byte.is_ascii_alphabetic()) {
            assert!(by_name(&[b'g', byte, b't']).is_none());
        }
    }
}
