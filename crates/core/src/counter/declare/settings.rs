//! The settings that say how a counter keeps its promise, each refused where its mode has no use for it.

use super::fields::Fields;
use crate::counter::schema::{refused_fields, required_durability};
use crate::counter::yaml::{Item, YamlNode};
use crate::counter::{
    Clocks, ConfigError, DedupSettings, Durability, Field, Idempotency, Lateness, Mode, Rule, duration,
};
use crate::nearest::nearest;

/// Refuses what the mode has no use for.
pub(super) fn check_mode(fields: &Fields<'_>, mode: Mode) {
    for (name, (why, fix)) in refused_fields(mode) {
        if let Some(key) = fields.key(name) {
            let message = format!("{name:?} does not go with mode {:?}: {why}", mode.name());
            fields.source.report(fields.source.error(key, message, *fix));
        }
    }
}

/// When an event is a duplicate; for `display`, which has a rule even if it says nothing. `None` if that is wrong.
pub(super) fn dedup(counter: &Fields<'_>, mode: Mode) -> Option<Option<DedupSettings>> {
    if mode != Mode::Display {
        return Some(None);
    }
    let source = counter.source;
    match counter.get("dedup") {
        None => return Some(Some(DedupSettings::undeclared())),
        Some(Item { value: YamlNode::Text(word), .. }) if word == "none" => return Some(None),
        Some(item) if !matches!(item.value, YamlNode::Map(_)) => {
            let given = source.written(item);
            let message = format!("dedup must be none or {{by: [session, seq], window: 60s}}, not {given}");
            let is_off = matches!(&item.value, YamlNode::Flag(false) | YamlNode::Nothing)
                || matches!(&item.value, YamlNode::Text(word) if word == "off" || nearest(word, ["none"]).is_some());
            let fix = if is_off { "write dedup: none" } else { "write one of them" };
            return source.keep(Err(source.error(item, message, fix)));
        }
        Some(_) => {}
    }
    let fields = source.keep(counter.group("dedup"))??;
    let window_ms = source.keep(fields.duration("window"));
    let declared = source.keep(declared_dedup(&fields));
    Some(Some(DedupSettings { window_ms: window_ms?, required: true, ..declared? }))
}

fn declared_dedup(fields: &Fields<'_>) -> Result<DedupSettings, ConfigError> {
    let Some(list) = fields.get("by") else { return Ok(DedupSettings::undeclared()) };
    let mut by: Vec<Field> = fields.names("by")?.into_iter().map(|(_, name)| Field::named(name)).collect();
    let seq = by.contains(&Field::Seq);
    by.retain(|field| *field != Field::Seq);
    if by.is_empty() {
        let message = "a seq is a number within a session";
        return Err(fields.source.error(list, message, "name what it counts in as well: [session, seq]"));
    }
    Ok(DedupSettings { by: by.into(), seq, ..DedupSettings::undeclared() })
}

pub(super) fn entity(counter: &Fields<'_>) -> Result<Box<[Field]>, ConfigError> {
    let names = counter.names("entity")?;
    if let Some((item, _)) = names.iter().find(|(_, name)| *name == "seq") {
        let message = "\"seq\" is new with every event, so its state would never change";
        return Err(counter.source.error(item, message, "remove it from \"entity\""));
    }
    Ok(names.into_iter().map(|(_, name)| Field::named(name)).collect())
}

/// `None` if it is wrong. Without rules nobody knows them.
pub(super) fn lateness(counter: &Fields<'_>, rules: Option<&[Rule]>) -> Option<Option<Lateness>> {
    let source = counter.source;
    let Some(fields) = source.keep(counter.group("lateness"))? else { return Some(None) };
    if rules.is_some_and(<[Rule]>::is_empty) {
        let message = "only events have a time of their own to be late by, and this counter has no rules";
        return source.keep(Err(source.error(fields.item, message, "remove it")));
    }
    let [allowed_ms, corrected_ms, every_ms, restated_ms] =
        ["allowed", "corrected", "every", "restated"].map(|name| source.keep(fields.duration(name)));
    let lateness = Lateness {
        allowed_ms: allowed_ms?,
        corrected_ms: corrected_ms?,
        every_ms: every_ms?,
        restated_ms: restated_ms?,
    };
    if lateness.allowed_ms > lateness.corrected_ms {
        let message = format!(
            "allowed is {} and corrected only {}; what is allowed needs no correction",
            duration::shown(lateness.allowed_ms),
            duration::shown(lateness.corrected_ms)
        );
        let place = fields.get("corrected").or(fields.get("allowed")).unwrap_or(fields.item);
        return source.keep(Err(source.error(place, message, "make corrected the longer one")));
    }
    Some(Some(lateness))
}

pub(super) fn durability(counter: &Fields<'_>, mode: Mode) -> Result<Option<Durability>, ConfigError> {
    let needed = required_durability(mode);
    let Some(word) = counter.word("durability")? else { return Ok(needed) };
    let given = Durability::ALL.into_iter().find(|durability| durability.name() == word);
    match (needed, counter.get("durability")) {
        (Some(needed), Some(item)) if given != Some(needed) => {
            let message = format!(
                "durability {word:?} does not go with mode {:?}: it counts money, so an answer means that it is on disk",
                mode.name(),
            );
            Err(counter.source.error(item, message, format!("write {} or remove the field", needed.name())))
        }
        _ => Ok(given),
    }
}

/// Checks what a `persistent` counter says about its event ids; there is only one thing to say. Answers whether it does.
pub(super) fn event_id(counter: &Fields<'_>) -> bool {
    let (source, before) = (counter.source, counter.source.kept());
    if let Some(Some(fields)) = source.keep(counter.group("idempotency")) {
        source.keep(require_event_id(&fields));
        source.keep(scope(&fields));
    }
    source.kept() == before
}

fn require_event_id(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.get("requireEventId") {
        Some(item) if !fields.flag("requireEventId")? => {
            let message = "requireEventId must be true: without an eventId nobody could tell a repeat from a new event";
            Err(fields.source.error(item, message, "write true or remove the field"))
        }
        _ => Ok(()),
    }
}

fn scope(fields: &Fields<'_>) -> Result<(), ConfigError> {
    match fields.get("scope") {
        Some(item) if fields.source.text("scope", item)? != "globalEventId" => {
            let message = format!(
                "scope must be globalEventId, not {}: an eventId is claimed once for all counters that it feeds",
                item.value.shown()
            );
            Err(fields.source.error(item, message, "write globalEventId or remove the field"))
        }
        _ => Ok(()),
    }
}

/// What is believed of senders' clocks, for the whole node. `None` if it is wrong.
pub(super) fn clocks(configuration: &Fields<'_>) -> Option<Clocks> {
    let source = configuration.source;
    let Some(fields) = source.keep(configuration.group("clocks"))? else { return Some(Clocks::default()) };
    Some(Clocks { ahead_ms: source.keep(fields.duration("ahead"))? })
}

/// The keys of idempotent direct writes, for the whole node. `None` if they are wrong.
pub(super) fn keys(configuration: &Fields<'_>) -> Option<Idempotency> {
    let source = configuration.source;
    let Some(fields) = source.keep(configuration.group("idempotency"))? else { return Some(Idempotency::DEFAULT) };
    let (keep_ms, keys_max) = (source.keep(fields.duration("keep")), source.keep(fields.number("maxKeys")));
    Some(Idempotency { keep_ms: keep_ms?, keys_max: keys_max? })
}
