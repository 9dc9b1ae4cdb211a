//! The settings that say how a counter keeps its promise, each refused where its mode has no use for it.

use super::fields::Fields;
use crate::counter::schema::{refused_fields, required_durability};
use crate::counter::yaml::{ConfigError, Item, Node};
use crate::counter::{Clocks, Dedup, Durability, Field, Idempotency, Lateness, Mode, Rule, duration};

/// Refuses what the mode has no use for.
pub(super) fn check_mode(fields: &Fields<'_>, mode: Mode) -> Result<(), ConfigError> {
    for (name, why) in refused_fields(mode) {
        if let Some(key) = fields.key(name) {
            let message = format!("{name:?} does not go with mode {:?}: {why}", mode.name());
            return Err(fields.source.error(key, message));
        }
    }
    Ok(())
}

/// When an event is a duplicate; for `display`, which has a rule even if it says nothing.
pub(super) fn dedup(counter: &Fields<'_>, mode: Mode) -> Result<Option<Dedup>, ConfigError> {
    if mode != Mode::Display {
        return Ok(None);
    }
    match counter.get("dedup") {
        None => return Ok(Some(Dedup::undeclared())),
        Some(Item { value: Node::Text(word), .. }) if word == "none" => return Ok(None),
        Some(item) if !matches!(item.value, Node::Map(_)) => {
            let message = format!(
                "dedup must be none or {{by: [session, seq], window: 60s}}, not {}; write one of them",
                item.value.shown()
            );
            return Err(counter.source.error(item, message));
        }
        Some(_) => {}
    }
    counter.group("dedup")?.map(|fields| declared_dedup(&fields)).transpose()
}

fn declared_dedup(fields: &Fields<'_>) -> Result<Dedup, ConfigError> {
    let window_ms = fields.duration("window")?;
    let Some(list) = fields.get("by") else {
        return Ok(Dedup { window_ms, required: true, ..Dedup::undeclared() });
    };
    let mut by: Vec<Field> = fields.names("by")?.into_iter().map(|(_, name)| Field::named(name)).collect();
    let seq = by.contains(&Field::Seq);
    by.retain(|field| *field != Field::Seq);
    if by.is_empty() {
        let message = "a seq is a number within a session; name what it counts in as well: [session, seq]";
        return Err(fields.source.error(list, message));
    }
    Ok(Dedup { by: by.into(), seq, window_ms, required: true })
}

pub(super) fn entity(counter: &Fields<'_>) -> Result<Box<[Field]>, ConfigError> {
    let names = counter.names("entity")?;
    if let Some((item, _)) = names.iter().find(|(_, name)| *name == "seq") {
        let message = "\"seq\" is new with every event, so its state would never change; remove it from \"entity\"";
        return Err(counter.source.error(item, message));
    }
    Ok(names.into_iter().map(|(_, name)| Field::named(name)).collect())
}

pub(super) fn lateness(counter: &Fields<'_>, rules: &[Rule]) -> Result<Option<Lateness>, ConfigError> {
    let Some(fields) = counter.group("lateness")? else { return Ok(None) };
    if rules.is_empty() {
        let message = "only events have a time of their own to be late by, and this counter has no rules; remove it";
        return Err(counter.source.error(fields.item, message));
    }
    let lateness = Lateness {
        allowed_ms: fields.duration("allowed")?,
        corrected_ms: fields.duration("corrected")?,
        every_ms: fields.duration("every")?,
        restated_ms: fields.duration("restated")?,
    };
    if lateness.allowed_ms > lateness.corrected_ms {
        let message = format!(
            "allowed is {} and corrected only {}; what is allowed needs no correction, so make corrected the longer one",
            duration::shown(lateness.allowed_ms),
            duration::shown(lateness.corrected_ms)
        );
        let place = fields.get("corrected").or(fields.get("allowed")).unwrap_or(fields.item);
        return Err(fields.source.error(place, message));
    }
    Ok(Some(lateness))
}

pub(super) fn durability(counter: &Fields<'_>, mode: Mode) -> Result<Option<Durability>, ConfigError> {
    let needed = required_durability(mode);
    let Some(word) = counter.word("durability")? else { return Ok(needed) };
    let given = Durability::ALL.into_iter().find(|durability| durability.name() == word);
    match (needed, counter.get("durability")) {
        (Some(needed), Some(item)) if given != Some(needed) => {
            let message = format!(
                "durability {word:?} does not go with mode {:?}: it counts money, so an answer means that it is on disk; \
                 write {} or remove the field",
                mode.name(),
                needed.name()
            );
            Err(counter.source.error(item, message))
        }
        _ => Ok(given),
    }
}

/// Checks what a `persistent` counter says about its event ids; there is only one thing to say.
pub(super) fn event_id(counter: &Fields<'_>) -> Result<(), ConfigError> {
    let Some(fields) = counter.group("idempotency")? else { return Ok(()) };
    if let Some(item) = fields.get("requireEventId")
        && !fields.flag("requireEventId")?
    {
        let message = "requireEventId must be true: without an eventId nobody could tell a repeat from a new event; \
                       write true or remove the field";
        return Err(fields.source.error(item, message));
    }
    match fields.get("scope") {
        Some(item) if fields.source.text("scope", item)? != "globalEventId" => {
            let message = format!(
                "scope must be globalEventId, not {}: an eventId is claimed once for all counters that it feeds; \
                 write globalEventId or remove the field",
                item.value.shown()
            );
            Err(fields.source.error(item, message))
        }
        _ => Ok(()),
    }
}

/// What is believed of senders' clocks, for the whole node.
pub(super) fn clocks(configuration: &Fields<'_>) -> Result<Clocks, ConfigError> {
    match configuration.group("clocks")? {
        None => Ok(Clocks::default()),
        Some(fields) => Ok(Clocks { ahead_ms: fields.duration("ahead")? }),
    }
}

/// The keys of idempotent direct writes, for the whole node.
pub(super) fn keys(configuration: &Fields<'_>) -> Result<Idempotency, ConfigError> {
    match configuration.group("idempotency")? {
        None => Ok(Idempotency::DEFAULT),
        Some(fields) => Ok(Idempotency { keep_ms: fields.duration("keep")?, keys_max: fields.number("maxKeys")? }),
    }
}
