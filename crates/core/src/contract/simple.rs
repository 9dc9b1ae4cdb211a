//! Simple: an exact integer that adds whatever it is told, by name or by events.

use super::{Promise, Terms};
use crate::counter::declare::Fields;
use crate::counter::plan::Told;
use crate::counter::stage::StagingDesk;
use crate::counter::{Counter, Field, Rejection};
use crate::fates::{Counts, Fates, Scene};
use crate::id::CellKey;
use crate::op::{Answer, Op, Stamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simple;

impl Promise for Simple {
    const TERMS: Terms = Terms {
        name: "simple",
        about: "An exact integer: clients add and subtract, and events may feed it.",
        refuses: &[
            ("dedup", ("it adds whatever it is told", "use mode \"display\" to count each event of a session once")),
            (
                "idempotency",
                (
                    "the keys of its direct writes are a setting of the node",
                    "write \"idempotency\" beside \"counters\"",
                ),
            ),
        ],
        takes_direct_writes: true,
        takes_any_delta: true,
        ..Terms::PLAIN
    };

    fn parse(_: &Fields<'_>) -> Option<Simple> {
        Some(Simple)
    }

    fn described(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn identity(&self) -> Option<&[Field]> {
        None
    }

    fn of_meant(fields: Box<[Field]>) -> Option<Simple> {
        fields.is_empty().then_some(Simple)
    }

    #[inline]
    fn identify<'d>(
        &'d self,
        _: &'d Counter,
        _: &mut StagingDesk,
        _: &impl Told,
    ) -> Result<Option<(CellKey, u64)>, Rejection<'d>> {
        Ok(None)
    }

    #[inline(always)]
    fn judge(_: &mut Fates, _: &Op, _: &Stamp, _: &Scene<'_>, _: &mut impl Counts) -> Option<Answer> {
        None
    }
}
