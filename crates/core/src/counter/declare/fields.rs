//! The fields of a group as its table describes them: each known, of the right kind and within its bounds.

use crate::counter::ConfigError;
use crate::counter::duration;
use crate::counter::rollup::FOREVER;
use crate::counter::schema::{SettingGroup, Value, Word};
use crate::counter::yaml::{Item, YamlKey, YamlNode, YamlText};
use crate::limits::{NAME_BYTES_MAX, RETENTION_MS_MAX};
use crate::nearest::nearest;
use std::ops::RangeInclusive;

pub(crate) struct Fields<'n> {
    pub source: &'n YamlText<'n>,
    pub item: &'n Item,
    group: &'static SettingGroup,
    fields: &'n [(YamlKey, Item)],
}

/// Names, each with its place.
type PlacedNames<'n> = Vec<(&'n Item, &'n str)>;

impl<'n> Fields<'n> {
    /// The fields of `item`. Those that the group does not have are errors that are kept.
    pub fn of(
        source: &'n YamlText<'n>,
        group: &'static SettingGroup,
        item: &'n Item,
    ) -> Result<Fields<'n>, ConfigError> {
        let fields = source.map(group.what, item, group.example)?;
        let fields = Fields { source, item, group, fields };
        let unknown = fields.unknown().filter(|key| !fields.is_a_missing_one(key));
        unknown.for_each(|key| source.report(unknown_field(source, key, group)));
        Ok(fields)
    }

    /// Fields that the group does not have.
    fn unknown(&self) -> impl Iterator<Item = &'n YamlKey> {
        self.fields.iter().map(|(key, _)| key).filter(|key| self.group.setting(&key.value).is_none())
    }

    /// Whether a field seems to be a misspelt one that is needed and not there; whoever asks for that one is told.
    fn is_a_missing_one(&self, key: &YamlKey) -> bool {
        let missing = self.group.settings().filter(|setting| setting.required && self.get(setting.name).is_none());
        nearest(&key.value, missing.map(|setting| setting.name)).is_some()
    }

    /// A group inside this one.
    pub fn group(&self, name: &str) -> Result<Option<Fields<'n>>, ConfigError> {
        let (Value::Group(group) | Value::WordOrGroup(_, group)) = self.value(name) else { mismatch(name) };
        self.get(name).map(|item| Fields::of(self.source, group, item)).transpose()
    }

    /// What a field says that takes a word or a group: nothing if it is not there, and no group for the word.
    pub fn word_or_group(&self, name: &str) -> Result<Option<Option<Fields<'n>>>, ConfigError> {
        let Value::WordOrGroup(word, group) = self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(None) };
        match &item.value {
            YamlNode::Text(text) if text == word.name => Ok(Some(None)),
            YamlNode::Map(_) => Ok(Some(self.group(name)?)),
            other => {
                let (given, example) = (self.source.written(item), group.example);
                let example = example.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(example);
                let message = format!("{name} must be {} or {example}, not {given}", word.name);
                let is_off = matches!(other, YamlNode::Flag(false) | YamlNode::Nothing)
                    || matches!(other, YamlNode::Text(text) if text == "off" || nearest(text, [word.name]).is_some());
                let fix = if is_off { format!("write {name}: {}", word.name) } else { "write one of them".to_owned() };
                Err(self.source.error(item, message, fix))
            }
        }
    }

    /// A list of groups inside this one.
    pub fn groups(&self, name: &str) -> Result<Vec<Fields<'n>>, ConfigError> {
        let Value::Groups(group) = self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(Vec::new()) };
        let items = self.source.list(name, item, group.example)?;
        Ok(items.iter().filter_map(|item| self.source.keep(Fields::of(self.source, group, item))).collect())
    }

    pub fn get(&self, name: &str) -> Option<&'n Item> {
        self.find(name).map(|(_, item)| item)
    }

    /// The name of a field where it stands.
    pub fn key(&self, name: &str) -> Option<&'n YamlKey> {
        self.find(name).map(|(key, _)| key)
    }

    pub fn required(&self, name: &str) -> Result<&'n Item, ConfigError> {
        let missing = || match self.unknown().find(|key| nearest(&key.value, [name]).is_some()) {
            Some(misspelt) => unknown_field(self.source, misspelt, self.group),
            None => {
                let message = format!("{} needs the field {name:?}", self.group.what);
                self.source.error(self.item, message, format!("write it as in {}", self.group.example))
            }
        };
        self.get(name).ok_or_else(missing)
    }

    pub fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        match self.get(name).map(|item| (item, &item.value)) {
            None => Ok(false),
            Some((_, YamlNode::Flag(flag))) => Ok(*flag),
            Some((item, other)) => {
                let fix = match other {
                    YamlNode::Text(word) if is_one_of(word, &["yes", "on", "true", "y"]) => {
                        format!("write {name}: true")
                    }
                    YamlNode::Text(word) if is_one_of(word, &["no", "off", "false", "n"]) => {
                        format!("write {name}: false")
                    }
                    _ => "write true or false, without quotes".to_owned(),
                };
                let message = format!("{name} must be true or false, not {}", self.source.written(item));
                Err(self.source.error(item, message, fix))
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
        let message = if future.contains(&text) {
            format!("{name} {text:?} is not available in this version")
        } else {
            let article = if name.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            format!("{text:?} is not {article} {name}")
        };
        let meant = nearest(text.trim(), words.iter().map(|word| word.name));
        let fix = match meant.filter(|_| !future.contains(&text)) {
            Some(word) => format!("did you mean {word:?}?"),
            None => format!("use {}", listed(words)),
        };
        Err(self.source.error(item, message, fix))
    }

    pub fn number(&self, name: &str) -> Result<u64, ConfigError> {
        let Value::Number { least, most, default } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(default) };
        let number = match &item.value {
            YamlNode::Number(number) => number.parse().ok().filter(|number| (least..=most).contains(number)),
            _ => None,
        };
        number.ok_or_else(|| {
            let given = self.source.written(item);
            let message = format!("{name} must be a whole number from {least} to {most}, not {given}");
            self.source.error(item, message, format!("write {name}: {default}, for example, without quotes"))
        })
    }

    /// In milliseconds.
    pub fn duration(&self, name: &str) -> Result<u64, ConfigError> {
        let Value::Duration { least_ms, most_ms, default_ms } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(default_ms) };
        let error = |message, fix| Err(self.source.error(item, message, fix));
        let Some((text, ms)) = (match &item.value {
            YamlNode::Text(text) => duration::parse(text).map(|ms| (text, ms)),
            _ => None,
        }) else {
            let (given, remedy) = (self.source.written(item), remedy(&item.value));
            return error(format!("{name} must be a duration, not {given}"), format!("write {remedy}"));
        };
        if !(least_ms..=most_ms).contains(&ms) {
            let (least, most) = (duration::shown(least_ms), duration::shown(most_ms));
            let nearest = if ms < least_ms { &least } else { &most };
            let message = format!("{name} is {text}; it must be from {least} to {most}");
            return error(message, format!("write {name}: {nearest}, for example"));
        }
        Ok(ms)
    }

    /// In milliseconds, or `None` for ever; nothing if the field is not there.
    pub fn keep(&self, name: &str) -> Result<Option<Option<u64>>, ConfigError> {
        let Value::Keep { least_ms } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(None) };
        let text = match &item.value {
            YamlNode::Text(text) if text == FOREVER => return Ok(Some(None)),
            YamlNode::Text(text) => duration::parse_long(text).map(|ms| (text, ms)),
            _ => None,
        };
        let Some((text, ms)) = text else {
            let message = format!("{name} must be a duration or forever, not {}", self.source.written(item));
            return Err(self.source.error(item, message, format!("write {}", duration::LONG_SHAPE)));
        };
        if !(least_ms..=RETENTION_MS_MAX).contains(&ms) {
            let (least, most) = (duration::shown(least_ms), duration::shown_long(RETENTION_MS_MAX));
            let message = format!("{name} is {text}; it must be from {least} to {most}");
            return Err(self.source.error(item, message, "write a duration between them, or forever"));
        }
        Ok(Some(Some(ms)))
    }

    /// A list of names with their places, none twice.
    pub fn names(&self, name: &str) -> Result<PlacedNames<'n>, ConfigError> {
        let Value::Names { least, most } = *self.value(name) else { mismatch(name) };
        let Some(list) = self.get(name) else { return Ok(Vec::new()) };
        let example = if name == "by" { "session, seq" } else { "video" };
        let items = self.source.list(name, list, example)?;
        self.unique_names(name, list, items, least..=most)
    }

    fn unique_names(
        &self,
        name: &str,
        list: &'n Item,
        items: &'n [Item],
        allowed: RangeInclusive<usize>,
    ) -> Result<PlacedNames<'n>, ConfigError> {
        if items.len() < *allowed.start() {
            return Err(self.source.error(list, format!("{name:?} is empty"), "name a field or remove it"));
        }
        if let Some(one_more) = items.get(*allowed.end()) {
            let message = format!("{name:?} has at most {} names; this is one more", allowed.end());
            return Err(self.source.error(one_more, message, "remove some"));
        }
        let mut names: Vec<(&Item, &str)> = Vec::with_capacity(items.len());
        for item in items {
            let text = short_text(self.source, &format!("a name in {name:?}"), item)?;
            if names.iter().any(|(_, known)| *known == text) {
                let message = format!("{text:?} is named twice in {name:?}");
                return Err(self.source.error(item, message, "remove one"));
            }
            names.push((item, text));
        }
        Ok(names)
    }

    /// Lists of names.
    pub fn name_lists(&self, name: &str) -> Result<Vec<(&'n Item, PlacedNames<'n>)>, ConfigError> {
        let Value::NameLists { most, names_most } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(Vec::new()) };
        let items = self.source.list(name, item, "[[country], [country, hour]]")?;
        if let Some(one_more) = items.get(most) {
            let message = format!("more than {most} lists in {name:?}");
            return Err(self.source.error(one_more, message, "remove some"));
        }
        let names = |list: &'n Item| {
            let names = self.source.list(name, list, "[country, hour]").map_err(|_| {
                let written = self.source.written(list);
                let message = format!("{name:?} has lists of names, and {written} is none");
                self.source.error(list, message, format!("write [{written}]"))
            })?;
            Ok((list, self.unique_names(name, list, names, 1..=names_most)?))
        };
        items.iter().map(names).collect()
    }

    /// A number for each of some names.
    pub fn numbers(&self, name: &str) -> Result<Vec<(&'n YamlKey, u64)>, ConfigError> {
        let Value::Numbers { least, most } = *self.value(name) else { mismatch(name) };
        let Some(item) = self.get(name) else { return Ok(Vec::new()) };
        let fields = self.source.map(name, item, "{referrer: 1000}")?;
        let number = |(key, item): &'n (YamlKey, Item)| {
            let number = match &item.value {
                YamlNode::Number(number) => number.parse().ok().filter(|number| (least..=most).contains(number)),
                _ => None,
            };
            let wrong = || {
                let (field, given) = (&key.value, self.source.written(item));
                let message = format!("{field} in {name:?} must be a whole number from {least} to {most}, not {given}");
                self.source.error(item, message, format!("write {field}: 1000, for example, without quotes"))
            };
            Ok((key, number.ok_or_else(wrong)?))
        };
        fields.iter().map(number).collect()
    }

    fn find(&self, name: &str) -> Option<&'n (YamlKey, Item)> {
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
pub(super) fn short_text<'n>(source: &YamlText<'_>, field: &str, item: &'n Item) -> Result<&'n str, ConfigError> {
    let text = source.text(field, item)?;
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        let message = format!("{field} has {} bytes; it needs 1 to {NAME_BYTES_MAX}", text.len());
        let fix = if text.is_empty() { "write a name between the quotes" } else { "write a shorter name" };
        return Err(source.error(item, message, fix));
    }
    Ok(text)
}

/// How to write what was meant as a duration.
fn remedy(value: &YamlNode) -> String {
    match value {
        YamlNode::Number(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("{number}s"),
        YamlNode::Text(text) if duration::meant(text).is_some() => duration::meant(text).unwrap_or_default(),
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

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|other| other.eq_ignore_ascii_case(word))
}

fn unknown_field(source: &YamlText<'_>, key: &YamlKey, group: &SettingGroup) -> ConfigError {
    let name = key.value.as_str();
    if group.future.contains(&name) {
        return source.error(key, format!("field {name:?} is not available in this version"), "remove it");
    }
    if name == "delta" {
        return source.error(key, "\"delta\" is a field of the event, not of the counter", "remove it here");
    }
    let known: Vec<&str> = group.settings().map(|setting| setting.name).collect();
    let fix = match nearest(name, known.iter().chain(group.future).copied()) {
        Some(field) => format!("did you mean {field:?}?"),
        None => format!("there are: {}", known.join(", ")),
    };
    source.error(key, format!("{name:?} is not a field of {}", group.what), fix)
}
