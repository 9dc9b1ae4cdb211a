//! Transition: likes and the like. One state per entity, such as a user's like of a video; the newest wins.

use super::{Promise, Terms};
use crate::counter::declare::Fields;
use crate::counter::plan::Told;
use crate::counter::schema::{Setting, Value, optional};
use crate::counter::stage::StagingDesk;
use crate::counter::{ConfigError, Counter, Field, Rejection};
use crate::fact;
use crate::fates::{Counts, Fates, Scene};
use crate::id::CellKey;
use crate::ledger::{BoxKind, CountedAs, Entity, FactKey};
use crate::limits::IDENTITY_FIELDS_MAX;
use crate::op::{Answer, Op, Stamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// What has a state; without any, every event counts as it comes.
    pub entity: Box<[Field]>,
}

const SETTINGS: &[Setting] = &[Setting {
    only: "keeps a state per entity",
    ..optional(
        "entity",
        Value::Names { least: 1, most: IDENTITY_FIELDS_MAX },
        "What has a state, such as [user, content]: session, eventId, type or dimensions. The newest event of an \
         entity decides its state. Without it every event counts as it comes.",
    )
}];

impl Promise for Transition {
    const TERMS: Terms = Terms {
        name: "transition",
        about: "Likes and the like: one state per entity, the newest wins.",
        settings: SETTINGS,
        refuses: &[
            ("dedup", ("the state of its entity makes a repeat change nothing", "remove it")),
            ("idempotency", ("the state of its entity makes a repeat change nothing", "remove it")),
            (
                "lateness",
                ("it is ordered by its own time, and the newest state wins however late it comes", "remove it"),
            ),
        ],
        takes_back: true,
        meant_by: "entity",
        ..Terms::PLAIN
    };

    fn parse(fields: &Fields<'_>) -> Option<Transition> {
        fields.source.keep(entity(fields)).map(|entity| Transition { entity })
    }

    fn described(&self) -> Vec<(&'static str, String)> {
        let entity = match &*self.entity {
            [] => "none: every event counts as it comes".into(),
            fields => fields.iter().map(Field::name).collect::<Vec<_>>().join(", "),
        };
        vec![("entity", entity)]
    }

    fn identity(&self) -> Option<&[Field]> {
        Some(&self.entity)
    }

    fn meant(&self) -> &[Field] {
        &self.entity
    }

    fn of_meant(entity: Box<[Field]>) -> Option<Transition> {
        Some(Transition { entity })
    }

    #[inline]
    fn identify<'d>(
        &'d self,
        counter: &'d Counter,
        desk: &mut StagingDesk,
        event: &impl Told,
    ) -> Result<Option<(CellKey, u64)>, Rejection<'d>> {
        if self.entity.is_empty() {
            return Ok(None);
        }
        let key = desk.key(fact::ENTITY, counter, &self.entity, event);
        key.map(|key| Some((key, 0))).map_err(|field| Rejection::MissingField { counter: &counter.name, field })
    }

    fn decided_by(stamp: &Stamp) -> Option<FactKey> {
        (stamp.key != CellKey::NONE).then_some(FactKey::Entity(stamp.key))
    }

    /// Per entity the greatest (time, position) wins, and decides the state as well as the key. Undoing undoes what was counted,
    /// wherever that was.
    #[inline(always)]
    fn judge(fates: &mut Fates, op: &Op, stamp: &Stamp, scene: &Scene<'_>, values: &mut impl Counts) -> Option<Answer> {
        Some(fates.transition(op, stamp, scene, values))
    }
}

fn entity(counter: &Fields<'_>) -> Result<Box<[Field]>, ConfigError> {
    let names = counter.names("entity")?;
    if let Some((item, _)) = names.iter().find(|(_, name)| *name == "seq") {
        let message = "\"seq\" is new with every event, so its state would never change";
        return Err(counter.source.error(item, message, "remove it from \"entity\""));
    }
    Ok(names.into_iter().map(|(_, name)| Field::named(name)).collect())
}

impl Fates {
    fn transition(&mut self, op: &Op, stamp: &Stamp, scene: &Scene<'_>, values: &mut impl Counts) -> Answer {
        let now = (stamp.time_ms, scene.batch.offset);
        let known = self.facts.entities.get(stamp.key).cloned();
        if known.as_ref().is_some_and(|known| now < (known.occurred_ms, known.offset)) {
            return self.ignore(op);
        }
        let counted = known.filter(Entity::is_on);
        let turns_on = op.arg > 0;
        let (cell, generation, counted_at, counted_as) = match &counted {
            Some(counted) if counted.cell == op.cell || !turns_on => {
                (counted.cell, counted.generation, counted.counted_at, counted.counted_as.clone())
            }
            _ => (op.cell, scene.generation, now.1, self.counted_as(op, scene)),
        };
        let counted_at = if turns_on { counted_at } else { Entity::OFF };
        let entity = Entity { occurred_ms: now.0, offset: now.1, counted_at, cell, generation, counted_as };
        self.facts.entities.put(stamp.key, entity);
        match counted {
            Some(counted) if turns_on && counted.cell == op.cell => self.ignore(op),
            Some(counted) => {
                // It counts for another key from now on, or for none.
                values.take_back(op, scene, &counted);
                if turns_on {
                    values.count(op, scene);
                }
                self.contracts.bump(op.counter, BoxKind::Counted, 1);
                Answer::Counted
            }
            None if turns_on => self.count(op, scene, values),
            None => self.ignore(op),
        }
    }

    /// The id of an entry and what it says of its parts, if later ones of its entity may say otherwise.
    fn counted_as(&mut self, op: &Op, scene: &Scene<'_>) -> Option<CountedAs> {
        let parts = scene.parts_of(op);
        if parts.is_empty() && !self.contracts.moves(op.counter) {
            return None;
        }
        scene.entry_id(op, &mut self.id);
        Some(CountedAs::new(&self.id, &parts))
    }
}
