//! From the path of a request to a counter.
//!
//! A path is percent-decoded once, as every path is; what comes out is the id. The id of a declared counter has an
//! encoding of its own for `:` and `%` inside a key. So if `views` counts by video and a video is called `a:b`, its
//! id is `views:a%3Ab`, and its path is `/v1/counters/views:a%253Ab`.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tally_core::counter::{Declarations, Durability, Target};
use tally_core::id::{CellHasher, CellKey, decode_part};
use tally_core::op::{Direct, Op};

use super::problem::{Problem, ProblemKind, quoted};

/// What a reader of the API's description must know about ids in paths.
pub const ID: &str = "The id, percent-encoded as every part of a path. The key of a declared counter has an encoding of \
    its own for `:` and `%`: the video `a:b` has the id `views:a%3Ab` and the path `/v1/counters/views:a%253Ab`.";

const COUNTERS: &str = "/v1/counters/";

/// The id, or the pattern, in the path of a request.
#[derive(Debug)]
pub struct IdPath(pub String);

impl<S: Sync> FromRequestParts<S> for IdPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IdPath, Problem> {
        let path = parts.uri.path();
        let rest = path.strip_prefix(COUNTERS).unwrap_or(path);
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

/// A counter that a request names.
#[derive(Debug)]
pub struct Named {
    /// In its canonical form.
    pub id: String,
    pub cell: CellKey,
    /// Which declared counter it is a cell of; `None` if it is ad hoc.
    pub declared: Option<u16>,
    /// Whether reads show 0 for a sum below it.
    pub floor_at_zero: bool,
    /// `None`: as the node.
    pub durability: Option<Durability>,
}

impl Named {
    pub fn resolve(declarations: &Declarations, hasher: &CellHasher, id: &str) -> Result<Named, Problem> {
        // The Redis protocol has a counter with an empty name. In a path or a body it is a variable that nobody has filled in.
        if id.is_empty() {
            return Err(Problem::new(ProblemKind::InvalidId, "the id is empty; name a counter, such as views:v42")
                .with("value", ""));
        }
        let target = declarations
            .resolve(id.as_bytes())
            .map_err(|error| Problem::new(ProblemKind::InvalidId, error.to_string()).with("value", quoted(id)))?;
        let declared = match target {
            Target::Declared { counter, .. } => Some(counter),
            Target::AdHoc(_) => None,
        };
        let counter = declared.map(|index| declarations.counter(index));
        Ok(Named {
            // A canonical id is text if its id was.
            id: String::from_utf8_lossy(target.id()).into_owned(),
            cell: hasher.key(target.id()),
            declared,
            floor_at_zero: counter.is_some_and(|counter| counter.floor_at_zero),
            durability: counter.and_then(|counter| counter.durability),
        })
    }

    /// What an addition to it says.
    pub fn direct(&self) -> Direct<'_> {
        let counter = self.declared.unwrap_or(Op::AD_HOC);
        Direct { cell: self.cell, name: self.id.as_bytes(), counter, durability: self.durability }
    }

    /// What reads show of a sum.
    pub fn shown(&self, sum: i64) -> i64 {
        if self.floor_at_zero { sum.max(0) } else { sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

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
        let resolve = |id| Named::resolve(&declarations, &hasher, id);
        let declared = resolve("views:%41%3a").unwrap();
        assert_eq!((declared.id.as_str(), declared.declared), ("views:A%3A", Some(0)));
        assert_eq!(declared.cell, hasher.key(b"views:A%3A"));
        assert_eq!(resolve("viewers:%41").unwrap().id, "viewers:%41");
        assert_eq!(resolve("views").unwrap_err().kind, ProblemKind::InvalidId);
        assert!(resolve("").unwrap_err().detail.starts_with("the id is empty"));
        assert_eq!(resolve(&"x".repeat(5000)).unwrap_err().kind, ProblemKind::InvalidId);
    }
}
