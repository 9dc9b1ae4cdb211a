//! YAML as a tree in which everything knows where it stands, and the errors that say so.

use crate::event::excerpt;
use crate::limits::CONFIG_BYTES_MAX;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};
use std::fmt;

/// What is wrong with a configuration, where, and how to mend it. The name of the file is the caller's to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// From 1; 0 if the trouble has no place.
    pub line: u64,
    /// From 1, in characters.
    pub column: u64,
    pub message: String,
    /// The line as it was written.
    pub text: String,
}

/// Longest excerpt of a line in an error, in characters.
const LINE_CHARS_MAX: usize = 160;

impl ConfigError {
    fn new(yaml: &str, at: Location, message: String) -> ConfigError {
        let line = usize::try_from(at.line()).unwrap_or(0).checked_sub(1).and_then(|above| yaml.lines().nth(above));
        let text = line.unwrap_or_default().chars().take(LINE_CHARS_MAX).collect();
        ConfigError { line: at.line(), column: at.column(), message, text }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.message);
        }
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        let number = self.line.to_string();
        let indent = (self.column as usize).saturating_sub(1);
        if indent < LINE_CHARS_MAX {
            write!(f, "\n  {number} | {}\n  {:width$} | {:indent$}^", self.text, "", "", width = number.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A value of the configuration and its place.
pub(super) type Item = Spanned<Node>;
/// The name of a field and its place.
pub(super) type Key = Spanned<String>;

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    List(Vec<Item>),
    Map(Vec<(Key, Item)>),
    Nothing,
    Flag(bool),
    /// As it would be written in decimal.
    Number(String),
}

/// The text of a configuration together with the means to complain about it.
pub(super) struct Source<'a> {
    pub yaml: &'a str,
}

impl Source<'_> {
    /// An error at a place.
    pub fn error<T>(&self, at: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError::new(self.yaml, at.referenced, message.into())
    }

    /// The whole document as a tree.
    pub fn root(&self) -> Result<Item, ConfigError> {
        if self.yaml.len() > CONFIG_BYTES_MAX {
            let message = format!("the configuration has {} bytes; {CONFIG_BYTES_MAX} is the most", self.yaml.len());
            return Err(ConfigError::new(self.yaml, Location::UNKNOWN, message));
        }
        // `on` and `no` are words here, not booleans.
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        serde_saphyr::from_str_with_options(self.yaml, options).map_err(|error| {
            let at = error.location().unwrap_or(Location::UNKNOWN);
            let message = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
            // The place is ours to tell.
            let place = format!(" at line {}, column {}", at.line(), at.column());
            ConfigError::new(self.yaml, at, message.trim_end_matches(&place).to_owned())
        })
    }

    pub fn text<'n>(&self, field: &str, item: &'n Item) -> Result<&'n str, ConfigError> {
        match &item.value {
            Node::Text(text) => Ok(text),
            scalar @ (Node::Flag(_) | Node::Number(_)) => {
                let kind = scalar.kind();
                Err(self.error(item, format!("{field} must be text, not {kind}; put it in double quotes")))
            }
            other => Err(self.error(item, format!("{field} must be text, not {}", other.kind()))),
        }
    }

    /// The items of a list; a field without a value is an empty one.
    pub fn list<'n>(&self, field: &str, item: &'n Item) -> Result<&'n [Item], ConfigError> {
        match &item.value {
            Node::List(items) => Ok(items),
            Node::Nothing => Ok(&[]),
            other => Err(self.error(item, format!("{field} must be a list, not {}", other.kind()))),
        }
    }

    pub fn map<'n>(&self, what: &str, item: &'n Item) -> Result<&'n [(Key, Item)], ConfigError> {
        match &item.value {
            Node::Map(fields) => Ok(fields),
            other => Err(self.error(item, format!("{what} must have named fields, not be {}", other.kind()))),
        }
    }
}

impl Node {
    /// A scalar as it was written, or what it is.
    pub fn shown(&self) -> String {
        match self {
            Node::Text(text) => format!("{:?}", excerpt(text)),
            Node::Flag(flag) => flag.to_string(),
            Node::Number(number) => number.clone(),
            other => other.kind().to_owned(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Node::Text(_) => "text",
            Node::List(_) => "a list",
            Node::Map(_) => "a group of fields",
            Node::Nothing => "empty",
            Node::Flag(_) => "true or false",
            Node::Number(_) => "a number",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(Node::Flag(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Number(number.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(field) = fields.next_entry()? {
            map.push(field);
        }
        Ok(Node::Map(map))
    }
}
