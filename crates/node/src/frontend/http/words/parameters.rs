//! The query of a request, strictly: what is not known, said twice or not a number is an error that names it.

use axum::extract::Query;
use axum::http::Uri;
use tally_core::limits::PAGE_ROWS_MAX;

use super::problem::{Problem, ProblemKind, quoted};

/// Rows of a page if nobody says otherwise.
const PAGE_ROWS: u64 = 100;

pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads a query that may have these parameters and no others.
    pub fn read(uri: &Uri, known: &[&str]) -> Result<Parameters, Problem> {
        if uri.query().is_none() {
            return Ok(Parameters(Vec::new()));
        }
        let Query(parameters) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| refused("the query", "unreadable", &error.to_string()))?;
        Parameters::check(&parameters, known)?;
        Ok(Parameters(parameters))
    }

    /// Each is known, and there once.
    fn check(parameters: &[(String, String)], known: &[&str]) -> Result<(), Problem> {
        for (at, (name, value)) in parameters.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(unknown(name, known));
            }
            if parameters[..at].iter().any(|(before, _)| before == name) {
                return Err(refused(name, value, "say it once"));
            }
        }
        Ok(())
    }

    /// The same where one parameter may be there any number of times; what it says stands apart, in its order.
    pub fn read_with_many(uri: &Uri, many: &str, known: &[&str]) -> Result<(Vec<String>, Parameters), Problem> {
        let Query(all) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| refused("the query", "unreadable", &error.to_string()))?;
        let (many_times, once): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == many);
        Parameters::check(&once, &[&[many], known].concat())?;
        Ok((many_times.into_iter().map(|(_, value)| value).collect(), Parameters(once)))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn flag(&self, name: &str) -> Result<bool, Problem> {
        self.text(name).map_or(Ok(false), |value| value.parse().map_err(|_| refused(name, value, "send true or false")))
    }

    pub fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.text(name) else { return Ok(None) };
        // Clients made from the description have 63 bits for it.
        let number = value.parse().ok().filter(|number| *number <= i64::MAX as u64);
        number.map(Some).ok_or_else(|| refused(name, value, "send a whole number such as 7"))
    }
}

/// Which part of a list that has the newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    pub limit: usize,
    /// Only what is older than this; the `next` of the page before.
    pub before: u64,
}

impl Paging {
    pub const PARAMETERS: [&str; 2] = ["limit", "before"];

    pub fn read(uri: &Uri) -> Result<Paging, Problem> {
        let parameters = Parameters::read(uri, &Paging::PARAMETERS)?;
        Ok(Paging { limit: limit(&parameters)?, before: parameters.number("before")?.unwrap_or(u64::MAX) })
    }
}

/// How many rows a page may have.
pub fn limit(parameters: &Parameters) -> Result<usize, Problem> {
    let limit = parameters.number("limit")?.unwrap_or(PAGE_ROWS);
    match usize::try_from(limit) {
        Ok(limit @ 1..=PAGE_ROWS_MAX) => Ok(limit),
        _ => Err(refused("limit", &limit.to_string(), &format!("send 1 to {PAGE_ROWS_MAX}"))),
    }
}

/// A parameter that cannot have this value.
pub fn refused(name: &str, value: &str, fix: &str) -> Problem {
    let (name, value) = (quoted(name), quoted(value));
    let shown = if value.is_empty() { "empty" } else { &value };
    Problem::new(ProblemKind::InvalidParameter, format!("{name} is {shown}; {fix}"))
        .with("parameter", name)
        .with("value", value)
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let name = quoted(name);
    let fix = match known {
        [] => "leave it out".to_owned(),
        known => format!("there is {}", known.join(", ")),
    };
    Problem::new(ProblemKind::InvalidParameter, format!("the parameter {name} is not known; {fix}"))
        .with("parameter", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(query: &str) -> Result<Paging, Problem> {
        Paging::read(&format!("/v1/corrections{query}").parse().unwrap())
    }

    #[test]
    fn a_page_is_the_newest_unless_the_query_says_otherwise() {
        for (query, limit, before) in
            [("", 100, u64::MAX), ("?limit=1000&before=7", 1000, 7), ("?before=0", 100, 0), ("?limit=1", 1, u64::MAX)]
        {
            assert_eq!(paging(query).unwrap(), Paging { limit, before }, "{query}");
        }
    }

    #[test]
    fn a_parameter_that_cannot_be_used_is_named() {
        for (query, named) in [
            ("?limit=0", "limit is 0; send 1 to 1000"),
            ("?limit=1001", "limit is 1001"),
            ("?limit=ten", "limit is ten"),
            ("?before=-1", "before is -1"),
            ("?before=", "before is empty; send a whole number"),
            ("?before=1&before=2", "before is 2; say it once"),
            ("?after=1", "the parameter after is not known; there is limit, before"),
        ] {
            let problem = paging(query).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::InvalidParameter, "{query}");
            assert!(problem.detail.starts_with(named), "{query}: {}", problem.detail);
        }
    }
}
