//! From the path of a request to a counter.
//!
//! A path is percent-decoded once, as every path is; what comes out is the id. The id of a declared counter has an
//! encoding of its own for `:` and `%` inside a key. So if `views` counts by video and a video is called `a:b`, its
//! id is `views:a%3Ab`, and its path is `/v1/counters/views:a%253Ab`.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tally_core::counter::{Declarations, Forbidden, IdError, Reach, Target};
use tally_core::id::{CellHasher, decode_part};

use super::problem::{Problem, ProblemKind, quoted};

/// What a reader of the API's description must know about ids in paths.
pub const ID: &str = "The id, percent-encoded as every part of a path. The key of a declared counter has an encoding of \
    its own for `:` and `%`: the video `a:b` has the id `views:a%3Ab` and the path `/v1/counters/views:a%253Ab`.";

/// Where ids and names stand in paths.
const BEFORE: [&str; 2] = ["/v1/counters/", "/v1/top/"];

/// The id, the pattern or the name in the path of a request.
#[derive(Debug)]
pub struct IdPath(pub String);

impl<S: Sync> FromRequestParts<S> for IdPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IdPath, Problem> {
        let path = parts.uri.path();
        let rest = BEFORE.iter().find_map(|before| path.strip_prefix(before)).unwrap_or(path);
        let segment = rest.split('/').next().unwrap_or(rest);
        decoded(segment).map(IdPath)
    }
}

fn decoded(segment: &str) -> Result<String, Problem> {
    let refused = |what: &str| {
        let path = quoted(segment);
        Problem::new(ProblemKind::InvalidId, format!("{path} in the path {what}")).with("value", path)
    };
    let id = decode_part(segment.as_bytes())
        .map_err(|_| refused("has a % without two hexadecimal digits behind it; write a % in a path as %25"))?;
    String::from_utf8(id.into_owned()).map_err(|_| refused("is not UTF-8 when decoded; ids over HTTP are UTF-8 text"))
}

/// What an id means that a request names.
pub fn target(declarations: &Declarations, hasher: &CellHasher, id: &str) -> Result<Target<'static>, Problem> {
    check_named(id)?;
    let target = declarations.resolve(hasher, id.as_bytes()).map_err(|error| invalid(id, &error))?;
    Ok(target.into_owned())
}

/// The same where an id may reach more than one counter.
pub fn reach(declarations: &Declarations, hasher: &CellHasher, id: &str) -> Result<Reach<'static>, Problem> {
    check_named(id)?;
    let reach = declarations.reach(hasher, id.as_bytes()).map_err(|error| invalid(id, &error))?;
    Ok(reach.into_owned())
}

/// The Redis protocol has a counter with an empty name. In a path or a body it is a variable that nobody has filled in.
fn check_named(id: &str) -> Result<(), Problem> {
    let empty = || Problem::new(ProblemKind::InvalidId, "the id is empty; name a counter, such as views:v42");
    if id.is_empty() { Err(empty().with("value", "")) } else { Ok(()) }
}

fn invalid(id: &str, error: &IdError) -> Problem {
    Problem::new(ProblemKind::InvalidId, error.to_string()).with("value", quoted(id))
}

/// A counter that may not be written by its name, and what to do instead.
pub fn forbidden(target: &Target<'_>, why: Forbidden<'_>) -> Problem {
    let problem = match why {
        Forbidden::Removed(counter) => {
            let detail = format!(
                "{} was removed from the configuration, and its name stays its own; declare it again, or use another name",
                counter.name
            );
            Problem::new(ProblemKind::CounterRemoved, detail)
        }
        Forbidden::CountsEvents(counter) => {
            let (name, mode) = (&counter.name, counter.mode().name());
            let detail = format!("{name} is a {mode} counter: it counts events; send them to POST /v1/events");
            Problem::new(ProblemKind::CountsEvents, detail).with("mode", mode)
        }
        Forbidden::Declared(counter) => unreachable!("nothing here overwrites {}", counter.name),
    };
    problem.with("id", target.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use tally_core::counter::Declared;

    async fn id_of(path: &str) -> Result<String, Problem> {
        let mut parts = Request::get(path).body(()).unwrap().into_parts().0;
        IdPath::from_request_parts(&mut parts, &()).await.map(|IdPath(id)| id)
    }

    #[tokio::test]
    async fn a_path_is_decoded_once() {
        for (path, id) in [
            ("/v1/counters/views:v42", "views:v42"),
            ("/v1/counters/views:v42/increment", "views:v42"),
            ("/v1/counters/get", "get"),
            ("/v1/counters/a%2Fb%20c/aggregate", "a/b c"),
            ("/v1/counters/views:a%253Ab", "views:a%3Ab"),
            ("/v1/counters/%C3%A9?consistency=latest", "é"),
            ("/v1/counters/a+b", "a+b"),
        ] {
            assert_eq!(id_of(path).await.unwrap(), id, "{path}");
        }
    }

    #[tokio::test]
    async fn what_is_no_text_is_refused() {
        for path in ["/v1/counters/%FF", "/v1/counters/%C3", "/v1/counters/50%"] {
            assert_eq!(id_of(path).await.unwrap_err().kind, ProblemKind::InvalidId, "{path}");
        }
    }

    #[test]
    fn an_id_is_a_declared_counter_or_an_ad_hoc_one() {
        let yaml = "counters:\n  - {counterName: views, mode: display, dimensions: [video], rules: [{on: v, op: increment}]}\n";
        let declarations = Declarations::parse(yaml).unwrap();
        let hasher = CellHasher::new(1);
        let resolve = |id| target(&declarations, &hasher, id);
        let declared = resolve("views:%41%3a").unwrap();
        assert_eq!((&*declared.text(), declared.declared), ("views:A%3A", Declared::Now(0)));
        assert_eq!(declared.cell, hasher.key(b"views:A%3A"));
        assert_eq!(resolve("viewers:%41").unwrap().text(), "viewers:%41");
        assert_eq!(resolve("views").unwrap_err().kind, ProblemKind::InvalidId);
        assert!(resolve("").unwrap_err().detail.starts_with("the id is empty"));
        assert_eq!(resolve(&"x".repeat(5000)).unwrap_err().kind, ProblemKind::InvalidId);
    }
}
