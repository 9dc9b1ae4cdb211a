//! From the YAML tree to counters, refusing by name and place whatever cannot be meant or cannot be kept.

use super::yaml::{ConfigError, Item, Key, Source};
use super::{Counter, Direction, Mode, Rule};
use crate::limits::{COUNTERS_MAX, ENTRIES_PER_EVENT_MAX, KEY_DIMENSIONS_MAX, NAME_BYTES_MAX};
use hashbrown::{HashMap, HashSet};

const COUNTER_FIELDS: &[&str] = &["counterName", "mode", "dimensions", "rules", "description"];
const RULE_FIELDS: &[&str] = &["on", "op"];

/// Parts of a declaration that are designed and not built yet: known, so that nobody takes them for a typing error.
const FUTURE_COUNTER_FIELDS: &[&str] =
    &["dedup", "rollups", "maxCardinality", "lateness", "entity", "floorAtZero", "idempotency", "durability", "window"];
const FUTURE_MODES: &[&str] = &["transition", "persistent", "unique", "top", "frequency", "window"];

/// Reads all declared counters.
pub(super) fn counters(yaml: &str) -> Result<Vec<Counter>, ConfigError> {
    let source = Source { yaml };
    let root = source.root()?;
    if matches!(root.value, super::yaml::Node::Nothing) {
        return Ok(Vec::new());
    }
    let mut counters = Vec::new();
    let mut seen = Seen::default();
    for (key, item) in source.map("a configuration", &root)? {
        if key.value != "counters" {
            return Err(unknown_field(&source, key, "a configuration", &["counters"], &[]));
        }
        for item in source.list("\"counters\"", item)? {
            counters.push(declaration(&source, item, &mut seen)?);
        }
    }
    Ok(counters)
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
    let fields = Fields::new(source, "a counter", item, COUNTER_FIELDS, FUTURE_COUNTER_FIELDS)?;
    let name_item = fields.required("counterName")?;
    let name = name(source, "counterName", name_item)?;
    if let Some(line) = seen.names.insert(name.to_owned(), name_item.referenced.line()) {
        return Err(
            source.error(name_item, format!("counter {name:?} is already declared in line {line}; rename one of them"))
        );
    }
    let mode = mode(source, fields.required("mode")?)?;
    let dimensions = fields.get("dimensions").map_or(Ok(Vec::new()), |item| dimensions(source, item))?;
    let rules = fields.get("rules").map_or(Ok(Vec::new()), |item| rules(source, item, seen))?;
    if rules.is_empty() && mode == Mode::Display {
        let message = format!(
            "counter {name:?} would never count: a display counter is fed by events only; \
                               add rules such as [{{on: video.viewed, op: increment}}]"
        );
        return Err(source.error(fields.get("rules").unwrap_or(item), message));
    }
    let description = fields.get("description").map(|item| source.text("description", item)).transpose()?;
    Ok(Counter {
        name: name.into(),
        mode,
        dimensions: dimensions.into(),
        rules,
        description: description.map(Into::into),
    })
}

fn mode(source: &Source<'_>, item: &Item) -> Result<Mode, ConfigError> {
    const AVAILABLE: &str = "use \"simple\" or \"display\"";
    match source.text("mode", item)? {
        "simple" => Ok(Mode::Simple),
        "display" => Ok(Mode::Display),
        known if FUTURE_MODES.contains(&known) => {
            Err(source.error(item, format!("mode {known:?} is not available in this version; {AVAILABLE}")))
        }
        unknown => Err(source.error(item, format!("{unknown:?} is not a mode; {AVAILABLE}"))),
    }
}

fn dimensions(source: &Source<'_>, item: &Item) -> Result<Vec<Box<str>>, ConfigError> {
    let items = source.list("\"dimensions\"", item)?;
    if let Some(first_too_many) = items.get(KEY_DIMENSIONS_MAX) {
        let message = format!("a counter is counted by at most {KEY_DIMENSIONS_MAX} dimensions; this is one more");
        return Err(source.error(first_too_many, message));
    }
    let mut dimensions: Vec<Box<str>> = Vec::with_capacity(items.len());
    for item in items {
        let dimension = short_text(source, "a dimension", item)?;
        if dimensions.iter().any(|known| **known == *dimension) {
            return Err(source.error(item, format!("dimension {dimension:?} is named twice; remove one")));
        }
        dimensions.push(dimension.into());
    }
    Ok(dimensions)
}

