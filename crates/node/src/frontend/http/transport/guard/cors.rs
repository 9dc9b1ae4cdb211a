//! Pages of other servers that the operator has named: the browser is told that they may ask, and read what is answered.

use std::str::FromStr;

use axum::extract::Request;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

/// Chromium asks this before a page of the internet may talk to a machine in a private network.
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, content-encoding, idempotency-key, if-none-match, last-event-id",
);
const EXPOSED: HeaderValue = HeaderValue::from_static("etag, retry-after, tally-generation, tally-staleness-ms");
/// How long a browser may remember the answer, in seconds.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");

/// Where a page comes from: scheme, name and port, as a browser writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(HeaderValue);

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Origin, String> {
        const FIX: &str = "write an origin as browsers do, such as https://app.example.com or http://localhost:3000";
        let text = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
        let uri: Uri = text.parse().map_err(|_| FIX)?;
        let is_origin =
            uri.scheme().is_some() && uri.authority().is_some() && uri.path() == "/" && uri.query().is_none();
        let has_more = text.ends_with('/') || text.contains(['#', '@', '*']);
        match HeaderValue::try_from(&text) {
            Ok(value) if is_origin && !has_more => Ok(Origin(value)),
            _ => Err(FIX.into()),
        }
    }
}

impl Origin {
    /// Whether the request comes from a page of this origin.
    pub fn is_of(&self, headers: &HeaderMap) -> bool {
        headers.get(ORIGIN).is_some_and(|origin| *origin == self.0)
    }

    /// Tells the browser that the page may read an answer.
    pub fn may_read(&self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// Whether a browser asks if it may ask.
pub fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

pub fn preflight(request: &Request) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
    if request.headers().contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_name_and_a_port() {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static("https://app.example.com"));
        for same in ["https://app.example.com", "https://App.Example.com/"] {
            assert!(same.parse::<Origin>().unwrap().is_of(&headers), "{same}");
        }
        for other in ["https://app.example.com:8443", "http://app.example.com", "https://example.com"] {
            assert!(!other.parse::<Origin>().unwrap().is_of(&headers), "{other}");
        }
        assert!(!"https://app.example.com".parse::<Origin>().unwrap().is_of(&HeaderMap::new()));
        for bad in
            ["", "*", "null", "app.example.com", "https://a/b", "https://a/?x", "https://*.example.com", "https://a//"]
        {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
    }
}
