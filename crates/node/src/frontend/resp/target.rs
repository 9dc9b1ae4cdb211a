//! What an id means to a command, and whether the command may do what it wants there.

use super::fault::Fault;
use std::borrow::Cow;
use tally_core::counter::{Counter, Declarations, IdError, Target};

/// What a command is about to do with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    /// Add to it or subtract from it.
    Count,
    /// Set it, delete it or let it expire: whatever forgets what was counted.
    Overwrite,
}

/// The id to hash and to log.
#[inline]
pub fn locate<'a>(declarations: &Declarations, id: &'a [u8], intent: Intent) -> Result<Cow<'a, [u8]>, Fault> {
    match declarations.resolve(id) {
        Ok(Target::AdHoc(id)) => Ok(Cow::Borrowed(id)),
        Ok(Target::Declared { counter, id }) => {
            permit(declarations.counter(counter), intent)?;
            Ok(id)
        }
        Err(error) => Err(error.into()),
    }
}

fn permit(counter: &Counter, intent: Intent) -> Result<(), Fault> {
    let name = &counter.name;
    match intent {
        Intent::Read => Ok(()),
        Intent::Count if counter.mode.takes_direct_writes() => Ok(()),
        Intent::Count => Err(Fault::from(format!(
            "ERR counter '{name}' is declared as {} and counts events: send them to POST /v1/events",
            counter.mode.name()
        ))),
        Intent::Overwrite => Err(Fault::from(format!(
            "ERR counter '{name}' is declared, and clearing a declared counter comes with generations: only ad-hoc counters can be set, deleted or expired"
        ))),
    }
}

impl From<IdError> for Fault {
    fn from(error: IdError) -> Fault {
        Fault::from(format!("ERR {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "
counters:
  - {counterName: stock, mode: simple, dimensions: [item]}
  - {counterName: views, mode: display, dimensions: [video], rules: [{on: viewed, op: increment}]}
";

    fn verdicts(id: &str) -> [bool; 3] {
        let declarations = Declarations::parse(YAML).unwrap();
        [Intent::Read, Intent::Count, Intent::Overwrite]
            .map(|intent| locate(&declarations, id.as_bytes(), intent).is_ok())
    }

    #[test]
    fn what_a_command_may_do_depends_on_the_declaration() {
        assert_eq!(verdicts("anything:else"), [true, true, true]);
        assert_eq!(verdicts("stock:7"), [true, true, false]);
        assert_eq!(verdicts("views:7"), [true, false, false]);
        assert_eq!(verdicts("views"), [false, false, false], "its key is missing");
    }

    #[test]
    fn a_refusal_names_the_counter_and_what_to_do_instead() {
        let declarations = Declarations::parse(YAML).unwrap();
        let refusal = |intent| {
            String::from_utf8(locate(&declarations, b"views:7", intent).unwrap_err().bytes().to_vec()).unwrap()
        };
        assert_eq!(
            refusal(Intent::Count),
            "ERR counter 'views' is declared as display and counts events: send them to POST /v1/events"
        );
        assert!(refusal(Intent::Overwrite).contains("clearing a declared counter comes with generations"));
    }
}