fn rules(source: &Source<'_>, item: &Item, seen: &mut Seen) -> Result<Vec<Rule>, ConfigError> {
    let mut rules = Vec::new();
    let mut types = HashSet::new();
    for item in source.list("\"rules\"", item)? {
        let fields = Fields::new(source, "a rule", item, RULE_FIELDS, &[])?;
        let on_item = fields.required("on")?;
        let on = short_text(source, "\"on\"", on_item)?;
        if !types.insert(on) {
            let message =
                format!("this counter already has a rule on {on:?}; an event counts once per counter, so remove one");
            return Err(source.error(on_item, message));
        }
        let listeners = seen.listeners.entry_ref(on).or_default();
        *listeners += 1;
        if *listeners > ENTRIES_PER_EVENT_MAX {
            let message = format!("more than {ENTRIES_PER_EVENT_MAX} counters listen to {on:?}; split the event type");
            return Err(source.error(on_item, message));
        }
        rules.push(Rule { on: on.into(), op: direction(source, fields.required("op")?)? });
    }
    Ok(rules)
}

fn direction(source: &Source<'_>, item: &Item) -> Result<Direction, ConfigError> {
    match source.text("op", item)? {
        "increment" => Ok(Direction::Increment),
        "decrement" => Ok(Direction::Decrement),
        other => Err(source.error(item, format!("{other:?} is not an op; use \"increment\" or \"decrement\""))),
    }
}

/// The name of a counter. It stands before the first `:` of an id, and patterns use `*`.
fn name<'n>(source: &Source<'_>, field: &str, item: &'n Item) -> Result<&'n str, ConfigError> {
    let name = short_text(source, field, item)?;
    match name.chars().find(|c| matches!(c, ':' | '%' | '*') || c.is_whitespace() || c.is_control()) {
        None => Ok(name),
        Some(bad) => Err(source.error(
            item,
            format!("{name:?} cannot be the name of a counter because of {bad:?}: a name has no ':', '%', '*', white space or control characters"),
        )),
    }
}

fn short_text<'n>(source: &Source<'_>, field: &str, item: &'n Item) -> Result<&'n str, ConfigError> {
    let text = source.text(field, item)?;
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        let message = format!("{field} has {} bytes; it needs 1 to {NAME_BYTES_MAX}", text.len());
        return Err(source.error(item, message));
    }
    Ok(text)
}

/// The fields of a group, all of which are known.
struct Fields<'n> {
    source: &'n Source<'n>,
    what: &'static str,
    item: &'n Item,
    fields: &'n [(Key, Item)],
}

impl<'n> Fields<'n> {
    fn new(
        source: &'n Source<'n>,
        what: &'static str,
        item: &'n Item,
        known: &[&str],
        future: &[&str],
    ) -> Result<Fields<'n>, ConfigError> {
        let fields = source.map(what, item)?;
        match fields.iter().find(|(key, _)| !known.contains(&key.value.as_str())) {
            Some((key, _)) => Err(unknown_field(source, key, what, known, future)),
            None => Ok(Fields { source, what, item, fields }),
        }
    }

    fn get(&self, name: &str) -> Option<&'n Item> {
        self.fields.iter().find(|(key, _)| key.value == name).map(|(_, item)| item)
    }

    fn required(&self, name: &str) -> Result<&'n Item, ConfigError> {
        self.get(name).ok_or_else(|| self.source.error(self.item, format!("{} needs the field {name:?}", self.what)))
    }
}

fn unknown_field(source: &Source<'_>, key: &Key, what: &str, known: &[&str], future: &[&str]) -> ConfigError {
    let name = key.value.as_str();
    if future.contains(&name) {
        return source.error(key, format!("field {name:?} is not available in this version; remove it"));
    }
    if name == "delta" {
        return source.error(key, "\"delta\" is a field of the event, not of the counter; remove it here");
    }
    let nearest = known.iter().chain(future).min_by_key(|field| distance(name, field));
    let hint = match nearest {
        Some(field) if distance(name, field) <= field.len().div_ceil(3) => format!("did you mean {field:?}?"),
        _ => format!("there are: {}", known.join(", ")),
    };
    source.error(key, format!("{name:?} is not a field of {what}; {hint}"))
}

/// How many letters must be inserted, removed or replaced, whatever their case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.to_lowercase().chars().take(NAME_BYTES_MAX).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
