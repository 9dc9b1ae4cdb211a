//! YAML that cannot be read, in our own words and where the trouble begins.
//!
//! The parser stops where it is at a loss, which is often lines behind the mistake: at the end of the file for a quote that
//! was never closed. So the text is looked at once more, for the mistakes that people make.

use super::ConfigError;
use serde_saphyr::Error;

/// Line and column, from 1.
type At = (u64, u64);

/// What is wrong, where, and the fix.
struct Mistake {
    at: At,
    message: String,
    fix: String,
}

fn mistake(at: At, message: impl Into<String>, fix: impl Into<String>) -> Option<Mistake> {
    Some(Mistake { at, message: message.into(), fix: fix.into() })
}

/// Explains why a text is no YAML; `at` is where the parser gave up.
pub(super) fn explain(yaml: &str, at: At, error: &Error) -> ConfigError {
    let found = known_error(yaml, at, error)
        .or_else(|| tab_or_control(yaml))
        .or_else(|| quotes_and_brackets(yaml, at))
        .or_else(|| line_at_fault(yaml, at));
    let Mistake { at, message, fix } = found.unwrap_or_else(|| Mistake {
        at,
        message: "this is not YAML: it cannot be read from here on".to_owned(),
        fix: "look at the indentation and the punctuation of this line and the one before".to_owned(),
    });
    ConfigError::new(yaml, at, message, fix)
}

/// What the parser knows better than a second look at the text.
fn known_error(yaml: &str, at: At, error: &Error) -> Option<Mistake> {
    match error {
        Error::WithSnippet { error, .. } => known_error(yaml, at, error),
        Error::DuplicateMappingKey { .. } => {
            let name = word_at(yaml, at);
            mistake(at, format!("{name:?} stands here for the second time"), "remove one of the two")
        }
        Error::MultipleDocuments { .. } => {
            let begins = |line: &str| matches!(line.trim_end(), "---" | "...");
            let lines: Vec<&str> = yaml.lines().take(at.0 as usize).collect();
            let line = lines.iter().rposition(|line| begins(line)).map_or(at.0, |index| index as u64 + 1);
            mistake(
                (line, 1),
                "a second document begins here, and a configuration is one",
                "remove this line, and what repeats",
            )
        }
        Error::UnknownAnchor { .. } => {
            let name = word_at(yaml, at);
            let message =
                format!("{name} refers to an anchor that is not there: a '*' at the beginning means that in YAML");
            mistake(at, message, format!("put it in double quotes: \"{name}\""))
        }
        Error::Unexpected { .. } => mistake(at, "the name of a field must be text", "write a word before the ':'"),
        Error::Budget { .. } | Error::AliasReplayLimitExceeded { .. } | Error::AliasExpansionLimitExceeded { .. } => {
            mistake(at, "this is nested or repeated far too often for a configuration", "write it out, without anchors")
        }
        _ => None,
    }
}

/// Characters that cannot stand where they stand.
fn tab_or_control(yaml: &str) -> Option<Mistake> {
    for (line, text) in numbered(yaml) {
        let indent = text.chars().take_while(|c| c.is_whitespace()).position(|c| c == '\t');
        if let Some(column) = indent {
            let fix = "indent with spaces";
            return mistake((line, column as u64 + 1), "a tab cannot indent a line of YAML", fix);
        }
        let control = text.chars().position(|c| c.is_control() && c != '\t');
        if let Some(column) = control {
            let c = text.chars().nth(column).unwrap_or_default();
            return mistake(
                (line, column as u64 + 1),
                format!("the character {c:?} cannot stand in YAML"),
                "remove it",
            );
        }
    }
    None
}

/// Follows quotes and brackets up to the place where the parser gave up, or to the end if it got there.
fn quotes_and_brackets(yaml: &str, (stop_line, _): At) -> Option<Mistake> {
    let mut open: Vec<(char, At)> = Vec::new();
    for (line, text) in numbered(yaml) {
        if line > stop_line {
            break;
        }
        if let Some(found) = Line::of(text).follow(line, &mut open) {
            return Some(found);
        }
    }
    let (bracket, at) = open.pop()?;
    let closing = if bracket == '[' { ']' } else { '}' };
    mistake(at, format!("this {bracket:?} is never closed"), format!("write a {closing:?} where it ends"))
}

/// One line, as its characters.
struct Line(Vec<char>);

impl Line {
    fn of(text: &str) -> Line {
        Line(text.chars().collect())
    }

