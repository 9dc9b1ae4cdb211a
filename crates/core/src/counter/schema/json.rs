//! The table of fields as a JSON Schema, with which an editor completes and checks a configuration.

use super::{CONFIGURATION, COUNTER, Setting, SettingGroup, Value, Word};
use crate::counter::{Mode, duration};
use crate::limits::NAME_BYTES_MAX;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// The schema of a configuration (draft 2020-12), as text that ends with a line break.
pub fn schema() -> String {
    let mut root = vec![
        ("$schema", Json::from("https://json-schema.org/draft/2020-12/schema")),
        ("title", Json::from("Tally configuration")),
    ];
    root.extend(group(&CONFIGURATION, true));
    let text = serde_json::to_string_pretty(&Json::Object(root)).expect("it is made of texts and numbers");
    text + "\n"
}

/// A JSON value whose fields keep the order of the table.
enum Json {
    Text(String),
    Flag(bool),
    Number(u64),
    List(Vec<Json>),
    Object(JsonObject),
}

type JsonObject = Vec<(&'static str, Json)>;

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_owned())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Text(text) => serializer.serialize_str(text),
            Json::Flag(flag) => serializer.serialize_bool(*flag),
            Json::Number(number) => serializer.serialize_u64(*number),
            Json::List(items) => items.serialize(serializer),
            Json::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                fields.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Json {
    Json::List(texts.into_iter().map(Json::from).collect())
}

/// A field without a value is empty, where a parser takes that.
fn kind(kind: &'static str, may_be_empty: bool) -> (&'static str, Json) {
    ("type", if may_be_empty { texts([kind, "null"]) } else { Json::from(kind) })
}

fn group(group: &SettingGroup, may_be_empty: bool) -> JsonObject {
    let properties = group.settings().map(|setting| (setting.name, property(setting))).collect();
    let required = group.settings().filter(|setting| setting.required).map(|setting| setting.name);
    let mut schema = vec![
        kind("object", may_be_empty),
        ("properties", Json::Object(properties)),
        ("required", texts(required)),
        ("additionalProperties", Json::Flag(false)),
    ];
    if std::ptr::eq(group, &COUNTER) {
        schema.push(("allOf", Json::List(Mode::ALL.map(terms).into())));
    }
    schema
}

fn property(setting: &Setting) -> Json {
    let mut schema = vec![("description", Json::from(setting.about))];
    schema.extend(value(&setting.value));
    Json::Object(schema)
}

fn value(value: &Value) -> JsonObject {
    match value {
        Value::Text => vec![kind("string", false)],
        Value::Name => name(),
        Value::CounterName => {
            let mut schema = name();
            schema.push(("pattern", Json::from(r"^[^:%*\s\u0000-\u001f\u007f-\u009f]+$")));
            schema
        }
        Value::Flag => vec![kind("boolean", false), ("default", Json::Flag(false))],
        Value::True => vec![("const", Json::Flag(true))],
        Value::Word { words, .. } => vec![("oneOf", Json::List(words.iter().map(word).collect()))],
        Value::Number { least, most, default } => vec![
            kind("integer", false),
            ("minimum", Json::Number(*least)),
            ("maximum", Json::Number(*most)),
            ("default", Json::Number(*default)),
        ],
        Value::Duration { default_ms, .. } => vec![
            kind("string", false),
            ("pattern", Json::from(duration::PATTERN)),
            ("default", Json::Text(duration::shown(*default_ms))),
        ],
        Value::Keep { .. } => vec![kind("string", false), ("pattern", Json::from(duration::LONG_PATTERN))],
        Value::Names { least, most } => vec![
            kind("array", *least == 0),
            ("items", Json::Object(name())),
            ("minItems", Json::Number(*least as u64)),
            ("maxItems", Json::Number(*most as u64)),
            ("uniqueItems", Json::Flag(true)),
        ],
        Value::NameLists { most, names_most } => {
            let names = Value::Names { least: 1, most: *names_most };
            vec![
                kind("array", true),
                ("items", Json::Object(self::value(&names))),
                ("maxItems", Json::Number(*most as u64)),
                ("uniqueItems", Json::Flag(true)),
            ]
        }
        Value::Numbers { least, most } => {
            let number =
                vec![kind("integer", false), ("minimum", Json::Number(*least)), ("maximum", Json::Number(*most))];
            vec![kind("object", false), ("additionalProperties", Json::Object(number))]
        }
        Value::Groups(of) => vec![kind("array", true), ("items", Json::Object(group(of, false)))],
        Value::Group(of) => group(of, false),
        Value::WordOrGroup(other, of) => {
            vec![("oneOf", Json::List(vec![word(other), Json::Object(group(of, false))]))]
        }
    }
}

fn name() -> JsonObject {
    vec![
        kind("string", false),
        ("minLength", Json::Number(1)),
        // The parser counts bytes, of which there are no fewer than characters.
        ("maxLength", Json::Number(NAME_BYTES_MAX as u64)),
    ]
}

