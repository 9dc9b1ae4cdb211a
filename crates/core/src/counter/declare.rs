//! From the YAML tree to counters, refusing by name and place whatever cannot be meant or cannot be kept.
//!
//! An error does not end the reading: it is kept ([`YamlText::keep`]) and what stands beside it is looked at, so that one run
//! tells everything. Only what depends on the broken part is left out.

mod fields;
mod rollups;
mod settings;

use super::probes::PROBE;
use super::schema::{CONFIGURATION, COUNTER};
use super::yaml::{Item, YamlNode, YamlText};
use super::{
    Anomalies, Archived, BackupSchedule, Clocks, ConfigError, ConfigErrors, Counter, Direction, Idempotency, Measure,
    Mode, Probes, Rule,
};
use crate::limits::{COUNTERS_MAX, ENTRIES_PER_EVENT_MAX};
use fields::short_text;
use hashbrown::{HashMap, HashSet};

pub(crate) use fields::Fields;

/// All declared counters and the settings of the node.
#[derive(Default)]
pub(super) struct Configuration {
    pub counters: Vec<Counter>,
    pub idempotency: Idempotency,
    pub clocks: Clocks,
    pub archived: Archived,
    pub backups: Option<BackupSchedule>,
    pub probes: Option<Probes>,
    pub anomalies: Anomalies,
}

pub(super) fn configuration(yaml: &str) -> Result<Configuration, ConfigErrors> {
    let source = YamlText::new(yaml);
    let root = source.root()?;
    if matches!(root.value, YamlNode::Nothing) {
        return Ok(Configuration::default());
    }
    let read = source.keep(Fields::of(&source, &CONFIGURATION, &root)).and_then(|fields| {
        let (idempotency, clocks) = (settings::keys(&fields), settings::clocks(&fields));
        let (archived, backups) = (settings::archived(&fields), settings::backups(&fields));
        let (probes, anomalies) = (settings::probes(&fields), settings::anomalies(&fields));
        let items = source.keep(declared(&source, &fields)).unwrap_or_default();
        if let Some(one_more) = items.get(COUNTERS_MAX) {
            let message = format!("more than {COUNTERS_MAX} counters in one configuration");
            source.report(source.error(one_more, message, "remove some, or count by dimensions"));
        }
        let mut seen = SeenNames::default();
        let items = items.iter().take(COUNTERS_MAX);
        let counters = items.filter_map(|item| declaration(&source, item, &mut seen)).collect();
        let (idempotency, clocks, archived) = (idempotency?, clocks?, archived?);
        let (backups, probes, anomalies) = (backups?, probes?, anomalies?);
        Some(Configuration { counters, idempotency, clocks, archived, backups, probes, anomalies })
    });
    source.finish()?;
    Ok(read.expect("whatever is missing is an error that was kept"))
}

/// An error at a place of the counter of this index, in a text that was parsed before; at the counter itself if it does not
/// have the place.
pub(super) fn error_at(yaml: &str, index: usize, place: FieldPlace<'_>, message: String, fix: String) -> ConfigError {
    let source = YamlText::new(yaml);
    let found = source.root().and_then(|root| {
        let item = declared(&source, &Fields::of(&source, &CONFIGURATION, &root)?)?.get(index).unwrap_or(&root);
        let fields = Fields::of(&source, &COUNTER, item)?;
        let at = match place {
            FieldPlace::Field(field) => fields.get(field),
            FieldPlace::Op(rule) => fields.groups("rules")?.get(rule).and_then(|rule| rule.get("op")),
        };
        Ok(source.error(at.unwrap_or(item), message, fix))
    });
    found.unwrap_or_else(|error| error)
}

/// Where in a counter something stands.
#[derive(Clone, Copy)]
pub(super) enum FieldPlace<'a> {
    Field(&'a str),
    /// The op of the rule of this index.
    Op(usize),
}

fn declared<'n>(source: &YamlText<'_>, fields: &Fields<'n>) -> Result<&'n [Item], ConfigError> {
    fields.get("counters").map_or(Ok(&[]), |item| source.list("counters", item, COUNTER.example))
}

/// What must not repeat, or not repeat too often, across counters.
#[derive(Default)]
struct SeenNames {
    /// And the line of each.
    names: HashMap<String, u64>,
    listeners: HashMap<String, usize>,
}

fn declaration(source: &YamlText<'_>, item: &Item, seen: &mut SeenNames) -> Option<Counter> {
    let fields = source.keep(Fields::of(source, &COUNTER, item))?;
    let name = source.keep(fields.required("counterName").and_then(|item| name(source, item, seen)));
    let mode = source.keep(mode(&fields));
    let measure = source.keep(measure(&fields));
    let rules = rules(&fields, seen);
    let dimensions = source.keep(fields.names("dimensions"));
    let description = fields.get("description").map(|item| source.text("description", item)).transpose();
    let description = source.keep(description);
    let floor_at_zero = source.keep(fields.flag("floorAtZero"));
    let Some(mode) = mode else {
        // What is in the other groups may well be right for the mode that was meant.
        return None;
    };
    settings::check_mode(&fields, mode);
    if let (Some(name), Some(rules)) = (name, &rules)
        && rules.is_empty()
    {
        source.keep(check_fed(&fields, name, mode));
    }
    let contract = mode.parse(&fields);
    // A field that the mode has no use for is wrong whatever it says.
    let lateness = if mode.takes_lateness() { settings::lateness(&fields, rules.as_deref()) } else { Some(None) };
    let durability = source.keep(settings::durability(&fields, mode));
    let is_archived = source.keep(fields.word("archive")).map(|word| word.is_none());
    let rollups = rollups::rollups(&fields, dimensions.as_deref().unwrap_or_default());
    Some(Counter {
        name: name?.into(),
        contract: contract?,
        measure: measure?,
        dimensions: dimensions?.into_iter().map(|(_, name)| name.into()).collect(),
        description: description?.map(Into::into),
        floor_at_zero: floor_at_zero?,
        lateness: lateness?,
        durability: durability?,
        is_archived: is_archived?,
        rollups: rollups?,
        rules: rules?,
    })
}

