//! In which form an answer is given: as the query says, otherwise as `Accept` does, otherwise in the first there is.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use super::parameters::{Parameters, refused};
use super::problem::Problem;

/// A form: its word in the query, and its media type.
pub type Format = (&'static str, &'static str);

pub const JSON: Format = ("json", "application/json");
pub const CSV: Format = ("csv", "text/csv");
pub const YAML: Format = ("yaml", "application/yaml");

/// Which of the known forms is asked for.
pub fn chosen(parameters: &Parameters, headers: &HeaderMap, known: &[Format]) -> Result<Format, Problem> {
    if let Some(word) = parameters.text("format") {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        let found = known.iter().find(|(known, _)| *known == word);
        return found.copied().ok_or_else(|| refused("format", word, &format!("send {}", words.join(" or "))));
    }
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let types = accepted.flat_map(|value| value.split(',')).map(|item| item.split(';').next().unwrap_or(item).trim());
    let by_type = |media: &str| known.iter().find(|(_, known)| known.eq_ignore_ascii_case(media)).copied();
    Ok(types.into_iter().find_map(by_type).unwrap_or(known[0]))
}

/// A field of a line of CSV, as RFC 4180 has it.
pub fn csv_field(text: &str, out: &mut String) {
    if !text.contains([',', '"', '\n', '\r']) {
        return out.push_str(text);
    }
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(query: &str, accept: &'static str) -> Result<&'static str, Problem> {
        let parameters = Parameters::read(&format!("/v1/counters{query}").parse().unwrap(), &["format"]).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        chosen(&parameters, &headers, &[JSON, CSV]).map(|(word, _)| word)
    }

    #[test]
    fn the_query_chooses_then_the_header_then_nobody() {
        for (query, accept, expected) in [
            ("?format=csv", "application/json", "csv"),
            ("", "text/csv", "csv"),
            ("", "text/html, text/CSV;q=0.9, */*", "csv"),
            ("", "application/json, text/csv", "json"),
            ("", "*/*", "json"),
        ] {
            assert_eq!(check(query, accept).unwrap(), expected, "{query} {accept}");
        }
        assert!(check("?format=xml", "*/*").unwrap_err().detail.contains("send json or csv"));
    }

    #[test]
    fn a_field_is_quoted_where_it_would_be_taken_for_more() {
        for (text, expected) in [("views:v1", "views:v1"), ("a,b", "\"a,b\""), ("a\"b\n", "\"a\"\"b\n\"")] {
            let mut out = String::new();
            csv_field(text, &mut out);
            assert_eq!(out, expected);
        }
    }
}