fn word(word: &Word) -> Json {
    Json::Object(vec![("const", Json::from(word.name)), ("description", Json::from(word.about))])
}

/// What holds for a counter of this mode only.
fn terms(mode: Mode) -> Json {
    let is_mode = vec![("mode", Json::Object(vec![("const", Json::from(mode.name()))]))];
    let mut properties: JsonObject = mode
        .refused_fields()
        .iter()
        .map(|(field, (why, fix))| {
            (
                *field,
                Json::Object(vec![
                    ("not", Json::Object(vec![])),
                    ("description", Json::from(&*format!("{why}; {fix}"))),
                ]),
            )
        })
        .collect();
    if let Some((durability, _)) = mode.terms().durability {
        properties.push(("durability", Json::Object(vec![("const", Json::from(durability.name()))])));
    }
    let mut then = Vec::new();
    if !mode.takes_direct_writes() {
        properties.push(("rules", Json::Object(vec![kind("array", false), ("minItems", Json::Number(1))])));
        then.push(("required", texts(["rules"])));
    }
    then.insert(0, ("properties", Json::Object(properties)));
    Json::Object(vec![
        ("if", Json::Object(vec![("properties", Json::Object(is_mode)), ("required", texts(["mode"]))])),
        ("then", Json::Object(then)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{Declarations, Durability};
    use serde_json::Value as Tree;

    fn tree() -> Tree {
        serde_json::from_str(&schema()).unwrap()
    }

    /// The names under `properties`, in any order.
    fn names(schema: &Tree) -> Vec<&str> {
        let mut names: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The fields that the parser says there are when it meets one that there is not, in the place of the `@`.
    fn parsed(yaml: &str) -> Vec<String> {
        let message = Declarations::parse(&yaml.replace('@', "qqqqqqqqqqqqqqqqq: 1")).unwrap_err().to_string();
        let (_, list) = message.split_once("there are: ").expect("the parser lists what there is");
        let mut names: Vec<String> = list.lines().next().unwrap_or_default().split(", ").map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_schema_has_the_fields_that_the_parser_knows() {
        let root = tree();
        let counter = &root["properties"]["counters"]["items"];
        let of_counter = &counter["properties"];
        let counter_with = |mode: &str, field: &str| {
            format!("counters: [{{counterName: c, mode: {mode}, rules: [{{on: t, op: increment}}], {field}: {{@}}}}]")
        };
        for (schema, yaml) in [
            (&root, "@".to_owned()),
            (counter, "counters: [{@}]".to_owned()),
            (&of_counter["rules"]["items"], "counters: [{counterName: c, mode: simple, rules: [{@}]}]".to_owned()),
            (&of_counter["dedup"]["oneOf"][1], counter_with("display", "dedup")),
            (&of_counter["lateness"], counter_with("display", "lateness")),
            (&of_counter["retention"], counter_with("simple", "retention")),
            (&of_counter["idempotency"], counter_with("persistent", "idempotency")),
            (&root["properties"]["idempotency"], "idempotency: {@}".to_owned()),
        ] {
            assert_eq!(names(schema), parsed(&yaml), "{yaml}");
            assert_eq!(schema["additionalProperties"], false);
        }
    }

    #[test]
    fn the_schema_and_the_parser_refuse_the_same_fields_of_a_mode() {
        let root = tree();
        let counter = &root["properties"]["counters"]["items"];
        for (mode, terms) in Mode::ALL.iter().zip(counter["allOf"].as_array().unwrap()) {
            assert_eq!(terms["if"]["properties"]["mode"]["const"], mode.name());
            for field in names(counter) {
                let yaml = format!("counters: [{{counterName: c, mode: {}, {field}: 1}}]", mode.name());
                // A name or a mode a second time is another error.
                let message = Declarations::parse(&yaml).unwrap_err().to_string();
                let refused = message.contains("does not go with mode");
                assert_eq!(
                    terms["then"]["properties"][field]["not"].is_object(),
                    refused,
                    "{mode:?} {field}: {message}"
                );
            }
        }
    }

    #[test]
    fn words_of_the_schema_are_words_of_the_program() {
        let root = tree();
        let counter = &root["properties"]["counters"]["items"]["properties"];
        let words = |schema: &Tree| -> Vec<String> {
            let words = schema["oneOf"].as_array().unwrap().iter();
            words.map(|word| word["const"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(words(&counter["mode"]), Mode::ALL.map(Mode::name));
        assert_eq!(words(&counter["durability"]), Durability::ALL.map(Durability::name));
        assert_eq!(counter["dedup"]["oneOf"][1]["properties"]["window"]["default"], "1m");
        assert_eq!(root["properties"]["idempotency"]["properties"]["maxKeys"]["default"], 10_000_000);
    }
}
