//! The arguments of a command, as `COMMAND DOCS` tells them, from a line of text.
//!
//! ```text
//!  key                      an id
//!  increment:integer        a value and its type
//!  NX                       a word
//!  EX=seconds:integer       a word and its value
//!  condition(NX|XX)         one of several
//!  pair{key value:string}   several together
//!  ?…                       it may be left out
//!  …+                       there may be more of them
//! ```

use super::super::encode::Encoder;

struct Argument<'a> {
    name: String,
    kind: &'a str,
    token: Option<&'a str>,
    is_optional: bool,
    is_multiple: bool,
    parts: Vec<Argument<'a>>,
}

/// Writes a list of arguments.
pub fn write(reply: &mut Encoder<'_>, syntax: &str) {
    let mut keys = 0;
    write_all(reply, &parse(syntax, ' '), &mut keys);
}

fn parse(syntax: &str, separator: char) -> Vec<Argument<'_>> {
    let mut depth = 0;
    let split = syntax.split(|character| {
        depth += i32::from("({".contains(character)) - i32::from(")}".contains(character));
        depth == 0 && character == separator
    });
    split.filter(|text| !text.is_empty()).map(Argument::parse).collect()
}

impl<'a> Argument<'a> {
    fn parse(text: &'a str) -> Argument<'a> {
        let (text, is_optional) = text.strip_prefix('?').map_or((text, false), |rest| (rest, true));
        let (text, is_multiple) = text.strip_suffix('+').map_or((text, false), |rest| (rest, true));
        let (token, value) = match text.find(['=', '(', '{']) {
            Some(at) if text[at..].starts_with('=') => (Some(&text[..at]), &text[at + 1..]),
            _ => (None, text),
        };
        let (name, kind, token, parts) = if let Some((name, parts)) = inside(value, '(', ')') {
            (name.to_owned(), "oneof", token, parse(parts, '|'))
        } else if let Some((name, parts)) = inside(value, '{', '}') {
            (name.to_owned(), "block", token, parse(parts, ' '))
        } else {
            match value.split_once(':') {
                Some((name, kind)) => (name.to_owned(), kind, token, Vec::new()),
                None if value == value.to_uppercase() => (value.to_lowercase(), "pure-token", Some(value), Vec::new()),
                None => (value.to_owned(), "key", token, Vec::new()),
            }
        };
        Argument { name, kind, token, is_optional, is_multiple, parts }
    }
}

fn inside(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    text.strip_suffix(close)?.split_once(open)
}

fn write_all(reply: &mut Encoder<'_>, arguments: &[Argument<'_>], keys: &mut i64) {
    reply.array(arguments.len());
    for argument in arguments {
        let flags: Vec<&str> = [("optional", argument.is_optional), ("multiple", argument.is_multiple)]
            .into_iter()
            .filter_map(|(flag, holds)| holds.then_some(flag))
            .collect();
        let (is_key, has_parts) = (argument.kind == "key", !argument.parts.is_empty());
        let fields = [is_key, argument.token.is_some(), !flags.is_empty(), has_parts];
        reply.map(2 + fields.into_iter().filter(|holds| *holds).count());
        reply.bulk(b"name");
        reply.bulk(argument.name.as_bytes());
        reply.bulk(b"type");
        reply.bulk(argument.kind.as_bytes());
        if is_key {
            reply.bulk(b"key_spec_index");
            reply.integer(*keys);
            *keys += 1;
        }
        if let Some(token) = argument.token {
            reply.bulk(b"token");
            reply.bulk(token.as_bytes());
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if has_parts {
            reply.bulk(b"arguments");
            write_all(reply, &argument.parts, keys);
        }
    }
}