    /// Opens and closes brackets; answers the first mistake.
    fn follow(&self, line: u64, open: &mut Vec<(char, At)>) -> Option<Mistake> {
        let mut index = 0;
        let mut before = ' ';
        while let Some(&c) = self.0.get(index) {
            let at = (line, index as u64 + 1);
            let begins = before == ' ' || matches!(before, '[' | '{' | ',');
            match c {
                '#' if before == ' ' => return None,
                '"' | '\'' if begins => match self.end_of_quote(index) {
                    Ok(end) => index = end,
                    Err(Some(bad)) => return self.bad_escape(line, bad),
                    Err(None) => {
                        return mistake(
                            at,
                            format!("this {c} is never closed"),
                            format!("write a {c} where the text ends"),
                        );
                    }
                },
                '[' | '{' if begins => open.push((c, at)),
                ']' | '}' => match open.pop() {
                    None if begins || matches!(before, ']' | '}') => {
                        return mistake(at, format!("this {c:?} closes nothing"), "remove it");
                    }
                    Some((opening, opened)) if (opening == '[') != (c == ']') => {
                        let message = format!("this {opening:?} is closed by {c:?}");
                        let closing = if opening == '[' { ']' } else { '}' };
                        return mistake(opened, message, format!("write {closing:?} instead of {c:?}"));
                    }
                    _ => {}
                },
                ',' if !open.is_empty() && self.next_after(index) == Some(',') => {
                    return mistake(
                        (line, at.1 + 1),
                        "there is nothing between these two commas",
                        "remove one of them",
                    );
                }
                '@' | '`' | '%' if begins => {
                    let word = word_at(&self.0.iter().collect::<String>(), (1, at.1));
                    let message = format!("a value cannot begin with {c:?} in YAML");
                    return mistake(at, message, format!("put it in double quotes: \"{word}\""));
                }
                _ => {}
            }
            before = if c.is_whitespace() { ' ' } else { c };
            index += 1;
        }
        None
    }

    fn next_after(&self, index: usize) -> Option<char> {
        self.0[index + 1..].iter().copied().find(|c| !c.is_whitespace())
    }

    /// Where a quote ends that begins at `index`; an error is where a backslash means nothing, or that it does not end.
    fn end_of_quote(&self, index: usize) -> Result<usize, Option<usize>> {
        let quote = self.0[index];
        let mut at = index + 1;
        while let Some(&c) = self.0.get(at) {
            match c {
                '\\' if quote == '"' => {
                    let escaped = self.0.get(at + 1).copied().unwrap_or('\\');
                    if !"0abtnvfre \"/\\N_LPxuU\t".contains(escaped) {
                        return Err(Some(at));
                    }
                    at += 1;
                }
                '\'' if quote == '\'' && self.0.get(at + 1) == Some(&'\'') => at += 1,
                c if c == quote => return Ok(at),
                _ => {}
            }
            at += 1;
        }
        Err(None)
    }

    fn bad_escape(&self, line: u64, at: usize) -> Option<Mistake> {
        let escaped = self.0.get(at + 1).copied().unwrap_or('\\');
        let message = format!("\\{escaped} means nothing between double quotes");
        mistake((line, at as u64 + 1), message, format!("write \\\\{escaped}, or use single quotes"))
    }
}

/// The line where the parser gave up, or the last that says something before it.
fn line_at_fault(yaml: &str, (line, _): At) -> Option<Mistake> {
    let (line, text) =
        numbered(yaml).take_while(|(number, _)| *number <= line).filter(|(_, text)| says(text)).last()?;
    let indent = text.len() - text.trim_start().len();
    let at = |column: usize| (line, column as u64 + 1);
    let content = text.trim_start().trim_start_matches("- ");
    let starts = text.chars().count() - content.chars().count();
    let Some((name, value)) = content.split_once(':') else {
        let first = content.split_whitespace().next().unwrap_or_default();
        let rest = content.get(first.len()..).unwrap_or_default().trim();
        let fix = match rest {
            "" => format!("write {first}: and its value, or a dash before it"),
            rest => format!("write {first}: {rest}"),
        };
        return mistake(at(starts), "this line has no ':', so it is no field", fix);
    };
    let above = numbered(yaml).take_while(|(number, _)| *number < line).filter(|(_, text)| says(text)).last();
    let above = above.map(|(_, above)| (above.len() - above.trim_start_matches([' ', '-']).len(), above.trim_end()));
    if let Some(second) = value.find(": ").or(value.ends_with(':').then(|| value.len() - 1)) {
        let column = starts + name.chars().count() + 1 + value[..second].chars().count();
        let fix = format!("put the value in double quotes: {name}: \"{}\"", value.trim());
        return mistake(at(column), "this is the second ':' of the line, and a value has none", fix);
    }
    match above {
        Some((fields_at, above)) if indent > fields_at && !above.ends_with(':') => mistake(
            at(indent),
            "this line is indented further than the field above it",
            format!("indent it by {fields_at} spaces"),
        ),
        Some((fields_at, _)) => {
            let message = "the indentation of this line is that of no field above it";
            mistake(
                at(indent),
                message,
                format!("indent it by {fields_at} spaces, or as far as the fields it belongs to"),
            )
        }
        None => None,
    }
}

/// Whether a line is more than blanks and a comment.
fn says(text: &str) -> bool {
    !text.trim().is_empty() && !text.trim_start().starts_with('#')
}

fn numbered(yaml: &str) -> impl Iterator<Item = (u64, &str)> {
    yaml.trim_start_matches('\u{feff}').lines().zip(1u64..).map(|(text, line)| (line, text))
}

/// The word that begins at a place.
fn word_at(yaml: &str, (line, column): At) -> String {
    let text = numbered(yaml).find(|(number, _)| *number == line).map_or("", |(_, text)| text);
    let rest = text.chars().skip((column as usize).saturating_sub(1));
    let word: String = rest.take_while(|c| !c.is_whitespace() && !matches!(c, ':' | ',' | ']' | '}')).collect();
    crate::event::excerpt(&word)
}
