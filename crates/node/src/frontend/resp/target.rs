//! What an id means to a command, and whether the command may do what it wants there.

use super::fault::ErrorReply;
use std::borrow::Cow;
use tally_core::counter::{Counter, Declarations, Durability, IdError, Target};
use tally_core::database::Space;
use tally_core::id::CellKey;
use tally_core::limits::ID_BYTES_MAX;
use tally_core::op::{Direct, Op};

/// What a command is about to do with a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    /// Add to it or subtract from it.
    Count,
    /// Set it, delete it or let it expire: whatever forgets what was counted.
    Overwrite,
}

/// What an id stands for.
pub struct Located<'i> {
    /// The id to hash and to log.
    pub id: Cow<'i, [u8]>,
    /// Which declared counter it is a cell of; [`Op::AD_HOC`] if none.
    pub counter: u16,
    /// Whether reads show 0 for a sum below it.
    pub floor_at_zero: bool,
    /// `None`: as the node.
    pub durability: Option<Durability>,
}

impl Located<'_> {
    /// What an addition to it says.
    #[inline]
    pub fn direct(&self, cell: CellKey) -> Direct<'_> {
        Direct { cell, name: &self.id, counter: self.counter, durability: self.durability }
    }
}

#[inline]
pub fn locate<'i>(declarations: &Declarations, id: &'i [u8], intent: Intent) -> Result<Located<'i>, ErrorReply> {
    match declarations.resolve(id) {
        Ok(Target::AdHoc(key)) => Ok(ad_hoc(Space::MAIN, key)),
        Ok(Target::Declared { counter: index, id }) => {
            let counter = declarations.counter(index);
            permit(counter, declarations.is_removed(index), intent)?;
            let Counter { floor_at_zero, durability, .. } = *counter;
            Ok(Located { id, counter: index, floor_at_zero, durability })
        }
        Err(error) => Err(error.into()),
    }
}

/// The same in another database than 0, where all counters are ad-hoc ones.
pub fn locate_in(space: Space, key: &[u8]) -> Result<Located<'_>, ErrorReply> {
    match key.len() <= ID_BYTES_MAX {
        true => Ok(ad_hoc(space, key)),
        false => Err(IdError::TooLong { bytes: key.len() }.into()),
    }
}

#[inline]
fn ad_hoc(space: Space, key: &[u8]) -> Located<'_> {
    Located { id: space.id(key), counter: Op::AD_HOC, floor_at_zero: false, durability: None }
}

fn permit(counter: &Counter, is_removed: bool, intent: Intent) -> Result<(), ErrorReply> {
    let name = &counter.name;
    match intent {
        Intent::Read => Ok(()),
        Intent::Count if is_removed => Err(ErrorReply::from(format!(
            "ERR counter '{name}' was removed from the configuration, and its name stays its own: declare it again, or use another name"
        ))),
        Intent::Count if counter.mode.takes_direct_writes() => Ok(()),
        Intent::Count => Err(ErrorReply::from(format!(
            "ERR counter '{name}' is declared as {} and counts events: send them to POST /v1/events",
            counter.mode.name()
        ))),
        Intent::Overwrite => Err(ErrorReply::from(format!(
            "ERR counter '{name}' is declared: clear it with DELETE /v1/counters/{name}, which is a correction; only ad-hoc counters can be set, copied, renamed, deleted or expired"
        ))),
    }
}

impl From<IdError> for ErrorReply {
    fn from(error: IdError) -> ErrorReply {
        ErrorReply::from(format!("ERR {error}"))
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
            let Err(fault) = locate(&declarations, b"views:7", intent) else { panic!("{intent:?} is permitted") };
            String::from_utf8(fault.bytes().to_vec()).unwrap()
        };
        assert_eq!(
            refusal(Intent::Count),
            "ERR counter 'views' is declared as display and counts events: send them to POST /v1/events"
        );
        assert!(refusal(Intent::Overwrite).contains("clear it with DELETE /v1/counters/views"));
    }
}
