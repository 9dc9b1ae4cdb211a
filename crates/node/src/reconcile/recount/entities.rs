//! What entities that are on were counted for, as their events say: for who did not remember it, since no roll-up asked for it then.

use super::rules::OWN_TIME;
use super::{At, Recount, text};
use tally_core::contract::Contract;
use tally_core::counter::Field;

/// Those that were turned on up to a log time, behind an offset.
pub struct Entities {
    pub up_to_ms: u64,
    pub behind: Option<u64>,
}

impl Recount<'_> {
    /// Rows (`at`, the offset; `own_ms`, `type`, `session`, `event_id`, and a column for each of [`Self::entity_dimensions`]) in the order of the log.
    /// `None` if nothing of this counter is ever taken back.
    pub fn entities(&self, entities: &Entities) -> Option<String> {
        let Contract::Transition(transition) = &self.counter.contract else { return None };
        if transition.entity.is_empty() {
            return None;
        }
        let names = self.entity_dimensions();
        let values = names.iter().enumerate().map(|(n, name)| {
            let column = self.dimension(name);
            let value = format!("coalesce({column}, dimensions[{}])", text(name));
            format!(", {value} AS value_{n}")
        });
        let more = format!(
            ", \"offset\" AS at, {own} AS own_ms, {came} AS came_ms, type AS of_type, session AS of_session, event_id AS of_event{values}",
            own = At::Moment.of(OWN_TIME),
            came = At::Moment.of("log_time"),
            values = values.collect::<String>(),
        );
        let columns: String = (0..names.len()).map(|n| format!(", value_{n}")).collect();
        let behind = entities.behind.map_or(String::new(), |behind| format!(" AND at > {behind}"));
        Some(format!(
            "SELECT at, own_ms, of_type, of_session, of_event{columns} FROM ({turned_on}) AS turned_on
  WHERE came_ms <= {up_to_ms}{behind} ORDER BY at",
            turned_on = self.turned_on(&transition.entity, &more),
            up_to_ms = entities.up_to_ms,
        ))
    }

    /// The dimensions that say which entity it is, for which key it counts, and for which parts.
    pub fn entity_dimensions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.counter.dimensions.iter().map(|name| &**name).collect();
        let rolled = self.counter.rollups.all.iter().flat_map(|rollup| rollup.dimensions.iter().map(|name| &**name));
        names.extend(rolled);
        if let Contract::Transition(transition) = &self.counter.contract {
            names.extend(transition.entity.iter().filter_map(|field| match field {
                Field::Dimension(name) => Some(&**name),
                _ => None,
            }));
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}
