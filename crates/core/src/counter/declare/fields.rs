//! The fields of a group as its table describes them: each known, of the right kind and within its bounds.

use crate::counter::duration;
use crate::counter::schema::{Group, Value, Word};
use crate::counter::yaml::{ConfigError, Item, Key, Node, Source};
use crate::limits::NAME_BYTES_MAX;
use crate::nearest::nearest;

pub(super) struct Fields<'n> {
    pub source: &'n Source<'n>,
    pub item: &'n Item,
    group: &'static Group,
    fields: &'n [(Key, Item)],
}

impl<'n> Fields<'n> {
    /// The fields of `item`, all of which the group has.
    pub fn of(source: &'n Source<'n>, group: &'static Group, item: &'n Item) -> Result<Fields<'n>, ConfigError> {
        let fields = source.map(group.what, item)?;
        match fields.iter().find(|(key, _)| group.setting(&key.value).is_none()) {
            Some((key, _)) => Err(unknown_field(source, key, group)),
            None => Ok(Fields { source, item, group, fields }),
        }
    }

    /// A group inside this one.
    pub fn group(&self, name: &str) -> Result<Option<Fields<'n>>, ConfigError> {
        let (Value::Group(group) | Value::WordOrGroup(_, group)) = self.value(name) else { mismatch(name) };
        self.get(name).map(|item| Fields::of(self.source, group, item)).transpose()
    }

    /// A list of groups inside this one.
    pub fn groups(&self, name: &str) -> Result<Vec<Fields<'n>>, ConfigError> {
        let Value::Groups(group) = self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(Vec::new()) };
        let items = self.source.list(&format!("{name:?}"), item)?;
        items.iter().map(|item| Fields::of(self.source, group, item)).collect()
    }

    pub fn get(&self, name: &str) -> Option<&'n Item> {
        self.find(name).map(|(_, item)| item)
    }

    /// The name of a field where it stands.
    pub fn key(&self, name: &str) -> Option<&'n Key> {
        self.find(name).map(|(key, _)| key)
    }

    pub fn required(&self, name: &str) -> Result<&'n Item, ConfigError> {
        self.get(name)
            .ok_or_else(|| self.source.error(self.item, format!("{} needs the field {name:?}", self.group.what)))
    }

    pub fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        match self.get(name).map(|item| (item, &item.value)) {
            None => Ok(false),
            Some((_, Node::Flag(flag))) => Ok(*flag),
            Some((item, other)) => {
                Err(self.source.error(item, format!("{name} must be true or false, not {}", other.shown())))
            }
        }
    }

    /// One of the words that the field takes.
    pub fn word(&self, name: &str) -> Result<Option<&'n str>, ConfigError> {
        let Value::Word { words, future } = self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(None) };
        let text = self.source.text(name, item)?;
        if words.iter().any(|word| word.name == text) {
            return Ok(Some(text));
        }
        let remedy = format!("use {}", listed(words));
        Err(self.source.error(
            item,
            if future.contains(&text) {
                format!("{name} {text:?} is not available in this version; {remedy}")
            } else {
                let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
                format!("{text:?} is not {article} {name}; {remedy}")
            },
        ))
    }

    pub fn number(&self, name: &str) -> Result<u64, ConfigError> {
        let Value::Number { least, most, default } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(default) };
        let number = match &item.value {
            Node::Number(number) => number.parse().ok().filter(|number| (least..=most).contains(number)),
            _ => None,
        };
        number.ok_or_else(|| {
            let given = item.value.shown();
            self.source.error(item, format!("{name} must be a whole number from {least} to {most}, not {given}"))
        })
    }

    /// In milliseconds.
    pub fn duration(&self, name: &str) -> Result<u64, ConfigError> {
        let Value::Duration { least_ms, most_ms, default_ms } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(default_ms) };
        let error = |message| Err(self.source.error(item, message));
        let Some((text, ms)) = (match &item.value {
            Node::Text(text) => duration::parse(text).map(|ms| (text, ms)),
            _ => None,
        }) else {
            let (given, remedy) = (item.value.shown(), remedy(&item.value));
            return error(format!("{name} must be a duration, not {given}; write {remedy}"));
        };
        if !(least_ms..=most_ms).contains(&ms) {
            let (least, most) = (duration::shown(least_ms), duration::shown(most_ms));
            return error(format!("{name} is {text}; it must be from {least} to {most}"));
        }
        Ok(ms)
    }

    /// A list of names with their places, none twice.
    pub fn names(&self, name: &str) -> Result<Vec<(&'n Item, &'n str)>, ConfigError> {
        let Value::Names { least, most } = *self.value(name) else { mismatch(name) };
        let Some(list) = self.get(name) else { return Ok(Vec::new()) };
        let items = self.source.list(&format!("{name:?}"), list)?;
        if items.len() < least {
            return Err(self.source.error(list, format!("{name:?} is empty; name a field or remove it")));
        }
        if let Some(one_more) = items.get(most) {
            return Err(self.source.error(one_more, format!("{name:?} has at most {most} names; this is one more")));
        }
        let mut names: Vec<(&Item, &str)> = Vec::with_capacity(items.len());
        for item in items {
            let text = short_text(self.source, &format!("a name in {name:?}"), item)?;
            if names.iter().any(|(_, known)| *known == text) {
                return Err(self.source.error(item, format!("{text:?} is named twice in {name:?}; remove one")));
            }
            names.push((item, text));
        }
        Ok(names)
    }

    fn find(&self, name: &str) -> Option<&'n (Key, Item)> {
        debug_assert!(self.group.setting(name).is_some(), "{name} is not in the table");
        self.fields.iter().find(|(key, _)| key.value == name)
    }

    fn value(&self, name: &str) -> &'static Value {
        &self.group.setting(name).expect("the parser asks for fields of its table only").value
    }
}

/// The table and the parser are one program: they differ in a test, not at a user.
#[cold]
fn mismatch(name: &str) -> ! {
    panic!("the table of fields says something else about {name:?} than its parser")
}

/// Text short enough for a name.
pub(super) fn short_text<'n>(source: &Source<'_>, field: &str, item: &'n Item) -> Result<&'n str, ConfigError> {
    let text = source.text(field, item)?;
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        let message = format!("{field} has {} bytes; it needs 1 to {NAME_BYTES_MAX}", text.len());
        return Err(source.error(item, message));
    }
    Ok(text)
}

/// How to write what was meant as a duration.
fn remedy(value: &Node) -> String {
    match value {
        Node::Number(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{number}s"),
        _ => duration::SHAPE.to_owned(),
    }
}

/// `"a", "b" or "c"`.
fn listed(words: &[Word]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{:?}", word.name)).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

fn unknown_field(source: &Source<'_>, key: &Key, group: &Group) -> ConfigError {
    let name = key.value.as_str();
    if group.future.contains(&name) {
        return source.error(key, format!("field {name:?} is not available in this version; remove it"));
    }
    if name == "delta" {
        return source.error(key, "\"delta\" is a field of the event, not of the counter; remove it here");
    }
    let known: Vec<&str> = group.fields.iter().map(|setting| setting.name).collect();
    let hint = match nearest(name, known.iter().chain(group.future).copied()) {
        Some(field) => format!("did you mean {field:?}?"),
        None => format!("there are: {}", known.join(", ")),
    };
    source.error(key, format!("{name:?} is not a field of {}; {hint}", group.what))
}
