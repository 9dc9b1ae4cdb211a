//! YAML as a tree in which everything knows where it stands, and the errors that say so.

use super::error::{ConfigError, ConfigErrors};
use super::syntax;
use crate::event::excerpt;
use crate::limits::CONFIG_BYTES_MAX;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};
use std::cell::RefCell;
use std::fmt;

/// A value of the configuration and its place.
pub(crate) type Item = Spanned<YamlNode>;
/// The name of a field and its place.
pub(crate) type YamlKey = Spanned<String>;

#[derive(Debug)]
pub(crate) enum YamlNode {
    Text(String),
    List(Vec<Item>),
    Map(Vec<(YamlKey, Item)>),
    Nothing,
    Flag(bool),
    /// As it would be written in decimal.
    Number(String),
}

/// The text of a configuration together with the means to complain about it.
pub(crate) struct YamlText<'a> {
    pub yaml: &'a str,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'a> YamlText<'a> {
    pub fn new(yaml: &'a str) -> YamlText<'a> {
        YamlText { yaml, errors: RefCell::default() }
    }

    /// An error at a place, and what to do about it.
    pub fn error<T>(&self, at: &Spanned<T>, message: impl Into<String>, fix: impl Into<String>) -> ConfigError {
        ConfigError::new(self.yaml, (at.referenced.line(), at.referenced.column()), message.into(), fix.into())
    }

    /// Keeps an error for the end.
    pub fn report(&self, error: ConfigError) {
        self.errors.borrow_mut().push(error);
    }

    /// Keeps an error, if it is one, for the end, so that what stands beside it is looked at, too.
    pub fn keep<T>(&self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|error| self.report(error)).ok()
    }

    /// How many errors were kept so far.
    pub fn kept(&self) -> usize {
        self.errors.borrow().len()
    }

    /// All that was kept, in the order of the file.
    pub fn finish(self) -> Result<(), ConfigErrors> {
        ConfigErrors::of(self.errors.into_inner())
    }

    /// The whole document as a tree.
    pub fn root(&self) -> Result<Item, ConfigError> {
        if self.yaml.len() > CONFIG_BYTES_MAX {
            let message = format!("the configuration has {} bytes; {CONFIG_BYTES_MAX} is the most", self.yaml.len());
            return Err(ConfigError::new(
                self.yaml,
                (0, 0),
                message,
                "name the configuration, not a file of data".into(),
            ));
        }
        // `on` and `no` are words here, not booleans.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options(self.yaml, options).map_err(|error| {
            let at = error.location().unwrap_or(Location::UNKNOWN);
            syntax::explain(self.yaml, (at.line(), at.column()), &error)
        })
    }

    pub fn text<'n>(&self, field: &str, item: &'n Item) -> Result<&'n str, ConfigError> {
        let YamlNode::Text(text) = &item.value else {
            let (kind, written) = (item.value.kind(), self.written(item));
            let fix = match item.value {
                YamlNode::Flag(_) | YamlNode::Number(_) => format!("put it in double quotes: \"{written}\""),
                YamlNode::Nothing => "write a value behind the ':'".to_owned(),
                _ => "write one word, or text in double quotes".to_owned(),
            };
            return Err(self.error(item, format!("{field} must be text, not {kind}"), fix));
        };
        Ok(text)
    }

    /// The items of a list; a field without a value is an empty one. `example` is how an item may look.
    pub fn list<'n>(&self, field: &str, item: &'n Item, example: &str) -> Result<&'n [Item], ConfigError> {
        let example = match &item.value {
            YamlNode::List(items) => return Ok(items),
            YamlNode::Nothing => return Ok(&[]),
            YamlNode::Text(text) if !text.is_empty() && !text.contains(['\n', ',']) => text,
            _ => example,
        };
        let what = format!("{field:?} must be a list, not {}", item.value.kind());
        let fix = match item.value {
            YamlNode::Map(_) => format!("put a dash before each, as in \"- {example}\""),
            _ => format!("write {field}: [{example}]"),
        };
        Err(self.error(item, what, fix))
    }

    pub fn map<'n>(&self, what: &str, item: &'n Item, example: &str) -> Result<&'n [(YamlKey, Item)], ConfigError> {
        match &item.value {
            YamlNode::Map(fields) => Ok(fields),
            other => {
                let message = format!("{what} must have named fields, not be {}", other.kind());
                Err(self.error(item, message, format!("write it as in {example}")))
            }
        }
    }

    /// A scalar as it stands in the text.
    pub fn written(&self, item: &Item) -> String {
        let (YamlNode::Flag(_) | YamlNode::Number(_)) = item.value else { return item.value.shown() };
        let line = usize::try_from(item.referenced.line()).unwrap_or(0).checked_sub(1);
        let line = line.and_then(|above| self.yaml.lines().nth(above)).unwrap_or_default();
        let rest = line.chars().skip(usize::try_from(item.referenced.column()).unwrap_or(0).saturating_sub(1));
        let written: String = rest.take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ']' | '}' | '#')).collect();
        if written.is_empty() { item.value.shown() } else { excerpt(&written) }
    }
}

impl YamlNode {
    /// A scalar as it was written, or what it is.
    pub fn shown(&self) -> String {
        match self {
            YamlNode::Text(text) => format!("{:?}", excerpt(text)),
            YamlNode::Flag(flag) => flag.to_string(),
            YamlNode::Number(number) => number.clone(),
            other => other.kind().to_owned(),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            YamlNode::Text(_) => "text",
            YamlNode::List(_) => "a list",
            YamlNode::Map(_) => "a group of fields",
            YamlNode::Nothing => "empty",
            YamlNode::Flag(_) => "true or false",
            YamlNode::Number(_) => "a number",
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<YamlNode, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Nothing)
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        YamlNode::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(number.to_string()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(number.to_string()))
    }

    fn visit_u128<E>(self, number: u128) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Number(number.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlNode::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<YamlNode, A::Error> {
        let mut map = Vec::new();
        while let Some(field) = fields.next_entry()? {
            map.push(field);
        }
        Ok(YamlNode::Map(map))
    }
}
