//! Measures: what a counter's key keeps of the entries that count. One is a file here, and a line in the list below.
//!
//! Which entries count is decided elsewhere ([`crate::contract`]); a measure is told of each, and of those that are taken back. There is
//! one today: a sum. Another one is a file with a type that is a [`Gauge`], its line with the next number, and the schema in
//! `docs/formats`.

mod sum;

use crate::counter::schema::Word;
use crate::fates::Scene;
use crate::ledger::Entity;
use crate::op::Op;
use crate::values::Values;
use sum::Sum;

/// How a measure is kept. All of it is resolved when the program is built.
pub(crate) trait Gauge {
    /// Its word in YAML.
    const NAME: &'static str;
    const ABOUT: &'static str;

    /// An entry counts.
    fn count(values: &mut Values, op: &Op, scene: &Scene<'_>);

    /// What an entity has counted is taken back. Answers whether it was still there.
    fn take_back(values: &mut Values, counted: &Entity) -> bool;
}

macro_rules! measures {
    ($($number:literal $kind:ident;)+) => {
        const MEASURES: usize = [$($number),+].len();

        /// What a key keeps. The numbers stand in [`crate::counter::Meaning`]s on disk.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Measure {
            #[default]
            $($kind = $number,)+
        }

        /// The words for a declaration.
        pub(crate) const MEASURE_WORDS: &[Word] =
            &[$(Word { name: <$kind as Gauge>::NAME, about: <$kind as Gauge>::ABOUT },)+];

        impl Measure {
            pub const ALL: [Measure; MEASURES] = [$(Measure::$kind,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Measure::$kind => <$kind as Gauge>::NAME,)+
                }
            }

            #[inline]
            pub(crate) fn count(self, values: &mut Values, op: &Op, scene: &Scene<'_>) {
                match self {
                    $(Measure::$kind => <$kind as Gauge>::count(values, op, scene),)+
                }
            }

            #[inline]
            pub(crate) fn take_back(self, values: &mut Values, counted: &Entity) -> bool {
                match self {
                    $(Measure::$kind => <$kind as Gauge>::take_back(values, counted),)+
                }
            }
        }
    };
}

// Number on disk, and name. The first is what a counter keeps that says nothing. Numbers are below 16, and never used for something
// else.
measures! {
    0 Sum;
}