/// A counter that only events feed needs some.
fn check_fed(fields: &Fields<'_>, name: &str, mode: Mode) -> Result<(), ConfigError> {
    if mode.takes_direct_writes() {
        return Ok(());
    }
    let mode = mode.name();
    let message = format!("counter {name:?} would never count: a {mode} counter is fed by events only");
    let fix = "add rules such as [{on: video.viewed, op: increment}]";
    Err(fields.source.error(fields.get("rules").unwrap_or(fields.item), message, fix))
}

/// The name of a counter. It stands before the first `:` of an id, and patterns use `*`.
fn name<'n>(source: &YamlText<'_>, item: &'n Item, seen: &mut SeenNames) -> Result<&'n str, ConfigError> {
    let name = short_text(source, "counterName", item)?;
    let is_bad = |c: &char| matches!(c, ':' | '%' | '*') || c.is_whitespace() || c.is_control();
    if let Some(bad) = name.chars().find(is_bad) {
        let message = format!(
            "{name:?} cannot be the name of a counter because of {bad:?}: \
             a name has no ':', '%', '*', white space or control characters"
        );
        let cleaned: String = name.chars().map(|c| if is_bad(&c) { '_' } else { c }).collect();
        return Err(source.error(item, message, format!("call it {cleaned}, for example")));
    }
    if name == PROBE {
        let message = format!("{PROBE:?} cannot be the name of a counter: it is what the server counts its probes by");
        return Err(source.error(item, message, "choose another name"));
    }
    match seen.names.insert(name.to_owned(), item.referenced.line()) {
        None => Ok(name),
        Some(line) => {
            let message = format!("counter {name:?} is already declared in line {line}");
            Err(source.error(item, message, "rename one of them"))
        }
    }
}

fn mode(fields: &Fields<'_>) -> Result<Mode, ConfigError> {
    fields.required("mode")?;
    let word = fields.word("mode")?;
    Ok(Mode::ALL.into_iter().find(|mode| Some(mode.name()) == word).expect("the table has the modes there are"))
}

fn measure(fields: &Fields<'_>) -> Result<Measure, ConfigError> {
    let Some(word) = fields.word("measure")? else { return Ok(Measure::default()) };
    Ok(Measure::ALL.into_iter().find(|measure| measure.name() == word).expect("the table has the measures there are"))
}

/// `None` if one of them is wrong.
fn rules(counter: &Fields<'_>, seen: &mut SeenNames) -> Option<Vec<Rule>> {
    let source = counter.source;
    let before = source.kept();
    let mut types = HashSet::new();
    let groups = source.keep(counter.groups("rules"))?;
    let rules = groups.iter().filter_map(|fields| {
        let on = source.keep(on(fields, &mut types, seen));
        let op = source.keep(direction(fields));
        Some(Rule { on: on?.into(), op: op? })
    });
    let rules = rules.collect();
    (source.kept() == before).then_some(rules)
}

fn on<'n>(rule: &Fields<'n>, types: &mut HashSet<&'n str>, seen: &mut SeenNames) -> Result<&'n str, ConfigError> {
    let (source, item) = (rule.source, rule.required("on")?);
    let on = short_text(source, "\"on\"", item)?;
    if on == PROBE {
        let message =
            format!("no counter can listen to {PROBE:?}: events of this type are sent by the server alone, as probes");
        return Err(source.error(
            item,
            message,
            "choose another type, or declare probes: {every: 10s} to have them sent",
        ));
    }
    if !types.insert(on) {
        let message = format!("this counter already has a rule on {on:?}; an event counts once per counter");
        return Err(source.error(item, message, "remove one of the two"));
    }
    let listeners = seen.listeners.entry_ref(on).or_default();
    *listeners += 1;
    if *listeners > ENTRIES_PER_EVENT_MAX {
        let message = format!("more than {ENTRIES_PER_EVENT_MAX} counters listen to {on:?}");
        return Err(source.error(item, message, "split the event type"));
    }
    Ok(on)
}

/// What people write who mean one of the two words.
const INCREMENTS: [&str; 8] = ["+", "+1", "1", "inc", "incr", "add", "plus", "up"];
const DECREMENTS: [&str; 8] = ["-", "-1", "dec", "decr", "sub", "subtract", "minus", "down"];

fn direction(rule: &Fields<'_>) -> Result<Direction, ConfigError> {
    let item = rule.required("op")?;
    let written = match &item.value {
        YamlNode::Text(text) => text.clone(),
        _ => rule.source.written(item),
    };
    let meant = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(&written));
    for (words, op) in [(INCREMENTS, "increment"), (DECREMENTS, "decrement")] {
        if meant(&words) {
            let message = format!("{written:?} is not an op: by how much an event counts is its own \"delta\"");
            return Err(rule.source.error(item, message, format!("write op: {op}")));
        }
    }
    Ok(if rule.word("op")? == Some("decrement") { Direction::Decrement } else { Direction::Increment })
}
