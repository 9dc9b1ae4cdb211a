//! Contracts: how the fate of an entry is decided. One is a file here, and a line in the list below.
//!
//! A file says everything about its contract: what it is called and what may be declared for it ([`Terms`]), what makes an event
//! unique, what staging puts into an entry, which fact decides it, and what becomes of it. The rest of the program knows contracts by
//! [`Contract`], which carries the settings of one, and by [`Mode`], the word for it in YAML and its number on disk. What a
//! counter keeps is apart from it: [`crate::measure`].
//!
//! A new contract: a file with a type that is a [`Promise`], its line with the next number, and, since editors are told, the schema
//! in `docs/formats`. If it remembers something, that is a kind of fact ([`crate::ledger`]).

#[macro_use]
mod table;
mod display;
mod persistent;
mod simple;
mod transition;

use crate::counter::declare::Fields;
use crate::counter::plan::Told;
use crate::counter::schema::{Setting, Word};
use crate::counter::stage::StagingDesk;
use crate::counter::{Counter, Durability, Field, Rejection};
use crate::fates::{Counts, Fates, Scene};
use crate::id::CellKey;
use crate::ledger::FactKey;
use crate::op::{Answer, Op, Stamp};

pub use display::{DedupSettings, Display};
pub use persistent::Persistent;
pub(crate) use persistent::{Verdict, stage_together};
pub use simple::Simple;
pub use transition::Transition;

// Number on disk, name, and the rank of its stream: a submission waits with the highest it has something for. Numbers are never used for
// something else, and ranks are 0, 1, 2 … The first is that of a counter that nobody has declared.
contracts! {
    0 Simple, stream 1;
    1 Display, stream 0;
    2 Transition, stream 2;
    3 Persistent, stream 3;
}

/// What a contract says of itself, whatever its settings.
pub(crate) struct Terms {
    /// Its word in YAML.
    pub name: &'static str,
    pub about: &'static str,
    /// The fields of a declaration that are its own.
    pub settings: &'static [Setting],
    /// Fields that it has no use for and says why. Other contracts' own fields are refused anyway.
    pub refuses: &'static [Refused],
    /// Whether clients may add to its counters by their ids, without an event.
    pub takes_direct_writes: bool,
    /// Whether an event may count for more than one.
    pub takes_any_delta: bool,
    /// The only durability that keeps the promise, where not every one does, and why.
    pub durability: Option<(Durability, &'static str)>,
    /// All counters of this contract count an event, or none does.
    pub counts_together: bool,
    /// An entry may take back what another has counted.
    pub takes_back: bool,
    /// Which way an event counts is part of what the numbers mean. Elsewhere a rule may be put right.
    pub direction_is_meant: bool,
    /// The field behind [`Promise::meant`].
    pub meant_by: &'static str,
}

/// A field that a contract has no use for, why, and what to do instead.
pub(crate) type Refused = (&'static str, (&'static str, &'static str));

impl Terms {
    const PLAIN: Terms = Terms {
        name: "",
        about: "",
        settings: &[],
        refuses: &[],
        takes_direct_writes: false,
        takes_any_delta: false,
        durability: None,
        counts_together: false,
        takes_back: false,
        direction_is_meant: false,
        meant_by: "",
    };
}

/// A contract: its settings, and what it does with an entry. All of it is resolved when the program is built.
pub(crate) trait Promise: Sized {
    const TERMS: Terms;

    /// Reads its settings. Whatever is wrong is an error that was kept, and then this is `None`.
    fn parse(fields: &Fields<'_>) -> Option<Self>;

    /// What holds for a counter, whether its declaration says so or not, for people.
    fn described(&self) -> Vec<(&'static str, String)>;

    /// The fields that make an event unique; `None` if it is the counter's own id. Without one of them it is the event id.
    fn identity(&self) -> Option<&[Field]>;

    /// The settings that decide what the numbers mean, and so may not change.
    fn meant(&self) -> &[Field] {
        &[]
    }

    /// The contract of a counter that was declared once, as far as its meaning says; `None` if that cannot be.
    fn of_meant(fields: Box<[Field]>) -> Option<Self>;

    /// What tells an entry from others, and its number there; `None` if nothing is asked.
    fn identify<'d>(
        &'d self,
        counter: &'d Counter,
        desk: &mut StagingDesk,
        event: &impl Told,
    ) -> Result<Option<(CellKey, u64)>, Rejection<'d>>;

    /// The memory of repeats that it needs.
    fn repeats(&self) -> Option<&DedupSettings> {
        None
    }

    /// The fact that has to be known before an entry is judged.
    fn decided_by(_: &Stamp) -> Option<FactKey> {
        None
    }

    /// What becomes of an entry; `None` if it counts, now or, if it is late, later.
    fn judge(fates: &mut Fates, op: &Op, stamp: &Stamp, scene: &Scene<'_>, values: &mut impl Counts) -> Option<Answer>;
}

impl Contract {
    /// Whether what makes an event unique for this contract does so for the other: then one partition decides for both.
    pub(crate) fn shares_identity(&self, other: &Contract) -> bool {
        // Where it is the cell itself it is nobody else's.
        self.mode() == other.mode() && self.identity().is_some_and(|fields| other.identity() == Some(fields))
    }

    /// Whether an entry may undo what its entity has counted before.
    pub fn keeps_entities(&self) -> bool {
        self.mode().terms().takes_back && !self.meant().is_empty()
    }
}

impl Mode {
    /// Whether clients may add to it by its id, without an event.
    pub fn takes_direct_writes(self) -> bool {
        self.terms().takes_direct_writes
    }

    /// Whether an entry can be late.
    pub fn takes_lateness(self) -> bool {
        !self.refuses("lateness")
    }

    /// Fields that a counter of this mode has no use for, each once.
    pub(crate) fn refused_fields(self) -> Vec<(&'static str, (String, String))> {
        let own = self.terms().refuses;
        let text = |(why, fix): (&str, &str)| (why.to_owned(), fix.to_owned());
        let of_others = Mode::ALL.into_iter().filter(|other| *other != self).flat_map(|other| {
            let refused = move |setting: &'static Setting| {
                let known = own.iter().find(|(field, _)| *field == setting.name).map(|(_, why)| text(*why));
                let usual = || {
                    let name = other.name();
                    (format!("only a {name} counter {}", setting.only), format!("remove it, or use mode {name:?}"))
                };
                (setting.name, known.unwrap_or_else(usual))
            };
            other.terms().settings.iter().map(refused)
        });
        let mut refused: Vec<_> = of_others.collect();
        let common = own.iter().filter(|(field, _)| !refused.iter().any(|(known, _)| known == field));
        let common: Vec<_> = common.map(|(field, why)| (*field, text(*why))).collect();
        refused.extend(common);
        refused
    }

    pub(crate) fn refuses(self, field: &str) -> bool {
        self.refused_fields().iter().any(|(refused, _)| *refused == field)
    }
}

impl Stream {
    pub fn name(self) -> &'static str {
        self.mode().name()
    }
}
