//! The JSON document in the body of a small request, strictly: what is not understood is refused by name, never ignored.
//!
//! Serde takes an array for an object and `null` for a field that is not there. Here both are errors: whoever sends them means
//! something that Tally would not do.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::problem::{Problem, ProblemKind, quoted};

/// Parses a small document; `example` shows what it should look like.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], example: &str) -> Result<T, Problem> {
    let document: Object<T> = serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        let kind = if text.contains("unknown field") { ProblemKind::UnknownField } else { ProblemKind::InvalidBody };
        Problem::new(kind, format!("{}; send a body such as {example}", quoted(&text)))
    })?;
    Ok(document.0)
}

/// A JSON object and nothing else; an error in one of its fields names the field.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Object)
    }
}

/// A field that may be left out, but is no `null` if it is there.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same for a number. It has 63 bits, as clients made from the description have for it.
pub fn given_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(deserializer)? {
        number if number <= i64::MAX as u64 => Ok(Some(number)),
        number => Err(D::Error::custom(format_args!("{number} is too large: it is at most {}", i64::MAX))),
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::deserialize(MapAccessDeserializer::new(JsonFields { map, name: Cow::Borrowed("") }))
    }
}

/// The fields of an object; remembers which one is being read.
struct JsonFields<'de, M> {
    map: M,
    name: Cow<'de, str>,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for JsonFields<'de, M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        let Some(name) = self.map.next_key::<Cow<'de, str>>()? else { return Ok(None) };
        self.name = name;
        seed.deserialize((&*self.name).into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.map.next_value_seed(seed).map_err(|error| M::Error::custom(format_args!("{}: {error}", self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer<'a> {
        name: String,
        #[serde(default, deserialize_with = "given")]
        note: Option<String>,
        #[serde(default, deserialize_with = "given_number")]
        number: Option<u64>,
        #[serde(borrow, default, deserialize_with = "given")]
        raw: Option<&'a RawValue>,
        #[serde(default)]
        inner: Vec<Object<ObjectInner>>,
    }

    #[derive(Debug, Deserialize)]
    struct ObjectInner {
        n: u8,
    }

    #[test]
    fn an_object_is_read() {
        let outer: Outer<'_> = parse(br#" {"name":"a","raw":1.50,"inner":[{"n":7}]} "#, "").unwrap();
        assert_eq!((outer.name.as_str(), outer.note, outer.number, outer.inner[0].0.n), ("a", None, None, 7));
        assert_eq!(outer.raw.unwrap().get(), "1.50");
        let outer: Outer<'_> = parse(br#"{"name":"a","raw":null}"#, "").unwrap();
        assert_eq!(outer.raw.unwrap().get(), "null", "what is raw decides for itself");
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name() {
        for (body, named) in [
            ("[]", "invalid type: sequence, expected an object"),
            (r#"["a"]"#, "invalid type: sequence, expected an object"),
            ("null", "invalid type: null, expected an object"),
            ("5", "invalid type: integer `5`, expected an object"),
            (r#"{"name":null}"#, "name: invalid type: null, expected a string"),
            (r#"{"name":"a","note":null}"#, "note: invalid type: null, expected a string"),
            (r#"{"name":"a","number":null}"#, "number: invalid type: null, expected u64"),
            (r#"{"name":"a","number":9223372036854775808}"#, "number: 9223372036854775808 is too large"),
            (r#"{"name":"a","inner":[[7]]}"#, "inner: invalid type: sequence, expected an object"),
            (r#"{"name":"a","inner":[{"n":null}]}"#, "inner: n: invalid type: null, expected u8"),
            (r#"{"name":"a","name":"b"}"#, "duplicate field `name`"),
            (r#"{"name":"a"} x"#, "trailing characters"),
            ("", "EOF while parsing"),
        ] {
            let problem = parse::<Outer<'_>>(body.as_bytes(), "{…}").unwrap_err();
            assert_eq!(problem.kind, ProblemKind::InvalidBody, "{body}");
            assert!(problem.detail.starts_with(named), "{body}: {}", problem.detail);
        }
        let problem = parse::<Outer<'_>>(br#"{"name":"a","nam":1}"#, "{…}").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::UnknownField);
        assert!(problem.detail.starts_with("unknown field `nam`"), "{}", problem.detail);
    }
}
