//! Who may ask what: the checks that every request passes before it is looked at.
//!
//! A server on localhost is within reach of every page that a browser on the machine shows. Three things keep strangers out: the
//! node answers to its own name only, so that no page reaches it under the page's name (DNS rebinding); what a browser says
//! about a foreign page is believed; and a write with a body must have a type that a form cannot send. A token, where there is
//! one, is asked for on top.

mod cors;
mod host;
mod media;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::frontend::Password;
use crate::frontend::http::words::problem::{Problem, ProblemKind, quoted};
use crate::seldom::Seldom;

pub use cors::Origin;
pub use host::HostName;
pub use media::{BodyType, EVENTS};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Where the files of the page at `/` are.
pub const ASSETS: &str = "/assets/";

/// What an operator says about who may come in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What a request must carry as `Authorization: Bearer`; `None` lets everybody in who can connect.
    pub token: Option<Password>,
    /// What a probe carries instead: the node alone knows it.
    pub probe: Option<Password>,
    /// Names of the node beside its addresses and `localhost`.
    pub hosts: Vec<HostName>,
    /// Where pages come from that may ask beside the node's own.
    pub origins: Vec<Origin>,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Lets a request in, or says why not.
pub async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let page = access.page(request.headers()).cloned();
    let peer = request.extensions().get::<Peer>().copied();
    let response = match access.turn_away(&request, peer, page.is_some()) {
        Some(response) => response,
        None => next.run(request).await,
    };
    readable(response, page.as_ref())
}

/// An answer that a page may read, if it is one that the operator has named.
pub fn readable(mut response: Response, page: Option<&Origin>) -> Response {
    if let Some(page) = page {
        page.may_read(response.headers_mut());
    }
    response
}

/// How often the log tells of each kind of refusal: a page in a loop is not brief, and neither is whoever tries all tokens.
const TELL_EVERY: Duration = Duration::from_secs(1);

static WRONG_TOKENS: Seldom = Seldom::new(TELL_EVERY);
static FOREIGN_PAGES: Seldom = Seldom::new(TELL_EVERY);
static UNKNOWN_HOSTS: Seldom = Seldom::new(TELL_EVERY);

/// Says that somebody was not let in; who has forgotten the token is told, and nobody else.
fn tell(problem: &Problem, request: &Request, peer: Option<Peer>) {
    let (seldom, what) = match problem.kind {
        ProblemKind::Unauthorized if request.headers().contains_key(AUTHORIZATION) => {
            (&WRONG_TOKENS, "a client has given a wrong token")
        }
        ProblemKind::ForeignOrigin => (&FOREIGN_PAGES, "a page of another site was refused"),
        ProblemKind::UnknownHost => (&UNKNOWN_HOSTS, "a request under a foreign name was refused"),
        _ => return,
    };
    if !seldom.is_due() {
        return;
    }
    let client = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.0.to_string());
    let field = |name: &HeaderName| quoted(text(request.headers(), name).unwrap_or("none"));
    let path = quoted(request.uri().path());
    tracing::warn!(%client, method = %request.method(), path, host = field(&HOST), origin = field(&ORIGIN), "{what}");
}

fn refusal(problem: Problem) -> Response {
    let needs_token = problem.kind == ProblemKind::Unauthorized;
    let mut response = problem.into_response();
    if needs_token {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tally\""));
    }
    response
}

impl Access {
    /// The page that a request comes from, if it is one that the operator has named.
    pub fn page(&self, headers: &HeaderMap) -> Option<&Origin> {
        self.origins.iter().find(|allowed| allowed.is_of(headers))
    }

    /// What is answered to a request that is not let in, or that only asks whether it would be.
    pub fn turn_away(&self, request: &Request, peer: Option<Peer>, from_allowed_page: bool) -> Option<Response> {
        if let Err(problem) = self.check(request, from_allowed_page) {
            tell(&problem, request, peer);
            return Some(refusal(problem));
        }
        if from_allowed_page && cors::is_preflight(request) {
            return Some(cors::preflight(request));
        }
        media::check(request).err().map(refusal)
    }

    /// `from_allowed_page`: the browser names a page that the operator has named, too.
    fn check(&self, request: &Request, from_allowed_page: bool) -> Result<(), Problem> {
        // Who reaches the node under a stranger's name does not have its token.
        if self.token.is_none() {
            host::check(request, &self.hosts)?;
        }
        if !from_allowed_page {
            check_site(request)?;
        }
        let is_preflight = from_allowed_page && cors::is_preflight(request);
        match &self.token {
            Some(token) if !is_preflight && !is_open_to_all(request.uri().path()) && !self.is_probe(request) => {
                check_token(request, token)
            }
            _ => Ok(()),
        }
    }

    /// Whether the node itself sends an event, to see whether it arrives.
    pub fn is_probe(&self, request: &Request) -> bool {
        self.probe.as_ref().is_some_and(|probe| {
            let is_events = request.method() == Method::POST && request.uri().path() == EVENTS;
            is_events && bearer(request).is_some_and(|bearer| probe.is(bearer.as_bytes()))
        })
    }
}

/// What says nothing about counters, and what a browser has to load before somebody can type a token into it.
fn is_open_to_all(path: &str) -> bool {
    matches!(path, "/" | "/healthz" | "/openapi.json" | "/docs")
        || path.starts_with("/docs/")
        || path.starts_with(ASSETS)
}

