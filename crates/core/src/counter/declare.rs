//! From the YAML tree to counters, refusing by name and place whatever cannot be meant or cannot be kept.

mod fields;
mod settings;

use super::schema::{CONFIGURATION, COUNTER};
use super::yaml::{ConfigError, Item, Node, Source};
use super::{Clocks, Counter, Direction, Idempotency, Mode, Rule};
use crate::limits::{COUNTERS_MAX, ENTRIES_PER_EVENT_MAX};
use fields::{Fields, short_text};
use hashbrown::{HashMap, HashSet};

/// All declared counters and the settings of the node.
#[derive(Default)]
pub(super) struct Configuration {
    pub counters: Vec<Counter>,
    pub idempotency: Idempotency,
    pub clocks: Clocks,
}

pub(super) fn configuration(yaml: &str) -> Result<Configuration, ConfigError> {
    let source = Source { yaml };
    let root = source.root()?;
    if matches!(root.value, Node::Nothing) {
        return Ok(Configuration::default());
    }
    let fields = Fields::of(&source, &CONFIGURATION, &root)?;
    let (idempotency, clocks) = (settings::keys(&fields)?, settings::clocks(&fields)?);
    let mut seen = Seen::default();
    let counters = declared(&source, &fields)?.iter().map(|item| declaration(&source, item, &mut seen));
    Ok(Configuration { counters: counters.collect::<Result<_, _>>()?, idempotency, clocks })
}

/// An error at a field of the counter of this index, in a text that was parsed before; at the counter itself if it
/// does not have the field.
pub(super) fn error_at(yaml: &str, index: usize, field: &str, message: String) -> ConfigError {
    let source = Source { yaml };
    let found = source.root().and_then(|root| {
        let item = &declared(&source, &Fields::of(&source, &CONFIGURATION, &root)?)?[index];
        let fields = Fields::of(&source, &COUNTER, item)?;
        Ok(source.error(fields.get(field).unwrap_or(item), message))
    });
    found.unwrap_or_else(|error| error)
}

fn declared<'n>(source: &Source<'_>, fields: &Fields<'n>) -> Result<&'n [Item], ConfigError> {
    fields.get("counters").map_or(Ok(&[]), |item| source.list("\"counters\"", item))
}

/// What must not repeat, or not repeat too often, across counters.
#[derive(Default)]
struct Seen {
    /// And the line of each.
    names: HashMap<String, u64>,
    listeners: HashMap<String, usize>,
}

fn declaration(source: &Source<'_>, item: &Item, seen: &mut Seen) -> Result<Counter, ConfigError> {
    if seen.names.len() == COUNTERS_MAX {
        return Err(source.error(item, format!("more than {COUNTERS_MAX} counters in one configuration")));
    }
    let fields = Fields::of(source, &COUNTER, item)?;
    let name = name(source, fields.required("counterName")?, seen)?;
    let mode = mode(&fields)?;
    settings::check_mode(&fields, mode)?;
    settings::event_id(&fields)?;
    let rules = rules(&fields, seen)?;
    if rules.is_empty() && !mode.takes_direct_writes() {
        let message = format!(
            "counter {name:?} would never count: a {} counter is fed by events only; \
             add rules such as [{{on: video.viewed, op: increment}}]",
            mode.name()
        );
        return Err(source.error(fields.get("rules").unwrap_or(item), message));
    }
    let description = fields.get("description").map(|item| source.text("description", item)).transpose()?;
    Ok(Counter {
        name: name.into(),
        mode,
        dimensions: fields.names("dimensions")?.into_iter().map(|(_, name)| name.into()).collect(),
        description: description.map(Into::into),
        dedup: settings::dedup(&fields, mode)?,
        entity: settings::entity(&fields)?,
        floor_at_zero: fields.flag("floorAtZero")?,
        lateness: settings::lateness(&fields, &rules)?,
        durability: settings::durability(&fields, mode)?,
        rules,
    })
}

/// The name of a counter. It stands before the first `:` of an id, and patterns use `*`.
fn name<'n>(source: &Source<'_>, item: &'n Item, seen: &mut Seen) -> Result<&'n str, ConfigError> {
    let name = short_text(source, "counterName", item)?;
    let bad = name.chars().find(|c| matches!(c, ':' | '%' | '*') || c.is_whitespace() || c.is_control());
    if let Some(bad) = bad {
        let message = format!(
            "{name:?} cannot be the name of a counter because of {bad:?}: \
             a name has no ':', '%', '*', white space or control characters"
        );
        return Err(source.error(item, message));
    }
    match seen.names.insert(name.to_owned(), item.referenced.line()) {
        None => Ok(name),
        Some(line) => {
            let message = format!("counter {name:?} is already declared in line {line}; rename one of them");
            Err(source.error(item, message))
        }
    }
}

fn mode(fields: &Fields<'_>) -> Result<Mode, ConfigError> {
    fields.required("mode")?;
    let word = fields.word("mode")?;
    Ok(Mode::ALL.into_iter().find(|mode| Some(mode.name()) == word).expect("the table has the modes there are"))
}

fn rules(counter: &Fields<'_>, seen: &mut Seen) -> Result<Vec<Rule>, ConfigError> {
    let mut rules = Vec::new();
    let mut types = HashSet::new();
    for fields in counter.groups("rules")? {
        let source = fields.source;
        let item = fields.required("on")?;
        let on = short_text(source, "\"on\"", item)?;
        if !types.insert(on) {
            let message =
                format!("this counter already has a rule on {on:?}; an event counts once per counter, so remove one");
            return Err(source.error(item, message));
        }
        let listeners = seen.listeners.entry_ref(on).or_default();
        *listeners += 1;
        if *listeners > ENTRIES_PER_EVENT_MAX {
            let message = format!("more than {ENTRIES_PER_EVENT_MAX} counters listen to {on:?}; split the event type");
            return Err(source.error(item, message));
        }
        rules.push(Rule { on: on.into(), op: direction(&fields)? });
    }
    Ok(rules)
}

fn direction(rule: &Fields<'_>) -> Result<Direction, ConfigError> {
    rule.required("op")?;
    Ok(if rule.word("op")? == Some("decrement") { Direction::Decrement } else { Direction::Increment })
}
