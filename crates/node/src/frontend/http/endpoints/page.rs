//! The page for people at `/`, and the files it loads: what `web/` was built to, if it was (`build.rs`), else a page that says how.
//!
//! It knows nothing by itself and is open to all: it asks what everybody may ask, with the token that somebody types into it. Nothing
//! comes from elsewhere, and the browser is told so. Names of assets have a hash of their content in them, so a browser asks once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::Router;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::frontend::http::Api;
use crate::frontend::http::transport::guard::{ASSETS, Access};
use crate::frontend::http::words::envelope::is_known;
use crate::frontend::http::words::problem::Problem;

struct Page {
    index: &'static str,
    assets: &'static [Asset],
}

struct Asset {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

// `BUILT`
include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// What there is without npm.
const PLAIN: &str = include_str!("page/plain.html");

/// The page is from here, all of it, and stands in no other. Text never becomes markup or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// How the page learns that it has to ask for a token.
const NO_TOKEN: &str = r#"name="tally-token" content="none""#;
const ASK_TOKEN: &str = r#"name="tally-token" content="asked""#;

pub fn routes(access: &Access) -> Router<Api> {
    let index = BUILT.as_ref().map_or(PLAIN, |page| page.index);
    let index = Arc::new(match access.token.is_some() {
        true => index.replace(NO_TOKEN, ASK_TOKEN),
        false => index.to_owned(),
    });
    let index = move |headers: HeaderMap| async move { respond_index(&index, &headers) };
    Router::new().route("/", get(index)).route(&format!("{ASSETS}{{name}}"), get(asset))
}

fn respond_index(index: &str, headers: &HeaderMap) -> Response {
    let mut hasher = DefaultHasher::new();
    index.hash(&mut hasher);
    let etag = format!("\"{:016x}\"", hasher.finish());
    // Asked for each time, and then mostly not sent: the names of the assets change with the program.
    respond("index.html", &etag, "no-cache", headers, index.to_owned())
}

async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    let name = uri.path().strip_prefix(ASSETS).unwrap_or_default();
    let assets = BUILT.as_ref().map_or(&[][..], |page| page.assets);
    let Some(asset) = assets.iter().find(|asset| asset.name == name) else {
        return Problem::nothing_at(uri.path()).into_response();
    };
    let is_gzip = takes_gzip(&headers);
    let body = if is_gzip { asset.gzip } else { asset.plain };
    let etag = format!("\"{name}{}\"", if is_gzip { "-gzip" } else { "" });
    let mut response = respond(name, &etag, "public, max-age=31536000, immutable", &headers, body);
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_gzip && response.status() == StatusCode::OK {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn respond(name: &str, etag: &str, cache: &'static str, request: &HeaderMap, body: impl IntoResponse) -> Response {
    let common = [
        (ETAG, etag),
        (CACHE_CONTROL, cache),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match is_known(request, etag) {
        true => (StatusCode::NOT_MODIFIED, common).into_response(),
        false => (common, [(CONTENT_TYPE, content_type(name))], body).into_response(),
    }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Whether the client reads gzip; a weight of 0 says that it does not.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_for_those_who_ask_for_it() {
        for (accepted, expected) in [
            ("gzip", true),
            ("GZIP", true),
            ("deflate, gzip;q=0.5", true),
            ("br, gzip, zstd", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            assert_eq!(takes_gzip(&headers), expected, "{accepted}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn what_was_built_says_where_the_server_writes_that_it_has_a_token() {
        let built = BUILT.as_ref();
        assert!(built.is_none_or(|page| page.index.contains(NO_TOKEN)), "web/index.html and page.rs have to agree");
    }

    #[test]
    fn every_asset_has_a_type_and_is_what_its_compressed_form_is() {
        for asset in BUILT.as_ref().map_or(&[][..], |page| page.assets) {
            assert_ne!(content_type(asset.name), "application/octet-stream", "{}", asset.name);
            let mut plain = Vec::new();
            std::io::copy(&mut flate2::read::GzDecoder::new(asset.gzip), &mut plain).unwrap();
            assert!(plain == asset.plain, "{}", asset.name);
        }
    }
}