/// Refuses what a browser asks on behalf of a page that is not the node's own.
fn check_site(request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    if is_visit(request) {
        return Ok(());
    }
    let site = text(headers, &SEC_FETCH_SITE);
    let origin = text(headers, &ORIGIN);
    let is_foreign = site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
        || origin.is_some_and(|origin| !host::is_own_page(request, origin));
    if !is_foreign {
        return Ok(());
    }
    let page = quoted(origin.filter(|origin| *origin != "null").unwrap_or("another site"));
    let detail = format!(
        "a page of {page} asks this, and only pages of this server may; if it should, start the server with --allow-origin and the page's origin"
    );
    Err(Problem::new(ProblemKind::ForeignOrigin, detail).with("origin", page))
}

/// Somebody follows a link to here: nothing changes by it, and the page with the link does not see what comes back.
fn is_visit(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && text(headers, &SEC_FETCH_MODE) == Some("navigate")
        && text(headers, &SEC_FETCH_DEST) == Some("document")
}

fn check_token(request: &Request, token: &Password) -> Result<(), Problem> {
    let detail = match bearer(request) {
        Some(bearer) if token.is(bearer.as_bytes()) => return Ok(()),
        Some(_) => "the token is not the server's; send the one in the file that --http-token-file names",
        None => "this server asks for a token; send the header Authorization: Bearer and the token",
    };
    Err(Problem::new(ProblemKind::Unauthorized, detail))
}

fn bearer(request: &Request) -> Option<&str> {
    let (scheme, rest) = text(request.headers(), &AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(rest.trim())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // What is no text is no value that we know.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        let mut builder = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(Body::empty()).unwrap()
    }

    fn verdict(access: &Access, request: &Request) -> Option<ProblemKind> {
        let allowed = access.origins.iter().any(|origin| origin.is_of(request.headers()));
        access.check(request, allowed).err().map(|problem| problem.kind)
    }

    const OWN_HOST: (&str, &str) = ("host", "localhost:7070");

    #[test]
    fn a_foreign_page_is_refused_and_the_own_one_is_not() {
        let foreign = Some(ProblemKind::ForeignOrigin);
        for (headers, expected) in [
            (&[][..], None),
            (&[("origin", "http://localhost:7070")], None),
            (&[("origin", "http://LOCALHOST:7070"), ("sec-fetch-site", "same-origin")], None),
            (&[("sec-fetch-site", "none")], None),
            (&[("origin", "https://evil.example")], foreign),
            (&[("origin", "http://localhost:8080")], foreign),
            (&[("origin", "http://localhost")], foreign),
            (&[("origin", "null")], foreign),
            (&[("sec-fetch-site", "cross-site")], foreign),
            (&[("sec-fetch-site", "same-site")], foreign),
            (&[("sec-fetch-site", "something-new")], foreign),
            (&[("origin", "http://localhost:7070"), ("sec-fetch-site", "cross-site")], foreign),
        ] {
            for method in ["GET", "POST", "DELETE", "OPTIONS"] {
                let request = request(method, "/v1/counters/a", &[&[OWN_HOST], headers].concat());
                assert_eq!(verdict(&Access::default(), &request), expected, "{method} {headers:?}");
            }
        }
    }

    #[test]
    fn a_link_may_be_followed_but_nothing_may_be_embedded_or_posted() {
        let site = [OWN_HOST, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        let verdict = |method, dest| {
            let headers = [&site[..], &[("sec-fetch-dest", dest)]].concat();
            verdict(&Access::default(), &request(method, "/docs/", &headers))
        };
        assert_eq!(verdict("GET", "document"), None);
        for (method, dest) in [("POST", "document"), ("GET", "iframe"), ("GET", "object")] {
            assert_eq!(verdict(method, dest), Some(ProblemKind::ForeignOrigin), "{method} {dest}");
        }
    }

    #[test]
    fn a_token_is_asked_for_where_there_is_something_to_guard() {
        let access = Access { token: Password::new("sesame-sesame-sesame"), ..Access::default() };
        let verdict = |path, headers: &[(&str, &str)]| verdict(&access, &request("GET", path, headers));
        for path in ["/", "/assets/index.js", "/healthz", "/openapi.json", "/docs", "/docs/index.html"] {
            assert_eq!(verdict(path, &[]), None, "{path}");
        }
        for path in ["/v1/counters/a", "/metrics", "/readyz", "/docsx", "/assets", "/nowhere"] {
            assert_eq!(verdict(path, &[]), Some(ProblemKind::Unauthorized), "{path}");
            for wrong in ["Bearer", "Bearer ", "Bearer sesame", "Basic sesame-sesame-sesame", "sesame-sesame-sesame"] {
                assert_eq!(
                    verdict(path, &[("authorization", wrong)]),
                    Some(ProblemKind::Unauthorized),
                    "{path} {wrong}"
                );
            }
            for right in ["Bearer sesame-sesame-sesame", "bearer  sesame-sesame-sesame"] {
                assert_eq!(verdict(path, &[("authorization", right)]), None, "{path} {right}");
            }
        }
        let access = Access { probe: Password::new("probe-probe"), ..access.clone() };
        let sends = |method, path| {
            let probe = request(method, path, &[("authorization", "Bearer probe-probe")]);
            (access.is_probe(&probe), access.check(&probe, false).is_ok())
        };
        assert_eq!(sends("POST", EVENTS), (true, true));
        assert_eq!(
            [sends("POST", "/v1/sql"), sends("GET", EVENTS)],
            [(false, false); 2],
            "it is good for events alone"
        );
        let foreign =
            verdict("/v1/counters/a", &[("authorization", "Bearer sesame-sesame-sesame"), ("origin", "null")]);
        assert_eq!(foreign, Some(ProblemKind::ForeignOrigin), "a token does not make a foreign page ours");
    }
}
